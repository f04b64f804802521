"""Every table and progress display; nothing else imports rich.

Names and texts of others pass through here on their way to the terminal, and are shown escaped (border.escaping).
"""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from kvbench.border.escaping import escaped, sentence
from kvbench.border.json_text import json_text
from kvbench.units import format_bandwidth, format_bytes, format_duration_ns

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from kvbench.record.point import Point
    from kvbench.record.results import LatencyNs, PointResult
    from kvbench.report.sheet import Sheet
    from kvbench.run.outlook import Outlook


def print_json(data: object) -> None:
    """Write one JSON object to stdout; NaN and infinity are a bug of ours and raise."""
    sys.stdout.write(json_text(data, indent=2))


def note(text: str) -> None:
    """Write one line of bounded length for a person to stderr."""
    print(sentence(text), file=sys.stderr)


def print_sheets(sheets: Iterable[Sheet]) -> None:
    """Print every table that has rows."""
    for sheet in sheets:
        if sheet.rows:
            _print_rich(sheet)


def print_aligned(sheet: Sheet) -> None:
    """Print a table without rich where it fits the terminal's width or goes into a pipe, else as print_sheets does.

    Importing rich is a quarter of the run time of a command that only computes.
    """
    columns, rows = [escaped(name) for name in sheet.headings], _escaped_rows(sheet)
    widths = _full_widths(sheet)
    across = sum(widths) + _GAP * (len(widths) - 1)
    if sys.stdout.isatty() and across > shutil.get_terminal_size().columns:
        _print_rich(sheet)
        return
    lines = [
        "   ".join(
            cell.rjust(width) if index in sheet.right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (columns, *rows)
    ]
    sys.stdout.write("\n".join([escaped(sheet.title), "", lines[0], "─" * across, *lines[1:]]) + "\n\n")


def _escaped_rows(sheet: Sheet) -> list[list[str]]:
    return [[escaped(cell) for cell in row] for row in sheet.texts]


# What a verdict looks like beside its word; green and red alone would tell some people nothing.
_STYLES = {"viable": "bold green", "not viable": "bold red", "cannot say": "bold yellow"}


def _style(cell: str) -> str:
    return _STYLES.get(cell.lower(), "")


def _print_rich(whole: Sheet) -> None:
    """Print a table; on a terminal columns fall away in their order until it fits, or its rows become blocks of lines.

    Cells are plain text, never markup, so a model name such as ``[x]`` is shown as it is. When stdout is not a
    terminal nothing is wrapped or cut: a pipe has no width.
    """
    from rich.console import Console
    from rich.text import Text

    on_terminal = sys.stdout.isatty()
    console = Console(file=sys.stdout, soft_wrap=not on_terminal, width=None if on_terminal else _PIPE_WIDTH)
    sheet = _fitting(whole, console.width) if on_terminal else whole
    if sheet is None:
        for line in _stacked(whole, console.width):
            console.print(line, soft_wrap=True)
        return
    _print_columns(sheet, console)
    kept = {column.key for column in sheet.columns}
    if fallen := [column.heading for column in whole.columns if column.key not in kept]:
        text = f"Left out at {console.width} columns: {', '.join(fallen)}."
        console.print(Text(text, style="dim"), "")


def _print_columns(sheet: Sheet, console: Console) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    title = Text(escaped(sheet.title), style="bold") if sheet.title else None
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", pad_edge=False)
    # rich gives a column its least width after it has shrunk the others, and cuts what is then too wide.
    for column, width in zip(sheet.columns, _widths(sheet, console.width), strict=True):
        justify: Literal["right", "left"] = "right" if column.right else "left"
        # A number that is broken over two lines reads as two numbers.
        table.add_column(
            Text(escaped(column.heading)), justify=justify, overflow="fold", no_wrap=column.right, width=width
        )
    for row in _escaped_rows(sheet):
        table.add_row(*(Text(cell, style=_style(cell)) for cell in row))
    console.print(table)


_PIPE_WIDTH = 400
# Blanks between two columns.
_GAP = 3
# A column of text that is broken into shorter pieces than this cannot be read; longer words may be broken.
_SHORTEST_PIECE, _LONGEST_WORD = 16, 28


def _fitting(sheet: Sheet, width: int) -> Sheet | None:
    """The table with as many columns as the width has room for, None where not even those that stay do."""
    columns = {id(column): least for column, least in zip(sheet.columns, _least_widths(sheet), strict=True)}
    kept = list(sheet.columns)
    while sum(columns[id(column)] for column in kept) + _GAP * len(kept) > width:
        first = max(kept, key=lambda column: column.falls)
        if first.falls == 0:
            return None
        kept.remove(first)
    return sheet if len(kept) == len(sheet.columns) else sheet.only(*(column.key for column in kept))


def _widths(sheet: Sheet, width: int) -> list[int]:
    """Characters of each column: what it needs at least, and of the room that is left the narrow ones first."""
    widths, wanted = _least_widths(sheet), _full_widths(sheet)
    room = width - sum(widths) - _GAP * len(widths)
    by_need = sorted(range(len(widths)), key=lambda at: wanted[at] - widths[at])
    for done, at in enumerate(by_need):
        more = min(wanted[at] - widths[at], max(0, room) // (len(widths) - done))
        widths[at] += more
        room -= more
    return widths


def _full_widths(sheet: Sheet) -> list[int]:
    rows = [[escaped(name) for name in sheet.headings], *_escaped_rows(sheet)]
    return [max(len(row[at]) for row in rows) for at in range(len(sheet.columns))]


def _least_widths(sheet: Sheet) -> list[int]:
    """Characters that each column of a readable table needs: numbers are whole, and so are words that are not long."""
    rows = [[escaped(name) for name in sheet.headings], *_escaped_rows(sheet)]
    return [_least_width([row[at] for row in rows], number=column.right) for at, column in enumerate(sheet.columns)]


def _least_width(cells: Sequence[str], *, number: bool) -> int:
    width = max(map(len, cells))
    longest = max((len(word) for cell in cells for word in cell.split()), default=0)
    return width if number else min(width, max(_SHORTEST_PIECE, min(longest, _LONGEST_WORD)))


def _stacked(sheet: Sheet, width: int) -> Iterator[Text]:
    """Each row as a block of lines, a heading and its cell on each, for a terminal that is too narrow for the table."""
    from textwrap import wrap

    from rich.text import Text

    columns = [escaped(name) for name in sheet.headings]
    headed = max(map(len, columns), default=0)
    yield Text(escaped(sheet.title), style="bold")
    for row in _escaped_rows(sheet):
        yield Text()
        for name, cell in zip(columns, row, strict=True):
            pieces = wrap(cell, max(width - headed - 3, _SHORTEST_PIECE), break_long_words=True) if cell else []
            for at, piece in enumerate(pieces):
                heading = (f" {name if at == 0 else '':<{headed}}  ", "dim")
                yield Text.assemble(heading, (piece, _style(cell)))
    yield Text()


def print_verdict(verdict: str, rest: str) -> None:
    """Write a line that begins with a verdict, in its colour on a terminal."""
    from rich.console import Console
    from rich.text import Text

    if sys.stdout.isatty():
        Console().print(Text.assemble((verdict, _style(verdict)), escaped(rest)), soft_wrap=True)
    else:
        print_line(verdict + rest)


def is_terminal() -> bool:
    """Whether progress can be drawn in place: stderr is a terminal that understands it."""
    import os

    return sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


class PlainProgress:
    """Progress as one line per event on stderr, for logs and pipes."""

    def __init__(self) -> None:
        """Start the clock that every line shows."""
        self._started = time.monotonic()
        # The points that were named, and the one that the last line is about.
        self._named: set[str] = set()
        self._about: str | None = None

    def laying_out(self, tier: str, dataset_bytes: int) -> None:
        """Say that the data set is being written."""
        self._line(f"{tier}: writing a data set of {format_bytes(dataset_bytes)}")

    def measuring(self, number: int, total: int, point: Point) -> None:
        """Say which point starts, at the first of its visits: a line for each of them would drown a log."""
        if point.id not in self._named:
            self._named.add(point.id)
            self._about = point.id
            self._line(f"point {number} of {total}: {describe_point(point)}")

    def rate(self, text: str) -> None:
        """Rates are for terminals only: one line every half second would drown a log."""

    def looked(self, point: PointResult) -> None:
        """Single rounds are for terminals only."""

    def measured(self, point: PointResult) -> None:
        """Say how a point ended, with its name where another one was named since."""
        name = "  " if self._about == point.id else f"{describe_point(point)}: "
        self._about = point.id
        self._line(f"{name}{describe_outcome(point)}")

    def disturbed(self, tier: str, other_runs: int) -> None:
        """Say that this run and others disturb each other."""
        who = "another kvbench is" if other_runs == 1 else f"{other_runs} other runs of kvbench are"
        self._line(f"{tier}: {who} at work on this tier, and each run measures the others as well")

    def _line(self, text: str) -> None:
        note(f"[{_clock(time.monotonic() - self._started)}] {text}")


class LiveProgress(PlainProgress):
    """Progress drawn in place: how much is done and left, the current point, its rate and precision."""

    def __init__(self, outlook: Outlook) -> None:
        """Take over the bottom lines of the terminal until ``close``."""
        from rich.console import Console, Group
        from rich.live import Live
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.text import Text

        super().__init__()
        self._outlook, self._began_s = outlook, self._started
        self._console = Console(stderr=True)
        done = TextColumn("{task.description}", markup=False)
        self._bar = Progress(SpinnerColumn(), TimeElapsedColumn(), BarColumn(16), done, console=self._console)
        self._task = self._bar.add_task("checking the tier", total=outlook.most_s)
        self._lines = Text(no_wrap=True, overflow="ellipsis")
        self._what = self._known = self._now = ""
        self._live = Live(Group(self._bar, self._lines), console=self._console, transient=True)
        self._live.start()

    def close(self) -> None:
        """Give the terminal back."""
        self._live.stop()

    def rate(self, text: str) -> None:
        """Show the driver's current rates."""
        self._now = text
        self._draw()

    def laying_out(self, tier: str, dataset_bytes: int) -> None:
        """Show that the data set is being written."""
        self._began_s = math.inf
        self._what, self._known, self._now = f"{tier}: writing a data set of {format_bytes(dataset_bytes)}", "", ""
        self._draw()

    def measuring(self, number: int, total: int, point: Point) -> None:
        """Show which point runs."""
        self._began_s = time.monotonic()
        self._what, self._now = f"point {number}: {describe_point(point)}", ""
        self._known = self._outlook.precision(point.tier, point.driver, point.id)
        self._draw()

    def looked(self, point: PointResult) -> None:
        """Count what the round took."""
        self._outlook.heard(point, ended=False)
        self._draw()

    def measured(self, point: PointResult) -> None:
        """Let the outcome scroll by, with its point: the line that named it is drawn over."""
        self._outlook.heard(point, ended=True)
        self._line(f"{describe_point(point)}: {describe_outcome(point)}")

    def _draw(self) -> None:
        outlook = self._outlook
        left_s = max(0.0, outlook.left_s - max(0.0, time.monotonic() - self._began_s))
        left = f"at most {_clock(math.ceil(left_s))} left to measure"
        text = f"{outlook.points_done} of {outlook.points} points done, {left}"
        self._bar.update(self._task, completed=outlook.most_s - left_s, description=text)
        self._lines.plain = "\n".join(escaped(part) for part in (self._what, self._known, self._now) if part)
        self._live.refresh()

    def _line(self, text: str) -> None:
        self._console.print(escaped(text), markup=False, emoji=False, highlight=False)


@contextmanager
def progress(outlook: Outlook) -> Iterator[PlainProgress]:
    """A progress display that suits stderr, closed at the end whatever happens."""
    if not is_terminal():
        yield PlainProgress()
        return
    live = LiveProgress(outlook)
    try:
        yield live
    finally:
        live.close()


class PlainSteps:
    """Progress through a known number of steps, as one line per event on stderr."""

    def __init__(self) -> None:
        """Start the clock that every line shows."""
        self._started = time.monotonic()

    def step(self, done: int, total: int, text: str) -> None:
        """Say which step starts."""
        self._line(f"{done + 1} of {total}: {text}")

    def detail(self, text: str) -> None:
        """Details are for terminals only."""

    def line(self, text: str) -> None:
        """Say how a step ended."""
        self._line(f"  {text}")

    def _line(self, text: str) -> None:
        note(f"[{_clock(time.monotonic() - self._started)}] {text}")


class LiveSteps(PlainSteps):
    """Progress as a bar that is drawn in place; how steps ended scrolls by."""

    def __init__(self) -> None:
        """Take over the bottom line of the terminal until ``close``."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        super().__init__()
        self._console = Console(stderr=True)
        text = (TextColumn("{task.description}", markup=False), TextColumn("{task.fields[detail]}", markup=False))
        self._live = Progress(
            TimeElapsedColumn(), BarColumn(20), MofNCompleteColumn(), *text, console=self._console, transient=True
        )
        self._task = self._live.add_task("", total=None, detail="")
        self._live.start()

    def step(self, done: int, total: int, text: str) -> None:
        """Move the bar and name the step."""
        self._live.update(self._task, completed=done, total=total, description=escaped(text), detail="")

    def detail(self, text: str) -> None:
        """Say what the step has so far."""
        self._live.update(self._task, detail=escaped(text))

    def close(self) -> None:
        """Give the terminal back."""
        self._live.stop()

    def _line(self, text: str) -> None:
        self._console.print(escaped(text.strip()), markup=False, emoji=False, highlight=False)


@contextmanager
def steps() -> Iterator[PlainSteps]:
    """A display of steps that suits stderr, closed at the end whatever happens."""
    if not is_terminal():
        yield PlainSteps()
        return
    live = LiveSteps()
    try:
        yield live
    finally:
        live.close()


def describe_point(point: Point | PointResult) -> str:
    """A point in words: tier, mix, size and jobs, and its driver when that is not fio."""
    jobs = "1 job" if point.numjobs == 1 else f"{point.numjobs} jobs"
    driver = "" if point.driver == "fio" else f" ({point.driver})"
    return f"{point.tier} {point.mix} {format_bytes(point.io_bytes)} x {jobs}{driver}"


def describe_outcome(point: PointResult) -> str:
    """What a point measured, or why it did not, in one line."""
    if point.status != "ok":
        return f"{point.status}: {point.reason}"
    parts = [
        f"{name} {format_bandwidth(side.bytes_per_s)}, p50 / p99 {describe_latency(side.latency_ns)}"
        for name, side in point.sides()
    ]
    codes = ", ".join(warning.code for warning in point.warnings)
    return "; ".join(parts) + (f"  (distrust: {codes})" if codes else "")


def describe_latency(latency: LatencyNs | None) -> str:
    """``p50 / p99`` of a direction, or a dash where fio recorded none."""
    if latency is None or latency.p50 is None or latency.p99 is None:
        return "-"
    return f"{format_duration_ns(latency.p50)} / {format_duration_ns(latency.p99)}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02d}:{rest:02d}"


def print_text(text: str) -> None:
    """Write lines of ours for a person to stdout; names and texts of others belong into print_line."""
    sys.stdout.write("\n".join(map(escaped, text.split("\n"))) + "\n")


def print_line(text: str) -> None:
    """Write one line for a person to stdout, whatever the names in it hold."""
    sys.stdout.write(escaped(text) + "\n")
