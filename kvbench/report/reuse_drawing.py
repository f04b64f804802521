"""The drawings of a trace's reuse: hit rate against capacity, traffic and working set over time; and their files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from kvbench.record.results import write_atomically
from kvbench.report import png
from kvbench.report.drawing import (
    BEHIND_TEXT,
    DASHES,
    INK,
    LABEL_INCHES,
    MARKERS,
    MUTED,
    WIDTH,
    bandwidth_unit,
    canvas,
    height_for,
    labels_right,
    log_axis,
    pushed_apart,
    series_colour,
    styled,
)
from kvbench.report.files import csv_text
from kvbench.report.reuse import (
    FigureData,
    HitCurve,
    TrafficOverTime,
    WorkingSetOverTime,
    answer_json,
    figures_of,
    format_minutes,
    sheets_of,
)
from kvbench.report.sheet import sheet_json
from kvbench.traces.answer import Answer
from kvbench.units import format_bytes, format_count

_ROW_INCHES = 1.15
_HOUR, _MINUTE = 3600, 60
_MIDDLE = 0.45


def draw(figure: FigureData) -> Figure:
    """The drawing of a figure's data, in the style of the reports."""
    with styled():
        if isinstance(figure, HitCurve):
            return hit_curve(figure)
        if isinstance(figure, TrafficOverTime):
            return traffic(figure)
        return working_sets(figure)


def write_files(answer: Answer, folder: Path) -> tuple[Path, ...]:
    """Write every table as CSV and JSON, every figure as SVG and PNG, and the whole answer as JSON; the paths."""
    texts = {folder / "workingset.json": json.dumps(answer_json(answer), indent=1, allow_nan=False) + "\n"}
    for sheet in sheets_of(answer):
        texts[folder / f"{sheet.key}.csv"] = csv_text(sheet)
        texts[folder / f"{sheet.key}.json"] = json.dumps(sheet_json(sheet), indent=1, allow_nan=False) + "\n"
    drawn = figures_of(answer)
    for figure in drawn:
        texts[folder / f"{figure.key}.svg"] = png.standalone_svg(draw(figure), figure.key, figure.title)
    for path, text in texts.items():
        write_atomically(path, text)
    pictures = []
    for figure in drawn:
        pictures.append(folder / f"{figure.key}.png")
        pictures[-1].write_bytes(png.png(draw(figure), figure.title))
    return (*texts, *pictures)


def hit_curve(figure: HitCurve) -> Figure:
    """Hit rate against capacity (logarithmic) as the steps that it is, its ceiling, and the chosen capacities."""
    drawing, axes = canvas(3.3, left=0.72, right=0.3)
    sizes = [*figure.capacities, *(mark.capacity for mark in figure.marks if mark.capacity > 0)] or [1]
    low, high = max(1, min(sizes)) / 1.3, max(sizes) * 1.6
    axes.set_xscale("log", base=2)
    axes.set_xlim(low, high)
    axes.set_ylim(0, max(figure.ideal * 1.25, 0.01))
    edges = np.array([low, *figure.capacities, high])
    rates = np.array([0.0, *figure.rates])
    axes.stairs(rates, edges, baseline=None, color=series_colour(0), linewidth=2)
    axes.axhline(figure.ideal, color=MUTED, linestyle=(0, (4, 3)), linewidth=1)
    axes.text(
        0.012,
        figure.ideal,
        f"ideal: {figure.ideal:.1%}",
        transform=axes.get_yaxis_transform(),
        va="bottom",
        color=MUTED,
    )
    placed = []
    for number, mark in enumerate(figure.marks):
        axes.plot([mark.capacity] * 2, [0, mark.rate], color=INK, linewidth=1, linestyle=(0, (1, 2)))
        axes.plot(
            [mark.capacity], [mark.rate], color=INK, marker=MARKERS[number % len(MARKERS)], markersize=6, clip_on=False
        )
        placed.append((float(mark.capacity), mark.rate, f"{mark.label}: {mark.rate:.1%}"))
    log_axis(axes, "x", format_bytes if figure.in_bytes else format_count, base=2)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.set_xlabel(f"cache capacity in {'bytes' if figure.in_bytes else 'blocks'} (log scale)")
    axes.set_ylabel("prompt tokens found")
    axes.grid(True)
    _labels_along(axes, placed)
    return drawing


def traffic(figure: TrafficOverTime) -> Figure:
    """One row for each capacity on a common scale: what is read fills the row, what is written is a line."""
    count = len(figure.rows)
    height = 0.95 + _ROW_INCHES * count
    drawing = Figure(figsize=(WIDTH, height))
    grid = drawing.subplots(count, 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    drawing.subplots_adjust(left=0.12, right=0.985, bottom=0.52 / height, top=1 - 0.3 / height, hspace=0.42)
    most = max(max(*row.read_per_s, *row.written_per_s) for row in figure.rows)
    unit, factor = bandwidth_unit(max(most, 1))
    for number, (axes, row) in enumerate(zip(grid, figure.rows, strict=True)):
        edges = np.arange(len(row.read_per_s) + 1) * figure.step_s
        colour = series_colour(number)
        axes.stairs(np.array(row.read_per_s) / factor, edges, fill=True, color=colour, alpha=0.45)
        axes.stairs(np.array(row.written_per_s) / factor, edges, color=INK, linewidth=1.3, baseline=None)
        axes.set_title(row.label, fontsize=9.5, loc="left")
        axes.set_ylim(0, most / factor * 1.08 or 1)
        axes.set_xlim(0, edges[-1])
        axes.yaxis.set_major_locator(MaxNLocator(3))
        axes.grid(True)
    grid[0].set_title("each as the only tier; filled: read, line: written", fontsize=9.5, loc="right", color=MUTED)
    grid[-1].set_xlabel(f"time in the trace; steps of {format_minutes(figure.step_s)}")
    _time_axis(grid[-1])
    drawing.text(0.012, 0.5, f"{unit}/s", rotation=90, va="center")
    return drawing


def working_sets(figure: WorkingSetOverTime) -> Figure:
    """One step line for each length of window (logarithmic), and the chosen capacities as lines across."""
    names = len(figure.lines) + len(figure.marks)
    drawing, axes = canvas(height_for(names, 3.3), left=0.95, right=1.75)
    sizes = [size for line in figure.lines for size in line.touched if size] or [1]
    shown_marks = [mark for mark in figure.marks if mark.capacity > 0]
    low = min([*sizes, *(mark.capacity for mark in shown_marks)]) / 1.6
    high = max([*sizes, *(mark.capacity for mark in shown_marks)]) * 1.6
    span = max(figure.span_s, 1)
    ends = [(float(mark.capacity), mark.label, INK) for mark in shown_marks]
    for number, line in enumerate(figure.lines):
        edges = np.minimum(np.arange(len(line.touched) + 1) * line.window_s, span)
        colour = series_colour(number)
        touched = np.maximum(line.touched, low)
        axes.stairs(touched, edges, baseline=None, color=colour, linewidth=1.7, linestyle=DASHES[number % len(DASHES)])
        ends.append((float(touched[-1]), f"{format_minutes(line.window_s)} windows", colour))
    for mark in shown_marks:
        axes.axhline(mark.capacity, color=INK, linestyle=(0, (1, 2)), linewidth=1)
    axes.set_xlim(0, span)
    axes.set_yscale("log", base=2)
    axes.set_ylim(low, high)
    log_axis(axes, "y", format_bytes if figure.in_bytes else format_count, base=2)
    axes.set_xlabel("time in the trace")
    axes.set_ylabel("touched in a window (log scale)")
    axes.grid(True)
    _time_axis(axes)
    labels_right(axes, ends)
    return drawing


def _labels_along(axes: Axes, placed: Sequence[tuple[float, float, str]]) -> None:
    """Names where a rising curve leaves room: above its dots on the left, below them on the right."""
    gap = 1.1 * LABEL_INCHES / (axes.bbox.height / axes.figure.dpi)
    dots = [(*axes.transAxes.inverted().transform(axes.transData.transform((x, y))), text) for x, y, text in placed]
    for above in (True, False):
        chosen = sorted((dot for dot in dots if (dot[0] > _MIDDLE) == above), key=lambda dot: dot[1])
        shift, across = (1.2 * gap, -0.03) if above else (-0.9 * gap, 0.03)
        for (x, y, text), at in zip(chosen, pushed_apart([y + shift for _, y, _ in chosen], gap), strict=True):
            axes.annotate(
                text, (x, y), (x + across, at), xycoords="axes fraction", textcoords="axes fraction", va="center",
                ha="right" if above else "left", bbox=BEHIND_TEXT, zorder=6,
                arrowprops={
                    "arrowstyle": "-", "color": INK, "linewidth": 0.8, "shrinkB": 5, "relpos": (1 if above else 0, 0.5)
                },
            )  # fmt: skip


def _time_axis(axes: Axes) -> None:
    """Minutes or hours instead of thousands of seconds."""
    span = axes.get_xlim()[1]
    step, unit = (_HOUR, "h") if span > 3 * _HOUR else (_MINUTE, "min") if span > 3 * _MINUTE else (1, "s")
    ticks = MaxNLocator(8, integer=True, steps=[1, 2, 3, 5, 6, 10]).tick_values(0, span / step)
    axes.set_xticks([tick * step for tick in ticks if 0 <= tick * step <= span])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / step:g} {unit}"))
