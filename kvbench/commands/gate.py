"""``kvbench gate``: the verdict as an exit code, JUnit XML and Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvbench.commands.options import JsonOption
from kvbench.commands.prefill_options import (
    AllowQueuedOption,
    BudgetOption,
    ConcurrentOption,
    CurveOption,
    GpuCopyOption,
    ReadsOption,
    SkipOption,
    TargetOption,
    TtftCsvOption,
    TtftFromOption,
    TtftModelOption,
    TtftOptions,
    wanted_of,
)
from kvbench.commands.report import ModelsOption, RunsArgument

HELP = "Say whether every measured tier is viable: exit 0 viable, 1 not viable, 3 cannot say."


def gate(
    runs: RunsArgument,
    ttft_csv: TtftCsvOption = None,
    ttft_from: TtftFromOption = None,
    ttft_model: TtftModelOption = None,
    allow_queued: AllowQueuedOption = False,
    skip_bad_rows: SkipOption = False,
    model: ModelsOption = None,
    target_context: TargetOption = "32k",
    ttft_budget: BudgetOption = None,
    concurrent_restores: ConcurrentOption = "1",
    mix: ReadsOption = "auto",
    prefill_curve: CurveOption = "quadratic",
    gpu_copy: GpuCopyOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="A verdict that rests on a point with any warning counts as cannot say.")
    ] = False,
    junit: Annotated[Path | None, typer.Option("--junit", help="Also write JUnit XML to this file.")] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", help="Also append the summary in Markdown to this file.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Load, judge, write for the CI system, print one line, end with the verdict's code."""
    from kvbench import console
    from kvbench.decide.judged import load_runs
    from kvbench.record.results import write_atomically
    from kvbench.report import gate as gates
    from kvbench.report.build import build
    from kvbench.report.junit import junit as as_junit

    ttft = TtftOptions(ttft_csv, ttft_from, ttft_model, allow_queued, skip_bad_rows, prefill_curve)
    wanted = wanted_of(ttft, model, target_context, ttft_budget, concurrent_restores, mix, gpu_copy)
    built = build(load_runs(runs), wanted)
    result = gates.gate(built, strict=strict)
    if junit is not None:
        write_atomically(junit, as_junit(result, built.title))
    if markdown is not None:
        _append(markdown, gates.summary_markdown(result))
    if json:
        console.print_json(gates.to_json(result))
    else:
        console.print_text(gates.line(result))
    return result.exit_code


def _append(path: Path, text: str) -> None:
    """Add to what other steps wrote: $GITHUB_STEP_SUMMARY is shared by the commands of a step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(text)
