"""A table as every view shows it: cells with the values behind them, under columns with keys (pure)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

Value = str | int | float | bool | None

UNKNOWN = "–"


@dataclass(frozen=True, slots=True)
class Cell:
    """One displayed number or name: its text, the value behind it in base units, and where it comes from."""

    text: str
    value: Value = None
    source: str = ""


def name_cell(text: str, source: str = "") -> Cell:
    """A name, which is its own value."""
    return Cell(text or UNKNOWN, text or None, source)


def number_cell(value: float | None, shown: Callable[[float], str], source: str) -> Cell:
    """A number as text, or a dash; an unknown number has no source."""
    return Cell(UNKNOWN) if value is None else Cell(shown(value), value, source)


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a column; ``key`` names it in CSV and JSON with its base unit, ``right`` aligns numbers.

    ``falls`` says how early it is left out where a terminal is too narrow, 0 never (``Short`` in report/columns.py).
    """

    key: str
    heading: str
    right: bool = False
    falls: int = 0


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table whose every cell can be traced; ``section`` is the part of the page that shows it."""

    key: str
    title: str
    columns: tuple[Head, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    section: str = ""

    @property
    def headings(self) -> list[str]:
        """What stands over its columns."""
        return [column.heading for column in self.columns]

    @property
    def right(self) -> list[int]:
        """Which columns hold numbers."""
        return [index for index, column in enumerate(self.columns) if column.right]

    @property
    def texts(self) -> list[list[str]]:
        """What its cells show, row by row."""
        return [[cell.text for cell in row] for row in self.rows]

    def only(self, *keys: str) -> Sheet:
        """The same with these columns alone."""
        kept = [index for index, column in enumerate(self.columns) if column.key in keys]
        rows = tuple(tuple(row[index] for index in kept) for row in self.rows)
        return replace(self, columns=tuple(self.columns[index] for index in kept), rows=rows)


def sheet_json(sheet: Sheet) -> dict[str, Any]:
    """A sheet as JSON data: a list of rows, each cell with text, value and source."""
    keys = [column.key for column in sheet.columns]
    rows = [{key: asdict(cell) for key, cell in zip(keys, row, strict=True)} for row in sheet.rows]
    return {"title": sheet.title, "note": sheet.note, "rows": rows}
