"""The result file: what a run measured, under which conditions, and what to distrust. It is the public API.

Schema history (a change of meaning raises the number; a new field with a default does not):

    version  since  change
    1        0.1.0  first
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le, Predicate

from kvbench.border import bounded
from kvbench.border.escaping import escaped
from kvbench.border.json_text import json_text
from kvbench.border.schemas import schema_of
from kvbench.errors import ResultFileError
from kvbench.record.histogram import Histogram

SCHEMA_VERSION = 1
RESULT_NAME = "result.json"

Way = Literal["read", "write"]
Mix = Literal["read", "write", "mixed"]
Status = Literal["ok", "failed", "skipped", "interrupted"]
LatencySource = Literal["lat", "clat"]
CacheState = Literal["cold", "cached", "unknown"]
Access = Literal["random", "sequential"]
Value = str | int | float | bool | None

WAYS: tuple[Way, ...] = ("read", "write")

# A result file that somebody else made is held to these when it is read.
Natural = Annotated[int, Ge(0)]
Positive = Annotated[int, Ge(1)]
Measure = Annotated[float, Ge(0)]
# The bins of a histogram in JSON: nanoseconds as a text of digits.
LatencyName = Annotated[str, Predicate(lambda text: text.isascii() and text.isdecimal() and len(text) < 20)]

_LONGEST_SERIES_S = 1_000_000
# Of the keys that lead to a fault, so much is repeated.
_LONGEST_STEP = 40
_LARGEST = 1 << 63


@dataclass(frozen=True, slots=True)
class LatencyNs:
    """Latency of one direction in ns; ``p99_low``/``p99_high`` are the 95 % interval of the tier's long-run p99.

    It comes from batches of time and is None where there are too few (one section), or samples cannot bound a side.
    ``intervals`` holds that of every percentile by name. A percentile is the middle of one of fio's bins: up to 0.8 %
    off, and therefore sometimes above ``max``.
    """

    mean: Measure | None = None
    min: Natural | None = None
    max: Natural | None = None
    p50: Natural | None = None
    p90: Natural | None = None
    p95: Natural | None = None
    p99: Natural | None = None
    p99_9: Natural | None = None
    p99_low: Natural | None = None
    p99_high: Natural | None = None
    intervals: dict[str, tuple[Natural | None, Natural | None]] = field(default_factory=dict)

    @property
    def mean_s(self) -> float | None:
        """The mean in seconds, None where nobody recorded it."""
        return None if self.mean is None else self.mean / 1e9


@dataclass(frozen=True, slots=True)
class OverTime:
    """How far a rate is known as the tier's long-run one: its relative standard error from ``batches`` of time."""

    batches: int
    relative_error: float


@dataclass(frozen=True, slots=True)
class Direction:
    """What one direction did: operations, bytes, rates per second, and latency (None when it was not recorded)."""

    ios: Natural
    bytes: Natural
    iops: Measure
    bytes_per_s: Measure
    latency_ns: LatencyNs | None = None


@dataclass(frozen=True, slots=True)
class SideSummary:
    """One direction in short: rate, two percentiles, rates of its first and last quarter, device requests for each."""

    bytes_per_s: float | None = None
    p50_ns: int | None = None
    p99_ns: int | None = None
    quarters_bytes_per_s: tuple[float, float] | None = None
    requests_each: float | None = None

    @classmethod
    def of(cls, side: Direction | None) -> SideSummary:
        """The rate and the percentiles of a direction; nothing of one that had no I/O."""
        if side is None:
            return cls()
        latency = side.latency_ns or LatencyNs()
        return cls(side.bytes_per_s, latency.p50, latency.p99)


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls of one kind that move no data, such as lookups or opens: how many, how long each took, and failures."""

    count: Natural
    latency_ns: LatencyNs | None = None
    failed: Natural = 0


@dataclass(frozen=True, slots=True)
class PointWarning:
    """A reason to distrust a number: ``code`` for programs, text for people, and the numbers themselves."""

    code: str
    message: str
    hint: str
    values: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Conditions:
    """What was asked and under which circumstances it ran; None is "not known" (often so for imported results).

    ``buffers`` names the choice of memory that the I/O lands in, ``buffer_memory`` says what it became here.
    ``storing_jobs`` only store, beside the jobs of a mixed point that only read; None where each job does both in turn.
    """

    ioengine: str | None = None
    direct: bool | None = None
    iodepth: Natural | None = None
    iodepth_reached: bool | None = None
    rwmixread: Annotated[int, Ge(0), Le(100)] | None = None
    requested_runtime_s: Measure | None = None
    dataset_bytes: Natural | None = None
    memory_bytes: Natural | None = None
    filesystem: str | None = None
    cached_fraction: Measure | None = None
    device_read_bytes: Natural | None = None
    device_written_bytes: Natural | None = None
    cache_state: CacheState | None = None
    failed_ios: Natural | None = None
    load_1m: Measure | None = None
    cpu_steal_percent: Measure | None = None
    submission_ns: Measure | None = None
    access: Access | None = None
    objects_written: bool | None = None
    limit_bytes_per_s: Natural | None = None
    limit_source: str | None = None
    limit_asked: bool = False
    paced: str | None = None
    unwritten_bytes: Natural | None = None
    backing_filesystem: str | None = None
    cache_drop: str | None = None
    other_runs: int | None = None
    beside_in_flight: float | None = None
    cpu_stalled_percent: float | None = None
    cpu_waiting: float | None = None
    unmounted: str | None = None
    device_read_requests: Natural | None = None
    device_write_requests: Natural | None = None
    buffers: str | None = None
    buffer_memory: str | None = None
    storing_jobs: Natural | None = None


@dataclass(frozen=True, slots=True)
class HookRun:
    """One run of a command of the user's: its exit code (None when it did not end by itself) and its last output."""

    command: str
    exit_code: int | None
    seconds: float
    output_tail: str
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to the tier in one second of a point's series, seconds from 1 over all its rounds."""

    second: Annotated[int, Ge(1), Le(_LONGEST_SERIES_S)]
    text: str


@dataclass(frozen=True, slots=True)
class Round:
    """One of the runs of fio that a point was measured with; ``repeat`` counts the repeats of the run from 1.

    ``..._quarters`` are the rates of its first and its last quarter, where its series is long enough to tell.
    ``began_s`` is when it started, in seconds of Unix time; None in results of before it was recorded.
    """

    repeat: Natural
    runtime_s: Measure
    read_bytes_per_s: Measure | None = None
    write_bytes_per_s: Measure | None = None
    read_p99_ns: Natural | None = None
    write_p99_ns: Natural | None = None
    read_p50_ns: Natural | None = None
    write_p50_ns: Natural | None = None
    read_quarters_bytes_per_s: tuple[Measure, Measure] | None = None
    write_quarters_bytes_per_s: tuple[Measure, Measure] | None = None
    began_s: Measure | None = None
    read_requests_each: Measure | None = None
    write_requests_each: Measure | None = None

    def side(self, way: Way) -> SideSummary:
        """What one direction did in this round; every field is None of one that had no I/O."""
        if way == "read":
            return SideSummary(
                self.read_bytes_per_s,
                self.read_p50_ns,
                self.read_p99_ns,
                self.read_quarters_bytes_per_s,
                self.read_requests_each,
            )
        return SideSummary(
            self.write_bytes_per_s,
            self.write_p50_ns,
            self.write_p99_ns,
            self.write_quarters_bytes_per_s,
            self.write_requests_each,
        )


@dataclass(frozen=True, slots=True)
class PointResult:
    """One measured point. ``reason`` says why it is not ok; ``histogram`` is a file name inside the run directory.

    ``metadata`` holds the calls that move no data by kind (lookup, open, rename, ...), where the driver times them.
    ``over_time`` says by direction how well the rates are known; it lacks what too few batches of time measured.
    """

    id: str
    job: str
    source: str
    tier: str
    driver: str
    io_bytes: Natural
    mix: Mix
    numjobs: Positive
    clients: tuple[str, ...] = ()
    runtime_s: Measure | None = None
    latency_source: LatencySource | None = None
    status: Status = "ok"
    reason: str | None = None
    histogram: str | None = None
    read: Direction | None = None
    write: Direction | None = None
    warnings: tuple[PointWarning, ...] = ()
    conditions: Conditions = Conditions()
    rounds: tuple[Round, ...] = ()
    series: str | None = None
    before_read: tuple[HookRun, ...] = ()
    events: tuple[Event, ...] = ()
    metadata: dict[str, Calls] = field(default_factory=dict)
    over_time: dict[str, OverTime] = field(default_factory=dict)

    def side(self, way: Way) -> Direction | None:
        """What one direction did, None when it had no I/O."""
        return self.read if way == "read" else self.write

    @property
    def of_memory(self) -> bool:
        """Whether memory itself was measured, which is as fast as memory and has no cache in front of it."""
        return self.driver == "memory"

    @property
    def of_objects(self) -> bool:
        """Whether each operation moved an object of a bucket."""
        return self.driver == "s3" or self.conditions.ioengine == "http"

    @property
    def in_turn(self) -> bool:
        """Whether each job of a mixed point reads and stores in turn, so that a read waits for stores of its own."""
        return self.mix == "mixed" and self.conditions.storing_jobs is None

    def sides(self) -> tuple[tuple[Way, Direction], ...]:
        """The directions that had I/O, each with its name, reads first."""
        return tuple((way, side) for way in WAYS if (side := self.side(way)) is not None)


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a round: what ended in it by direction, and the latencies where the driver keeps them by second."""

    began_s: float
    seconds: float
    ios: dict[str, int]
    histograms: dict[str, Histogram] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observation:
    """A point and the histograms that belong beside it, by direction; ``spans`` are the seconds of a long round."""

    point: PointResult
    histograms: dict[str, Histogram]
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Use:
    """A model and the I/O that its connector makes: ``units_per_block`` units of ``io_bytes`` per ``block_tokens``.

    ``windowed_units`` more per block belong to windowed layers, of which a restore reads ``window_units`` at most.
    ``threads`` is what all requests together have in flight at most (None: no limit is known). ``active_parameters``
    and ``pair_flop`` are what a prompt token costs to compute (see layout.work), None where the config did not say.
    ``engine_block_tokens`` are the tokens of the engine's own block where all units are made of blocks of one size.
    """

    model: str
    tp: Positive
    kv_dtype: str
    connector: str
    engine_version: str | None
    io_bytes: Positive
    block_tokens: Positive
    units_per_block: Natural = 1
    parallelism_per_request: Positive = 16
    windowed_units: Natural = 0
    window_units: Natural = 0
    threads: Positive | None = None
    # What follows changes nothing about what is stored: uses compare without it, also with those of old runs.
    engine_block_tokens: Positive | None = field(default=None, compare=False)
    active_parameters: Natural | None = field(default=None, compare=False)
    pair_flop: Natural | None = field(default=None, compare=False)

    def in_flight(self, concurrent: int) -> int:
        """Units in flight while ``concurrent`` requests restore at once."""
        wanted = concurrent * self.parallelism_per_request
        return wanted if self.threads is None else min(wanted, self.threads)

    def restored_tokens(self, tokens: int) -> int:
        """The tokens of a context that a restore brings back: those of its whole blocks; the rest is computed."""
        return tokens // self.block_tokens * self.block_tokens

    def units(self, tokens: int) -> int:
        """Units that a restore of a context of ``tokens`` tokens reads: those of its whole blocks."""
        blocks = tokens // self.block_tokens
        return blocks * self.units_per_block + min(blocks * self.windowed_units, self.window_units)


@dataclass(frozen=True, slots=True)
class TierPlace:
    """Where an engine finds a tier: a directory, or a bucket with a prefix ("b/p") at an endpoint."""

    path: str
    endpoint_url: str | None = None
    region: str = ""


@dataclass(frozen=True, slots=True)
class TierTraits:
    """What decisions need to know of a tier: whether other hosts can read it (None: not seen), and where it is.

    ``place`` is None where an engine could not use the tier by a name: memory, a raw device, an imported result.
    """

    shared: bool | None = None
    place: TierPlace | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """Everything a run found out.

    ``environment``, ``labels`` and ``tiers`` (the tiers' facts) are for people, never read by a computation, which has
    ``tier_traits``; these are missing in results of before they were recorded.
    """

    created: str
    uses: tuple[Use, ...] = ()
    points: tuple[PointResult, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    tiers: dict[str, dict[str, Any]] = field(default_factory=dict)
    tier_traits: dict[str, TierTraits] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    def with_point(self, point: PointResult) -> RunResult:
        """The same run with ``point`` in place of an earlier one of the same id, else appended."""
        kept = [point if old.id == point.id else old for old in self.points]
        if not any(old.id == point.id for old in self.points):
            kept.append(point)
        return replace(self, points=tuple(kept))

    def point(self, point_id: str) -> PointResult | None:
        """The point with that id, or None."""
        return next((point for point in self.points if point.id == point_id), None)


def save(result: RunResult, run_dir: Path) -> None:
    """Write RUN_DIR/result.json atomically: a reader, or a killed run, sees the old file or the new one."""
    write_atomically(run_dir / RESULT_NAME, json_text(to_json(result), indent=1))


def to_json(result: RunResult) -> dict[str, Any]:
    """The run as plain JSON data, schema_version first."""
    data = schema_of(RunResult).dump_python(result, mode="json")
    return {"schema_version": data.pop("schema_version"), **data}


def load(run_dir: Path) -> RunResult:
    """The run saved in ``run_dir``; ResultFileError for a missing, damaged or newer file."""
    from pydantic import ValidationError

    path = inside(run_dir, RESULT_NAME) if run_dir.is_dir() else run_dir
    data = _read_object(path)
    version = data.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ResultFileError(f"{path} has no schema_version, so kvbench did not write it; name a run directory.")
    if version > SCHEMA_VERSION:
        raise ResultFileError(
            f"{path} was written by a newer kvbench (schema {version}, this one reads up to {SCHEMA_VERSION}); "
            "update kvbench to read it."
        )
    try:
        result = schema_of(RunResult).validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part)[:_LONGEST_STEP] for part in first["loc"])
        raise ResultFileError(f"{path} is damaged at {where}: {first['msg']}; restore it or measure again.") from None
    for number, point in enumerate(result.points):
        # Zero is what an imported job has that did nothing.
        if min(point.io_bytes, point.numjobs) < 0:
            raise ResultFileError(
                f"{path} is damaged at points.{number}: io_bytes and numjobs are never negative; restore it or measure "
                "again."
            )
    return result


def inside(run_dir: Path, name: str) -> Path:
    """The file ``name`` of a run directory; ResultFileError when the name, or a link on its way, leads out of it."""
    path = run_dir / name
    try:
        if path.resolve().is_relative_to(run_dir.resolve()):
            return path
    except (OSError, RuntimeError, ValueError):
        # A loop of links, a name that is too long or holds a zero byte: no file of ours either.
        pass
    raise ResultFileError(
        f"{escaped(str(run_dir))} takes '{escaped(name)[:200]}' from outside of itself, which kvbench never writes; "
        "use the directory as it was made, or a copy without links (cp -rL) if you trust it."
    )


def open_run(path: Path) -> tuple[Path, RunResult]:
    """The run directory that ``path`` names (itself, or a result.json in it) and the run saved there."""
    return (path.parent if path.is_file() else path), load(path)


def save_histograms(run_dir: Path, name: str, histograms: Mapping[str, Histogram]) -> None:
    """Write ``{"unit": "ns", "<direction>": {"<latency_ns>": count}}``, the format that all drivers share."""
    write_atomically(run_dir / name, histograms_text(histograms))


def histograms_text(histograms: Mapping[str, Histogram]) -> str:
    """The content of such a file."""
    content: dict[str, object] = {"unit": "ns"}
    content |= {direction: {str(ns): n for ns, n in histogram.bins} for direction, histogram in histograms.items()}
    return json.dumps(content) + "\n"


def save_observations(path: Path, rounds: Sequence[Observation]) -> None:
    """Write the rounds of a point with their histograms, so that a later visit can be pooled with them."""
    write_atomically(path, schema_of(list[Observation]).dump_json(list(rounds)).decode() + "\n")


def load_observations(path: Path) -> list[Observation]:
    """The rounds that ``save_observations`` wrote; ResultFileError when the file is damaged."""
    from pydantic import ValidationError

    try:
        return schema_of(list[Observation]).validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ResultFileError(f"{path} is damaged ({str(error).splitlines()[0]}); start a new run.") from None


def load_histogram(run_dir: Path, point: PointResult, direction: str) -> Histogram | None:
    """The latency histogram of one direction of a point, or None when it was not recorded or the file is gone."""
    if point.histogram is None or not (path := inside(run_dir, point.histogram)).is_file():
        return None
    data = _read_object(path)
    bins = data.get(direction)
    if not isinstance(bins, dict) or not bins:
        return None
    try:
        return Histogram.from_counts({int(ns): _counted(int(ns), count) for ns, count in bins.items()})
    except (TypeError, ValueError):
        raise ResultFileError(f"{path} is damaged; measure the point again.") from None


def _counted(ns: int, count: Any) -> int:
    if type(count) is not int or not (0 <= count < _LARGEST and 0 <= ns < _LARGEST):
        raise ValueError("no count of operations")
    return count


@dataclass(frozen=True, slots=True)
class DirectionSecond:
    """What one direction did in one second."""

    bytes_per_s: Measure = 0
    iops: Measure = 0
    mean_latency_ns: Measure | None = None
    bins: dict[LatencyName, Natural] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Second:
    """One second of a series, as far as anything reads it; drivers may keep more."""

    second: Annotated[int, Ge(1), Le(_LONGEST_SERIES_S)]
    round: Natural = 1
    read: DirectionSecond = DirectionSecond()
    write: DirectionSecond = DirectionSecond()
    host: dict[str, float | None] = field(default_factory=dict)
    events: tuple[str, ...] = ()


def load_series(run_dir: Path, point: PointResult) -> list[dict[str, Any]]:
    """The one-second series of a point, as its driver wrote it; empty when none was kept, or it cannot be read.

    ResultFileError for a series that reads well and is none: somebody changed it.
    """
    return [] if point.series is None else read_series(inside(run_dir, point.series))


def read_series(path: Path) -> list[dict[str, Any]]:
    """The entries of a file with a one-second series; empty when there is none, or it cannot be read."""
    if not path.is_file():
        return []
    try:
        content = bounded.read_bytes(path)
        found = bounded.json_of(content, "refuse")
    except (OSError, ValueError):
        return []
    if not _is_series(content):
        raise ResultFileError(f"{path} is damaged; measure the point again, or remove that file.")
    return list(found)


def _is_series(content: bytes) -> bool:
    from pydantic import ValidationError

    try:
        schema_of(list[Second]).validate_json(content, strict=True)
    except ValidationError:
        return False
    return True


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace ``path`` in one step; a failed write leaves the old content in place."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A path of the user's may hold bytes that are no UTF-8; they are written as escapes.
        data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
        # A new file only: never through a link that somebody laid there.
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _read_object(path: Path) -> dict[str, Any]:
    try:
        data = bounded.json_of(bounded.read_bytes(path, regular=True), "refuse")
    except FileNotFoundError:
        raise ResultFileError(
            f"{path} does not exist; name a run directory that 'kvbench fio' or 'kvbench import' wrote."
        ) from None
    except OSError as error:
        raise ResultFileError(f"{path} cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise ResultFileError(f"{path} is not complete JSON ({error}); restore it or measure again.") from None
    if not isinstance(data, dict):
        raise ResultFileError(f"{path} holds no JSON object; name a run directory.")
    return data
