"""Run directories: a fresh one for a new run, the right one to resume, the newest one to judge."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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
from kvbench.record.results import Observation, PointResult, RunResult, Use
from kvbench.run import measurement
from kvbench.run.foreign import LOCK_NAME, Commands, locked, require_own_files, require_repeated
from kvbench.run.measurement import Measurement

REPORTS = Path("reports")
IMPORTED_FOLDER = "imported"
_LONGEST_NAME = 200


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
    output = default_path(tiers) if output is None else output
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


def default_path(tiers: Sequence[str]) -> Path:
    """reports/<UTC time>-<tier>; of many tiers the first ones, since a file name ends at 255 bytes."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return REPORTS / "-".join([stamp, *map(slug, tiers)])[:_LONGEST_NAME].rstrip("-.")


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
    programs = find(plan.program for plan in wanted.tiers)
    fio = programs.get("fio") or programs.get("fio-http")
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


class ImportedRun:
    """A run that was measured elsewhere, written file by file, so that thousands of them need no memory together."""

    def __init__(self, path: Path) -> None:
        """Write into ``path``, an empty directory."""
        self.path = path
        self._points: dict[str, PointResult] = {}
        self._written: list[Path] = []

    @property
    def io_bytes(self) -> frozenset[int]:
        """The I/O sizes that were measured."""
        return frozenset(point.io_bytes for point in self._points.values())

    def add(self, name: str, documents: Sequence[object], found: Sequence[Observation]) -> None:
        """Write the documents of one file (without their secrets) and the histograms of its points."""
        self._write(f"{IMPORTED_FOLDER}/{slug(name)}.json", json.dumps(documents) + "\n")
        for item in found:
            self._add(item)

    def finish(self, uses: tuple[Use, ...], labels: Mapping[str, str]) -> RunResult:
        """The run, with its result file written."""
        result = RunResult(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            uses=uses,
            points=tuple(self._points.values()),
            labels=dict(labels),
            environment={"kvbench": __version__, "measured_elsewhere": True},
        )
        self._written += [self.path / results.RESULT_NAME]
        results.save(result, self.path)
        return result

    def discard(self) -> None:
        """Remove what was written, and nothing else."""
        for path in self._written:
            path.unlink(missing_ok=True)
        (self.path / LOCK_NAME).unlink(missing_ok=True)
        with suppress(OSError):
            (self.path / IMPORTED_FOLDER).rmdir()

    def _add(self, item: Observation) -> None:
        point, count = item.point, 1
        while point.id in self._points:
            # Names of two files and their jobs may join to the same text.
            count += 1
            point = replace(point, id=f"{item.point.id}-{count}")
        if item.histograms:
            name = f"{IMPORTED_FOLDER}/{point.id}.histogram.json"
            point = replace(point, histogram=name)
            self._write(name, results.histograms_text(item.histograms))
        self._points[point.id] = point

    def _write(self, name: str, text: str) -> None:
        # A copy of what exists elsewhere: waiting for the disk after each of thousands would take most of the time.
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        self._written.append(path)
        path.write_text(text, encoding="utf-8", errors="backslashreplace")


@contextmanager
def importing(output: Path | None, names: Sequence[str]) -> Iterator[ImportedRun]:
    """A run directory to fill with what was measured elsewhere; nothing stays of it where that fails."""
    wanted = output if output is not None else default_path(names)
    made = [folder for folder in (wanted, *wanted.parents) if not folder.exists()]
    imported = ImportedRun(fresh(wanted, names))
    try:
        with claimed(imported.path):
            yield imported
    except BaseException:
        imported.discard()
        for folder in made:
            with suppress(OSError):
                folder.rmdir()
        raise


@contextmanager
def _resumed(run_dir: Path, wanted: Measurement | None, find: Find, commands: Commands) -> Iterator[OpenRun]:
    saved = measurement.load(run_dir)
    if wanted is not None and not _same(saved, wanted):
        raise UsageError(f"{run_dir} was started with other options; repeat those, or give only -o and --resume.")
    require_repeated(run_dir, saved.commands, commands)
    require_own_files(run_dir)
    programs = find(plan.program for plan in saved.tiers)
    with locked(run_dir) as unlocked:
        yield OpenRun(run_dir, saved, results.load(run_dir), programs, unlocked)


def _same(saved: Measurement, wanted: Measurement) -> bool:
    # The default data set follows the free space, which has changed since: the saved one counts.
    def key(plan: Measurement) -> object:
        tiers = [(tier.name, tier.target, tier.driver, replace(tier.settings, file_bytes=0)) for tier in plan.tiers]
        return tiers, plan.uses, plan.points, plan.repeats

    return key(saved) == key(wanted)
