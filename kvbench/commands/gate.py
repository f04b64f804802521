"""``kvbench gate``: the verdict as an exit code, JUnit XML and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from kvbench import console
from kvbench.commands.options import JsonOption, StrictOptions
from kvbench.commands.prefill_options import DecisionOptions, ModelsOption, RunsArgument, TtftOptions, wanted_of
from kvbench.decide.decision import Wanted, same_model, unnamed_model
from kvbench.decide.runs import LoadedRun, load_runs
from kvbench.errors import InputFileError
from kvbench.record.results import write_atomically
from kvbench.report import gate as gates
from kvbench.report.build import build
from kvbench.report.junit import junit as as_junit
from kvbench.report.ours import JUNIT_MARK, require_ours


def gate(
    *,
    runs: RunsArgument,
    ttft: TtftOptions,
    model: ModelsOption = None,
    decision: DecisionOptions,
    strict: StrictOptions,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Also write JUnit XML to this file.")
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE", help="Also append the summary in Markdown to this file."),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Load, judge, write for the CI system, print one line, end with the verdict's code."""
    wanted = wanted_of(ttft, decision, model)
    loaded = load_runs(runs)
    _require_one_model(loaded, wanted)
    built = build(loaded, wanted)
    result = gates.gate(built, strict.counts)
    if junit is not None:
        require_ours(junit, JUNIT_MARK)
        write_atomically(junit, as_junit(result, built.title))
    if markdown is not None:
        _append(markdown, gates.summary_markdown(result))
    if json:
        console.print_json(gates.to_json(result))
    else:
        console.print_verdict(result.verdict, gates.line(result).removeprefix(result.verdict))
    return result.exit_code


def _require_one_model(runs: Sequence[LoadedRun], wanted: Wanted) -> None:
    """InputFileError where TTFT of an unknown model would decide for several models: at most one of them is right."""
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
