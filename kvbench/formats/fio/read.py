"""fio's JSON and json+ output of every version from 2.1 on, read leniently into neutral jobs.

Only the modules ``fio*`` of this folder know fio's spelling. Numbers that contradict each other fail their job with the
reason (``FioJob.problem``); a file that is damaged as a whole is an InputFileError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from kvbench.border.redaction import redacted, redacted_json
from kvbench.errors import InputFileError
from kvbench.formats.fio import text as fio_text
from kvbench.formats.fio.numbers import Contradiction, FioDirection, FioLatency, direction, version_of
from kvbench.formats.fio.runs import runs_of
from kvbench.formats.fio.schema import Beside, Disk, Document, Entry, Side

__all__ = [
    "FioBeside",
    "FioDirection",
    "FioFile",
    "FioJob",
    "FioLatency",
    "FioOutput",
    "decode",
    "parse",
    "read",
]

decode = fio_text.decode

_TERMINATED = re.compile(r"^fio: terminating on signal", re.MULTILINE)
# fio's own sum over all servers; absent with one entry or several sections (axboe/fio#1881), wrong in 3.36 (#1918).
ALL_CLIENTS = "All clients"
# Of the keys that lead to a fault, so much is repeated.
_LONGEST_STEP = 40


@dataclass(frozen=True, slots=True)
class FioBeside:
    """Operations beside reads and writes: how many, and how long each took on average."""

    ios: int
    mean_ns: float


@dataclass(frozen=True, slots=True)
class FioJob:
    """One entry of fio's ``jobs``: its name, merged options (secrets removed), error and both directions.

    ``host`` is the server that ran it in client mode. ``options_known`` is False where the version does not write them
    (before 2.3, and some client results), so that no default may be assumed. ``problem`` says why the numbers cannot be
    used; ``mixed`` holds reads and writes together with unified_rw_reporting. ``trims`` and ``syncs`` are what it did
    besides.
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
    trims: FioBeside | None = None
    syncs: FioBeside | None = None


@dataclass(frozen=True, slots=True)
class FioOutput:
    """One fio run: version, jobs and the foreign text before the JSON.

    ``interrupted`` says that a signal ended it early, ``cut_off`` that a later document of the same file is incomplete,
    ``earlier_runs`` how many other runs of the same jobs the file holds. ``disks`` is its ``disk_util``.
    """

    version: str
    jobs: tuple[FioJob, ...]
    preamble: str
    interrupted: bool
    cut_off: bool = False
    total: FioJob | None = None
    earlier_runs: int = 0
    disks: tuple[Disk, ...] = ()


@dataclass(frozen=True, slots=True)
class FioFile:
    """What a file holds: every run, and the document that each was read from, without its secrets."""

    outputs: tuple[FioOutput, ...]
    documents: tuple[dict[str, Any], ...]


def parse(text: str, name: str) -> FioOutput:
    """The last complete fio document in ``text``; InputFileError that names ``name`` when there is none.

    With --status-interval fio writes several cumulative documents; the last one is the result (axboe/fio#672).
    """
    return parse_all(text, name)[-1]


def parse_all(text: str, name: str) -> tuple[FioOutput, ...]:
    """Every fio run in ``text``, each as its last complete document; InputFileError when there is none."""
    return read(text, name).outputs


def read(text: str, name: str) -> FioFile:
    """The runs in ``text`` and their documents; InputFileError when there is none, or one beyond all bounds."""
    try:
        found = fio_text.find(text)
    except ValueError as error:
        raise InputFileError(f"{name} is not fio output that kvbench reads ({error}); run fio again.") from None
    if not found.documents:
        raise InputFileError(f"{name} holds no complete fio JSON; {fio_text.why_none(text)}")
    runs = runs_of(found.documents)
    interrupted = bool(_TERMINATED.search(text))
    outputs = tuple(_output(run.document, name, found, interrupted, run.earlier, last=run is runs[-1]) for run in runs)
    return FioFile(outputs, tuple(redacted_json(run.document) for run in runs))


Part = TypeVar("Part", Document, Entry)


def _validated(schema: type[Part], part: Any, name: str, where: str = "") -> Part:
    try:
        return schema.model_validate(part)
    except ValidationError as error:
        first = error.errors()[0]
        where += ".".join(str(step)[:_LONGEST_STEP] for step in first["loc"])
        said = first["msg"].removeprefix("Value error, ")
        raise InputFileError(
            f"{name} is not fio output that kvbench reads ({where.rstrip('.')}: {said}); "
            "make it with fio --output-format=json+."
        ) from None


def _output(
    raw: dict[str, Any], name: str, found: fio_text.FoundDocuments, interrupted: bool, restarts: int, *, last: bool
) -> FioOutput:
    document = _validated(Document, raw, name)
    version = version_of(document.version)
    if version is not None and version < (2, 0):
        raise InputFileError(f"{name} is from {document.version}; kvbench reads fio 2.1 and later. Measure again.")
    listed = "jobs" if document.jobs is not None else "client_stats"
    entries = document.jobs if document.jobs is not None else document.client_stats
    if entries is None:
        raise InputFileError(
            f"{name} is not fio output that kvbench reads (jobs: Field required); "
            "make it with fio --output-format=json+."
        )
    if not entries:
        raise InputFileError(f"{name} holds a fio document without any job; run fio again.")
    # One entry at a time: together their models are several times as large as the file.
    jobs = [
        _job(_validated(Entry, entry, name, f"{listed}.{at}."), document.options, version)
        for at, entry in enumerate(entries)
    ]
    # Adding fio's own sum to its parts would count everything twice (axboe/fio#1881, #610).
    sums = [job for job in jobs if job.name == ALL_CLIENTS and document.jobs is None]
    parts = [job for job in jobs if job not in sums] if sums else jobs
    return FioOutput(
        version=document.version,
        jobs=tuple(parts or sums),
        preamble=redacted(found.preamble),
        interrupted=interrupted and last,
        cut_off=found.cut_off and last,
        total=sums[0] if sums and parts else None,
        earlier_runs=restarts,
        disks=tuple(document.disk_util),
    )


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
    told = _globals(entry, sections) | (entry.options or {})
    options: dict[str, str] = redacted_json({key: str(value) for key, value in told.items()})
    return FioJob(
        name=redacted(entry.jobname),
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
        trims=_beside(entry.trim),
        syncs=_beside(entry.sync),
    )


def _beside(found: Beside | None) -> FioBeside | None:
    """What fio counted of these operations; it counts no total of syncs, only their latencies (fio 3.33)."""
    latency = (found.lat_ns or found.clat_ns) if found is not None else None
    ios = max(found.total_ios or 0 if found else 0, (latency.samples or 0) if latency else 0)
    return FioBeside(ios, (latency.mean or 0.0) if latency else 0.0) if ios else None


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
