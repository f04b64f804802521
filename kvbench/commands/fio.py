"""``kvbench fio`` (also ``measure``): measure tiers with fio and judge every point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from kvbench import console
from kvbench.commands.options import JsonOption, LabelOption, LimitOption, RunDirOption, StrictOptions, TiersOption
from kvbench.commands.planning import (
    AskedRun,
    ConsentOptions,
    DriverOptions,
    HookOptions,
    MethodOptions,
    ModelOptions,
    measurement_for,
)
from kvbench.commands.prefill_options import Prefill, TargetOptions, TtftOptions
from kvbench.decide import decision
from kvbench.decide.crossover import Goal
from kvbench.decide.runs import LoadedRun
from kvbench.drivers.registry import find_programs
from kvbench.errors import EXIT_MEASUREMENT, EXIT_OK, RemovalHangs, UsageError
from kvbench.prefill.curve import PrefillCurve
from kvbench.record import results
from kvbench.record.fidelity import compare_drivers, fidelity_json
from kvbench.record.results import RunResult
from kvbench.report.listings.planned import planned
from kvbench.report.summary import write_summary
from kvbench.report.tables import RUN
from kvbench.run import rundir, runner
from kvbench.run.measurement import Measurement, TierPlan
from kvbench.run.outlook import Outlook
from kvbench.tiers.kinds import inspect
from kvbench.tiers.tier import Tier
from kvbench.units import format_bytes


def fio(
    *,
    tier: TiersOption = None,
    models: ModelOptions,
    method: MethodOptions,
    drivers: DriverOptions,
    ttft: TtftOptions,
    target: TargetOptions,
    limit: LimitOption = None,
    hooks: HookOptions,
    consent: ConsentOptions,
    label: LabelOption = None,
    strict: StrictOptions,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be measured and write nothing.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in -o (or the newest one); repeat its commands.")
    ] = False,
    output: RunDirOption = None,
    json: JsonOption = False,
) -> int:
    """Load, derive, plan, run, judge, write."""
    if not tier and (dry_run or not resume):
        raise UsageError("say which tier to measure: --tier DIR.")
    granted = replace(consent, yes=True, allow_shared=True) if dry_run else consent
    wanted = measurement_for(AskedRun(tier, models, method, drivers, hooks, limit, granted)) if tier else None
    if wanted is not None:
        _say_unmounted(wanted)
        if dry_run:
            _describe(wanted, consent.devices, as_json=json)
            return EXIT_OK
        if drivers.driver is None and not drivers.fidelity:
            _say_replayed(wanted)
    prefill = ttft.prefill()
    if prefill is not None:
        prefill.say_notes()
        if wanted is not None:
            _say_of_prefill(prefill.curve, wanted)
    with rundir.open_run(
        output, wanted, resume=resume, find=find_programs, labels=dict(label or ()), commands=hooks.commands
    ) as opened:
        if opened.unlocked is not None:
            console.note(opened.unlocked)
        if wanted is None:
            _say_unmounted(opened.measurement)
            if prefill is not None:
                _say_of_prefill(prefill.curve, opened.measurement)
        result, hangs = _measured(opened, _decided(opened.path, prefill, target), consent)
    show_run(result, opened.path, as_json=json)
    return EXIT_MEASUREMENT if hangs else exit_code(result, strict)


def _measured(
    opened: rundir.OpenRun, decided: runner.Decided | None, consent: ConsentOptions
) -> tuple[RunResult, bool]:
    """The run as measured, and whether a tier does not answer while what was made on it is removed."""
    try:
        return _measure(opened, decided, consent), False
    except RemovalHangs:
        # Said where it happened; all that was measured is on disk.
        return results.load(opened.path), True


def _measure(opened: rundir.OpenRun, decided: runner.Decided | None, consent: ConsentOptions) -> RunResult:
    """The run as measured, with its summary beside it whatever happened."""
    try:
        with console.progress(Outlook(opened.measurement, opened.result.points)) as progress:
            return runner.run(
                opened.measurement,
                opened.result,
                opened.path,
                opened.programs,
                progress,
                decided,
                allow_destroy=consent.devices,
                yes=consent.yes,
                allow_shared=consent.allow_shared,
            )
    finally:
        if (opened.path / results.RESULT_NAME).exists():
            write_summary(opened.path)
        console.note(f"run directory: {opened.path}")


def _say_replayed(wanted: Measurement) -> None:
    replayed = [plan.name for plan in wanted.tiers if plan.driver == "replay"]
    if replayed:
        console.note(
            f"{', '.join(replayed)}: replaying the connector's own file calls, which cost more than fio's on a network "
            "or FUSE mount (docs/replay.md); --driver fio takes fio."
        )


def _say_unmounted(wanted: Measurement) -> None:
    for name, target in dict.fromkeys((plan.name, plan.target) for plan in wanted.tiers):
        said = inspect(name, target).unmounted()
        if said is not None:
            console.note(f"{name}: {said}. Mount it first, unless the root file system is what you mean to measure.")


def _say_of_prefill(curve: PrefillCurve, measurement: Measurement) -> None:
    """What the verdict will not believe about the TTFT, before anything is measured; InputFileError where none can."""
    models = {use.model for use in measurement.uses}
    told = (decision.unnamed_model(curve, models), decision.doubted_speed(curve, measurement.uses))
    for text in filter(None, told):
        console.note(f"TTFT: {text}")


def _decided(run_dir: Path, prefill: Prefill | None, target: TargetOptions) -> runner.Decided | None:
    """Whether a verdict still can flip, asked at every look; None where nothing decides."""
    if prefill is None:
        return None
    wanted = decision.Wanted(
        prefill.curve,
        None,
        Goal(target.target_context),
        gpu_copy_bytes_per_s=target.gpu_copy,
        hit_overhead_s=target.hit_overhead,
    )
    return lambda item, run: decision.verdict_is_settled(item, run_dir, run, wanted)


def show_run(result: RunResult, run_dir: Path, *, as_json: bool) -> None:
    """Print a run: its result file as one object, or its tables."""
    if as_json:
        compared = compare_drivers(result)
        extra = {"fidelity": fidelity_json(compared)} if compared else {}
        console.print_json({"run_dir": str(run_dir), **results.to_json(result), **extra})
        return
    runs = (LoadedRun(run_dir.name, run_dir, result),)
    console.print_sheets(make(runs) for make in RUN)


def exit_code(result: RunResult, strict: StrictOptions) -> int:
    """0, or 3 when a point was not measured or, with --strict, when one carries a warning that counts."""
    unmeasured = any(point.status != "ok" for point in result.points)
    doubted = strict.counts(warning.code for point in result.points for warning in point.warnings)
    return EXIT_MEASUREMENT if unmeasured or doubted else EXIT_OK


def _describe(wanted: Measurement, allow_destroy: Sequence[str], *, as_json: bool) -> None:
    tiers = {plan.name: inspect(plan.name, plan.target, allow_destroy) for plan in wanted.tiers}
    guarded = [name for name, tier in tiers.items() if tier.needs_yes]
    shared = {name: why for name, tier in tiers.items() if (why := tier.renamed_by()) is not None}
    if as_json:
        console.print_json({**asdict(wanted), "needs_yes": guarded, "needs_allow_shared": list(shared)})
        return
    for plan in wanted.tiers:
        _describe_tier(wanted, plan, tiers[plan.name])
    console.print_sheets([planned(wanted.points)])
    for name in guarded:
        console.print_line(
            f"{name} needs --yes: its endpoint is not known as loopback or private, and requests may cost money"
        )
    for name, why in shared.items():
        console.print_line(f"{name} needs --allow-shared: others could rename what kvbench makes there ({why})")
    times = wanted.point_times()
    least, most = sum(time.least_s for time in times.values()), sum(time.most_s for time in times.values())
    console.print_line(f"measuring takes {_span(least, most)}; the data sets are written before that")


def _span(least_s: int, most_s: int) -> str:
    """``3 min 0 s``, or ``at most 10 min 0 s, and 3 min 0 s where all is soon known``."""
    most = f"{most_s // 60} min {most_s % 60} s"
    if least_s == most_s:
        return most
    return f"at most {most}, and {least_s // 60} min {least_s % 60} s where everything is soon known"


def _describe_tier(wanted: Measurement, plan: TierPlan, tier: Tier) -> None:
    """Print what would be done to a tier."""
    settings = plan.settings
    count = sum(1 for point in wanted.points if (point.tier, point.driver) == (plan.name, plan.driver))
    most = "at most " if settings.auto else ""
    console.print_line(
        f"{plan.name}: would {tier.would(format_bytes(settings.dataset_bytes))} {plan.target} "
        f"and measure {count} points of {most}{settings.runtime_s} s"
    )
