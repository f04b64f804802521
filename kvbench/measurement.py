"""What a run is going to measure, written down before it starts so that a killed run can be resumed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvbench.drivers.fio.job import MAX_SHARED_FILES, PUBLISHED_FILE_BYTES
from kvbench.drivers.settings import Access, DeviceUse, JobSettings
from kvbench.errors import ResultFileError, UsageError
from kvbench.plan import Point
from kvbench.results import Use, write_atomically
from kvbench.tiers.device_tier import DeviceTier
from kvbench.tiers.target import Tier
from kvbench.units import format_bytes

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


@dataclass(frozen=True, slots=True)
class Measurement:
    """Everything that a run needs to know, and nothing that it finds out.

    ``before_read`` is the user's command, in words, to run before every round that reads; ``read_counter`` the one that
    says how many bytes the storage has read so far.
    """

    tiers: tuple[TierPlan, ...]
    uses: tuple[Use, ...]
    points: tuple[Point, ...]
    repeats: int = 1
    before_read: tuple[str, ...] = ()
    read_counter: tuple[str, ...] = ()


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
) -> TierPlan:
    """How ``tier`` is measured: one data file for each job of the largest job count (256 at most), in whole MiB."""
    files = max(numjobs) if published else min(max(numjobs), MAX_SHARED_FILES)
    if published:
        file_bytes = PUBLISHED_FILE_BYTES if dataset_bytes is None else dataset_bytes // files
    else:
        wanted = tier.default_dataset_bytes() if dataset_bytes is None else dataset_bytes
        file_bytes = wanted // files // _MIB * _MIB
    largest = max(io_bytes)
    if file_bytes < largest:
        least = -(-largest // _MIB) * _MIB * files
        raise UsageError(
            f"a data set of {format_bytes(files * file_bytes)} gives each of {files} jobs less than one block of "
            f"{format_bytes(largest)}; use --dataset {least} ({format_bytes(least)}) or more, or fewer --numjobs."
        )
    settings = JobSettings(
        files=files,
        file_bytes=file_bytes,
        runtime_s=LONGEST_RUNTIME_S if runtime_s is None else runtime_s,
        rwmixread=rwmixread,
        access=access,
        published=published,
        auto=runtime_s is None and not published,
        precision=precision,
        device=_device_use(tier),
    )
    return TierPlan(tier.name, target, settings, driver=driver or tier.driver)


def writes_of(measurement: Measurement, name: str) -> bool:
    """Whether any point of the tier writes."""
    return any(point.mix != "read" for point in measurement.points if point.tier == name)


def _device_use(tier: Tier) -> DeviceUse | None:
    if not isinstance(tier, DeviceTier):
        return None
    return "write" if tier.writable else "read"


def save(measurement: Measurement, run_dir: Path) -> None:
    """Write RUN_DIR/measurement.json."""
    from pydantic import TypeAdapter

    text = TypeAdapter(Measurement).dump_json(measurement, indent=1).decode()
    write_atomically(run_dir / MEASUREMENT_NAME, text + "\n")


def load(run_dir: Path) -> Measurement:
    """The measurement that a run directory was started with; ResultFileError when it is missing or damaged."""
    from pydantic import TypeAdapter, ValidationError

    path = run_dir / MEASUREMENT_NAME
    try:
        return TypeAdapter(Measurement).validate_python(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ResultFileError(
            f"{path} does not exist, so there is nothing to resume; start without --resume."
        ) from None
    except (OSError, ValueError, ValidationError) as error:
        first = str(error).splitlines()[0]
        raise ResultFileError(f"{path} is damaged ({first}); start a new run with another -o.") from None
