"""The engine's command line for each tier that pays, and why there is none for the others (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.decide.decision import Judged
from kvbench.report.columns import Column, name, sheet
from kvbench.report.scene import Scene
from kvbench.report.sheet import Sheet
from kvbench.report.subject import subject
from kvbench.report.tables.settings import read_rates
from kvbench.settings.places import recorded_place
from kvbench.settings.viable import Line, line_of

_NOTE = "For a POSIX shell. 'kvbench settings' writes other forms (JSON, Kubernetes) and other sizes of host memory."

# A judgement, and the command line that follows from it.
Written = tuple[Judged, Line]

COLUMNS: tuple[Column[Written], ...] = (
    *subject(lambda row: row[0]),
    name("command_line", "command line", lambda row: row[1].text or "none"),
    name("reason", "why", lambda row: row[1].reason),
)


def command_lines(scene: Scene) -> Sheet:
    """One row for each judgement, none without a prefill."""
    return sheet("command_lines", "The engine's command line", COLUMNS, _rows(scene), _NOTE)


def _rows(scene: Scene) -> Iterator[Written]:
    for item in scene.judged if scene.wanted.curve else ():
        place = recorded_place(item.run.result, item.crossover.tier)
        yield item, line_of(item.crossover, place, read_rates(item, scene.wanted))
