"""Every table and progress display; nothing else imports rich.

Names and texts of others pass through here on their way to the terminal, and are shown escaped (border.escaping).
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from kvbench.border.escaping import escaped, sentence
from kvbench.border.json_text import json_text
from kvbench.units import format_bandwidth, format_bytes, format_duration_ns

if TYPE_CHECKING:
    from kvbench.record.point import Point
    from kvbench.record.results import LatencyNs, PointResult
    from kvbench.report.data import Sheet


def print_json(data: object) -> None:
    """Write one JSON object to stdout; NaN and infinity are a bug of ours and raise."""
    sys.stdout.write(json_text(data, indent=2))


def note(text: str) -> None:
    """Write one line of bounded length for a person to stderr."""
    print(sentence(text), file=sys.stderr)


def print_table(
    title: str | None,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[int] = (),
    file: TextIO | None = None,
) -> None:
    """Print an aligned table to stdout (or ``file``); ``right`` numbers the right-aligned columns.

    Cells are plain text, never markup, so a model name such as ``[x]`` is shown as it is. When stdout is not a
    terminal nothing is wrapped or cut: a pipe has no width.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    target = file or sys.stdout
    console = Console(file=target, soft_wrap=not target.isatty(), width=None if target.isatty() else 400)
    table = Table(
        title=Text(escaped(title), style="bold") if title else None,
        box=SIMPLE_HEAD,
        title_justify="left",
        pad_edge=False,
    )
    for index, column in enumerate(columns):
        # A number that is broken over two lines reads as two numbers.
        numeric = index in right
        table.add_column(
            Text(escaped(column)), justify="right" if numeric else "left", overflow="fold", no_wrap=numeric
        )
    for row in rows:
        table.add_row(*(Text(escaped(cell)) for cell in row))
    console.print(table)


def print_sheets(sheets: Iterable[Sheet]) -> None:
    """Print every table that has rows."""
    for sheet in sheets:
        if sheet.rows:
            print_table(sheet.title, sheet.headings, sheet.texts, right=sheet.right)


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
    """Progress drawn in place: the current point, the elapsed time and fio's current bandwidth; outcomes scroll by."""

    def __init__(self) -> None:
        """Take over the bottom lines of the terminal until ``close``."""
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        super().__init__()
        self._console = Console(stderr=True)
        self._live = Progress(
            SpinnerColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            TextColumn("{task.fields[rate]}", markup=False),
            console=self._console,
            transient=True,
        )
        self._task = self._live.add_task("checking the tier", rate="")
        self._live.start()

    def close(self) -> None:
        """Give the terminal back."""
        self._live.stop()

    def rate(self, text: str) -> None:
        """Show fio's current rates."""
        self._live.update(self._task, rate=escaped(text))

    def laying_out(self, tier: str, dataset_bytes: int) -> None:
        """Show that the data set is being written."""
        self._describe(f"{tier}: writing a data set of {format_bytes(dataset_bytes)}")

    def measuring(self, number: int, total: int, point: Point) -> None:
        """Show which point runs."""
        self._describe(f"point {number} of {total}: {describe_point(point)}")

    def measured(self, point: PointResult) -> None:
        """Let the outcome scroll by, with its point: the line that named it is drawn over."""
        self._line(f"{describe_point(point)}: {describe_outcome(point)}")

    def _describe(self, text: str) -> None:
        self._live.update(self._task, description=escaped(text), rate="")

    def _line(self, text: str) -> None:
        self._console.print(escaped(text), markup=False, emoji=False, highlight=False)


@contextmanager
def progress() -> Iterator[PlainProgress]:
    """A progress display that suits stderr, closed at the end whatever happens."""
    if not is_terminal():
        yield PlainProgress()
        return
    live = LiveProgress()
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


def print_aligned(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()
) -> None:
    """Print a table without rich where it fits the terminal's width or goes into a pipe, else as print_table does.

    Importing rich is a quarter of the run time of a command that only computes.
    """
    title, columns = escaped(title), [escaped(column) for column in columns]
    rows = [[escaped(cell) for cell in row] for row in rows]
    widths = [max(len(row[index]) for row in (columns, *rows)) for index in range(len(columns))]
    across = sum(widths) + 3 * (len(widths) - 1)
    if sys.stdout.isatty() and across > shutil.get_terminal_size().columns:
        print_table(title, columns, rows, right=right)
        return
    lines = [
        "   ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (columns, *rows)
    ]
    sys.stdout.write("\n".join([title, "", lines[0], "─" * across, *lines[1:]]) + "\n\n")


def print_text(text: str) -> None:
    """Write lines of ours for a person to stdout; names and texts of others belong into print_line."""
    sys.stdout.write("\n".join(map(escaped, text.split("\n"))) + "\n")


def print_line(text: str) -> None:
    """Write one line for a person to stdout, whatever the names in it hold."""
    sys.stdout.write(escaped(text) + "\n")
