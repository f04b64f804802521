"""``kvbench gate``: the verdict as an exit code, JUnit XML and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvbench.commands.options import JsonOption
from kvbench.commands.prefill_options import (
    AllowQueuedOption,
    AnySpeedOption,
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

if TYPE_CHECKING:
    from kvbench.decide.decision import Wanted
    from kvbench.decide.runs import LoadedRun

HELP = "Say whether every measured tier is viable: exit 0 viable, 1 not viable, 3 cannot say."


def gate(
    runs: RunsArgument,
    ttft_csv: TtftCsvOption = None,
    ttft_from: TtftFromOption = None,
    ttft_model: TtftModelOption = None,
    allow_queued: AllowQueuedOption = False,
    any_speed: AnySpeedOption = False,
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
    from kvbench.decide.runs import load_runs
    from kvbench.record.results import write_atomically
    from kvbench.report import gate as gates
    from kvbench.report.build import build
    from kvbench.report.junit import junit as as_junit
    from kvbench.report.ours import JUNIT_MARK, require_ours

    ttft = TtftOptions(ttft_csv, ttft_from, ttft_model, allow_queued, skip_bad_rows, prefill_curve, any_speed)
    wanted = wanted_of(ttft, model, target_context, ttft_budget, concurrent_restores, mix, gpu_copy)
    loaded = load_runs(runs)
    _require_one_model(loaded, wanted)
    built = build(loaded, wanted)
    result = gates.gate(built, strict=strict)
    if junit is not None:
        require_ours(junit, JUNIT_MARK)
        write_atomically(junit, as_junit(result, built.title))
    if markdown is not None:
        _append(markdown, gates.summary_markdown(result))
    if json:
        console.print_json(gates.to_json(result))
    else:
        console.print_line(gates.line(result))
    return result.exit_code


def _require_one_model(runs: Sequence[LoadedRun], wanted: Wanted) -> None:
    """InputFileError where TTFT of an unknown model would decide for several models: at most one of them is right."""
    from kvbench.decide.decision import same_model, unnamed_model
    from kvbench.errors import InputFileError

    held = {use.model for run in runs for use in run.result.uses}
    asked = {name for name in held if not wanted.models or any(same_model(name, model) for model in wanted.models)}
    if wanted.curve is not None and unnamed_model(wanted.curve, asked):
        raise InputFileError(
            f"{wanted.curve.source} does not say which model its TTFT is of, and the runs hold "
            f"{', '.join(sorted(asked))}; name it with --ttft-model, or judge one model with --model."
        )


def _append(path: Path, text: str) -> None:
    """Add to what other steps wrote: $GITHUB_STEP_SUMMARY is shared by the commands of a step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(text)
