"""``kvbench crossover``: restore against recompute, per tier and model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvbench.commands.options import JsonOption

if TYPE_CHECKING:
    from kvbench.decision import Decisions
    from kvbench.prefill.curve import PrefillCurve

HELP = "Say from which context length on restoring beats recomputing, per tier and model."


def crossover(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUN_DIR]...", help="Measured runs. [default: the newest below reports/]"),
    ] = None,
    ttft_csv: Annotated[
        Path | None,
        typer.Option(
            "--ttft-csv", help="Uncached TTFT: columns prompt_tokens and ttft_s or ttft_ms, sorted by length."
        ),
    ] = None,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Count bad CSV rows instead of stopping.")
    ] = False,
    model: Annotated[str | None, typer.Option("--model", help="Answer for this model of the run only.")] = None,
    tp: Annotated[int | None, typer.Option("--tp", min=1, help="Answer for this TP of the run only.")] = None,
    connector: Annotated[str | None, typer.Option("--connector", help="Answer for this connector only.")] = None,
    mix: Annotated[
        str, typer.Option("--mix", help="Which reads count: mixed (steady state), read, or auto: mixed where measured.")
    ] = "auto",
    p99_ms: Annotated[
        str | None,
        typer.Option("--p99-ms", help="Print the published figure for these block tails instead, like 5,50."),
    ] = None,
    target_context: Annotated[
        str, typer.Option("--target-context", help="Context length that matters to you.")
    ] = "32k",
    ttft_budget: Annotated[
        str | None, typer.Option("--ttft-budget", help="Longest acceptable restore there, like 2s.")
    ] = None,
    concurrent_restores: Annotated[
        str, typer.Option("--concurrent-restores", help="Requests that restore at once, separated by commas.")
    ] = "1",
    markdown: Annotated[
        Path | None, typer.Option("--markdown", help="Also write the tables to this Markdown file.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Load, fit, decide, print."""
    from kvbench import console, decision, results, rundir
    from kvbench.commands.options import parse_counts
    from kvbench.crossover import Goal
    from kvbench.errors import UsageError
    from kvbench.report import decisions as tables
    from kvbench.report.tables import markdown as as_markdown
    from kvbench.units import parse_duration_s, parse_tokens

    curve = None if ttft_csv is None else _curve(ttft_csv, skip_bad_rows=skip_bad_rows)
    found = list(runs or [])
    if not found and p99_ms is None and (newest := rundir.newest()) is not None:
        console.note(f"run: {newest}")
        found = [newest]
    if p99_ms is not None and found:
        raise UsageError("--p99-ms prints the published figure for given tails; leave out RUN_DIR, or --p99-ms.")
    if not found:
        _published("5,50,500" if p99_ms is None else p99_ms, curve, as_json=json)
        return
    if curve is None:
        raise UsageError("say how fast the GPUs recompute: --ttft-csv FILE (or --p99-ms for the published figure).")
    wanted = decision.Wanted(
        model, tp, connector, decision.parse_mix(mix), parse_counts(concurrent_restores, "--concurrent-restores"),
        Goal(parse_tokens(target_context), None if ttft_budget is None else parse_duration_s(ttft_budget)),
    )  # fmt: skip
    decided = decision.decide_runs([results.open_run(path) for path in found], curve, wanted)
    shown = (tables.decision_table(decided), tables.explanation_table(decided))
    if markdown is not None:
        results.write_atomically(markdown, as_markdown(shown, "Restore or recompute"))
    if json:
        console.print_json(decision.to_json(decided))
        return
    _print(decided)


def _curve(path: Path, *, skip_bad_rows: bool) -> PrefillCurve:
    from kvbench import console
    from kvbench.prefill.curve import fit
    from kvbench.prefill.samples import read_csv

    samples = read_csv(path, skip_bad_rows=skip_bad_rows)
    if samples.skipped_rows:
        console.note(f"{path}: skipped {samples.skipped_rows} bad rows")
    return fit(samples)


def _print(decided: Decisions) -> None:
    from kvbench import console
    from kvbench.report import decisions as tables

    for table in (tables.decision_table(decided), tables.explanation_table(decided)):
        console.print_table(table.title, table.columns, table.rows, right=table.right)
    for line in tables.footnotes(decided):
        typer.echo(line)


def _published(p99_ms: str, curve: PrefillCurve | None, *, as_json: bool) -> None:
    from kvbench import console, decision
    from kvbench.report import decisions as tables

    tails = decision.parse_tails_ms(p99_ms)
    if as_json:
        console.print_json(decision.published_json(tails, curve))
        return
    table = tables.published_table(tails, curve)
    console.print_table(table.title, table.columns, table.rows, right=table.right)
    typer.echo(tables.PUBLISHED_NOTE)
