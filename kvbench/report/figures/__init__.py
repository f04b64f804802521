"""The figures of a report. Each is one file with its data, its numbers and its drawing; FIGURES lists them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from kvbench.report.data import FigureData
from kvbench.report.drawing import styled
from kvbench.report.figures import (
    bandwidths,
    breakeven,
    crossover_map,
    latencies,
    seconds,
    target_times,
    time_curves,
)
from kvbench.report.scene import Scene, of_each_size, of_each_use

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class FigureKind:
    """A kind of figure: what it is about, its data, found in a scene (none where it does not apply), and its drawing.

    ``subjects``: the whole report, each use or each I/O size, as a scene of its own.
    """

    subjects: Callable[[Scene], Iterable[Scene]]
    data: type[FigureData]
    make: Callable[[Scene], Iterable[FigureData]]
    draw: Callable[[Any, Sequence[str]], Figure]


def _of_the_report(scene: Scene) -> tuple[Scene]:
    return (scene,)


# By how the keys of their figures begin. The first figure of a report shows the decision; neighbours about the same
# subjects stand together, subject by subject.
FIGURES: dict[str, FigureKind] = {
    "target": FigureKind(_of_the_report, target_times.TargetTimes, target_times.make, target_times.draw),
    "times": FigureKind(of_each_use, time_curves.TimeCurves, time_curves.make, time_curves.draw),
    "breakeven": FigureKind(of_each_use, breakeven.BreakEvenMap, breakeven.make, breakeven.draw),
    "crossover": FigureKind(of_each_use, crossover_map.CrossoverMap, crossover_map.make, crossover_map.draw),
    "latency": FigureKind(of_each_size, latencies.Latencies, latencies.make, latencies.draw),
    "bandwidth": FigureKind(of_each_size, bandwidths.Bandwidths, bandwidths.make, bandwidths.draw),
    "seconds": FigureKind(of_each_size, seconds.Seconds, seconds.make, seconds.draw),
}


def figures(scene: Scene) -> tuple[FigureData, ...]:
    """Every figure that the data allows, the one that shows the decision first."""
    found = [
        figure
        for subjects, kinds in _by_subjects()
        for subject in subjects(scene)
        for kind in kinds
        for figure in kind.make(subject)
    ]
    return tuple(_with_own_keys(found))


def _by_subjects() -> Iterator[tuple[Callable[[Scene], Iterable[Scene]], list[FigureKind]]]:
    for subjects, kinds in groupby(FIGURES.values(), key=lambda kind: kind.subjects):
        yield subjects, list(kinds)


def draw(figure: FigureData, tiers: Sequence[str]) -> Figure:
    """The drawing of any figure's data; ``tiers`` fixes which tier has which colour throughout a report."""
    kind = next(kind for kind in FIGURES.values() if kind.data is type(figure))
    with styled():
        return kind.draw(figure, tiers)


def _with_own_keys(found: Sequence[FigureData]) -> Iterator[FigureData]:
    """Two models whose names differ only in punctuation would share a key, and with it their ids on a page."""
    seen: Counter[str] = Counter()
    for figure in found:
        seen[figure.key] += 1
        yield figure if seen[figure.key] == 1 else replace(figure, key=f"{figure.key}-{seen[figure.key]}")
