"""Figure: how latency is distributed at each point of one I/O size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kvbench.decide.runs import LoadedRun
from kvbench.record import results
from kvbench.record.batches import p99_interval_ns
from kvbench.record.histogram import Histogram
from kvbench.record.results import PointResult, Way
from kvbench.report.cells import panel, point_name
from kvbench.report.data import FigureData
from kvbench.report.drawing import (
    INK,
    MUTED,
    canvas,
    gid,
    log_axis,
    round_duration,
    short,
    tier_colour,
    tier_number,
)
from kvbench.report.scene import Scene
from kvbench.units import (
    format_bytes,
    format_duration_ns,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LATENCY_BINS = 72


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """One direction of one point: operations in each bin of the figure's grid, and percentiles."""

    label: str
    tier: str
    counts: tuple[int, ...]
    p50_ns: int
    p99_ns: int
    p99_low_ns: int | None
    p99_high_ns: int | None
    source: str


@dataclass(frozen=True, slots=True)
class Latencies(FigureData):
    """Figure: how latency is distributed at each point of one I/O size; ``edges_ns`` bound the bins of every row."""

    io_bytes: int
    edges_ns: tuple[int, ...]
    rows: tuple[LatencyRow, ...]
    note: str = field(
        default="One row for each direction of each point. Area: distribution; line: p50; diamond: p99 with its 95 % "
        "interval.",
        kw_only=True,
    )


def make(scene: Scene) -> list[Latencies]:
    """The latency distribution of every point of one I/O size that has a histogram."""
    found = [
        (run, point, direction, histogram)
        for run, point in scene.measured()
        for direction in results.WAYS
        if (histogram := results.load_histogram(run.path, point, direction)) is not None
    ]
    if not found:
        return []
    edges = _edges([histogram for *_, histogram in found])
    rows = tuple(_row(*item, edges, scene.runs) for item in found)
    size = format_bytes(scene.io_bytes)
    slowest = max(rows, key=lambda row: row.p99_ns)
    fastest = min(rows, key=lambda row: row.p99_ns)
    title = (
        f"{size}: p99 from {format_duration_ns(fastest.p99_ns)} ({fastest.tier}, {fastest.label}) "
        f"to {format_duration_ns(slowest.p99_ns)} ({slowest.tier}, {slowest.label})"
    )
    return [Latencies(f"latency-{scene.io_bytes}", title, scene.io_bytes, edges, rows)]


def _edges(histograms: Sequence[Histogram]) -> tuple[int, ...]:
    low = max(1, min(histogram.bins[0][0] for histogram in histograms))
    high = max(histogram.bins[-1][0] for histogram in histograms)
    grid = np.geomspace(low * 0.98, max(high, low + 1) * 1.02 + 1, _LATENCY_BINS + 1)
    return tuple(dict.fromkeys(int(edge) for edge in grid))


def _row(
    run: LoadedRun,
    point: PointResult,
    direction: Way,
    histogram: Histogram,
    edges: tuple[int, ...],
    runs: Sequence[LoadedRun],
) -> LatencyRow:
    values = [ns for ns, _ in histogram.bins]
    counts, _ = np.histogram(values, bins=list(edges), weights=[count for _, count in histogram.bins])
    low, high = p99_interval_ns(point, point.side(direction))
    jobs = "1 job" if point.numjobs == 1 else f"{point.numjobs} jobs"
    return LatencyRow(
        label=f"{panel(point, direction)}, {jobs}",
        tier=run.label(point.tier, runs),
        counts=tuple(int(count) for count in counts),
        p50_ns=histogram.percentile(50),
        p99_ns=histogram.percentile(99),
        p99_low_ns=low,
        p99_high_ns=high,
        source=f"point {point_name(run, point.id, runs)}: {histogram.samples:,} {direction}s in {point.histogram}",
    )


def draw(figure: Latencies, tiers: Sequence[str]) -> Figure:
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
