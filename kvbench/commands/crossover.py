"""``kvbench crossover``: restore against recompute, per tier and model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvbench.commands.options import JsonOption
from kvbench.commands.prefill_options import (
    AllowQueuedOption,
    AnySpeedOption,
    BudgetOption,
    ConcurrentOption,
    CurveOption,
    GpuCopyOption,
    Prefill,
    ReadsOption,
    SkipOption,
    TargetOption,
    TtftCsvOption,
    TtftFromOption,
    TtftModelOption,
    TtftOptions,
    goal_of,
    gpu_copy_of,
    prefill_of,
    say_notes,
)

if TYPE_CHECKING:
    from kvbench.decide.decision import Decisions
    from kvbench.report.data import Sheet

HELP = "Say from which context length on restoring beats recomputing, per tier and model."


def crossover(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUN_DIR]...", help="Measured runs. [default: the newest below reports/]"),
    ] = None,
    ttft_csv: TtftCsvOption = None,
    ttft_from: TtftFromOption = None,
    ttft_model: TtftModelOption = None,
    allow_queued: AllowQueuedOption = False,
    any_speed: AnySpeedOption = False,
    skip_bad_rows: SkipOption = False,
    model: Annotated[str | None, typer.Option("--model", help="Answer for this model of the run only.")] = None,
    tp: Annotated[int | None, typer.Option("--tp", min=1, help="Answer for this TP of the run only.")] = None,
    connector: Annotated[str | None, typer.Option("--connector", help="Answer for this connector only.")] = None,
    mix: ReadsOption = "auto",
    prefill_curve: CurveOption = "quadratic",
    gpu_copy: GpuCopyOption = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if",
            metavar="NAME=N",
            help="Also decide another deployment on the same measurements: block-tokens=64, tp=2 or parallel=32; "
            "repeatable.",
        ),
    ] = None,
    p99_ms: Annotated[
        str | None,
        typer.Option("--p99-ms", help="Print the published figure for these block tails instead, like 5,50."),
    ] = None,
    target_context: TargetOption = "32k",
    ttft_budget: BudgetOption = None,
    concurrent_restores: ConcurrentOption = "1",
    markdown: Annotated[
        Path | None, typer.Option("--markdown", help="Also write the tables to this Markdown file.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Load, fit, decide, print."""
    from kvbench import console
    from kvbench.commands.options import parse_counts
    from kvbench.decide import contract, decision
    from kvbench.decide.whatif import parse_what_ifs
    from kvbench.errors import UsageError
    from kvbench.record import results
    from kvbench.report.markdown import markdown as as_markdown
    from kvbench.report.ours import MARKDOWN_HEADING, require_ours
    from kvbench.report.tables import DECISION
    from kvbench.run import rundir

    prefill = prefill_of(
        TtftOptions(ttft_csv, ttft_from, ttft_model, allow_queued, skip_bad_rows, prefill_curve, any_speed)
    )
    found = list(runs or [])
    if not found and p99_ms is None and (newest := rundir.newest()) is not None:
        console.note(f"run: {newest}")
        found = [newest]
    if p99_ms is not None and found:
        raise UsageError("--p99-ms prints the published figure for given tails; leave out RUN_DIR, or --p99-ms.")
    if not found:
        _published("5,50,500" if p99_ms is None else p99_ms, prefill, as_json=json)
        return
    if prefill is None:
        raise UsageError(
            "say how fast the GPUs recompute: --ttft-csv FILE or --ttft-from PATH (or --p99-ms for the published "
            "figure)."
        )
    wanted = decision.Wanted(
        curve=prefill.curve,
        samples=prefill.samples,
        goal=goal_of(target_context, ttft_budget),
        concurrent=parse_counts(concurrent_restores, "--concurrent-restores"),
        mix=decision.parse_mix(mix),
        models=() if model is None else (model,),
        tp=tp,
        connector=connector,
        gpu_copy_bytes_per_s=gpu_copy_of(gpu_copy),
        what_ifs=parse_what_ifs(what_if),
    )
    decided = decision.decide_runs([results.open_run(path) for path in found], wanted)
    decided = replace(decided, notes=tuple(dict.fromkeys((*decided.notes, *prefill.curve.notes))))
    shown = [make(decided) for make in DECISION]
    if markdown is not None:
        require_ours(markdown, f"# {MARKDOWN_HEADING}")
        results.write_atomically(markdown, as_markdown(shown, MARKDOWN_HEADING))
    if json:
        console.print_json(_with_samples(contract.to_json(decided), prefill))
        return
    _print(shown, decided)


def _with_samples(printed: dict[str, Any], prefill: Prefill | None) -> dict[str, Any]:
    """The JSON with what must be known about the samples behind its curve."""
    if prefill is None:
        return printed
    told = {"left_out": prefill.samples.skipped_rows, "notes": list(prefill.curve.notes)}
    return {**printed, "prefill": {**printed["prefill"], **told}}


def _print(shown: Sequence[Sheet], decided: Decisions) -> None:
    from kvbench import console
    from kvbench.report.decisions import footnotes

    console.print_sheets(shown)
    for line in footnotes(decided):
        console.print_line(line)


def _published(p99_ms: str, prefill: Prefill | None, *, as_json: bool) -> None:
    from kvbench import console
    from kvbench.decide import contract, decision
    from kvbench.report.decisions import PUBLISHED_NOTE
    from kvbench.report.tables.published import published

    tails = decision.parse_tails_ms(p99_ms)
    curve = prefill.curve if prefill else None
    say_notes(prefill)
    if curve is not None and (doubt := decision.doubted_speed(curve, ())) is not None:
        console.note(f"TTFT: {doubt}")
    if as_json:
        console.print_json(_with_samples(contract.published_json(tails, curve), prefill))
        return
    console.print_sheets([published(tails, curve)])
    console.print_line(PUBLISHED_NOTE)
