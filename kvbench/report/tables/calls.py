"""What the connector's calls that move no data cost: lookups, opens, renames and the like (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kvbench.decide.runs import LoadedRun
from kvbench.record.results import Calls, LatencyNs
from kvbench.report.cells import point_name
from kvbench.report.columns import Column, name, narrow, number, sheet
from kvbench.report.scene import Scene
from kvbench.report.sheet import Sheet
from kvbench.units import format_count, format_duration_ns

TITLE = "Calls that move no data"


@dataclass(frozen=True, slots=True)
class Timed:
    """The calls of one kind of a point."""

    point: str
    kind: str
    calls: Calls
    source: str


def _latency(key: str, heading: str, ns: Callable[[LatencyNs], float | None]) -> Column[Timed]:
    return number(
        key, heading, lambda row: ns(row.calls.latency_ns or LatencyNs()), format_duration_ns, lambda row: row.source
    )


COLUMNS: tuple[Column[Timed], ...] = (
    name("point", "point", lambda row: row.point, lambda row: row.source),
    name("call", "call", lambda row: row.kind),
    number("count", "count", lambda row: row.calls.count, format_count, lambda row: row.source),
    _latency("mean_ns", "mean", lambda latency: latency.mean),
    _latency("p50_ns", "p50", lambda latency: latency.p50),
    _latency("p99_ns", "p99", lambda latency: latency.p99),
    number("failed", "failed", lambda row: row.calls.failed, format_count, lambda row: row.source),
)


def calls(scene: Scene) -> Sheet:
    """The calls of every point that timed them."""
    return sheet("calls", TITLE, COLUMNS, _rows(scene.runs))


def short_calls(runs: Sequence[LoadedRun]) -> Sheet:
    """The same in short."""
    return narrow(TITLE, COLUMNS, _rows(runs))


def _rows(runs: Sequence[LoadedRun]) -> Iterator[Timed]:
    for run in runs:
        for point in run.result.points:
            for kind, found in point.metadata.items():
                yield Timed(point_name(run, point.id, runs), kind, found, point.source)
