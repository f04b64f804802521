"""Latencies of one direction that cannot all be true (pure)."""

from __future__ import annotations

from itertools import pairwise

from kvbench.record.results import LatencyNs, PointResult, PointWarning
from kvbench.units import format_duration_ns

# A percentile is the middle of one of fio's bins, up to 0.8 % off; whole microseconds in old files.
_TOLERANCE = 0.02
_TOLERANCE_NS = 1000


def impossible_mean(point: PointResult) -> PointWarning | None:
    """No operations have this mean together with these percentiles: the file was edited, or the histogram ended early.

    Between two percentiles nothing is above the upper one, so the mean has a highest value, and a lowest likewise.
    """
    for name, side in point.sides():
        bounds = None if side.latency_ns is None else _bounds(side.latency_ns)
        if side.latency_ns is None or bounds is None:
            continue
        mean, (low, high) = side.latency_ns.mean, bounds
        if mean is None or low * (1 - _TOLERANCE) - _TOLERANCE_NS <= mean <= high * (1 + _TOLERANCE) + _TOLERANCE_NS:
            continue
        limit = f"at most {format_duration_ns(high)}" if mean > high else f"at least {format_duration_ns(low)}"
        return PointWarning(
            "impossible-mean",
            f"the mean of the {name}s is {format_duration_ns(mean)}, and with {_known(side.latency_ns)} it is {limit}: "
            "the latencies contradict each other",
            "see where the file was changed, or whether fio's histogram ended below the latencies (17.1 s)",
            {"direction": name, "mean_ns": round(mean), "lowest_ns": round(low), "highest_ns": round(high)},
        )
    return None


def _percentiles(latency: LatencyNs) -> dict[float, int]:
    named = {50.0: latency.p50, 90.0: latency.p90, 95.0: latency.p95, 99.0: latency.p99, 99.9: latency.p99_9}
    return {percent: value for percent, value in named.items() if value is not None}


def _bounds(latency: LatencyNs) -> tuple[float, float] | None:
    """The lowest and the highest mean that min, max and the percentiles allow; None where those are not all known."""
    known = _percentiles(latency)
    if not known or latency.min is None or latency.max is None:
        return None
    steps = [(0.0, latency.min), *known.items(), (100.0, latency.max)]
    pairs = [((after[0] - before[0]) / 100, before[1], after[1]) for before, after in pairwise(steps)]
    return sum(share * below for share, below, _ in pairs), sum(share * above for share, _, above in pairs)


def _known(latency: LatencyNs) -> str:
    named = [f"p{percent:g} {format_duration_ns(value)}" for percent, value in _percentiles(latency).items()]
    largest = "" if latency.max is None else f" and a largest of {format_duration_ns(latency.max)}"
    return ", ".join(named[-3:]) + largest
