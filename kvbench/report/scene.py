"""What figures and tables are made from: the judgements and runs of a report, narrowed to one use or one I/O size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kvbench.decide.decision import Judged, Wanted
from kvbench.decide.runs import LoadedRun
from kvbench.record.results import PointResult
from kvbench.report.cells import use_label
from kvbench.report.events import Happening, happenings


@dataclass(frozen=True, slots=True)
class Scene:
    """The judgements in question, ``label`` when they are of one use, ``io_bytes`` when it is about one I/O size."""

    judged: tuple[Judged, ...]
    runs: tuple[LoadedRun, ...]
    wanted: Wanted
    events: tuple[Happening, ...]
    label: str = ""
    io_bytes: int = 0

    def measured(self) -> Iterator[tuple[LoadedRun, PointResult]]:
        """Every point of this I/O size that was measured, with its run."""
        for run in self.runs:
            for point in run.result.points:
                if point.io_bytes == self.io_bytes and point.status == "ok":
                    yield run, point


def scene_of(judged: Sequence[Judged], runs: Sequence[LoadedRun], wanted: Wanted) -> Scene:
    """The scene of a whole report."""
    return Scene(tuple(judged), tuple(runs), wanted, tuple(happenings(runs)))


def of_each_use(scene: Scene) -> Iterator[Scene]:
    """A scene for each use that something is known of, in the order of the judgements."""
    for label in dict.fromkeys(map(use_label, scene.judged)):
        known = tuple(item for item in scene.judged if use_label(item) == label and item.restore is not None)
        if known:
            yield replace(scene, judged=known, label=label)


def of_each_size(scene: Scene) -> Iterator[Scene]:
    """A scene for each I/O size of the runs, in the order of measuring."""
    for io_bytes in dict.fromkeys(point.io_bytes for run in scene.runs for point in run.result.points):
        yield replace(scene, io_bytes=io_bytes)
