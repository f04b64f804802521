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
from typing import Any, Literal

from kvbench.errors import ResultFileError
from kvbench.record.histogram import Histogram
from kvbench.units import one_line

SCHEMA_VERSION = 1
RESULT_NAME = "result.json"

Way = Literal["read", "write"]
Mix = Literal["read", "write", "mixed"]
Status = Literal["ok", "failed", "skipped", "interrupted"]
LatencySource = Literal["lat", "clat"]
CacheState = Literal["cold", "cached", "unknown"]
Access = Literal["random", "sequential"]
Value = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class LatencyNs:
    """Latency of one direction in ns; ``p99_low``/``p99_high`` are the 95 % interval, None where samples cannot say.

    ``intervals`` holds that of every percentile by name. A percentile is the middle of one of fio's bins: up to 0.8 %
    off, and therefore sometimes above ``max``.
    """

    mean: float | None = None
    min: int | None = None
    max: int | None = None
    p50: int | None = None
    p90: int | None = None
    p95: int | None = None
    p99: int | None = None
    p99_9: int | None = None
    p99_low: int | None = None
    p99_high: int | None = None
    intervals: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)

    @property
    def mean_s(self) -> float | None:
        """The mean in seconds, None where nobody recorded it."""
        return None if self.mean is None else self.mean / 1e9


@dataclass(frozen=True, slots=True)
class Direction:
    """What one direction did: operations, bytes, rates per second, and latency (None when it was not recorded)."""

    ios: int
    bytes: int
    iops: float
    bytes_per_s: float
    latency_ns: LatencyNs | None = None


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls of one kind that move no data, such as lookups or opens: how many, how long each took, and failures."""

    count: int
    latency_ns: LatencyNs | None = None
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Caveat:
    """A reason to distrust a number: ``code`` for programs, text for people, and the numbers themselves."""

    code: str
    message: str
    hint: str
    values: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Conditions:
    """What was asked and under which circumstances it ran; None is "not known" (often so for imported results)."""

    ioengine: str | None = None
    direct: bool | None = None
    iodepth: int | None = None
    iodepth_reached: bool | None = None
    rwmixread: int | None = None
    requested_runtime_s: float | None = None
    dataset_bytes: int | None = None
    memory_bytes: int | None = None
    filesystem: str | None = None
    cached_fraction: float | None = None
    device_read_bytes: int | None = None
    device_written_bytes: int | None = None
    cache_state: CacheState | None = None
    failed_ios: int | None = None
    load_1m: float | None = None
    cpu_steal_percent: float | None = None
    submission_ns: float | None = None
    access: Access | None = None
    objects_written: bool | None = None
    limit_bytes_per_s: int | None = None
    limit_source: str | None = None
    limit_asked: bool = False
    paced: str | None = None
    unwritten_bytes: int | None = None
    backing_filesystem: str | None = None
    cache_drop: str | None = None
    other_runs: int | None = None


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

    second: int
    text: str


@dataclass(frozen=True, slots=True)
class Round:
    """One of the runs of fio that a point was measured with; ``repeat`` counts the visits to the point from 1."""

    repeat: int
    runtime_s: float
    read_bytes_per_s: float | None = None
    write_bytes_per_s: float | None = None
    read_p99_ns: int | None = None
    write_p99_ns: int | None = None
    read_p50_ns: int | None = None
    write_p50_ns: int | None = None


@dataclass(frozen=True, slots=True)
class PointResult:
    """One measured point. ``reason`` says why it is not ok; ``histogram`` is a file name inside the run directory.

    ``metadata`` holds the calls that move no data by kind (lookup, open, rename, ...), where the driver times them.
    """

    id: str
    job: str
    source: str
    tier: str
    driver: str
    io_bytes: int
    mix: Mix
    numjobs: int
    clients: tuple[str, ...] = ()
    runtime_s: float | None = None
    latency_source: LatencySource | None = None
    status: Status = "ok"
    reason: str | None = None
    histogram: str | None = None
    read: Direction | None = None
    write: Direction | None = None
    warnings: tuple[Caveat, ...] = ()
    conditions: Conditions = Conditions()
    rounds: tuple[Round, ...] = ()
    series: str | None = None
    before_read: tuple[HookRun, ...] = ()
    events: tuple[Event, ...] = ()
    metadata: dict[str, Calls] = field(default_factory=dict)

    def sides(self) -> tuple[tuple[Way, Direction], ...]:
        """The directions that had I/O, each with its name, reads first."""
        both: tuple[tuple[Way, Direction | None], ...] = (("read", self.read), ("write", self.write))
        return tuple((way, side) for way, side in both if side is not None)


@dataclass(frozen=True, slots=True)
class Observation:
    """A point and the histograms that belong beside it, by direction."""

    point: PointResult
    histograms: dict[str, Histogram]


@dataclass(frozen=True, slots=True)
class Use:
    """A model and the I/O that its connector makes: ``units_per_block`` units of ``io_bytes`` per ``block_tokens``.

    ``windowed_units`` more per block belong to windowed layers, of which a restore reads ``window_units`` at most.
    ``threads`` is what all requests together have in flight at most (None: no limit is known). ``engine_block_tokens``
    are the tokens of the engine's own block where all units are made of blocks of one size, else None.
    """

    model: str
    tp: int
    kv_dtype: str
    connector: str
    engine_version: str | None
    io_bytes: int
    block_tokens: int
    units_per_block: int = 1
    parallelism_per_request: int = 16
    windowed_units: int = 0
    window_units: int = 0
    threads: int | None = None
    engine_block_tokens: int | None = None

    def in_flight(self, concurrent: int) -> int:
        """Units in flight while ``concurrent`` requests restore at once."""
        wanted = concurrent * self.parallelism_per_request
        return wanted if self.threads is None else min(wanted, self.threads)

    def units(self, tokens: int) -> int:
        """Units that a restore of ``tokens`` tokens reads."""
        blocks = -(-tokens // self.block_tokens)
        return blocks * self.units_per_block + min(blocks * self.windowed_units, self.window_units)


@dataclass(frozen=True, slots=True)
class RunResult:
    """Everything a run found out; ``environment`` and ``labels`` are provenance, never read by a computation."""

    created: str
    uses: tuple[Use, ...] = ()
    points: tuple[PointResult, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    tiers: dict[str, dict[str, Any]] = field(default_factory=dict)
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
    write_atomically(run_dir / RESULT_NAME, json.dumps(to_json(result), indent=1, allow_nan=False) + "\n")


def to_json(result: RunResult) -> dict[str, Any]:
    """The run as plain JSON data, schema_version first."""
    from pydantic import TypeAdapter

    data = TypeAdapter(RunResult).dump_python(result, mode="json")
    return {"schema_version": data.pop("schema_version"), **data}


def load(run_dir: Path) -> RunResult:
    """The run saved in ``run_dir``; ResultFileError for a missing, damaged or newer file."""
    from pydantic import TypeAdapter, ValidationError

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
        result = TypeAdapter(RunResult).validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
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
        f"{one_line(str(run_dir))} takes '{one_line(name)[:200]}' from outside of itself, which kvbench never writes; "
        "use the directory as it was made, or a copy without links (cp -rL) if you trust it."
    )


def open_run(path: Path) -> tuple[Path, RunResult]:
    """The run directory that ``path`` names (itself, or a result.json in it) and the run saved there."""
    return (path.parent if path.is_file() else path), load(path)


def save_histograms(run_dir: Path, name: str, histograms: Mapping[str, Histogram]) -> None:
    """Write ``{"unit": "ns", "<direction>": {"<latency_ns>": count}}``, the format that all drivers share."""
    content: dict[str, object] = {"unit": "ns"}
    content |= {direction: {str(ns): n for ns, n in histogram.bins} for direction, histogram in histograms.items()}
    write_atomically(run_dir / name, json.dumps(content) + "\n")


def save_observations(path: Path, rounds: Sequence[Observation]) -> None:
    """Write the rounds of a point with their histograms, so that a later visit can be pooled with them."""
    from pydantic import TypeAdapter

    write_atomically(path, TypeAdapter(list[Observation]).dump_json(list(rounds)).decode() + "\n")


def load_observations(path: Path) -> list[Observation]:
    """The rounds that ``save_observations`` wrote; ResultFileError when the file is damaged."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(list[Observation]).validate_json(path.read_bytes())
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
        return Histogram.from_counts({int(ns): int(count) for ns, count in bins.items()})
    except (TypeError, ValueError):
        raise ResultFileError(f"{path} is damaged; measure the point again.") from None


def load_series(run_dir: Path, point: PointResult) -> list[dict[str, Any]]:
    """The one-second series of a point, as its driver wrote it; empty when none was kept."""
    return [] if point.series is None else read_series(inside(run_dir, point.series))


def read_series(path: Path) -> list[dict[str, Any]]:
    """The entries of a file with a one-second series; empty when there is none, or it is damaged."""
    if not path.is_file():
        return []
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def write_atomically(path: Path, text: str) -> None:
    """Replace ``path`` in one step; a failed write leaves the old content in place."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
        # A path of the user's may hold bytes that are no UTF-8; they are written as escapes. A new file only: never
        # through a link that somebody laid there.
        with temporary.open("x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _read_object(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ResultFileError(
            f"{path} does not exist; name a run directory that 'kvbench fio' or 'kvbench import' wrote."
        ) from None
    except OSError as error:
        raise ResultFileError(f"{path} cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:
        raise ResultFileError(f"{path} is not complete JSON ({error}); restore it or measure again.") from None
    if not isinstance(data, dict):
        raise ResultFileError(f"{path} holds no JSON object; name a run directory.")
    return data
