"""``kvbench report``: one offline HTML page from recorded runs, its tables beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvbench.commands.options import JsonOption
from kvbench.commands.prefill_options import (
    AllowQueuedOption,
    AnySpeedOption,
    BudgetOption,
    ConcurrentOption,
    CurveOption,
    GpuCopyOption,
    GpuPriceOption,
    GpusOption,
    HitRateOption,
    LoadOptions,
    ReadsOption,
    RequestRateOption,
    SkipOption,
    TargetOption,
    TtftCsvOption,
    TtftFromOption,
    TtftModelOption,
    TtftOptions,
    wanted_of,
)

HELP = "Make one offline HTML page with the verdict, the figures and every number, from recorded runs."

RunsArgument = Annotated[
    list[Path], typer.Argument(metavar="RUN_DIR...", help="Run directories that fio or import wrote.")
]
ModelsOption = Annotated[
    list[str] | None, typer.Option("--model", help="Judge this model of the runs only; repeatable. [default: all]")
]


def report(
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
    hit_rate: HitRateOption = None,
    requests_per_s: RequestRateOption = 1.0,
    gpus: GpusOption = 1,
    gpu_price: GpuPriceOption = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The page. [default: RUN_DIR/report.html]")
    ] = None,
    png: Annotated[
        Path | None, typer.Option("--png", metavar="DIR", help="Also write every figure to this folder as PNG.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Load, build, write the page and its tables; say the finding."""
    from kvbench import console
    from kvbench.decide.runs import load_runs
    from kvbench.report import files
    from kvbench.report.build import build
    from kvbench.report.data import to_json
    from kvbench.report.html import html

    ttft = TtftOptions(ttft_csv, ttft_from, ttft_model, allow_queued, skip_bad_rows, prefill_curve, any_speed)
    load = LoadOptions(hit_rate, requests_per_s, gpus, gpu_price)
    wanted = wanted_of(ttft, model, target_context, ttft_budget, concurrent_restores, mix, gpu_copy, load)
    loaded = load_runs(runs)
    built = build(loaded, wanted)
    page = _page_path(output, loaded[0].path)
    written = files.write_views(built, html(built), page)
    if png is not None:
        from kvbench.report.png import write_pngs

        console.note(f"figures: {len(write_pngs(built, png))} PNG files in {png}")
    if json:
        console.print_json(to_json(built))
    else:
        console.print_line(f"{built.verdict}: {built.finding}")
        for line in (*built.summary, *built.missing):
            console.print_line(f"  {line}")
    console.note(f"report: {page} (and {len(written) - 1} files with its data beside it)")


def _page_path(output: Path | None, run_dir: Path) -> Path:
    """Where the page goes; UsageError for a name that its companions would overwrite."""
    from kvbench.errors import UsageError

    page = run_dir / "report.html" if output is None else output
    if page.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"-o {page}: name a file that ends in .html; its data goes beside it.")
    if page.is_dir():
        raise UsageError(f"-o {page} is a directory; name a file in it, like {page / 'report.html'}.")
    return page
