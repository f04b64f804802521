"""``kvbench fio`` (also ``measure``): measure tiers with fio and judge every point."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvbench.commands.options import (
    AccessOption,
    BlockTokensOption,
    ConnectorOption,
    DatasetOption,
    JsonOption,
    KvDtypeOption,
    MixOption,
    ModelOption,
    NumjobsOption,
    PublishedOption,
    ReadShareOption,
    RuntimeOption,
    TpOption,
    parse_labels,
)
from kvbench.errors import EXIT_MEASUREMENT, EXIT_OK

if TYPE_CHECKING:
    from kvbench.measurement import Measurement
    from kvbench.results import RunResult

HELP = "Measure each tier with fio at exactly the models' I/O sizes, and judge every point."


def fio(
    tier: Annotated[
        list[str] | None, typer.Option("--tier", metavar="[NAME=]T", help="A directory on the tier; repeatable.")
    ] = None,
    model: ModelOption = None,
    tp: TpOption = 1,
    kv_dtype: KvDtypeOption = "auto",
    block_tokens: BlockTokensOption = 16,
    connector: ConnectorOption = "logical",
    mix: MixOption = "mixed,read,write",
    rwmixread: ReadShareOption = 75,
    numjobs: NumjobsOption = "1,16",
    runtime: RuntimeOption = 60,
    dataset: DatasetOption = None,
    access: AccessOption = "random",
    published: PublishedOption = False,
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="K=V", help="Kept in the result; repeatable.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 3 when any point carries a warning.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be measured and write nothing.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in -o (or the newest one).")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Run directory. [default: reports/<UTC time>-<tier>]")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Load, derive, plan, run, judge, write."""
    from kvbench import console, rundir, runner
    from kvbench.commands.planning import Request, measurement_for
    from kvbench.drivers.fio.run import find_fio
    from kvbench.errors import UsageError

    wanted = None
    if tier:
        request = Request(
            tier,
            model,
            tp,
            kv_dtype,
            block_tokens,
            connector,
            mix,
            rwmixread,
            numjobs,
            runtime,
            dataset,
            access,
            published,
        )
        wanted = measurement_for(request)
    elif dry_run or not resume:
        raise UsageError("say which tier to measure: --tier DIR.")
    if dry_run and wanted is not None:
        _describe(wanted, as_json=json)
        return 0
    program = find_fio()
    opened = rundir.open_run(output, wanted, resume=resume, fio_version=program.version, labels=parse_labels(label))
    try:
        with console.progress() as progress:
            result = runner.run(opened.measurement, opened.result, opened.path, program, progress)
    finally:
        rundir.write_summary(opened.path)
        console.note(f"run directory: {opened.path}")
    show_run(result, opened.path, as_json=json)
    return exit_code(result, strict=strict)


def show_run(result: RunResult, run_dir: Path, *, as_json: bool) -> None:
    """Print a run: its result file as one object, or its tables."""
    from kvbench import console, results
    from kvbench.report import tables

    if as_json:
        console.print_json({"run_dir": str(run_dir), **results.to_json(result)})
        return
    for table in (tables.models_table(result), tables.points_table(result), tables.warnings_summary(result)):
        if table.rows:
            console.print_table(table.title, table.columns, table.rows, right=table.right)


def exit_code(result: RunResult, *, strict: bool) -> int:
    """0, or 3 when a point was not measured or, with --strict, when one carries a warning."""
    unmeasured = any(point.status != "ok" for point in result.points)
    doubted = strict and any(point.warnings for point in result.points)
    return EXIT_MEASUREMENT if unmeasured or doubted else EXIT_OK


def _describe(wanted: Measurement, *, as_json: bool) -> None:
    from dataclasses import asdict

    from kvbench import console
    from kvbench.units import format_bytes

    if as_json:
        console.print_json(asdict(wanted))
        return
    seconds = 0
    for plan in wanted.tiers:
        count = sum(1 for point in wanted.points if point.tier == plan.name)
        seconds += count * plan.settings.runtime_s
        typer.echo(
            f"{plan.name}: would write {format_bytes(plan.settings.dataset_bytes)} below {plan.target} "
            f"and measure {count} points of {plan.settings.runtime_s} s"
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
    typer.echo(f"at least {seconds // 60} min {seconds % 60} s without writing the data sets")
