"""Figure: bandwidth second by second for one I/O size, with CPU steal and events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.decide.runs import LoadedRun
from kvbench.record import results
from kvbench.record.results import PointResult
from kvbench.report.cells import point_name
from kvbench.report.data import FigureData
from kvbench.report.drawing import (
    BEHIND_TEXT,
    INK,
    MUTED,
    bandwidth_unit,
    canvas,
    gid,
    short,
    tier_colour,
    tier_number,
)
from kvbench.report.events import Happening
from kvbench.report.scene import Scene
from kvbench.units import (
    format_bandwidth,
    format_bytes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_LISTED = 12
# In rows of the seconds figure: room for numbers above a row; a digit of them in inches.
_NUMBERS_ROOM = 0.4
_DIGIT_INCHES = 0.065


@dataclass(frozen=True, slots=True)
class Mark:
    """An event on a row of seconds: its number in the table of events, and its second from 1."""

    number: int
    second: int


@dataclass(frozen=True, slots=True)
class SecondsRow:
    """Bytes per second of one point, read and written together, CPU steal, and events, second by second."""

    label: str
    tier: str
    bytes_per_s: tuple[float, ...]
    steal_percent: tuple[float | None, ...]
    round_starts: tuple[int, ...]
    source: str
    marks: tuple[Mark, ...] = ()

    def whole(self) -> tuple[float, ...]:
        """The rates without the first and the last second of each round: either may be broken."""
        bounds = (*self.round_starts, len(self.bytes_per_s))
        return tuple(rate for start, end in pairwise(bounds) for rate in self.bytes_per_s[start + 1 : end - 1])


@dataclass(frozen=True, slots=True)
class Seconds(FigureData):
    """Figure: bandwidth second by second for one I/O size."""

    io_bytes: int
    rows: tuple[SecondsRow, ...]
    note: str = field(
        default="One row for each point, all on one scale from zero; ticks below: where a round began; dots: CPU "
        "steal, 0 to 100 % of the row's height.",
        kw_only=True,
    )
    legend: tuple[str, ...] = field(default=(), kw_only=True)


def make(scene: Scene) -> list[Seconds]:
    """Bandwidth second by second of every point of one I/O size that kept a series of at least two seconds."""
    rows = [
        _row(run, point, entries, scene.runs, [item for item in scene.events if item.of(run, point)])
        for run, point in scene.measured()
        if len(entries := _with_rates(results.load_series(run.path, point))) > 1
    ]
    if not rows:
        return []
    title = f"{format_bytes(scene.io_bytes)}: {_steadiness(rows)}"
    numbers = {mark.number for row in rows for mark in row.marks}
    legend = _legend([item for item in scene.events if item.number in numbers])
    drawn = Seconds(f"seconds-{scene.io_bytes}", title, scene.io_bytes, tuple(rows), legend=legend)
    return [replace(drawn, note=f"{drawn.note} Numbered lines: events, listed below.") if legend else drawn]


def _steadiness(rows: Sequence[SecondsRow]) -> str:
    """How far the least steady point went, by its whole seconds; without two of them no point says so."""
    known = [row for row in rows if len(row.whole()) > 1]
    if not known:
        return "bandwidth second by second"
    least = min(known, key=lambda row: min(row.whole()) / max(max(row.whole()), 1))
    low, high = format_bandwidth(min(least.whole())), format_bandwidth(max(least.whole()))
    return f"the least steady point went between {low} and {high} ({least.tier}, {least.label})"


def _with_rates(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The series, or none where it holds events only because the driver kept no rates."""
    return entries if any(way in entry for entry in entries for way in ("read", "write")) else []


def _legend(events: Sequence[Happening]) -> tuple[str, ...]:
    """The events of a figure in words, as many as a page bears; the table holds all."""
    shown = [f"{item.number}: second {item.event.second}, {item.event.text}" for item in events[:_MOST_LISTED]]
    rest = len(events) - len(shown)
    return (*shown, *([f"{rest} more in the table of events"] if rest else []))


def _row(
    run: LoadedRun,
    point: PointResult,
    entries: Sequence[dict[str, Any]],
    runs: Sequence[LoadedRun],
    events: Sequence[Happening],
) -> SecondsRow:
    rates = [sum(entry.get(side, {}).get("bytes_per_s", 0) for side in ("read", "write")) for entry in entries]
    rounds = [entry.get("round", 1) for entry in entries]
    jobs = "1 job" if point.numjobs == 1 else f"{point.numjobs} jobs"
    return SecondsRow(
        label=f"{point.mix}, {jobs}",
        tier=run.label(point.tier, runs),
        bytes_per_s=tuple(map(float, rates)),
        steal_percent=tuple(entry.get("host", {}).get("cpu_steal_percent") for entry in entries),
        round_starts=tuple(index for index, number in enumerate(rounds) if index == 0 or number != rounds[index - 1]),
        source=f"point {point_name(run, point.id, runs)}: {point.series}",
        marks=tuple(Mark(item.number, item.event.second) for item in events),
    )


def draw(figure: Seconds, tiers: Sequence[str]) -> Figure:
    """Bandwidth second by second, one row for each point on a common scale from zero, CPU steal as dots."""
    ordered = sorted(figure.rows, key=lambda row: tier_number(row.tier, tiers))
    places = _row_places(ordered)
    drawing, axes = canvas(0.8 + 0.34 * (places[-1] + 1), left=1.95, right=0.95, top=0.28)
    axes.set_xlim(0, max(len(row.bytes_per_s) for row in figure.rows))
    top = max(max(row.bytes_per_s) for row in figure.rows)
    unit, factor = bandwidth_unit(top)
    for place, row in zip(places, ordered, strict=True):
        base = place + 0.38
        heights = np.array(row.bytes_per_s) / max(top, 1) * 0.78
        edges = np.arange(len(heights) + 1)
        colour = tier_colour(row.tier, tiers)
        axes.stairs(base - heights, edges, baseline=base, fill=True, color=colour, alpha=0.6, gid=gid(row.source))
        axes.plot(row.round_starts, [base + 0.05] * len(row.round_starts), "|", color=INK, markersize=4)
        steal = [
            (at + 0.5, base - share / 100 * 0.78) for at, share in enumerate(row.steal_percent) if share is not None
        ]
        axes.plot([at for at, _ in steal], [level for _, level in steal], ".", color=INK, markersize=2.2)
        _event_marks(axes, row.marks, base)
        averaged = row.whole() or row.bytes_per_s
        mean = sum(averaged) / len(averaged) / factor
        axes.text(1.01, place, f"{mean:.3g} {unit}/s", transform=axes.get_yaxis_transform(), va="center")
    axes.text(1.01, places[0] - 0.85, "mean", transform=axes.get_yaxis_transform(), va="center", color=MUTED)
    axes.set_ylim(places[-1] + 0.6, -0.6)
    axes.set_yticks(places, [f"{short(row.tier, 14)}, {row.label}" for row in ordered])
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"draw of measuring. Row height: {top / factor:.3g} {unit}/s")
    axes.grid(axis="x")
    return drawing


def _row_places(rows: Sequence[SecondsRow]) -> list[float]:
    """Where each row stands: one with events has room for their numbers above it."""
    places, at = [], -1.0
    for row in rows:
        at += 1.0 + (_NUMBERS_ROOM if row.marks else 0.0)
        places.append(at)
    return places


def _event_marks(axes: Axes, marks: Sequence[Mark], base: float) -> None:
    """A line through the row for each event, its number above; numbers that would touch become a range."""
    above = base - 0.84
    for mark in marks:
        axes.plot([mark.second - 0.5] * 2, [above, base + 0.02], color=INK, linewidth=1.1)
    across = axes.get_xlim()[1] / (axes.bbox.width / axes.figure.dpi)
    for middle, text in _number_labels(marks, across):
        axes.text(middle, above - 0.03, text, fontsize=7.5, ha="center", va="bottom", bbox=BEHIND_TEXT)


def _number_labels(marks: Sequence[Mark], seconds_per_inch: float) -> list[tuple[float, str]]:
    """``(second, text)`` of the numbers, neighbours joined until none overlaps another."""
    groups = [[mark] for mark in marks]

    def shown(group: Sequence[Mark]) -> tuple[float, str]:
        first, last = group[0], group[-1]
        text = f"{first.number}" if len(group) == 1 else f"{first.number}–{last.number}"
        return (first.second + last.second - 1) / 2, text

    def half(group: Sequence[Mark]) -> float:
        return (len(shown(group)[1]) * _DIGIT_INCHES + 0.04) / 2 * seconds_per_inch

    while True:
        touching = (
            index
            for index, (left, right) in enumerate(pairwise(groups))
            if shown(right)[0] - shown(left)[0] < half(left) + half(right)
        )
        at = next(touching, None)
        if at is None:
            return [shown(group) for group in groups]
        groups[at : at + 2] = [groups[at] + groups[at + 1]]
