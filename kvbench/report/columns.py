"""One description of a column for every view: what a cell of a row holds, and how narrow tables show it (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kvbench.report.sheet import UNKNOWN, Cell, Head, Sheet, name_cell, number_cell

Row = TypeVar("Row")
# Where the numbers of a column come from: the same for all rows, or by row.
Source = str | Callable[[Row], str]


@dataclass(frozen=True, slots=True)
class Short:
    """How a narrow table (a terminal's, a summary's) shows a column: often in one unit, which its heading names.

    ``text`` shows the value of a cell; without it the text is that of the report. Where a terminal is too narrow for
    the table, the column with the largest ``falls`` goes first; those of 0 always stay.
    """

    heading: str = ""
    text: Callable[[Any], str] | None = None
    unknown: str = "-"
    falls: int = 0

    def cell(self, cell: Cell) -> Cell:
        """The cell of a report as the narrow table shows it."""
        if cell.text == UNKNOWN:
            return Cell(self.unknown)
        return cell if self.text is None or cell.value is None else Cell(self.text(cell.value), cell.value, cell.source)


AS_IS = Short()


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """A column of a table, described once; an ``only_short`` one says what several others say together."""

    key: str
    heading: str
    cell: Callable[[Row], Cell]
    right: bool = False
    short: Short = AS_IS
    only_short: bool = False


def name(
    key: str, heading: str, text: Callable[[Row], str], source: Source[Row] = "", *, short: Short = AS_IS
) -> Column[Row]:
    """A column of names."""
    return Column(key, heading, lambda row: name_cell(text(row), _source(source, row)), short=short)


def number(
    key: str,
    heading: str,
    value: Callable[[Row], float | None],
    shown: Callable[[float], str],
    source: Source[Row],
    *,
    short: Short = AS_IS,
) -> Column[Row]:
    """A column of numbers in base units, each shown in a unit of its own."""
    return Column(key, heading, lambda row: number_cell(value(row), shown, _source(source, row)), True, short)


def words(
    key: str, heading: str, text: Callable[[Row], str], *, right: bool = False, unknown: str = "-", falls: int = 0
) -> Column[Row]:
    """A column of narrow tables only."""
    short = Short(unknown=unknown, falls=falls)
    return Column(key, heading, lambda row: name_cell(text(row)), right, short, only_short=True)


def sheet(key: str, title: str, columns: Iterable[Column[Row]], rows: Iterable[Row], note: str = "") -> Sheet:
    """The table of a report and of its files."""
    kept = [column for column in columns if not column.only_short]
    heads = tuple(Head(column.key, column.heading, column.right) for column in kept)
    return Sheet(key, title, heads, tuple(tuple(column.cell(row) for column in kept) for row in rows), note)


def narrow(title: str, columns: Iterable[Column[Row]], rows: Iterable[Row], *keys: str) -> Sheet:
    """The table for a terminal or a summary: the columns of these keys, or all of them, in short."""
    every = list(columns)
    by_key = {column.key: column for column in every}
    kept = [by_key[key] for key in keys] or every
    heads = tuple(
        Head(column.key, column.short.heading or column.heading, column.right, column.short.falls) for column in kept
    )
    return Sheet("", title, heads, tuple(tuple(column.short.cell(column.cell(row)) for column in kept) for row in rows))


def _source(source: Source[Row], row: Row) -> str:
    return source if isinstance(source, str) else source(row)
