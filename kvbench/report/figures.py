"""One function, one figure: data in, matplotlib Figure out (no pyplot); ``svg`` turns it into inline SVG.

Every series has a marker or line style of its own and its name beside it, so that colour is never needed.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from kvbench.decide.crossover import Verdict
from kvbench.report import data
from kvbench.report.breakeven_drawing import breakeven_map
from kvbench.report.drawing import (
    BEHIND_TEXT,
    DASHES,
    GRID,
    INK,
    LONGEST_LABEL,
    MARKERS,
    MUTED,
    PAPER,
    SERIES,
    WIDTH,
    bandwidth_unit,
    canvas,
    gid,
    height_for,
    jobs_text,
    labels_beside,
    labels_right,
    left_edge,
    line_number,
    log_axis,
    round_duration,
    series_colour,
    short,
    tier_colour,
    tier_number,
)
from kvbench.report.svg import inlined
from kvbench.units import format_duration_ns, format_duration_s, format_tokens

VERDICTS: dict[Verdict, str] = {"viable": "#030101", "not viable": "#030102", "cannot say": "#030103"}
_CSS = {
    INK: "currentColor",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    PAPER: "var(--paper)",
    **{colour: f"var(--s{number})" for number, colour in enumerate(SERIES, start=1)},
    **{colour: f"var(--{name.replace(' ', '-')})" for name, colour in VERDICTS.items()},
}
_HATCHES: dict[Verdict, str] = {"viable": "", "not viable": "////", "cannot say": "---"}
_WORDS: dict[Verdict, str] = {"viable": "✓ viable", "not viable": "✕ not viable", "cannot say": "? cannot say"}
_LONGEST_TIER = 18
# In rows of the seconds figure: room for numbers above a row; a digit of them in inches.
_NUMBERS_ROOM = 0.4
_DIGIT_INCHES = 0.065
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "kvbench",
    "text.parse_math": False,
    "axes.formatter.use_mathtext": False,
    "font.size": 9.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.7,
}


def css_variables() -> dict[str, str]:
    """The CSS variable of every placeholder colour."""
    return dict(_CSS)


def draw(figure: data.FigureData, tiers: Sequence[str]) -> Figure:
    """The drawing of any figure's data; ``tiers`` fixes which tier has which colour throughout a report."""
    with matplotlib.rc_context(_STYLE):
        if isinstance(figure, data.TargetTimes):
            return target_times(figure)
        if isinstance(figure, data.TimeCurves):
            return time_curves(figure, tiers)
        if isinstance(figure, data.CrossoverMap):
            return crossover_map(figure, tiers)
        if isinstance(figure, data.BreakEvenMap):
            return breakeven_map(figure, tiers)
        if isinstance(figure, data.Latencies):
            return latencies(figure, tiers)
        if isinstance(figure, data.Seconds):
            return seconds(figure, tiers)
        return bandwidths(figure, tiers)


def svg(drawing: Figure, key: str, label: str) -> str:
    """The drawing as inline SVG: no metadata, no outside reference, ids of its own, text as text, themed by CSS."""
    buffer = io.StringIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    with matplotlib.rc_context(_STYLE):
        drawing.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    return inlined(buffer.getvalue(), key, label, _CSS)


def target_times(figure: data.TargetTimes) -> Figure:
    """Bars from zero: restore time at the target for each tier, the recompute time of each model as a line across."""
    models = list(dict.fromkeys(bar.model for bar in figure.bars))
    rows = [(model, [bar for bar in figure.bars if bar.model == model]) for model in models]
    left = 0.3 + 0.08 * min(_LONGEST_TIER, max(4, *(len(bar.tier) for bar in figure.bars)))
    drawing, axes = canvas(0.7 + 0.36 * len(figure.bars) + 0.4 * len(models), left=left, right=0.15, top=0.05)
    ends = [end for bar in figure.bars for end in (bar.restore_s, bar.recompute_s) if end is not None]
    limit = max([1e-9, *(end.high for end in ends), figure.budget_s or 0.0]) * 1.42
    place, ticks = 0.0, []
    for model, bars in rows:
        recompute = next((bar.recompute_s for bar in bars if bar.recompute_s is not None), None)
        edge = left_edge(drawing, axes)
        text = f"{short(model)}: {_recompute_text(recompute)}"
        axes.text(0.01, place, text, transform=edge, va="center", weight="bold", bbox=BEHIND_TEXT)
        first = place
        for bar in bars:
            place += 1.0
            ticks.append((place, bar.tier))
            _target_bar(axes, place, bar, limit)
        if recompute is not None:
            axes.fill_betweenx(
                [first + 0.5, place + 0.45], recompute.low, recompute.high, color=INK, alpha=0.18, linewidth=0
            )
            axes.plot([recompute.middle] * 2, [first + 0.42, place + 0.45], color=INK, linewidth=2.2)
        place += 1.05
    if figure.budget_s is not None:
        axes.axvline(figure.budget_s, color=INK, linestyle=(0, (1, 2)))
        axes.text(figure.budget_s, -0.75, f" budget {format_duration_s(figure.budget_s)}", va="center")
    axes.set_yticks([at for at, _ in ticks], [short(tier, _LONGEST_TIER) for _, tier in ticks])
    axes.set_ylim(place - 0.3, -1.0 if figure.budget_s is not None else -0.5)
    axes.set_xlim(0, limit)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel(f"seconds until {format_tokens(figure.target_tokens)} tokens are back (shorter is better)")
    axes.grid(axis="x")
    return drawing


def time_curves(figure: data.TimeCurves, tiers: Sequence[str]) -> Figure:
    """Restore and recompute time against context, both axes logarithmic, with 95 % bands."""
    longest = max(len(_line_name(line)) for line in figure.lines)
    drawing, axes = canvas(
        height_for(len(figure.lines), 3.4), left=0.8, right=0.3 + 0.073 * min(longest, LONGEST_LABEL)
    )
    ends = []
    for line in figure.lines:
        number = line_number(line.label, tiers)
        colour = series_colour(number) if line.restore else INK
        middle = [value.middle for value in line.seconds]
        axes.plot(
            line.tokens, middle, color=colour, linewidth=1.8 if line.restore else 2.4,
            linestyle=DASHES[number % len(DASHES)] if line.restore else "-",
            marker=MARKERS[number % len(MARKERS)] if line.restore else "", markevery=0.2, markersize=5,
            gid=gid(line.source),
        )  # fmt: skip
        low, high = [value.low for value in line.seconds], [value.high for value in line.seconds]
        axes.fill_between(line.tokens, low, high, color=colour, alpha=0.22, linewidth=0)
        ends.append((middle[-1], _line_name(line), colour))
    if figure.samples:
        axes.plot(
            *zip(*figure.samples, strict=True),
            linestyle="",
            marker="x",
            color=INK,
            markersize=6,
            gid=gid("measured TTFT"),
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.axvline(figure.target_tokens, color=MUTED, linestyle=(0, (1, 2)), linewidth=1)
    axes.text(
        figure.target_tokens, 1.0, "target", transform=axes.get_xaxis_transform(), ha="center", va="bottom", color=MUTED
    )
    log_axis(axes, "x", format_tokens, base=2)
    log_axis(axes, "y", round_duration)
    axes.set_xlabel("context in tokens (log scale)")
    axes.set_ylabel("time (log scale)")
    axes.grid(True)
    labels_right(axes, ends)
    return drawing


def crossover_map(figure: data.CrossoverMap, tiers: Sequence[str]) -> Figure:
    """The published figure: crossover length against prefill cost for fixed tails, the tiers as points."""
    drawing, axes = canvas(3.3, left=0.85, right=1.2)
    measured = [dot.cost_s_per_token for dot in figure.dots if dot.cost_s_per_token]
    costs = np.geomspace(min([*figure.costs_s_per_token, *measured]), max([*figure.costs_s_per_token, *measured]), 2)
    ends = []
    for tail in figure.tails_s:
        axes.plot(costs * 1e3, tail / costs, color=MUTED, linewidth=1)
        ends.append((tail / costs[-1], f"p99 = {round_duration(tail)}", MUTED))
    placed = []
    for dot in figure.dots:
        if dot.cost_s_per_token is None or dot.tokens is None:
            continue
        number = tier_number(dot.tier, tiers)
        axes.plot(
            [dot.cost_s_per_token * 1e3], [dot.tokens], color=series_colour(number),
            marker=MARKERS[number % len(MARKERS)], markersize=9, markeredgecolor=PAPER, linestyle="",
            gid=gid(dot.source), zorder=5,
        )  # fmt: skip
        text = f"{short(dot.tier, 24)}: {format_tokens(dot.tokens)} tokens (p99 {format_duration_s(dot.p99_s)})"
        placed.append((dot.cost_s_per_token * 1e3, dot.tokens, text, series_colour(number)))
    axes.set_xscale("log")
    axes.set_yscale("log")
    if measured:
        axes.axvline(measured[0] * 1e3, color=MUTED, linestyle=(0, (1, 2)), linewidth=1)
        above = axes.get_xaxis_transform()
        axes.text(measured[0] * 1e3, 1.0, "measured prefill", transform=above, ha="center", va="bottom", color=MUTED)
    log_axis(axes, "x", lambda value: f"{value:g}")
    log_axis(axes, "y", format_tokens)
    axes.set_xlabel("prefill cost in ms for each token (log scale)")
    axes.set_ylabel("crossover in tokens (log scale)")
    axes.grid(True)
    labels_right(axes, ends)
    labels_beside(axes, placed)
    return drawing


def latencies(figure: data.Latencies, tiers: Sequence[str]) -> Figure:
    """How latency is distributed at each point: one row each, p50 as a line and p99 as a diamond with its interval."""
    height = 0.8 + 0.34 * len(figure.rows)
    drawing, axes = canvas(height, left=1.95, right=0.75, top=0.28)
    ordered = sorted(figure.rows, key=lambda row: tier_number(row.tier, tiers))
    for place, row in enumerate(ordered):
        colour = tier_colour(row.tier, tiers)
        heights = np.array(row.counts) / max(1, *row.counts) * 0.78
        base = place + 0.38
        axes.stairs(
            base - heights, figure.edges_ns, baseline=base, fill=True, color=colour, alpha=0.45, gid=gid(row.source)
        )
        axes.plot([row.p50_ns, row.p50_ns], [place - 0.3, place + 0.38], color=INK, linewidth=1.4)
        axes.plot(
            [row.p99_low_ns or row.p99_ns, row.p99_high_ns or row.p99_ns], [place + 0.05] * 2, color=INK, linewidth=1.2
        )
        axes.plot(
            [row.p99_ns],
            [place + 0.05],
            color=colour,
            marker="D",
            markersize=5.5,
            markeredgecolor=INK,
            gid=gid(row.source),
        )
        axes.text(1.01, place, format_duration_ns(row.p99_ns), transform=axes.get_yaxis_transform(), va="center")
    axes.text(1.01, -0.85, "p99", transform=axes.get_yaxis_transform(), va="center", color=MUTED)
    axes.set_xscale("log")
    log_axis(axes, "x", lambda value: round_duration(value / 1e9))
    axes.set_ylim(len(ordered) - 0.5, -0.6)
    axes.set_yticks(range(len(ordered)), [f"{short(row.tier, 14)}, {row.label}" for row in ordered])
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("latency of one I/O (log scale). Line: p50, diamond: p99")
    axes.grid(axis="x")
    return drawing


def bandwidths(figure: data.Bandwidths, tiers: Sequence[str]) -> Figure:
    """Bars from zero: bandwidth of each tier at each number of jobs, one panel for each mix and direction."""
    panels = list(dict.fromkeys(line.panel for line in figure.lines))
    found = {(line.tier, jobs) for line in figure.lines for jobs in line.jobs}
    rows = sorted(found, key=lambda row: (tier_number(row[0], tiers), row))
    top = max(max(line.bytes_per_s) for line in figure.lines)
    unit, factor = bandwidth_unit(top)
    height = 0.85 + 0.27 * len(rows)
    drawing = Figure(figsize=(WIDTH, height))
    grid = drawing.subplots(1, len(panels), sharex=True, squeeze=False)[0]
    drawing.subplots_adjust(left=0.21, right=0.99, bottom=0.52 / height, top=1 - 0.28 / height, wspace=0.1)
    for axes, panel in zip(grid, panels, strict=True):
        axes.set_title(panel, fontsize=9.5, loc="left")
        axes.set_xlim(0, top / factor * 1.42)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_yticks([])
        axes.xaxis.set_major_locator(MaxNLocator(3))
        axes.grid(axis="x")
        axes.set_xlabel(f"{unit}/s")
        for line in (line for line in figure.lines if line.panel == panel):
            _bandwidth_bars(axes, line, rows, factor, tiers)
    grid[0].set_yticks(range(len(rows)), [f"{short(tier, 14)}, {jobs_text(jobs)}" for tier, jobs in rows])
    grid[0].tick_params(axis="y", length=0)
    return drawing


def seconds(figure: data.Seconds, tiers: Sequence[str]) -> Figure:
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
        mean = sum(row.bytes_per_s) / len(row.bytes_per_s) / factor
        axes.text(1.01, place, f"{mean:.3g} {unit}/s", transform=axes.get_yaxis_transform(), va="center")
    axes.text(1.01, places[0] - 0.85, "mean", transform=axes.get_yaxis_transform(), va="center", color=MUTED)
    axes.set_ylim(places[-1] + 0.6, -0.6)
    axes.set_yticks(places, [f"{short(row.tier, 14)}, {row.label}" for row in ordered])
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"seconds of measuring. Row height: {top / factor:.3g} {unit}/s")
    axes.grid(axis="x")
    return drawing


def _row_places(rows: Sequence[data.SecondsRow]) -> list[float]:
    """Where each row stands: one with events has room for their numbers above it."""
    places, at = [], -1.0
    for row in rows:
        at += 1.0 + (_NUMBERS_ROOM if row.marks else 0.0)
        places.append(at)
    return places


def _event_marks(axes: Axes, marks: Sequence[data.Mark], base: float) -> None:
    """A line through the row for each event, its number above; numbers that would touch become a range."""
    above = base - 0.84
    for mark in marks:
        axes.plot([mark.second - 0.5] * 2, [above, base + 0.02], color=INK, linewidth=1.1)
    across = axes.get_xlim()[1] / (axes.bbox.width / axes.figure.dpi)
    for middle, text in _number_labels(marks, across):
        axes.text(middle, above - 0.03, text, fontsize=7.5, ha="center", va="bottom", bbox=BEHIND_TEXT)


def _number_labels(marks: Sequence[data.Mark], seconds_per_inch: float) -> list[tuple[float, str]]:
    """``(second, text)`` of the numbers, neighbours joined until none overlaps another."""
    groups = [[mark] for mark in marks]

    def shown(group: Sequence[data.Mark]) -> tuple[float, str]:
        first, last = group[0], group[-1]
        text = f"{first.number}" if len(group) == 1 else f"{first.number}–{last.number}"
        return (first.second + last.second - 1) / 2, text

    def half(group: Sequence[data.Mark]) -> float:
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


def _bandwidth_bars(
    axes: Axes, line: data.BandwidthLine, rows: Sequence[tuple[str, int]], factor: float, tiers: Sequence[str]
) -> None:
    colour = series_colour(tier_number(line.tier, tiers))
    for jobs, rate in zip(line.jobs, line.bytes_per_s, strict=True):
        place = rows.index((line.tier, jobs))
        axes.barh(place, rate / factor, height=0.66, color=colour, alpha=0.85, linewidth=0, gid=gid(line.source))
        axes.annotate(f"{rate / factor:.3g}", (rate / factor, place), (3, 0), textcoords="offset points", va="center")


def _target_bar(axes: Axes, place: float, bar: data.TargetBar, limit: float) -> None:
    if bar.restore_s is None:
        text = f"not measured · {_WORDS[bar.verdict]}"
        axes.text(limit * 0.01, place, text, va="center", color=MUTED, bbox=BEHIND_TEXT)
        return
    seconds, colour = bar.restore_s, VERDICTS[bar.verdict]
    axes.barh(place, seconds.middle, height=0.62, color=colour, alpha=0.8, linewidth=0, gid=gid(bar.source))
    axes.barh(place, seconds.middle, height=0.62, fill=False, edgecolor=colour, linewidth=1)
    if _HATCHES[bar.verdict]:
        axes.barh(
            place, seconds.middle, height=0.62, fill=False, edgecolor=PAPER, hatch=_HATCHES[bar.verdict], linewidth=0
        )
    axes.plot([seconds.low, seconds.high], [place, place], color=INK, linewidth=1.3)
    end = max(seconds.high, bar.recompute_s.high if bar.recompute_s and bar.recompute_s.high > seconds.middle else 0)
    end = seconds.high if end > limit * 0.55 and seconds.high < limit * 0.3 else end
    text = f"{format_duration_s(seconds.middle)} · {_WORDS[bar.verdict]}"
    axes.text(end + limit * 0.012, place, text, va="center", bbox=BEHIND_TEXT)


def _line_name(line: data.TimeLine) -> str:
    return f"restore from {line.label}" if line.restore else "recompute (prefill)"


def _recompute_text(seconds: data.Band | None) -> str:
    return "recompute not measured" if seconds is None else f"recompute {format_duration_s(seconds.middle)} (┃)"
