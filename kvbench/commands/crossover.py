"""``kvbench crossover``: restore against recompute, per tier and model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from kvbench import console
from kvbench.commands.groups import parsed
from kvbench.commands.options import JsonOption
from kvbench.commands.prefill_options import DecisionOptions, Prefill, TtftOptions
from kvbench.decide import contract, decision
from kvbench.decide.decision import Decisions, WhatIf
from kvbench.decide.whatif import parse_what_if
from kvbench.errors import UsageError
from kvbench.record import results
from kvbench.report.decision_words import PUBLISHED_NOTE, footnotes
from kvbench.report.markdown import markdown as as_markdown
from kvbench.report.ours import MARKDOWN_HEADING, require_ours
from kvbench.report.sheet import Sheet
from kvbench.report.tables import DECISION
from kvbench.report.tables.published import published
from kvbench.run import rundir

# The tails of the published figure, in seconds.
_PUBLISHED_TAILS_S = (0.005, 0.05, 0.5)


def crossover(
    *,
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUN_DIR]...", help="Measured runs.", show_default="the newest below reports/"),
    ] = None,
    ttft: TtftOptions,
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="Answer for this model of the run only.")
    ] = None,
    tp: Annotated[int | None, typer.Option("--tp", min=1, help="Answer for this TP of the run only.")] = None,
    connector: Annotated[
        str | None, typer.Option("--connector", metavar="C", help="Answer for this connector only.")
    ] = None,
    wants: DecisionOptions,
    what_if: Annotated[
        list[WhatIf] | None,
        parsed(
            parse_what_if,
            "--what-if",
            metavar="NAME=N",
            help="Also decide another deployment on the same measurements: block-tokens=64, tp=2 or parallel=32; "
            "repeatable.",
        ),
    ] = None,
    p99_ms: Annotated[
        tuple[float, ...] | None,
        parsed(
            decision.parse_tails_ms,
            "--p99-ms",
            metavar="MS,...",
            help="Print the published figure for these block tails instead, like 5,50.",
        ),
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Also write the tables to this Markdown file.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Load, fit, decide, print."""
    prefill = ttft.prefill()
    if p99_ms is not None and runs:
        raise UsageError("--p99-ms prints the published figure for given tails; leave out RUN_DIR, or --p99-ms.")
    found = _runs(runs) if p99_ms is None else []
    if not found:
        _published(p99_ms or _PUBLISHED_TAILS_S, prefill, as_json=json)
        return
    if prefill is None:
        raise UsageError(
            "say how fast the GPUs recompute: --ttft-csv FILE or --ttft-from PATH (or --p99-ms for the published "
            "figure)."
        )
    wanted = decision.Wanted(
        curve=prefill.curve,
        samples=prefill.samples,
        goal=wants.goal,
        concurrent=wants.concurrent_restores,
        mix=wants.mix,
        models=() if model is None else (model,),
        tp=tp,
        connector=connector,
        gpu_copy_bytes_per_s=wants.gpu_copy,
        hit_overhead_s=wants.hit_overhead,
        what_ifs=tuple(what_if or ()),
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


def _runs(named: Sequence[Path] | None) -> Sequence[Path]:
    """The runs that were named, or else the newest, which is said; none where there is none."""
    if named:
        return named
    newest = rundir.newest()
    if newest is None:
        return ()
    console.note(f"run: {newest}")
    return (newest,)


def _with_samples(printed: dict[str, Any], prefill: Prefill | None) -> dict[str, Any]:
    """The JSON with what must be known about the samples behind its curve."""
    if prefill is None:
        return printed
    told = {"left_out": prefill.samples.skipped_rows, "notes": list(prefill.curve.notes)}
    return {**printed, "prefill": {**printed["prefill"], **told}}


def _print(shown: Sequence[Sheet], decided: Decisions) -> None:
    console.print_sheets(shown)
    for line in footnotes(decided):
        console.print_line(line)


def _published(tails_s: Sequence[float], prefill: Prefill | None, *, as_json: bool) -> None:
    curve = prefill.curve if prefill else None
    if prefill is not None:
        prefill.say_notes()
    if curve is not None and (told := decision.doubted_speed(curve, ())) is not None:
        console.note(f"TTFT: {told}")
    if as_json:
        console.print_json(_with_samples(contract.published_json(tails_s, curve), prefill))
        return
    console.print_sheets([published(tails_s, curve)])
    console.print_line(PUBLISHED_NOTE)
