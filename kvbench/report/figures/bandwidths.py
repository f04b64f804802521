"""Figure: bandwidth against jobs for one I/O size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvbench.report.cells import MOST_NAMED, panel
from kvbench.report.data import FigureData
from kvbench.report.drawing import (
    bandwidth_unit,
    canvases,
    few_ticks,
    gid,
    jobs_text,
    series_colour,
    short,
    tier_number,
)
from kvbench.report.scene import Scene
from kvbench.units import (
    format_bandwidth,
    format_bytes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class BandwidthLine:
    """Bytes per second of one tier and direction for each number of jobs."""

    tier: str
    panel: str
    jobs: tuple[int, ...]
    bytes_per_s: tuple[float, ...]
    source: str


@dataclass(frozen=True, slots=True)
class Bandwidths(FigureData):
    """Figure: bandwidth against jobs for one I/O size."""

    io_bytes: int
    lines: tuple[BandwidthLine, ...]
    note: str = field(default="From zero. One panel for each mix and direction.", kw_only=True)


def make(scene: Scene) -> list[Bandwidths]:
    """Bandwidth against jobs for every tier, mix and direction of one I/O size."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    for run, point in scene.measured():
        for direction, side in point.sides():
            key = (panel(point, direction), run.label(point.tier, scene.runs))
            found.setdefault(key, {})[point.numjobs] = side.bytes_per_s
    if not found:
        return []
    size = format_bytes(scene.io_bytes)
    lines = tuple(
        BandwidthLine(
            tier, panel, tuple(sorted(by_jobs)), tuple(by_jobs[jobs] for jobs in sorted(by_jobs)), "bytes / runtime"
        )
        for (panel, tier), by_jobs in found.items()
    )
    return [Bandwidths(f"bandwidth-{scene.io_bytes}", _title(size, lines), scene.io_bytes, lines)]


def _title(size: str, lines: Sequence[BandwidthLine]) -> str:
    reads = [line for line in lines if line.panel != "write" and "write" not in line.panel] or list(lines)
    what = "reads" if reads[0].panel.startswith(("read", "mixed: read")) else "writes"
    best: dict[str, float] = {}
    for line in reads:
        best[line.tier] = max(best.get(line.tier, 0.0), *line.bytes_per_s)
    parts = [f"{format_bandwidth(rate)} on {tier}" for tier, rate in sorted(best.items(), key=lambda item: -item[1])]
    if len(parts) > MOST_NAMED:
        return f"{size}: {what} reach from {parts[-1]} to {parts[0]}"
    return f"{size}: {what} reach {', '.join(parts)}"


def draw(figure: Bandwidths, tiers: Sequence[str]) -> Figure:
    """Bars from zero: bandwidth of each tier at each number of jobs, one panel for each mix and direction."""
    panels = list(dict.fromkeys(line.panel for line in figure.lines))
    found = {(line.tier, jobs) for line in figure.lines for jobs in line.jobs}
    rows = sorted(found, key=lambda row: (tier_number(row[0], tiers), row))
    top = max(max(line.bytes_per_s) for line in figure.lines)
    unit, factor = bandwidth_unit(top)
    height = 0.85 + 0.27 * len(rows)
    drawing, grid = canvases(len(panels), height)
    for axes, title in zip(grid, panels, strict=True):
        axes.set_title(title, fontsize=9.5, loc="left")
        axes.set_xlim(0, top / factor * 1.42)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_yticks([])
        few_ticks(axes, 3)
        axes.grid(axis="x")
        axes.set_xlabel(f"{unit}/s")
        for line in (line for line in figure.lines if line.panel == title):
            _bars(axes, line, rows, factor, tiers)
    grid[0].set_yticks(range(len(rows)), [f"{short(tier, 14)}, {jobs_text(jobs)}" for tier, jobs in rows])
    grid[0].tick_params(axis="y", length=0)
    return drawing


def _bars(
    axes: Axes, line: BandwidthLine, rows: Sequence[tuple[str, int]], factor: float, tiers: Sequence[str]
) -> None:
    colour = series_colour(tier_number(line.tier, tiers))
    for jobs, rate in zip(line.jobs, line.bytes_per_s, strict=True):
        place = rows.index((line.tier, jobs))
        axes.barh(place, rate / factor, height=0.66, color=colour, alpha=0.85, linewidth=0, gid=gid(line.source))
        axes.annotate(f"{rate / factor:.3g}", (rate / factor, place), (3, 0), textcoords="offset points", va="center")
