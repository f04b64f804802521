"""``kvbench report``: one offline HTML page from recorded runs, its tables beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvbench import console
from kvbench.commands.options import JsonOption
from kvbench.commands.prefill_options import (
    DecisionOptions,
    LoadOptions,
    ModelsOption,
    RunsArgument,
    TtftOptions,
    wanted_of,
)
from kvbench.decide.runs import load_runs
from kvbench.errors import UsageError
from kvbench.report import files
from kvbench.report.build import build
from kvbench.report.data import to_json
from kvbench.report.html import html


def report(
    *,
    runs: RunsArgument,
    ttft: TtftOptions,
    model: ModelsOption = None,
    decision: DecisionOptions,
    savings: LoadOptions,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The page.", show_default="RUN_DIR/report.html")
    ] = None,
    png: Annotated[
        Path | None, typer.Option("--png", metavar="DIR", help="Also write every figure to this folder as PNG.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Load, build, write the page and its tables; say the finding."""
    wanted = wanted_of(ttft, decision, model, savings.traffic())
    loaded = load_runs(runs)
    built = build(loaded, wanted)
    page = _page_path(output, loaded[0].path)
    written = files.write_views(built, html(built), page)
    if png is not None:
        # matplotlib
        from kvbench.report.png import write_pngs

        console.note(f"figures: {len(write_pngs(built, png))} PNG files in {png}")
    if json:
        console.print_json(to_json(built))
    else:
        console.print_line(f"{built.chip.text}: {built.finding}")
        for line in (*built.summary, *built.missing):
            console.print_line(f"  {line}")
    console.note(f"report: {page} (and {len(written) - 1} files with its data beside it)")


def _page_path(output: Path | None, run_dir: Path) -> Path:
    """Where the page goes; UsageError for a name that its companions would overwrite."""
    page = run_dir / "report.html" if output is None else output
    if page.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"-o {page}: name a file that ends in .html; its data goes beside it.")
    if page.is_dir():
        raise UsageError(f"-o {page} is a directory; name a file in it, like {page / 'report.html'}.")
    return page
