"""``kvbench report``: one offline HTML page from recorded runs, its tables beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvbench.commands.options import JsonOption

if TYPE_CHECKING:
    from kvbench.report.judged import Wanted

HELP = "Make one offline HTML page with the verdict, the figures and every number, from recorded runs."

RunsArgument = Annotated[
    list[Path], typer.Argument(metavar="RUN_DIR...", help="Run directories that fio or import wrote.")
]
TtftOption = Annotated[
    Path | None,
    typer.Option("--ttft-csv", help="Uncached TTFT: columns prompt_tokens and ttft_s or ttft_ms, sorted by length."),
]
SkipOption = Annotated[bool, typer.Option("--skip-bad-rows", help="Count bad CSV rows instead of stopping.")]
ModelsOption = Annotated[
    list[str] | None, typer.Option("--model", help="Judge this model of the runs only; repeatable. [default: all]")
]
TargetOption = Annotated[str, typer.Option("--target-context", help="Context length that matters to you.")]
BudgetOption = Annotated[str | None, typer.Option("--ttft-budget", help="Longest acceptable restore there, like 2s.")]
ConcurrentOption = Annotated[
    str, typer.Option("--concurrent-restores", help="Requests that restore at once, separated by commas.")
]
ReadsOption = Annotated[
    str, typer.Option("--mix", help="Which reads count: mixed (steady state), read, or auto: mixed where measured.")
]


def report(
    runs: RunsArgument,
    ttft_csv: TtftOption = None,
    skip_bad_rows: SkipOption = False,
    model: ModelsOption = None,
    target_context: TargetOption = "32k",
    ttft_budget: BudgetOption = None,
    concurrent_restores: ConcurrentOption = "1",
    mix: ReadsOption = "auto",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The page. [default: RUN_DIR/report.html]")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Load, build, write the page and its tables; say the finding."""
    from kvbench import console
    from kvbench.report import files
    from kvbench.report.build import build
    from kvbench.report.data import to_json
    from kvbench.report.html import html
    from kvbench.report.judged import load_runs

    wanted = wanted_from(ttft_csv, skip_bad_rows, model, target_context, ttft_budget, concurrent_restores, mix)
    loaded = load_runs(runs)
    built = build(loaded, wanted)
    page = _page_path(output, loaded[0].path)
    written = files.write_views(built, html(built), page)
    if json:
        console.print_json(to_json(built))
    else:
        console.print_text(f"{built.verdict}: {built.finding}")
        for line in (*built.summary, *built.missing):
            console.print_text(f"  {line}")
    console.note(f"report: {page} (and {len(written) - 1} files with its data beside it)")


def wanted_from(
    ttft_csv: Path | None,
    skip_bad_rows: bool,
    models: list[str] | None,
    target_context: str,
    ttft_budget: str | None,
    concurrent_restores: str,
    mix: str,
) -> Wanted:
    """The options that report and gate share, as plain values."""
    from kvbench import console
    from kvbench.commands.options import parse_counts
    from kvbench.crossover import Goal
    from kvbench.decision import parse_mix
    from kvbench.prefill.curve import fit
    from kvbench.prefill.samples import read_csv
    from kvbench.report.judged import Wanted
    from kvbench.units import parse_duration_s, parse_tokens

    samples = None if ttft_csv is None else read_csv(ttft_csv, skip_bad_rows=skip_bad_rows)
    if samples is not None and samples.skipped_rows:
        console.note(f"{ttft_csv}: skipped {samples.skipped_rows} bad rows")
    return Wanted(
        curve=None if samples is None else fit(samples),
        samples=samples,
        goal=Goal(parse_tokens(target_context), None if ttft_budget is None else parse_duration_s(ttft_budget)),
        concurrent=parse_counts(concurrent_restores, "--concurrent-restores"),
        mix=parse_mix(mix),
        models=tuple(models or ()),
    )


def _page_path(output: Path | None, run_dir: Path) -> Path:
    """Where the page goes; UsageError for a name that its companions would overwrite."""
    from kvbench.errors import UsageError

    page = run_dir / "report.html" if output is None else output
    if page.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"-o {page}: name a file that ends in .html; its data goes beside it.")
    if page.is_dir():
        raise UsageError(f"-o {page} is a directory; name a file in it, like {page / 'report.html'}.")
    return page
