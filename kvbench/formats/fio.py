"""fio's JSON and json+ output, read leniently into neutral jobs (fio 3.0 and later).

Only this module knows fio's spelling: ``bw`` is KiB/s and ``bw_bytes`` bytes/s, percentile keys are strings, directions
without I/O are zeros in old versions and empty in new ones, and other text may stand before the JSON.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from kvbench.errors import InputFileError
from kvbench.histogram import Histogram
from kvbench.results import LatencySource

# Credentials, and the names of hosts that a result handed to others should not carry.
_SECRET = re.compile(r"key|secret|token|pass|http_user|http_host|hostname", re.IGNORECASE)
_TERMINATED = re.compile(r"^fio: terminating on signal", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FioLatency:
    """Latency of one direction as fio gave it: ``histogram`` with json+, else only fio's own ``percentiles_ns``."""

    source: LatencySource
    samples: int
    mean_ns: float | None
    min_ns: int | None
    max_ns: int | None
    histogram: Histogram | None
    percentiles_ns: dict[float, int]


@dataclass(frozen=True, slots=True)
class FioDirection:
    """What one direction of one job did."""

    ios: int
    bytes: int
    iops: float
    bytes_per_s: float
    runtime_s: float
    latency: FioLatency | None


@dataclass(frozen=True, slots=True)
class FioJob:
    """One entry of fio's ``jobs``: its name, merged options (secrets removed), error and both directions."""

    name: str
    group: int
    options: dict[str, str]
    error: int
    runtime_s: float
    depth_one_percent: float | None
    read: FioDirection | None
    write: FioDirection | None
    unified: bool = False


@dataclass(frozen=True, slots=True)
class FioOutput:
    """One fio run: version, jobs and the foreign text before the JSON.

    ``interrupted`` says that a signal ended it early, ``cut_off`` that a later document of the same file is incomplete.
    """

    version: str
    jobs: tuple[FioJob, ...]
    preamble: str
    interrupted: bool
    cut_off: bool = False


class _Foreign(BaseModel):
    model_config = ConfigDict(extra="ignore", populate_by_name=True)


def _finite_or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _finite_items(value: Any) -> Any:
    """A mapping without its items that are not finite numbers; percentile keys are numbers written as text."""
    if not isinstance(value, dict):
        return value
    return {key: item for key, item in value.items() if _finite_or_none(item) is not None and _is_number(key)}


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


Number = Annotated[float | None, BeforeValidator(_finite_or_none)]


class _Latency(_Foreign):
    min: Number = None
    max: Number = None
    mean: Number = None
    samples: int | None = Field(None, alias="N")
    percentile: Annotated[dict[float, float], BeforeValidator(_finite_items)] = {}
    bins: dict[int, int] = {}


class _Direction(_Foreign):
    io_bytes: int = 0
    total_ios: int = 0
    iops: Number = None
    bw_bytes: Number = None
    bw: Number = None
    runtime: Number = None
    lat_ns: _Latency | None = None
    clat_ns: _Latency | None = None


class _Job(_Foreign):
    jobname: str
    groupid: int = 0
    error: int = 0
    job_runtime: float | None = None
    options: dict[str, Any] = Field({}, alias="job options")
    iodepth_level: dict[str, float] = {}
    read: _Direction | None = None
    write: _Direction | None = None
    mixed: _Direction | None = None


class _Document(_Foreign):
    version: str = Field(alias="fio version")
    options: dict[str, Any] = Field({}, alias="global options")
    jobs: list[_Job]


def parse(text: str, name: str) -> FioOutput:
    """The last complete fio document in ``text``; InputFileError that names ``name`` when there is none.

    With --status-interval fio writes several cumulative documents; the last one is the result (axboe/fio#672).
    """
    found = _documents(text)
    if not found.documents:
        raise InputFileError(f"{name} holds no complete fio JSON; {_cause(text)}")
    try:
        document = _Document.model_validate(found.documents[-1])
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputFileError(
            f"{name} is not fio output that kvbench reads ({where}: {first['msg']}); "
            "make it with fio --output-format=json+."
        ) from None
    if re.match(r"fio-[12]\.", document.version):
        raise InputFileError(f"{name} is from {document.version}; kvbench reads fio 3.0 and later. Measure again.")
    if not document.jobs:
        raise InputFileError(f"{name} holds a fio document without any job; run fio again.")
    jobs = tuple(_job(job, document.options) for job in document.jobs)
    return FioOutput(document.version, jobs, found.preamble, bool(_TERMINATED.search(text)), found.cut_off)


def redact(options: Mapping[str, Any]) -> dict[str, str]:
    """``options`` as text, the value of every option named like a secret replaced."""
    return {key: "<removed>" if _SECRET.search(key) else str(value) for key, value in options.items()}


def redact_json(value: Any) -> Any:
    """A copy of fio's raw JSON in which every option named like a secret has lost its value."""
    if isinstance(value, dict):
        return {
            key: "<removed>" if isinstance(item, str) and _SECRET.search(key) else redact_json(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [redact_json(item) for item in value]
    return value


def documents(text: str) -> list[dict[str, Any]]:
    """Every complete JSON object in ``text`` that fio wrote, in order."""
    return _documents(text).documents


@dataclass(frozen=True, slots=True)
class _Found:
    documents: list[dict[str, Any]]
    preamble: str
    cut_off: bool


def _documents(text: str) -> _Found:
    # strict=False: a tab in a job's description is a bare control character in fio's JSON (fio 3.33).
    decoder = json.JSONDecoder(strict=False)
    text = text.lstrip("\ufeff")
    found: list[dict[str, Any]] = []
    foreign: list[str] = []
    position = 0
    for match in re.finditer(r"^\s*\{", text, re.MULTILINE):
        if match.start() < position:
            continue
        try:
            value, end = decoder.raw_decode(text, match.end() - 1)
        except (ValueError, RecursionError):
            continue
        if "fio version" in value:
            foreign.append(text[position : match.start()])
            found.append(value)
            position = end
    return _Found(found, "".join(foreign).strip(), '"fio version"' in text[position:])


def _cause(text: str) -> str:
    if not text.strip():
        return "it is empty."
    if text.lstrip("\ufeff \n").startswith("{") or '"fio version"' in text:
        return "it is cut off or damaged; run fio again."
    return f"it begins with {text.strip().splitlines()[0][:80]!r}."


def _job(job: _Job, global_options: dict[str, Any]) -> FioJob:
    read, write = _direction(job.read), _direction(job.write)
    runtimes = [direction.runtime_s for direction in (read, write) if direction is not None]
    return FioJob(
        name=job.jobname,
        group=job.groupid,
        options=redact(global_options | job.options),
        error=job.error,
        runtime_s=max(runtimes, default=0.0),
        depth_one_percent=job.iodepth_level.get("1"),
        read=read,
        write=write,
        unified=job.mixed is not None and read is None and write is None,
    )


def _direction(side: _Direction | None) -> FioDirection | None:
    if side is None or (side.total_ios == 0 and side.io_bytes == 0):
        return None
    runtime_s = (side.runtime or 0) / 1000
    # ``bw`` is whole KiB/s in every version; bytes came with fio 3.2.
    bytes_per_s = side.bw_bytes if side.bw_bytes is not None else (side.bw or 0) * 1024
    iops = side.iops if side.iops is not None else side.total_ios / runtime_s if runtime_s else 0.0
    return FioDirection(side.total_ios, side.io_bytes, iops, bytes_per_s, runtime_s, _latency(side))


def _latency(side: _Direction) -> FioLatency | None:
    # fio gives lat_ns a mean but no percentiles unless lat_percentiles=1; percentiles are what decides.
    candidates: tuple[tuple[LatencySource, _Latency | None], ...] = (("lat", side.lat_ns), ("clat", side.clat_ns))
    for source, values in candidates:
        if values is None or not (values.percentile or values.bins):
            continue
        samples = values.samples if values.samples is not None else side.total_ios
        if samples == 0:
            continue
        histogram = Histogram.from_counts(values.bins)
        return FioLatency(
            source=source,
            samples=samples,
            mean_ns=values.mean,
            min_ns=None if values.min is None else round(values.min),
            max_ns=None if values.max is None else round(values.max),
            histogram=histogram if histogram.bins else None,
            percentiles_ns={percent: round(ns) for percent, ns in values.percentile.items()},
        )
    return None
