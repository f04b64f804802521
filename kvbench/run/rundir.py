"""Run directories: a fresh one for a new run, the right one to resume, the newest one to judge."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from kvbench import __version__
from kvbench.drivers import Program
from kvbench.errors import UsageError
from kvbench.host import environment
from kvbench.record import results
from kvbench.record.point import slug
from kvbench.record.results import Observation, RunResult, Use
from kvbench.run import measurement
from kvbench.run.foreign import LOCK_NAME, Commands, locked, require_own_files, require_repeated
from kvbench.run.measurement import Measurement

REPORTS = Path("reports")
IMPORTED_FOLDER = "imported"


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run directory, what is to be measured in it with which programs, and what has been measured so far.

    ``unlocked`` says why nothing keeps another process out of it, where that cannot be done.
    """

    path: Path
    measurement: Measurement
    result: RunResult
    programs: Mapping[str, Program]
    unlocked: str | None = None


def fresh(output: Path | None, tiers: Sequence[str]) -> Path:
    """An empty directory for a new run: ``output``, else reports/<UTC time>-<tier>; a used one is never reused."""
    if output is None:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        output = REPORTS / "-".join([stamp, *map(slug, tiers)])
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UsageError(f"{output} is not empty; name another -o, or continue that run with --resume.")
    try:
        output.mkdir(parents=True, exist_ok=True)
        probe = output / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(f"the run directory {output} cannot be written ({error.strerror}); name another -o.") from None
    return output.resolve()


def newest() -> Path | None:
    """The run directory below reports/ that was written last, or None."""
    found = [path.parent for path in REPORTS.glob(f"*/{results.RESULT_NAME}")]
    return max(found, key=lambda path: (path / results.RESULT_NAME).stat().st_mtime, default=None)


def to_resume(output: Path | None) -> Path:
    """The run directory to continue: ``output``, else the newest one; UsageError when there is none."""
    if output is None:
        started = [path.parent for path in REPORTS.glob(f"*/{measurement.MEASUREMENT_NAME}")]
        output = max(started, key=lambda path: path.stat().st_mtime, default=None)
    if output is None:
        raise UsageError(f"there is no run below {REPORTS}/ to resume; name it with -o.")
    return output.resolve()


Find = Callable[[Iterable[str]], Mapping[str, Program]]


@contextmanager
def open_run(
    output: Path | None,
    wanted: Measurement | None,
    *,
    resume: bool,
    find: Find,
    labels: Mapping[str, str],
    commands: Commands = MappingProxyType({}),
) -> Iterator[OpenRun]:
    """A run directory ready to be filled: a fresh one for ``wanted``, or with ``resume`` the one that was begun.

    No other process gets it until the end. ``find`` gives the programs of the drivers by name; when one is missing
    nothing is created. ``commands`` are those of this command line by option: a run is resumed with no others.
    """
    if resume:
        with _resumed(to_resume(output), wanted, find, commands) as opened:
            yield opened
        return
    if wanted is None:
        raise UsageError("there is nothing to measure; name a tier.")
    programs = find(plan.driver for plan in wanted.tiers)
    fio = programs.get("fio")
    run_dir = fresh(output, list(dict.fromkeys(plan.name for plan in wanted.tiers)))
    with claimed(run_dir) as unlocked:
        result = RunResult(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            uses=wanted.uses,
            labels=dict(labels),
            environment=environment.collect(fio.version if fio else None),
        )
        results.save(result, run_dir)
        measurement.save(wanted, run_dir)
        yield OpenRun(run_dir, wanted, result, programs, unlocked)


@contextmanager
def claimed(run_dir: Path) -> Iterator[str | None]:
    """A fresh run directory for this process alone (see ``locked``); UsageError when another was quicker."""
    with locked(run_dir) as unlocked:
        if {path.name for path in run_dir.iterdir()} - {LOCK_NAME}:
            raise UsageError(f"another kvbench has just used {run_dir}; name another -o.")
        yield unlocked


def save_imported(
    run_dir: Path,
    raw: Mapping[str, object],
    imported: Sequence[Observation],
    uses: tuple[Use, ...],
    labels: Mapping[str, str],
) -> RunResult:
    """Write a run that was measured elsewhere: its raw documents (secrets removed), histograms and result."""
    for name, documents in raw.items():
        results.write_atomically(run_dir / IMPORTED_FOLDER / name, json.dumps(documents, indent=1) + "\n")
    result = RunResult(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        uses=uses,
        labels=dict(labels),
        environment={"kvbench": __version__, "measured_elsewhere": True},
    )
    for item in imported:
        point = item.point
        if item.histograms:
            point = replace(point, histogram=f"{IMPORTED_FOLDER}/{point.id}.histogram.json")
            results.save_histograms(run_dir, f"{IMPORTED_FOLDER}/{point.id}.histogram.json", item.histograms)
        result = result.with_point(point)
    results.save(result, run_dir)
    return result


@contextmanager
def _resumed(run_dir: Path, wanted: Measurement | None, find: Find, commands: Commands) -> Iterator[OpenRun]:
    saved = measurement.load(run_dir)
    if wanted is not None and not _same(saved, wanted):
        raise UsageError(f"{run_dir} was started with other options; repeat those, or give only -o and --resume.")
    require_repeated(run_dir, saved.commands, commands)
    require_own_files(run_dir)
    programs = find(plan.driver for plan in saved.tiers)
    with locked(run_dir) as unlocked:
        yield OpenRun(run_dir, saved, results.load(run_dir), programs, unlocked)


def _same(saved: Measurement, wanted: Measurement) -> bool:
    # The default data set follows the free space, which has changed since: the saved one counts.
    def key(plan: Measurement) -> object:
        tiers = [(tier.name, tier.target, tier.driver, replace(tier.settings, file_bytes=0)) for tier in plan.tiers]
        return tiers, plan.uses, plan.points, plan.repeats

    return key(saved) == key(wanted)
