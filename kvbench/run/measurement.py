"""What a run is going to measure, written down before it starts so that a killed run can be resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvbench.border import bounded
from kvbench.border.escaping import escaped
from kvbench.border.schemas import schema_of
from kvbench.drivers.fio.job import MAX_SHARED_FILES, PUBLISHED_FILE_BYTES
from kvbench.drivers.registry import PROGRAMS, driver_choice
from kvbench.drivers.settings import Buffers, DataLayout, JobSettings
from kvbench.engines.vllm.releases import find_release
from kvbench.errors import ResultFileError, UsageError
from kvbench.record.point import Point, is_point_id
from kvbench.record.results import Access, Use, inside, write_atomically
from kvbench.tiers.kinds import program_of
from kvbench.tiers.tier import Tier
from kvbench.units import format_bytes, is_one_line

MEASUREMENT_NAME = "measurement.json"

# The published method measures 60 s; with --runtime auto it is the most that a point gets.
LONGEST_RUNTIME_S = 60

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class TierPlan:
    """One tier of the run: its name, the target as the user gave it, and how it is measured by which driver.

    ``limit_bytes_per_s`` is what the user says that the link or the volume allows.
    """

    name: str
    target: str
    settings: JobSettings
    limit_bytes_per_s: int | None = None
    driver: str = "fio"

    @property
    def program(self) -> str:
        """The program that is called so on a tier of this kind."""
        return program_of(self.target, self.driver)


@dataclass(frozen=True, slots=True)
class PointTime:
    """Seconds that a point is measured for: at least, where it does not fail, and at most."""

    least_s: int
    most_s: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """Everything that a run needs to know, and nothing that it finds out.

    ``before_read`` is the user's command, in words, to run before every round that reads; ``read_counter`` the one that
    says how many bytes the storage has read so far; ``watch`` the one that prints the storage's state.
    """

    tiers: tuple[TierPlan, ...]
    uses: tuple[Use, ...]
    points: tuple[Point, ...]
    repeats: int = 1
    before_read: tuple[str, ...] = ()
    read_counter: tuple[str, ...] = ()
    watch: tuple[str, ...] = ()

    @property
    def commands(self) -> dict[str, tuple[str, ...]]:
        """The user's commands by option, without those that were not given."""
        every = {"--before-read": self.before_read, "--read-counter": self.read_counter, "--watch": self.watch}
        return {option: words for option, words in every.items() if words}

    def point_times(self) -> dict[str, PointTime]:
        """How long each point is measured, by its id; data sets and the steps between rounds come on top."""
        rules = {(plan.name, plan.driver): plan.settings.stop_rule for plan in self.tiers}
        of_points = {point.id: rules[point.tier, point.driver] for point in self.points}
        return {
            name: PointTime(rule.least_s * self.repeats, rule.max_s * self.repeats) for name, rule in of_points.items()
        }


@dataclass(frozen=True, slots=True)
class Method:
    """How every tier of a run is measured: with which loads and sizes, on how much data, for how long.

    ``dataset_bytes`` None leaves the size to the tier, ``runtime_s`` None the end of a point to ``precision``.
    ``engine_version`` is the release whose calls a replay makes. The study's own job says nothing of memory.
    """

    numjobs: tuple[int, ...]
    io_bytes: tuple[int, ...]
    rwmixread: int = 75
    access: Access = "random"
    published: bool = False
    layout: DataLayout = "large-files"
    buffers: Buffers = "engine"
    dataset_bytes: int | None = None
    runtime_s: int | None = None
    precision: float = 0.10
    engine_version: str | None = None


@dataclass(frozen=True, slots=True)
class _DataSet:
    """The data files of a tier; ``block_sizes`` share each of them where every block has a file of its own."""

    files: int
    file_bytes: int
    block_sizes: tuple[int, ...] = ()


def plan_tier(tier: Tier, target: str, driver: str, method: Method) -> TierPlan:
    """How ``driver`` measures ``tier``; UsageError when the data set is too small for it."""
    data = _data_set(tier, driver, method)
    settings = JobSettings(
        files=data.files,
        file_bytes=data.file_bytes,
        runtime_s=LONGEST_RUNTIME_S if method.runtime_s is None else method.runtime_s,
        rwmixread=method.rwmixread,
        access=method.access,
        published=method.published,
        auto=method.runtime_s is None and not method.published,
        precision=method.precision,
        device=tier.device_use,
        layout="file-per-block" if data.block_sizes else "large-files",
        block_sizes=data.block_sizes,
        engine_version=method.engine_version if driver == "replay" else None,
        buffers="own" if method.published else method.buffers,
    )
    return TierPlan(tier.name, target, settings, driver=driver)


def _data_set(tier: Tier, driver: str, method: Method) -> _DataSet:
    """One data file for each job of the largest job count (256 at most), in whole MiB.

    Or a file for each block, all block sizes sharing the data set, where the driver or the layout asks for it.
    """
    wanted = tier.default_dataset_bytes() if method.dataset_bytes is None else method.dataset_bytes
    least_blocks = PROGRAMS[tier.kind.program_of(driver)].least_blocks
    if least_blocks is not None:
        return _data_of_blocks(wanted, 1, least_blocks(method.numjobs), method)
    if driver == "fio" and method.layout == "file-per-block":
        # fio lets only one job at a time use a file that several of them name, so every job has its own.
        return _data_of_blocks(wanted, max(method.numjobs), 1, method)
    return _shared_files(wanted, method)


def _data_of_blocks(wanted: int, files: int, needed: int, method: Method) -> _DataSet:
    sizes = tuple(sorted(set(method.io_bytes)))
    file_bytes = wanted // files // _MIB * _MIB
    _require_blocks(file_bytes, sizes, needed, files)
    return _DataSet(files, file_bytes, sizes)


def _shared_files(wanted: int, method: Method) -> _DataSet:
    """Files that the jobs share; UsageError when one holds no block."""
    jobs, largest = max(method.numjobs), max(method.io_bytes)
    files = jobs if method.published else min(jobs, MAX_SHARED_FILES)
    if method.published:
        file_bytes = PUBLISHED_FILE_BYTES if method.dataset_bytes is None else method.dataset_bytes // files
    else:
        file_bytes = wanted // files // _MIB * _MIB
    if file_bytes < largest:
        least = -(-largest // _MIB) * _MIB * files
        raise UsageError(
            f"a data set of {format_bytes(files * file_bytes)} gives each of {files} jobs less than one block of "
            f"{format_bytes(largest)}; use --dataset {least} ({format_bytes(least)}) or more, or fewer --numjobs."
        )
    return _DataSet(files, file_bytes)


def _require_blocks(file_bytes: int, sizes: Sequence[int], needed: int, files: int) -> None:
    """UsageError when the share of a block size in one of the ``files`` is fewer blocks than needed."""
    share, largest = file_bytes // len(sizes), max(sizes)
    if share // largest >= needed:
        return
    least = -(-needed * largest * len(sizes) // _MIB) * _MIB * files
    shared = f", shared by {len(sizes)} block sizes," if len(sizes) > 1 else ""
    raise UsageError(
        f"a data set of {format_bytes(files * file_bytes)}{shared} holds {share // largest * files} blocks of "
        f"{format_bytes(largest)} and {needed * files} are needed; use --dataset {least} ({format_bytes(least)}) or "
        "more, or fewer --numjobs."
    )


def writes_of(measurement: Measurement, name: str) -> bool:
    """Whether any point of the tier writes."""
    return any(point.mix != "read" for point in measurement.points if point.tier == name)


def save(measurement: Measurement, run_dir: Path) -> None:
    """Write RUN_DIR/measurement.json."""
    text = schema_of(Measurement).dump_json(measurement, indent=1).decode()
    write_atomically(run_dir / MEASUREMENT_NAME, text + "\n")


def load(run_dir: Path) -> Measurement:
    """The measurement that a run directory was started with; ResultFileError when it is missing, damaged or unsound."""
    from pydantic import ValidationError

    path = inside(run_dir, MEASUREMENT_NAME)
    try:
        content = bounded.read_bytes(path, regular=True)
        bounded.json_of(content, "refuse")
        found = schema_of(Measurement).validate_json(content, strict=True)
    except FileNotFoundError:
        raise ResultFileError(
            f"{path} does not exist, so there is nothing to resume; start without --resume."
        ) from None
    except OSError as error:
        raise ResultFileError(f"{path} is damaged ({error.strerror}); start a new run with another -o.") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        why = f"{where}: {first['msg']}" if where else first["msg"]
        raise ResultFileError(f"{path} is damaged ({escaped(why)[:300]}); start a new run with another -o.") from None
    except ValueError as error:
        raise ResultFileError(f"{path} is damaged ({error}); start a new run with another -o.") from None
    complaint = next(complaints(found), None)
    if complaint is not None:
        raise ResultFileError(f"{path} cannot be run: {escaped(complaint)[:300]}; start a new run with another -o.")
    return found


_Bounds = Mapping[str, tuple[float, float]]
_FAR = 1 << 62
# Wide enough for every run that could be asked for, and small enough for fio and for arithmetic in 64 bits.
_POINT_BOUNDS: _Bounds = {"io_bytes": (1, 1 << 40), "numjobs": (1, 1 << 20)}
_SETTING_BOUNDS: _Bounds = {
    "files": (1, 1 << 20),
    "file_bytes": (1, _FAR),
    "runtime_s": (1, 30 * 86_400),
    "rwmixread": (1, 99),
    "precision": (1e-6, 1),
}
_USE_BOUNDS: _Bounds = {
    "tp": (1, 1 << 20),
    "io_bytes": (1, 1 << 40),
    "block_tokens": (1, 1 << 30),
    "units_per_block": (0, 1 << 30),
    "parallelism_per_request": (1, 1 << 20),
    "windowed_units": (0, 1 << 30),
    "window_units": (0, 1 << 40),
}
_RUN_BOUNDS: _Bounds = {"repeats": (1, 100_000)}


def complaints(measurement: Measurement) -> Iterator[str]:
    """Why a measurement that somebody else wrote down cannot be run: what this kvbench would never have planned."""
    yield from _out_of_bounds(measurement, _RUN_BOUNDS)
    for use in measurement.uses:
        yield from _out_of_bounds(use, _USE_BOUNDS)
    lanes = {(plan.name, plan.driver): plan for plan in measurement.tiers}
    if not lanes or len(lanes) < len(measurement.tiers):
        yield "it names no tier, or one twice"
    for plan in measurement.tiers:
        yield from _plan_complaints(plan)
    if len({point.id for point in measurement.points}) < len(measurement.points):
        yield "two points have one id"
    for point in measurement.points:
        yield from _out_of_bounds(point, _POINT_BOUNDS)
        if not is_point_id(point.id, point.io_bytes, point.mix, point.numjobs, point.driver):
            yield f"no point can be called {point.id!r}"
        elif (point.tier, point.driver) not in lanes:
            yield f"the tier of the point {point.id} is not part of the run"
        else:
            yield from _size_complaints(point, lanes[point.tier, point.driver])


def _out_of_bounds(item: object, bounds: _Bounds) -> Iterator[str]:
    for name, (low, high) in bounds.items():
        value = getattr(item, name)
        if not low <= value <= high:
            yield f"{name} is not between {low:,} and {high:,}"


def _plan_complaints(plan: TierPlan) -> Iterator[str]:
    yield from _out_of_bounds(plan.settings, _SETTING_BOUNDS)
    if plan.driver not in driver_choice():
        yield f"the driver {plan.driver!r} is none of {', '.join(driver_choice())}"
    if not is_one_line(plan.name + plan.target) or "\0" in plan.target:
        yield f"no tier can be {plan.name + '=' + plan.target!r}"
    if plan.limit_bytes_per_s is not None and plan.limit_bytes_per_s < 1:
        yield "limit_bytes_per_s is not a rate"
    if _least_of(plan) is not None and (plan.settings.layout != "file-per-block" or plan.settings.files != 1):
        yield f"{plan.driver} stores every block by itself"
    if not all(1 <= size <= plan.settings.file_bytes for size in plan.settings.block_sizes):
        yield "a block size is not between 1 and the size of the data set"
    if plan.driver == "replay":
        find_release(plan.settings.engine_version)


def _size_complaints(point: Point, plan: TierPlan) -> Iterator[str]:
    settings = plan.settings
    known = settings.layout == "large-files" or point.io_bytes in settings.block_sizes
    least_blocks = _least_of(plan)
    least = 1 if least_blocks is None else least_blocks([point.numjobs])
    if not known or settings.blocks_of(point.io_bytes) < least:
        yield f"the data set is too small for the point {point.id}"


def _least_of(plan: TierPlan) -> Callable[[Sequence[int]], int] | None:
    """How many blocks of a size the job counts need, of a program that stores every block by itself; else None."""
    program = PROGRAMS.get(plan.program)
    return None if program is None else program.least_blocks
