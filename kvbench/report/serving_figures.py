"""The figures of a comparison of serving runs: each configuration against the load, as the study shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvbench.report.data import FigureData
from kvbench.report.drawing import DASHES, MARKERS, WIDTH, canvas, height_for, labels_right, series_colour, short
from kvbench.serving.arm import ArmRun
from kvbench.serving.comparing import Comparison
from kvbench.serving.storage import PoolTraffic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MIB = 1 << 20
_LINE_NOTE = "Means over the runs of each load, from zero. Runs that may not be compared are not drawn."


@dataclass(frozen=True, slots=True)
class ServedLine:
    """One configuration: its value at each load, by requests at once."""

    configuration: str
    loads: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ServedFigure(FigureData):
    """Figure: one number of every configuration against the load."""

    axis: str
    lines: tuple[ServedLine, ...]
    note: str = field(default=_LINE_NOTE, kw_only=True)


@dataclass(frozen=True, slots=True)
class _Shown:
    key: str
    title: str
    axis: str
    value: Callable[[ArmRun], float | None]


def _stored(part: Callable[[PoolTraffic], float]) -> Callable[[ArmRun], float | None]:
    def value(run: ArmRun) -> float | None:
        return part(run.storage.total) / run.duration_s if run.storage and run.duration_s else None

    return value


_ALL: tuple[_Shown, ...] = (
    _Shown("served-requests", "Throughput", "requests/s", lambda run: run.requests_per_s),
    _Shown("served-ttft-mean", "Mean TTFT", "seconds", lambda run: run.ttft_s.mean),
    _Shown("served-ttft-p95", "p95 TTFT", "seconds", lambda run: run.ttft_s.p95),
    _Shown("served-e2e", "Mean end-to-end time", "seconds", lambda run: run.e2e_s.mean),
    _Shown("served-hits", "External cache hit rate", "share", lambda run: run.external_hit_rate),
    _Shown("storage-read", "Storage reads", "MiB/s", _stored(lambda moved: moved.read_bytes / _MIB)),
    _Shown("storage-written", "Storage writes", "MiB/s", _stored(lambda moved: moved.written_bytes / _MIB)),
    _Shown("storage-reads", "Storage read operations", "IOPS", _stored(lambda moved: moved.reads)),
    _Shown("storage-writes", "Storage write operations", "IOPS", _stored(lambda moved: moved.writes)),
)


def figures_of(comparison: Comparison) -> tuple[ServedFigure, ...]:
    """Every figure that some run has numbers for, and what each configuration brought over the control."""
    made = (ServedFigure(one.key, one.title, one.axis, tuple(_lines(comparison, one.value))) for one in _ALL)
    return tuple(figure for figure in (*made, _speedup(comparison)) if figure.lines)


def _lines(comparison: Comparison, value: Callable[[ArmRun], float | None]) -> Iterator[ServedLine]:
    for one in comparison.configurations:
        found: dict[int, float] = {}
        for load in one.loads:
            known = [number for run in one.at(load) if (number := value(run)) is not None]
            if known and load.concurrency and not comparison.refuses(one.name, load):
                found[load.concurrency] = sum(known) / len(known)
        if found:
            yield ServedLine(one.name, tuple(found), tuple(found.values()))


def _speedup(comparison: Comparison) -> ServedFigure:
    lines = []
    for one in comparison.configurations:
        found = {
            load.concurrency: ratio.ratio
            for load in one.loads
            if load.concurrency and (ratio := comparison.speedup(one.name, load, "requests_per_s")) is not None
        }
        if found:
            lines.append(ServedLine(one.name, tuple(found), tuple(found.values())))
    return ServedFigure("speedup", f"Throughput over {comparison.control}", "ratio", tuple(lines))


def draw(figure: ServedFigure, names: Sequence[str]) -> Figure:
    """Bars for one load, lines against the load for several; ``names`` fixes each configuration's colour."""
    return (
        _bars(figure, names)
        if len({load for line in figure.lines for load in line.loads}) == 1
        else _curves(figure, names)
    )


def _bars(figure: ServedFigure, names: Sequence[str]) -> Figure:
    drawing, axes = canvas(0.9 + 0.32 * len(figure.lines), left=2.1, right=0.9)
    lines = list(reversed(figure.lines))
    for place, line in enumerate(lines):
        axes.barh(place, line.values[0], height=0.6, color=series_colour(names.index(line.configuration)))
        axes.annotate(f" {line.values[0]:.3g}", (line.values[0], place), va="center")
    axes.set_yticks(range(len(lines)), [short(line.configuration, 24) for line in lines])
    axes.set_xlim(0, 1.08 * max(line.values[0] for line in lines) or 1)
    axes.set_xlabel(f"{figure.axis}, {figure.lines[0].loads[0]} requests at once")
    return drawing


def _curves(figure: ServedFigure, names: Sequence[str]) -> Figure:
    drawing, axes = canvas(height_for(len(figure.lines), 2.9), left=0.72, right=min(2.2, WIDTH / 3))
    loads = sorted({load for line in figure.lines for load in line.loads})
    axes.set_xscale("log", base=2)
    axes.set_xlim(loads[0] / 1.1, loads[-1] * 1.1)
    axes.set_ylim(0, 1.08 * max(value for line in figure.lines for value in line.values) or 1)
    axes.set_xticks(loads, [str(load) for load in loads])
    axes.minorticks_off()
    axes.grid(axis="y")
    for line in figure.lines:
        number = names.index(line.configuration)
        axes.plot(
            line.loads,
            line.values,
            color=series_colour(number),
            marker=MARKERS[number % len(MARKERS)],
            linestyle=DASHES[number % len(DASHES)],
        )
    ends = [
        (line.values[-1], line.configuration, series_colour(names.index(line.configuration))) for line in figure.lines
    ]
    labels_right(axes, ends)
    axes.set_xlabel("requests at once")
    axes.set_ylabel(figure.axis)
    return drawing
