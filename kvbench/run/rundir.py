"""Run directories: a fresh one for a new run, the right one to resume, the newest one to judge."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from kvbench import __version__
from kvbench.drivers import Program
from kvbench.errors import UsageError
from kvbench.host import environment
from kvbench.record import results
from kvbench.record.results import Observation, RunResult, Use
from kvbench.report import tables
from kvbench.run import measurement
from kvbench.run.measurement import Measurement
from kvbench.run.plan import slug

REPORTS = Path("reports")
SUMMARY_NAME = "summary.md"
IMPORTED_FOLDER = "imported"


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run directory, what is to be measured in it with which programs, and what has been measured so far."""

    path: Path
    measurement: Measurement
    result: RunResult
    programs: Mapping[str, Program]


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


def open_run(
    output: Path | None, wanted: Measurement | None, *, resume: bool, find: Find, labels: Mapping[str, str]
) -> OpenRun:
    """A run directory ready to be filled: a fresh one for ``wanted``, or with ``resume`` the one that was begun.

    ``find`` gives the programs of the drivers by name; when one is missing nothing is created.
    """
    if resume:
        return _resumed(to_resume(output), wanted, find)
    if wanted is None:
        raise UsageError("there is nothing to measure; name a tier.")
    programs = find(plan.driver for plan in wanted.tiers)
    fio = programs.get("fio")
    run_dir = fresh(output, list(dict.fromkeys(plan.name for plan in wanted.tiers)))
    result = RunResult(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        uses=wanted.uses,
        labels=dict(labels),
        environment=environment.collect(fio.version if fio else None),
    )
    results.save(result, run_dir)
    measurement.save(wanted, run_dir)
    return OpenRun(run_dir, wanted, result, programs)


def save_imported(
    run_dir: Path,
    raw: Mapping[str, object],
    imported: Sequence[Observation],
    uses: tuple[Use, ...],
    labels: Mapping[str, str],
) -> RunResult:
    """Write a run that was measured elsewhere: its raw documents (secrets removed), histograms, result and summary."""
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
    write_summary(run_dir)
    return result


def write_summary(run_dir: Path) -> None:
    """Write RUN_DIR/summary.md from the saved result."""
    from kvbench.report.events import events_table
    from kvbench.report.fidelity import calls_table, fidelity_table

    result = results.load(run_dir)
    shown = (tables.models_table(result), tables.points_table(result), events_table(run_dir, result))
    every = (*shown, fidelity_table(result), calls_table(result), tables.warnings_table(result))
    results.write_atomically(run_dir / SUMMARY_NAME, tables.markdown(every, f"kvbench run {run_dir.name}"))


def _resumed(run_dir: Path, wanted: Measurement | None, find: Find) -> OpenRun:
    saved = measurement.load(run_dir)
    if wanted is not None and not _same(saved, wanted):
        raise UsageError(f"{run_dir} was started with other options; repeat those, or give only -o and --resume.")
    programs = find(plan.driver for plan in saved.tiers)
    return OpenRun(run_dir, saved, results.load(run_dir), programs)


def _same(saved: Measurement, wanted: Measurement) -> bool:
    # The default data set follows the free space, which has changed since: the saved one counts.
    def key(plan: Measurement) -> object:
        tiers = [(tier.name, tier.target, tier.driver, replace(tier.settings, file_bytes=0)) for tier in plan.tiers]
        return tiers, plan.uses, plan.points, plan.repeats

    return key(saved) == key(wanted)
