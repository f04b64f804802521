"""Two storage runs side by side: is the difference real, or noise? (pure)

The batches of time that a point was measured in are the sample, and their spread is what a difference has to beat:
rounds that followed each other at once resemble each other, and count as one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, geometric_mean, stdev
from typing import Literal

from kvbench.record.batches import rounds_apart
from kvbench.record.requests import requests_each
from kvbench.record.results import WAYS, Mix, PointResult, RunResult, SideSummary, Way
from kvbench.record.rounds import spread
from kvbench.record.stats import t_quantile

Outcome = Literal["faster", "slower", "more", "fewer", "cannot tell apart", "one round only"]
Metric = Literal["bandwidth", "p50", "p99", "requests"]

_CONFIDENCE = 0.95

_Kind = tuple[str, int, Mix, int]


@dataclass(frozen=True, slots=True)
class Difference:
    """One direction of one kind of point in two runs: the ratio B / A with its 95 % interval, and what follows.

    For latencies a ratio above 1 is slower, for ``bandwidth`` faster; ``requests`` are those that the device saw for
    each operation. ``low``/``high`` are None with one round only.
    """

    tier_a: str
    tier_b: str
    io_bytes: int
    mix: Mix
    numjobs: int
    direction: Way
    metric: Metric
    a: float
    b: float
    ratio: float
    low: float | None
    high: float | None
    spread_a: float | None
    spread_b: float | None
    outcome: Outcome


def compare(run_a: RunResult, run_b: RunResult) -> list[Difference]:
    """Every direction and metric of the kinds of point that both runs measured, in the order of the first."""
    return [item for one, other in _pairs(run_a, run_b) for item in compare_points(one, other)]


def compare_points(
    one: PointResult, other: PointResult, metrics: Sequence[Metric] = ("bandwidth", "p99", "requests")
) -> list[Difference]:
    """Every direction and metric that both points have: the ratio other / one with its interval."""
    found: list[Difference] = []
    for direction in WAYS:
        for metric in metrics:
            values_a, values_b = _values(one, direction, metric), _values(other, direction, metric)
            if values_a and values_b:
                found.append(_difference(one, other, direction, metric, values_a, values_b))
    return found


def ratio_interval(a: Sequence[float], b: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of mean(B) / mean(A) from the logarithms of both samples (Welch); None below two values each.

    Ratios of speeds are skewed and their logarithms are not; unequal spreads need Welch's degrees of freedom.
    """
    if len(a) < 2 or len(b) < 2:
        return None
    log_a, log_b = [math.log(value) for value in a], [math.log(value) for value in b]
    middle = fmean(log_b) - fmean(log_a)
    part_a, part_b = stdev(log_a) ** 2 / len(a), stdev(log_b) ** 2 / len(b)
    error = math.sqrt(part_a + part_b)
    if error == 0:
        return math.exp(middle), math.exp(middle)
    freedom = (part_a + part_b) ** 2 / (part_a**2 / (len(a) - 1) + part_b**2 / (len(b) - 1))
    reach = t_quantile((1 + _CONFIDENCE) / 2, freedom) * error
    return math.exp(middle - reach), math.exp(middle + reach)


def _pairs(run_a: RunResult, run_b: RunResult) -> list[tuple[PointResult, PointResult]]:
    """Points of the same size, mix and jobs; the same tier where both runs have it, else the only tier of each.

    Where one of the runs measured a kind with two drivers (--fidelity), only points of the same driver are pairs.
    """
    tiers_a, tiers_b = _tiers(run_a), _tiers(run_b)
    single = len(tiers_a) == len(tiers_b) == 1
    kinds_a, kinds_b = _by_kind(run_a), _by_kind(run_b)
    found = []
    for point in run_a.points:
        if point.status != "ok":
            continue
        alike, others = kinds_a[_kind(point)], kinds_b.get(_kind(point, tiers_b[0] if single else None), {})
        only = next(iter(others.values())) if len(alike) == len(others) == 1 else None
        match = others.get(point.driver, only)
        if match is not None:
            found.append((point, match))
    return found


def _by_kind(run: RunResult) -> dict[_Kind, dict[str, PointResult]]:
    """The points that have a result, by kind and then by driver."""
    found: dict[_Kind, dict[str, PointResult]] = {}
    for point in run.points:
        if point.status == "ok":
            found.setdefault(_kind(point), {})[point.driver] = point
    return found


def _kind(point: PointResult, tier: str | None = None) -> _Kind:
    return tier or point.tier, point.io_bytes, point.mix, point.numjobs


def _tiers(run: RunResult) -> list[str]:
    return list(dict.fromkeys(point.tier for point in run.points))


def _values(point: PointResult, direction: Way, metric: Metric) -> list[float]:
    batches = [
        [value for item in group if (value := _number(item.side(direction), metric))]
        for group in rounds_apart(point.rounds)
    ]
    if any(batches):
        return [geometric_mean(values) for values in batches if values]
    side = replace(SideSummary.of(point.side(direction)), requests_each=requests_each(point, direction))
    whole = _number(side, metric)
    return [float(whole)] if whole else []


def _number(side: SideSummary, metric: Metric) -> float | None:
    if metric == "bandwidth":
        return side.bytes_per_s
    if metric == "requests":
        return side.requests_each
    return side.p50_ns if metric == "p50" else side.p99_ns


def _difference(
    one: PointResult,
    other: PointResult,
    direction: Way,
    metric: Metric,
    a: Sequence[float],
    b: Sequence[float],
) -> Difference:
    middle_a, middle_b = math.exp(fmean(map(math.log, a))), math.exp(fmean(map(math.log, b)))
    interval = ratio_interval(a, b)
    return Difference(
        tier_a=one.tier,
        tier_b=other.tier,
        io_bytes=one.io_bytes,
        mix=one.mix,
        numjobs=one.numjobs,
        direction=direction,
        metric=metric,
        a=middle_a,
        b=middle_b,
        ratio=middle_b / middle_a,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        spread_a=spread(a),
        spread_b=spread(b),
        outcome=_outcome(interval, metric),
    )


def _outcome(interval: tuple[float, float] | None, metric: Metric) -> Outcome:
    if interval is None:
        return "one round only"
    low, high = interval
    if low <= 1 <= high:
        return "cannot tell apart"
    if metric == "requests":
        return "more" if low > 1 else "fewer"
    return "faster" if (low > 1) == (metric == "bandwidth") else "slower"
