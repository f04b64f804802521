"""A comparison of serving runs as one HTML file that needs no script and no network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kvbench import __version__
from kvbench.record.results import write_atomically
from kvbench.report.drawing import styled
from kvbench.report.html import drawn_of, environment
from kvbench.report.ours import PAGE_MARK, require_ours
from kvbench.report.serving_figures import draw, figures_of
from kvbench.report.tables.serving import page_sheets
from kvbench.serving.comparing import Comparison
from kvbench.serving.prediction import HeldAgainst


def write_page(comparison: Comparison, held: Sequence[HeldAgainst], path: Path) -> None:
    """Write the page; UsageError, before anything is written, where a file is that kvbench did not make."""
    require_ours(path, PAGE_MARK)
    write_atomically(path, page(comparison, held))


def page(comparison: Comparison, held: Sequence[HeldAgainst]) -> str:
    """The page: figures, then every table with its data as a link."""
    names = [one.name for one in comparison.configurations]
    drawn = []
    for figure in figures_of(comparison):
        with styled():
            drawing = draw(figure, names)
        drawn.append(drawn_of(figure, drawing))
    sheets = [sheet for sheet in page_sheets(comparison, held) if sheet.rows]
    template = environment().get_template("serving.html.j2")
    made_by = f"{PAGE_MARK}{__version__} from recorded runs."
    return template.render(control=comparison.control, names=names, figures=drawn, sheets=sheets, made_by=made_by)
