"""A point measured in rounds: how rounds pool into one result, and when enough is known to stop (pure)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from kvbench.record.batches import Batch, histograms_over_time, latency_batches, rate_batches, rates_over_time
from kvbench.record.histogram import Histogram, merge
from kvbench.record.latency import latency_of
from kvbench.record.requests import requests_each
from kvbench.record.results import (
    WAYS,
    Calls,
    Conditions,
    Direction,
    LatencyNs,
    Observation,
    PointResult,
    Round,
    SideSummary,
    Way,
)
from kvbench.record.stats import relative_half_width

Number = TypeVar("Number", int, float)
Decided = Callable[[Observation], bool | None]

# Batches of time after which a point may end: six for a t quantile of 2.6 instead of 4.3, then ever fewer looks.
LOOKS = (6, 10, 15)


@dataclass(frozen=True, slots=True)
class StopRule:
    """When a point has been measured long enough.

    With ``auto`` False one round of ``max_s`` seconds is run. Else rounds of ``round_s`` are added, and after LOOKS
    batches of time the answer is looked at: is the p99 of every direction within ``precision``, or can ``max_s`` not
    bring it there? ``decided`` (given a prefill curve) answers first: True when the verdict cannot flip any more, False
    when it still can, None when no verdict rests on the point, which then ends with the first look.
    """

    auto: bool
    max_s: int
    round_s: int = 3
    precision: float = 0.10

    @property
    def least_s(self) -> int:
        """Seconds after which a point that fails nowhere can end first."""
        return min(self.max_s, LOOKS[0] * self.round_s) if self.auto else self.max_s


def next_round_s(rule: StopRule, rounds: Sequence[Observation], decided: Decided | None = None) -> int | None:
    """Seconds of the next round, or None when the point is done."""
    if not rounds:
        return min(rule.round_s, rule.max_s) if rule.auto else rule.max_s
    spent = sum(item.point.runtime_s or 0.0 for item in rounds)
    left = math.floor(rule.max_s - spent + 0.5)
    if not rule.auto or left < 1 or rounds[-1].point.status != "ok":
        return None
    if _is_look(rounds) and _is_done(rule, pool(rounds), spent, decided):
        return None
    return rule.round_s if left >= 2 * rule.round_s else left


def _is_look(rounds: Sequence[Observation]) -> bool:
    """Whether the last round completed a number of batches after which the answer is looked at.

    Few looks, known beforehand: who looks after every round stops at the luckiest one (Pocock, Biometrika 64, 1977).
    """
    known = len(latency_batches(rounds))
    return known in LOOKS and len(latency_batches(rounds[:-1])) < known


def _is_done(rule: StopRule, pooled: Observation, spent: float, decided: Decided | None) -> bool:
    if decided is not None:
        return decided(pooled) is not False
    width = widest_p99(pooled.point)
    # The half-width shrinks with the root of the time.
    return width <= rule.precision or (math.isfinite(width) and spent * (width / rule.precision) ** 2 > rule.max_s)


def widest_p99(point: PointResult) -> float:
    """The relative half-width of the p99 interval of the direction that is known worst; infinite without one."""
    widths = [
        relative_half_width(side.latency_ns.p99, side.latency_ns.p99_low, side.latency_ns.p99_high)
        if side.latency_ns is not None and side.latency_ns.p99 is not None
        else math.inf
        for _, side in point.sides()
    ]
    return max(widths, default=math.inf)


def pool(rounds: Sequence[Observation]) -> Observation:
    """All rounds as one observation: counts added, histograms merged, the worst of each condition kept."""
    last = rounds[-1].point
    usable = [item for item in rounds if item.point.status in ("ok", "interrupted")]
    if last.status == "failed" or not usable:
        return replace(rounds[-1], point=replace(last, rounds=tuple(map(_summary, rounds))))
    points = [item.point for item in usable]
    batches = latency_batches(usable)
    merged = {
        name: merge([item.histograms[name] for item in usable if name in item.histograms])
        for name in dict.fromkeys(name for item in usable for name in item.histograms)
    }
    pooled = replace(
        last,
        runtime_s=sum(point.runtime_s or 0.0 for point in points),
        read=_pooled_side(usable, "read"),
        write=_pooled_side(usable, "write"),
        conditions=_pooled_conditions([point.conditions for point in points]),
        rounds=tuple(map(_summary, rounds)),
        metadata=_pooled_calls(points, merged, batches),
        over_time=rates_over_time(rate_batches(usable)),
    )
    return Observation(pooled, merged)


def spread(values: Sequence[float]) -> float | None:
    """How far the largest lies above the smallest, relative to it; None for fewer than two positive values."""
    present = [value for value in values if value > 0]
    return max(present) / min(present) - 1 if len(present) > 1 else None


def _pooled_side(rounds: Sequence[Observation], way: Way) -> Direction | None:
    parts = [(item, side) for item in rounds if (side := item.point.side(way)) is not None]
    if not parts:
        return None
    sides = [side for _, side in parts]
    histograms = [item.histograms[way] for item, _ in parts if way in item.histograms]
    latency = _pooled_latency(sides, histograms, histograms_over_time(latency_batches(rounds), way))
    if len(rounds) == 1:
        return replace(sides[0], latency_ns=latency or sides[0].latency_ns)
    runtime_s = sum(item.point.runtime_s or 0.0 for item in rounds)
    ios, moved = sum(side.ios for side in sides), sum(side.bytes for side in sides)
    return Direction(
        ios=ios,
        bytes=moved,
        iops=ios / runtime_s if runtime_s else 0.0,
        bytes_per_s=moved / runtime_s if runtime_s else 0.0,
        latency_ns=latency,
    )


def _pooled_latency(
    sides: Sequence[Direction], histograms: Sequence[Histogram], batches: Sequence[Histogram]
) -> LatencyNs | None:
    """The latency of all rounds together; None where one of them recorded no histogram."""
    known = [side.latency_ns for side in sides if side.latency_ns is not None]
    if not len(known) == len(histograms) == len(sides):
        return None
    return latency_of(
        histograms,
        mean_ns=_pooled_mean([(side.ios, side.latency_ns) for side in sides]),
        min_ns=min((latency.min for latency in known if latency.min is not None), default=None),
        max_ns=max((latency.max for latency in known if latency.max is not None), default=None),
        batches=batches,
    )


def _pooled_calls(
    points: Sequence[PointResult], merged: Mapping[str, Histogram], batches: Sequence[Batch]
) -> dict[str, Calls]:
    """The calls that move no data; their histograms lie beside those of the directions, by kind."""
    found = {}
    for kind in dict.fromkeys(kind for point in points for kind in point.metadata):
        parts = [point.metadata[kind] for point in points if kind in point.metadata]
        known = [part.latency_ns for part in parts if part.latency_ns is not None]
        latency = (
            latency_of(
                [merged[kind]],
                mean_ns=_pooled_mean([(part.count, part.latency_ns) for part in parts]),
                min_ns=min((one.min for one in known if one.min is not None), default=None),
                max_ns=max((one.max for one in known if one.max is not None), default=None),
                batches=histograms_over_time(batches, kind),
            )
            if kind in merged
            else None
        )
        found[kind] = Calls(sum(part.count for part in parts), latency, sum(part.failed for part in parts))
    return found


def _pooled_mean(parts: Sequence[tuple[int, LatencyNs | None]]) -> float | None:
    means = [(ios, latency.mean) for ios, latency in parts if latency is not None and latency.mean is not None]
    total = sum(ios for ios, _ in means)
    return sum(ios * mean for ios, mean in means) / total if len(means) == len(parts) and total else None


def _pooled_conditions(parts: Sequence[Conditions]) -> Conditions:
    return replace(
        parts[-1],
        requested_runtime_s=_total([part.requested_runtime_s for part in parts]),
        cached_fraction=_largest([part.cached_fraction for part in parts]),
        device_read_bytes=_total([part.device_read_bytes for part in parts]),
        device_written_bytes=_total([part.device_written_bytes for part in parts]),
        device_read_requests=_total([part.device_read_requests for part in parts]),
        device_write_requests=_total([part.device_write_requests for part in parts]),
        failed_ios=_total([part.failed_ios for part in parts]),
        load_1m=_largest([part.load_1m for part in parts]),
        cpu_steal_percent=_largest([part.cpu_steal_percent for part in parts]),
        other_runs=max((part.other_runs for part in parts if part.other_runs is not None), default=None),
        cpu_stalled_percent=_largest([part.cpu_stalled_percent for part in parts]),
        cpu_waiting=_largest([part.cpu_waiting for part in parts]),
    )


def _total(values: Sequence[Number | None]) -> Number | None:
    present = [value for value in values if value is not None]
    return sum(present[1:], present[0]) if len(present) == len(values) and present else None


def _largest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _summary(item: Observation) -> Round:
    point = item.point
    read, write = (SideSummary.of(point.side(way)) for way in WAYS)
    return Round(
        repeat=point.rounds[0].repeat if point.rounds else 1,
        runtime_s=point.runtime_s or 0.0,
        read_bytes_per_s=read.bytes_per_s,
        write_bytes_per_s=write.bytes_per_s,
        read_p99_ns=read.p99_ns,
        write_p99_ns=write.p99_ns,
        read_p50_ns=read.p50_ns,
        write_p50_ns=write.p50_ns,
        began_s=point.rounds[0].began_s if point.rounds else None,
        read_requests_each=requests_each(point, "read"),
        write_requests_each=requests_each(point, "write"),
    )
