"""``kvbench fio`` (also ``measure``): measure tiers with fio and judge every point."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvbench.commands.options import (
    AccessOption,
    BeforeReadOption,
    BlockTokensOption,
    BuffersOption,
    ConnectorOption,
    DatasetOption,
    DriverOption,
    EngineVersionOption,
    FioLayoutOption,
    GpuArchOption,
    JsonOption,
    KvDtypeOption,
    LimitOption,
    MixOption,
    ModelOption,
    NumjobsOption,
    PrecisionOption,
    PublishedOption,
    ReadCounterOption,
    ReadShareOption,
    RuntimeOption,
    TpOption,
    WatchOption,
    parse_labels,
)
from kvbench.commands.prefill_options import (
    AllowQueuedOption,
    AnySpeedOption,
    GpuCopyOption,
    TtftFromOption,
    TtftOptions,
    gpu_copy_of,
    prefill_of,
    say_notes,
)
from kvbench.errors import EXIT_MEASUREMENT, EXIT_OK

if TYPE_CHECKING:
    from kvbench.prefill.curve import PrefillCurve
    from kvbench.record.results import RunResult
    from kvbench.run.measurement import Measurement
    from kvbench.run.runner import Decided

HELP = "Measure each tier with fio at exactly the models' I/O sizes, and judge every point."


def fio(
    tier: Annotated[
        list[str] | None,
        typer.Option("--tier", metavar="[NAME=]T", help="A directory on the tier, or a block device; repeatable."),
    ] = None,
    model: ModelOption = None,
    tp: TpOption = 1,
    kv_dtype: KvDtypeOption = "auto",
    block_tokens: BlockTokensOption = 16,
    connector: ConnectorOption = None,
    engine_version: EngineVersionOption = None,
    gpu_arch: GpuArchOption = "sm90",
    mix: MixOption = "mixed,read,write",
    rwmixread: ReadShareOption = 75,
    numjobs: NumjobsOption = None,
    runtime: RuntimeOption = "auto",
    dataset: DatasetOption = None,
    access: AccessOption = "random",
    published: PublishedOption = False,
    driver: DriverOption = None,
    fio_layout: FioLayoutOption = "large-files",
    buffers: BuffersOption = "engine",
    fidelity: Annotated[
        bool,
        typer.Option(
            "--fidelity",
            help="Measure every point of a directory with fio and with replay in turns, and say how far they are "
            "apart. At least two visits each.",
        ),
    ] = False,
    precision: PrecisionOption = "10%",
    repeat: Annotated[
        int, typer.Option("--repeat", min=1, help="Visit every point so often, in shuffled order; all visits pool.")
    ] = 1,
    ttft_csv: Annotated[
        Path | None,
        typer.Option("--ttft-csv", help="With --runtime auto: stop a point as soon as its verdict cannot flip."),
    ] = None,
    ttft_from: TtftFromOption = None,
    allow_queued: AllowQueuedOption = False,
    any_speed: AnySpeedOption = False,
    target_context: Annotated[str, typer.Option("--target-context", help="Context length of that verdict.")] = "32k",
    gpu_copy: GpuCopyOption = None,
    limit: LimitOption = None,
    before_read: BeforeReadOption = None,
    read_counter: ReadCounterOption = None,
    watch: WatchOption = None,
    allow_destroy: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-destroy",
            metavar="DEV",
            help="Write to this block device, given by its resolved path, and lose what is on it; repeatable. "
            "Without it a device is only read, with --mix read.",
        ),
    ] = None,
    allow_shared: Annotated[
        bool,
        typer.Option(
            "--allow-shared",
            help="Also measure a directory that others may rename in, such as a volume of mode 0777. kvbench works "
            "through an open descriptor; a point fails when its directory is renamed or replaced.",
        ),
    ] = False,
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="K=V", help="Kept in the result; repeatable.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 3 when any point carries a warning.")] = False,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Also measure an S3 endpoint that is not loopback or private; it may cost money."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be measured and write nothing.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in -o (or the newest one); repeat its commands.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Run directory. [default: reports/<UTC time>-<tier>]")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Load, derive, plan, run, judge, write."""
    from kvbench import console
    from kvbench.commands.planning import Request, commands_of, measurement_for
    from kvbench.drivers.registry import find_programs
    from kvbench.errors import UsageError
    from kvbench.report.summary import write_summary
    from kvbench.run import rundir, runner
    from kvbench.units import parse_tokens

    wanted = None
    if tier:
        request = Request(
            tiers=tier,
            models=model,
            tp=tp,
            kv_dtype=kv_dtype,
            block_tokens=block_tokens,
            connector=connector,
            engine_version=engine_version,
            gpu_arch=gpu_arch,
            mix=mix,
            rwmixread=rwmixread,
            numjobs=numjobs,
            runtime=runtime,
            precision=precision,
            repeats=repeat,
            dataset=dataset,
            access=access,
            published=published,
            limits=limit,
            before_read=before_read,
            read_counter=read_counter,
            watch=watch,
            driver=driver,
            fio_layout=fio_layout,
            fidelity=fidelity,
            buffers=buffers,
            allow_destroy=allow_destroy or (),
            yes=yes or dry_run,
            allow_shared=allow_shared or dry_run,
        )
        wanted = measurement_for(request)
    elif dry_run or not resume:
        raise UsageError("say which tier to measure: --tier DIR.")
    if wanted is not None:
        _say_unmounted(wanted)
    if dry_run and wanted is not None:
        _describe(wanted, allow_destroy or (), as_json=json)
        return 0
    if wanted is not None and driver is None and not fidelity:
        _say_replayed(wanted)
    prefill = prefill_of(TtftOptions(ttft_csv, ttft_from, allow_queued=allow_queued, any_speed=any_speed))
    say_notes(prefill)
    goal = parse_tokens(target_context)
    if prefill is not None and wanted is not None:
        _say_of_prefill(prefill.curve, wanted)
    with rundir.open_run(
        output,
        wanted,
        resume=resume,
        find=find_programs,
        labels=parse_labels(label),
        commands=commands_of(before_read, read_counter, watch),
    ) as opened:
        if opened.unlocked is not None:
            console.note(opened.unlocked)
        if wanted is None:
            _say_unmounted(opened.measurement)
        if prefill is not None and wanted is None:
            _say_of_prefill(prefill.curve, opened.measurement)
        decided = None if prefill is None else _decided(opened.path, prefill.curve, goal, gpu_copy_of(gpu_copy))
        try:
            with console.progress() as progress:
                result = runner.run(
                    opened.measurement,
                    opened.result,
                    opened.path,
                    opened.programs,
                    progress,
                    decided,
                    allow_destroy=allow_destroy or (),
                    yes=yes,
                    allow_shared=allow_shared,
                )
        finally:
            write_summary(opened.path)
            console.note(f"run directory: {opened.path}")
    show_run(result, opened.path, as_json=json)
    return exit_code(result, strict=strict)


def _say_replayed(wanted: Measurement) -> None:
    from kvbench import console

    replayed = [plan.name for plan in wanted.tiers if plan.driver == "replay"]
    if replayed:
        console.note(
            f"{', '.join(replayed)}: replaying the connector's own file calls, which cost more than fio's on a network "
            "or FUSE mount (docs/replay.md); --driver fio takes fio."
        )


def _say_unmounted(wanted: Measurement) -> None:
    from kvbench import console
    from kvbench.tiers.kinds import inspect

    for name, target in dict.fromkeys((plan.name, plan.target) for plan in wanted.tiers):
        said = inspect(name, target).unmounted()
        if said is not None:
            console.note(f"{name}: {said}. Mount it first, unless the root file system is what you mean to measure.")


def _say_of_prefill(curve: PrefillCurve, measurement: Measurement) -> None:
    """What the verdict will not believe about the TTFT, before anything is measured; InputFileError where none can."""
    from kvbench import console
    from kvbench.decide import decision

    models = {use.model for use in measurement.uses}
    told = (decision.unnamed_model(curve, models), decision.doubted_speed(curve, measurement.uses))
    for text in filter(None, told):
        console.note(f"TTFT: {text}")


def _decided(run_dir: Path, curve: PrefillCurve, target_tokens: int, gpu_copy_bytes_per_s: int | None) -> Decided:
    """Whether a verdict still can flip, asked at every look."""
    from kvbench.decide.crossover import Goal
    from kvbench.decide.decision import Wanted, verdict_is_settled

    wanted = Wanted(curve, None, Goal(target_tokens), gpu_copy_bytes_per_s=gpu_copy_bytes_per_s)
    return lambda item, run: verdict_is_settled(item, run_dir, run, wanted)


def show_run(result: RunResult, run_dir: Path, *, as_json: bool) -> None:
    """Print a run: its result file as one object, or its tables."""
    from kvbench import console
    from kvbench.decide.runs import LoadedRun
    from kvbench.record import results
    from kvbench.record.fidelity import compare_drivers, fidelity_json
    from kvbench.report.tables import RUN

    if as_json:
        compared = compare_drivers(result)
        extra = {"fidelity": fidelity_json(compared)} if compared else {}
        console.print_json({"run_dir": str(run_dir), **results.to_json(result), **extra})
        return
    runs = (LoadedRun(run_dir.name, run_dir, result),)
    console.print_sheets(make(runs) for make in RUN)


def exit_code(result: RunResult, *, strict: bool) -> int:
    """0, or 3 when a point was not measured or, with --strict, when one carries a warning."""
    unmeasured = any(point.status != "ok" for point in result.points)
    doubted = strict and any(point.warnings for point in result.points)
    return EXIT_MEASUREMENT if unmeasured or doubted else EXIT_OK


def _describe(wanted: Measurement, allow_destroy: Sequence[str], *, as_json: bool) -> None:
    from dataclasses import asdict

    from kvbench import console
    from kvbench.tiers.kinds import inspect
    from kvbench.units import format_bytes

    tiers = {plan.name: inspect(plan.name, plan.target, allow_destroy) for plan in wanted.tiers}
    guarded = [name for name, tier in tiers.items() if tier.needs_yes]
    shared = {name: why for name, tier in tiers.items() if (why := tier.renamed_by()) is not None}
    if as_json:
        console.print_json({**asdict(wanted), "needs_yes": guarded, "needs_allow_shared": list(shared)})
        return
    seconds = 0
    for plan in wanted.tiers:
        lane = plan.name, plan.driver
        count = sum(1 for point in wanted.points if (point.tier, point.driver) == lane)
        seconds += count * plan.settings.runtime_s * wanted.repeats
        does = tiers[plan.name].would(format_bytes(plan.settings.dataset_bytes))
        console.print_line(
            f"{plan.name}: would {does} {plan.target} and measure {count} points of {plan.settings.runtime_s} s"
        )
    console.print_table(
        None,
        ("point", "tier", "I/O", "mix", "jobs"),
        [
            (point.id, point.tier, format_bytes(point.io_bytes), point.mix, str(point.numjobs))
            for point in wanted.points
        ],
        right=(2, 4),
    )
    for name in guarded:
        console.print_line(
            f"{name} needs --yes: its endpoint is not known as loopback or private, and requests may cost money"
        )
    for name, why in shared.items():
        console.print_line(f"{name} needs --allow-shared: others could rename what kvbench makes there ({why})")
    console.print_line(f"at least {seconds // 60} min {seconds % 60} s without writing the data sets")
