"""Histograms as the latency that the result file shows: percentiles and their intervals (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from kvbench.record.histogram import Histogram, merge
from kvbench.record.results import LatencyNs
from kvbench.record.stats import interval_over_time_ns

PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p99_9": 99.9}


def latency_of(
    rounds: Sequence[Histogram],
    *,
    mean_ns: float | None,
    min_ns: int | None,
    max_ns: int | None,
    batches: Sequence[Histogram] = (),
) -> LatencyNs:
    """Percentiles of all rounds together, merged exactly, with intervals from the batches of time; none without."""
    pooled = merge(rounds)
    named = {name: pooled.percentile(percent) for name, percent in PERCENTILES.items()}
    intervals = {name: interval_over_time_ns(batches, percent) for name, percent in PERCENTILES.items()}
    low, high = intervals["p99"]
    return LatencyNs(mean=mean_ns, min=min_ns, max=max_ns, **named, p99_low=low, p99_high=high, intervals=intervals)
