"""The report as one HTML file that needs no script and no network (a view of report.data.Report)."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvbench.report import files
from kvbench.report.data import FigureData, Report
from kvbench.report.matrix import card_id
from kvbench.report.sheet import Sheet

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.figure import Figure

_TEMPLATES = Path(__file__).resolve().parent / "templates"
_FIRST = "target"
# Which sections the figures and tables belong to, in reading order.
_DECISION_FIGURES = ("times-", "breakeven-", "crossover-")
_SIGNS = {"viable": "✓", "not viable": "✕", "cannot say": "?"}


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure ready for the page."""

    key: str
    title: str
    note: str
    svg: str
    legend: tuple[str, ...] = ()


def environment() -> Environment:
    """What pages are made in: autoescaped, and strict about names that the template expects."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["slug"] = lambda text: text.replace(" ", "-")
    made.globals.update(data_uri=data_uri, card_id=card_id, signs=_SIGNS, css=_css())
    return made


def html(report: Report) -> str:
    """The page of a report."""
    drawn = [_drawn(figure, report) for figure in report.figures]
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            first=next((figure for figure in drawn if figure.key == _FIRST), None),
            decision_figures=[figure for figure in drawn if figure.key.startswith(_DECISION_FIGURES)],
            measured_figures=[figure for figure in drawn if figure.key != _FIRST and not _decides(figure.key)],
            section=lambda name: [sheet for sheet in report.sheets if sheet.section == name],
        )
    )


def data_uri(sheet: Sheet) -> str:
    """The sheet's CSV as a link target, so that a page sent by mail still carries its data."""
    return "data:text/csv;charset=utf-8;base64," + base64.b64encode(files.csv_text(sheet).encode()).decode()


def _decides(key: str) -> bool:
    return key.startswith(_DECISION_FIGURES)


def _drawn(figure: FigureData, report: Report) -> Drawn:
    from kvbench.report.figures import draw
    from kvbench.report.figures.seconds import Seconds

    return drawn_of(figure, draw(figure, report.tiers), figure.legend if isinstance(figure, Seconds) else ())


def drawn_of(figure: FigureData, drawing: Figure, legend: tuple[str, ...] = ()) -> Drawn:
    """A figure and its drawing as a page shows them; whoever cannot see it hears its title."""
    from markupsafe import Markup

    from kvbench.report.drawing import svg

    label = f"{figure.title}. The same numbers are in the tables below."
    return Drawn(figure.key, figure.title, figure.note, Markup(svg(drawing, figure.key, label)), legend)


def _css() -> str:
    from markupsafe import Markup

    return Markup((_TEMPLATES / "report.css").read_text(encoding="utf-8"))
