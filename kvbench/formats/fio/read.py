"""fio's JSON and json+ output of every version from 2.1 on, read leniently into neutral jobs.

Only the modules ``fio*`` of this folder know fio's spelling. Numbers that contradict each other fail their job with the
reason (``FioJob.problem``); a file that is damaged as a whole is an InputFileError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pydantic import ValidationError

from kvbench.errors import InputFileError
from kvbench.formats.fio import text as fio_text
from kvbench.formats.fio.numbers import Contradiction, FioDirection, FioLatency, direction, version_of
from kvbench.formats.fio.schema import Document, Entry, Side

__all__ = [
    "FioDirection",
    "FioJob",
    "FioLatency",
    "FioOutput",
    "decode",
    "documents",
    "parse",
    "redact",
    "redact_json",
]

decode = fio_text.decode

# Credentials, and the names of hosts that a result handed to others should not carry.
_SECRET = re.compile(r"key|secret|token|pass|http_user|http_host|hostname", re.IGNORECASE)
_IN_URI = re.compile(r"://[^/@\s]*@")
_TERMINATED = re.compile(r"^fio: terminating on signal", re.MULTILINE)
# fio's own sum over all servers; absent with one entry or several sections (axboe/fio#1881), wrong in 3.36 (#1918).
ALL_CLIENTS = "All clients"


@dataclass(frozen=True, slots=True)
class FioJob:
    """One entry of fio's ``jobs``: its name, merged options (secrets removed), error and both directions.

    ``host`` is the server that ran it in client mode. ``options_known`` is False where the version does not write them
    (before 2.3, and some client results), so that no default may be assumed. ``problem`` says why the numbers cannot be
    used; ``mixed`` holds reads and writes together with unified_rw_reporting.
    """

    name: str
    group: int
    options: dict[str, str]
    error: int
    runtime_s: float
    depth_one_percent: float | None
    read: FioDirection | None
    write: FioDirection | None
    unified: bool = False
    host: str | None = None
    options_known: bool = True
    job_runtime_s: float | None = None
    problem: str | None = None
    mixed: FioDirection | None = None


@dataclass(frozen=True, slots=True)
class FioOutput:
    """One fio run: version, jobs and the foreign text before the JSON.

    ``interrupted`` says that a signal ended it early, ``cut_off`` that a later document of the same file is incomplete,
    ``earlier_runs`` how many other runs of the same jobs the file holds. ``disk_reads`` is what ``disk_util`` counted:
    whether any device was read, None when fio did not say.
    """

    version: str
    jobs: tuple[FioJob, ...]
    preamble: str
    interrupted: bool
    cut_off: bool = False
    total: FioJob | None = None
    earlier_runs: int = 0
    disk_reads: bool | None = None


def parse(text: str, name: str) -> FioOutput:
    """The last complete fio document in ``text``; InputFileError that names ``name`` when there is none.

    With --status-interval fio writes several cumulative documents; the last one is the result (axboe/fio#672).
    """
    outputs = parse_all(text, name)
    return outputs[-1]


def parse_all(text: str, name: str) -> tuple[FioOutput, ...]:
    """Every fio run in ``text``, each as its last complete document; InputFileError when there is none."""
    found = fio_text.find(text)
    if not found.documents:
        raise InputFileError(f"{name} holds no complete fio JSON; {fio_text.why_none(text)}")
    runs = _runs(found.documents)
    interrupted = bool(_TERMINATED.search(text))
    return tuple(
        _output(_validated(run[-1], name), name, found, interrupted, _restarts(run), last=run is runs[-1])
        for run in runs
    )


def documents(text: str) -> list[dict[str, Any]]:
    """The last document of every run in ``text``: what ``parse_all`` reads."""
    return [run[-1] for run in _runs(fio_text.find(text).documents)]


def redact(options: Mapping[str, Any]) -> dict[str, str]:
    """``options`` as text, the value of every option named like a secret replaced."""
    return {key: "<removed>" if _SECRET.search(key) else _without_login(str(value)) for key, value in options.items()}


def redact_json(value: Any) -> Any:
    """A copy of fio's raw JSON in which every option named like a secret has lost its value."""
    if isinstance(value, dict):
        return {key: "<removed>" if _SECRET.search(key) else redact_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [redact_json(item) for item in value]
    return _without_login(value) if isinstance(value, str) else value


def _without_login(text: str) -> str:
    return _IN_URI.sub("://<removed>@", text)


def _runs(found: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The documents sorted by run: a later document of one run names at least the jobs of the earlier one."""
    runs: list[list[dict[str, Any]]] = []
    for document in found:
        names = _job_names(document)
        same = next((run for run in runs if _job_names(run[-1]) <= names), None)
        if same is None:
            runs.append([document])
        else:
            same.append(document)
    return runs


def _job_names(document: dict[str, Any]) -> frozenset[str]:
    return frozenset(str(entry.get("jobname")) for entry in _entries(document))


def _entries(document: dict[str, Any]) -> list[dict[str, Any]]:
    entries = document.get("jobs") or document.get("client_stats") or []
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _restarts(run: Sequence[dict[str, Any]]) -> int:
    """How many runs end before the last one: with --status-interval the counts only grow."""
    counts = [_moved(document) for document in run]
    return sum(1 for before, after in pairwise(counts) if after < before)


def _moved(document: dict[str, Any]) -> float:
    sides = (entry.get(name) for entry in _entries(document) for name in ("read", "write", "mixed"))
    counts = (side.get("io_bytes") for side in sides if isinstance(side, dict))
    return sum(count for count in counts if isinstance(count, int | float))


def _validated(document: dict[str, Any], name: str) -> Document:
    try:
        return Document.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        said = first["msg"].removeprefix("Value error, ")
        raise InputFileError(
            f"{name} is not fio output that kvbench reads ({where}: {said}); make it with fio --output-format=json+."
        ) from None


def _output(
    document: Document, name: str, found: fio_text.Found, interrupted: bool, restarts: int, *, last: bool
) -> FioOutput:
    version = version_of(document.version)
    if version is not None and version < (2, 0):
        raise InputFileError(f"{name} is from {document.version}; kvbench reads fio 2.1 and later. Measure again.")
    entries = document.jobs if document.jobs is not None else document.client_stats
    if entries is None:
        raise InputFileError(
            f"{name} is not fio output that kvbench reads (jobs: Field required); "
            "make it with fio --output-format=json+."
        )
    if not entries:
        raise InputFileError(f"{name} holds a fio document without any job; run fio again.")
    jobs = [_job(entry, document.options, version) for entry in entries]
    # Adding fio's own sum to its parts would count everything twice (axboe/fio#1881, #610).
    sums = [job for job in jobs if job.name == ALL_CLIENTS and document.jobs is None]
    parts = [job for job in jobs if job not in sums]
    return FioOutput(
        version=document.version,
        jobs=tuple(parts or sums),
        preamble=found.preamble,
        interrupted=interrupted and last,
        cut_off=found.cut_off and last,
        total=sums[0] if sums and parts else None,
        earlier_runs=restarts,
        disk_reads=_disk_reads(document),
    )


def _disk_reads(document: Document) -> bool | None:
    counted = [disk for disk in document.disk_util if disk.read_ios is not None]
    return any(disk.read_ios or disk.read_sectors for disk in counted) if counted else None


def _job(entry: Entry, sections: Sequence[dict[str, Any]], version: tuple[int, int] | None) -> FioJob:
    sides: dict[str, FioDirection | None] = {}
    problem = None
    for name, side in _named_sides(entry):
        try:
            sides[name] = direction(side, version)
        except Contradiction as error:
            # A first operation that failed is counted without bytes (fio 3.33); the error says enough.
            said = f"fio's numbers of the {name} side contradict each other: {error}"
            problem = problem or (None if entry.error else said)
            sides[name] = None
    present = [side for side in sides.values() if side is not None]
    options = redact(_globals(entry, sections) | (entry.options or {}))
    return FioJob(
        name=entry.jobname,
        group=entry.groupid,
        options=options,
        error=entry.error,
        runtime_s=max((side.runtime_s for side in present), default=0.0),
        depth_one_percent=entry.iodepth_level.get("1"),
        read=sides["read"],
        write=sides["write"],
        unified=sides["mixed"] is not None and sides["read"] is None and sides["write"] is None,
        host=_host(entry),
        options_known=entry.options is not None,
        job_runtime_s=None if entry.job_runtime is None else entry.job_runtime / 1000,
        problem=problem,
        mixed=sides["mixed"],
    )


def _named_sides(entry: Entry) -> Iterable[tuple[str, Side | None]]:
    return (("read", entry.read), ("write", entry.write), ("mixed", entry.mixed))


def _host(entry: Entry) -> str | None:
    if entry.hostname is None:
        return None
    return entry.hostname if entry.port is None else f"{entry.hostname}:{entry.port}"


def _globals(entry: Entry, sections: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The global options that hold for an entry: those of its own server where there are several."""
    own = [
        section
        for section in sections
        if entry.hostname is not None
        and section.get("hostname") == entry.hostname
        and str(section.get("port", entry.port)) == str(entry.port)
    ]
    chosen = own[:1] or [section for section in sections if "hostname" not in section][:1] or list(sections[:1])
    merged = dict(chosen[0]) if chosen else {}
    return {key: value for key, value in merged.items() if key not in ("hostname", "port") or entry.hostname is None}
