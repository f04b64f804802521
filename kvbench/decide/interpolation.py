"""A load that was not measured, between two that were: never beyond them, and always marked (pure).

Rates and every quantile of the latency are interpolated in logarithms over the logarithm of what differs (jobs or
bytes): both follow powers between neighbouring loads, up to saturation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from kvbench.decide.restore import Measured
from kvbench.record.histogram import Histogram
from kvbench.record.latency import latency_of
from kvbench.record.results import Caveat, Direction

_QUANTILES = 500


def between_jobs(known: Sequence[Measured], jobs: int) -> Measured | None:
    """The reads at ``jobs`` jobs from the neighbours in ``known`` (one size); None outside them."""
    ordered = sorted(known, key=lambda item: item.point.numjobs)
    for low, high in pairwise(ordered):
        if low.point.numjobs < jobs < high.point.numjobs:
            share = _share(low.point.numjobs, high.point.numjobs, jobs)
            return _between(low, high, share, low.point.io_bytes, jobs)
    return None


def between_sizes(known: Sequence[Measured], io_bytes: int) -> Measured | None:
    """The reads of ``io_bytes`` bytes from the neighbours in ``known`` (one number of jobs); None outside them."""
    ordered = sorted(known, key=lambda item: item.point.io_bytes)
    for low, high in pairwise(ordered):
        if low.point.io_bytes < io_bytes < high.point.io_bytes:
            share = _share(low.point.io_bytes, high.point.io_bytes, io_bytes)
            return _between(low, high, share, io_bytes, low.point.numjobs)
    return None


def _share(low: int, high: int, at: int) -> float:
    return math.log(at / low) / math.log(high / low)


def _between(low: Measured, high: Measured, share: float, io_bytes: int, jobs: int) -> Measured | None:
    if low.histogram is None or high.histogram is None:
        return None
    histogram = _quantiles_between(low.histogram, high.histogram, share)
    iops = _log(low.read.iops, high.read.iops, share)
    runtime_s = min(low.point.runtime_s or 0.0, high.point.runtime_s or 0.0)
    read = Direction(
        ios=histogram.samples,
        bytes=histogram.samples * io_bytes,
        iops=iops,
        bytes_per_s=iops * io_bytes,
        latency_ns=latency_of(
            [histogram],
            mean_ns=sum(ns * count for ns, count in histogram.bins) / histogram.samples,
            min_ns=histogram.bins[0][0],
            max_ns=histogram.bins[-1][0],
        ),
    )
    marked = Caveat(
        "interpolated",
        f"not measured: between {low.point.id} and {high.point.id}",
        f"measure it: --numjobs {jobs}" if low.point.numjobs != high.point.numjobs else "measure a model of that size",
        {"low": low.point.id, "high": high.point.id, "share": round(share, 4)},
    )
    caveats = {caveat.code: caveat for caveat in (*low.point.warnings, *high.point.warnings, marked)}
    point = replace(
        low.point,
        id=f"between {low.point.id} and {high.point.id}",
        io_bytes=io_bytes,
        numjobs=jobs,
        runtime_s=runtime_s,
        read=read,
        write=None,
        histogram=None,
        series=None,
        rounds=(),
        warnings=tuple(caveats.values()),
    )
    return Measured(point, read, histogram, _alone_s(low, high, share))


def _alone_s(low: Measured, high: Measured, share: float) -> float | None:
    """The mean latency of one operation in flight, which differs between two sizes; None where one is not known."""
    return None if low.alone_s is None or high.alone_s is None else _log(low.alone_s, high.alone_s, share)


def _quantiles_between(low: Histogram, high: Histogram, share: float) -> Histogram:
    """As many samples as the poorer neighbour has, at evenly spaced quantiles."""
    samples = min(low.samples, high.samples)
    levels = min(samples, _QUANTILES)
    counts: Counter[int] = Counter()
    for level in range(levels):
        percent = 100 * (level + 0.5) / levels
        value = _log(low.percentile(percent), high.percentile(percent), share)
        counts[round(value)] += samples * (level + 1) // levels - samples * level // levels
    return Histogram.from_counts(counts)


def _log(low: float, high: float, share: float) -> float:
    return math.exp(math.log(max(low, 1e-12)) * (1 - share) + math.log(max(high, 1e-12)) * share)
