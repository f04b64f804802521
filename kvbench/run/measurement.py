"""What a run is going to measure, written down before it starts so that a killed run can be resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvbench.border import bounded
from kvbench.border.escaping import escaped
from kvbench.drivers.fio.job import MAX_SHARED_FILES, PUBLISHED_FILE_BYTES
from kvbench.drivers.registry import PROGRAMS, driver_choice
from kvbench.drivers.settings import Access, Buffers, JobSettings, Layout
from kvbench.engines.vllm.releases import find_release
from kvbench.errors import ResultFileError, UsageError
from kvbench.record.point import Point, is_point_id
from kvbench.record.results import Use, inside, write_atomically
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


def plan_tier(
    tier: Tier,
    target: str,
    numjobs: Sequence[int],
    io_bytes: Sequence[int],
    *,
    dataset_bytes: int | None,
    runtime_s: int | None,
    precision: float,
    rwmixread: int,
    access: Access,
    published: bool,
    driver: str | None = None,
    layout: Layout = "large-files",
    engine_version: str | None = None,
    buffers: Buffers = "engine",
) -> TierPlan:
    """How ``tier`` is measured.

    One data file for each job of the largest job count (256 at most), in whole MiB; or a file for each block, all block
    sizes sharing the data set, where the driver or ``layout`` asks for it. ``engine_version`` is what replay replays.
    The study's own job says nothing of memory.
    """
    chosen = driver or tier.kind.driver
    least_blocks = PROGRAMS[tier.kind.program_of(chosen)].least_blocks
    wanted = tier.default_dataset_bytes() if dataset_bytes is None else dataset_bytes
    blockwise = least_blocks is not None or layout == "file-per-block"
    sizes = tuple(sorted(set(io_bytes))) if blockwise else ()
    if least_blocks is not None:
        files, file_bytes = 1, wanted // _MIB * _MIB
        _require_blocks(file_bytes, sizes, least_blocks(numjobs), files)
    elif sizes:
        # fio lets only one job at a time use a file that several of them name, so every job has its own.
        files = max(numjobs)
        file_bytes = wanted // files // _MIB * _MIB
        _require_blocks(file_bytes, sizes, 1, files)
    else:
        files, file_bytes = _shared_files(wanted, dataset_bytes, numjobs, max(io_bytes), published=published)
    settings = JobSettings(
        files=files,
        file_bytes=file_bytes,
        runtime_s=LONGEST_RUNTIME_S if runtime_s is None else runtime_s,
        rwmixread=rwmixread,
        access=access,
        published=published,
        auto=runtime_s is None and not published,
        precision=precision,
        device=tier.device_use,
        layout="file-per-block" if sizes else "large-files",
        block_sizes=sizes,
        engine_version=engine_version if chosen == "replay" else None,
        buffers="own" if published else buffers,
    )
    return TierPlan(tier.name, target, settings, driver=chosen)


def _shared_files(
    wanted: int, asked: int | None, numjobs: Sequence[int], largest: int, *, published: bool
) -> tuple[int, int]:
    """How many data files, and the bytes of each; UsageError when one holds no block."""
    files = max(numjobs) if published else min(max(numjobs), MAX_SHARED_FILES)
    if published:
        file_bytes = PUBLISHED_FILE_BYTES if asked is None else asked // files
    else:
        file_bytes = wanted // files // _MIB * _MIB
    if file_bytes < largest:
        least = -(-largest // _MIB) * _MIB * files
        raise UsageError(
            f"a data set of {format_bytes(files * file_bytes)} gives each of {files} jobs less than one block of "
            f"{format_bytes(largest)}; use --dataset {least} ({format_bytes(least)}) or more, or fewer --numjobs."
        )
    return files, file_bytes


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
    from pydantic import TypeAdapter

    text = TypeAdapter(Measurement).dump_json(measurement, indent=1).decode()
    write_atomically(run_dir / MEASUREMENT_NAME, text + "\n")


def load(run_dir: Path) -> Measurement:
    """The measurement that a run directory was started with; ResultFileError when it is missing, damaged or unsound."""
    from pydantic import TypeAdapter, ValidationError

    path = inside(run_dir, MEASUREMENT_NAME)
    try:
        content = bounded.read_bytes(path, regular=True)
        bounded.json_of(content, "refuse")
        found = TypeAdapter(Measurement).validate_json(content, strict=True)
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
