"""The figures of a report. Each is one file with its data, its numbers and its drawing; KINDS lists them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
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
class Kind:
    """A kind of figure: its data, which ``make`` finds in a scene (none where it does not apply), and its drawing."""

    data: type[FigureData]
    make: Callable[[Scene], Iterable[FigureData]]
    draw: Callable[[Any, Sequence[str]], Figure]


# What each kind is about: the whole report, each use, each I/O size. The first figure of a report shows the decision.
KINDS: dict[Callable[[Scene], Iterable[Scene]], list[Kind]] = {
    lambda scene: (scene,): [Kind(target_times.TargetTimes, target_times.make, target_times.draw)],
    of_each_use: [
        Kind(time_curves.TimeCurves, time_curves.make, time_curves.draw),
        Kind(breakeven.BreakEvenMap, breakeven.make, breakeven.draw),
        Kind(crossover_map.CrossoverMap, crossover_map.make, crossover_map.draw),
    ],
    of_each_size: [
        Kind(latencies.Latencies, latencies.make, latencies.draw),
        Kind(bandwidths.Bandwidths, bandwidths.make, bandwidths.draw),
        Kind(seconds.Seconds, seconds.make, seconds.draw),
    ],
}


def figures(scene: Scene) -> tuple[FigureData, ...]:
    """Every figure that the data allows, the one that shows the decision first."""
    found = [
        figure
        for subjects, kinds in KINDS.items()
        for subject in subjects(scene)
        for kind in kinds
        for figure in kind.make(subject)
    ]
    return tuple(_with_own_keys(found))


def draw(figure: FigureData, tiers: Sequence[str]) -> Figure:
    """The drawing of any figure's data; ``tiers`` fixes which tier has which colour throughout a report."""
    kind = next(kind for kinds in KINDS.values() for kind in kinds if kind.data is type(figure))
    with styled():
        return kind.draw(figure, tiers)


def _with_own_keys(found: Sequence[FigureData]) -> Iterator[FigureData]:
    """Two models whose names differ only in punctuation would share a key, and with it their ids on a page."""
    seen: Counter[str] = Counter()
    for figure in found:
        seen[figure.key] += 1
        yield figure if seen[figure.key] == 1 else replace(figure, key=f"{figure.key}-{seen[figure.key]}")
