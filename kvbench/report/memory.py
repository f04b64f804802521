"""What huge pages would bring to the engine's CPU tier here: only from runs that measured both (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvbench.decide.runs import LoadedRun
from kvbench.host.environment import differences
from kvbench.record.comparison import Difference, compare_points
from kvbench.record.results import PointResult
from kvbench.report.data import Advice
from kvbench.units import format_bytes, format_requests

TITLE = "Huge pages for the engine's CPU tier"
_HOW = (
    "To have it: 'mount -o remount,huge=always /dev/shm' before the engine starts (root; Linux with transparent huge "
    "pages), or 'huge=always' in the mount's options in fstab. In Kubernetes: a hostPath volume at /dev/shm of a "
    "directory that the node mounts as tmpfs with huge=always; an emptyDir of medium Memory has no such option. Memory "
    "is then taken 2 MiB at a time."
)
_REPEAT = "Measure both with --repeat 3 or more, one after the other and again."


@dataclass(frozen=True, slots=True)
class MemoryPair:
    """The same kind of point on the engine's kind of memory and on huge pages, on one machine."""

    tier: str
    engine: PointResult
    huge: PointResult

    def found(self) -> Iterator[tuple[Difference, Difference | None]]:
        """Bandwidth of each direction, with the requests beside it where they are known."""
        every = compare_points(self.engine, self.huge, ("bandwidth", "requests"))
        requests = {item.direction: item for item in every if item.metric == "requests"}
        return ((item, requests.get(item.direction)) for item in every if item.metric == "bandwidth")


def advice(runs: Sequence[LoadedRun]) -> tuple[Advice, ...]:
    """For each tier the pure reads with the most jobs in words, and how to have huge pages where they help."""
    best: dict[str, MemoryPair] = {}
    for pair in pairs(runs):
        before = best.get(pair.tier)
        if pair.engine.mix == "read" and (before is None or _load(pair) > _load(before)):
            best[pair.tier] = pair
    said = [(rate, _sentence(pair, rate, requests)) for pair in best.values() for rate, requests in pair.found()]
    if not said:
        return ()
    helps = any(rate.outcome == "faster" for rate, _ in said)
    return (Advice(TITLE, tuple(text for _, text in said), (_HOW if helps else _REPEAT,)),)


def _load(pair: MemoryPair) -> tuple[int, int]:
    return pair.engine.numjobs, pair.engine.io_bytes


def _sentence(pair: MemoryPair, rate: Difference, requests: Difference | None) -> str:
    asked = f"{format_bytes(rate.io_bytes)}, {rate.numjobs} at once"
    split = (
        f"; {format_requests(requests.a)} device requests for each read and {format_requests(requests.b)} with them"
        if requests
        else ""
    )
    if rate.low is None or rate.high is None:
        return f"{pair.tier}: huge pages were measured in one round only ({asked}{split}), which shows no difference."
    interval = f"95 % {rate.low:.2f} to {rate.high:.2f}"
    if rate.outcome == "cannot tell apart":
        return f"{pair.tier}: huge pages cannot be told apart from 4 KiB pages ({interval}, {asked}{split})."
    return (
        f"{pair.tier}: the CPU tier on a tmpfs with huge=always reads {rate.ratio:.2f} times as fast here ({interval}, "
        f"{asked}{split}; measured with {pair.huge.conditions.buffer_memory})."
    )


def pairs(runs: Sequence[LoadedRun]) -> Iterator[MemoryPair]:
    """Points of the same kind, tier and driver from runs of the same environment."""
    for one in runs:
        for other in runs:
            if one is other or differences(one.result.environment, other.result.environment):
                continue
            huge = {_kind(point): point for point in other.result.points if _was(point, "huge")}
            for point in one.result.points:
                if _was(point, "engine") and _kind(point) in huge:
                    yield MemoryPair(point.tier, point, huge[_kind(point)])


def _was(point: PointResult, buffers: str) -> bool:
    return point.status == "ok" and point.conditions.buffers == buffers


def _kind(point: PointResult) -> tuple[str, str, int, str, int]:
    return point.tier, point.driver, point.io_bytes, point.mix, point.numjobs
