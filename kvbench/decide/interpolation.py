"""A load that was not measured, between two that were: never beyond them, and always marked (pure).

Between two sizes, rates and every quantile of the latency are interpolated in logarithms over the logarithm of the
bytes. Between two numbers of jobs a tier may saturate anywhere, so the rate has bounds and only the shape of the
latencies is interpolated.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from kvbench.decide.restore import MeasuredReads
from kvbench.record.batches import known_over_time
from kvbench.record.histogram import Histogram
from kvbench.record.latency import latency_of
from kvbench.record.results import Direction, OverTime, PointResult, PointWarning

_QUANTILES = 500


def between_jobs(known: Sequence[MeasuredReads], jobs: int) -> MeasuredReads | None:
    """The reads at ``jobs`` jobs from the neighbours in ``known`` (one size), with their bounds; None outside them.

    Throughput of a closed loop rises with ever smaller steps (Reiser and Lavenberg, JACM 27 (1980) 313), so it lies
    above the chord between two loads; and it lies below the line through nothing and the smaller load, and below the
    larger of the two (asymptotic bounds: Lazowska et al., Quantitative System Performance, 5.2). The middle is their
    geometric mean.
    """
    ordered = sorted(known, key=lambda item: item.point.numjobs)
    for low, high in pairwise(ordered):
        if low.point.numjobs < jobs < high.point.numjobs:
            share = _share(low.point.numjobs, high.point.numjobs, jobs)
            found = _between(low, high, share, low.point.io_bytes, jobs)
            return None if found is None else _bounded(found, low, high, jobs)
    return None


def rate_bounds(low: tuple[int, float], high: tuple[int, float], jobs: int) -> tuple[float, float]:
    """The least and the most that ``jobs`` jobs between two measured ``(jobs, rate)`` do together."""
    (few, slow), (many, quick) = low, high
    most = min(jobs * slow / few, max(slow, quick))
    chord = slow + (quick - slow) * (jobs - few) / (many - few)
    return min(chord, most), most


def _bounded(found: MeasuredReads, low: MeasuredReads, high: MeasuredReads, jobs: int) -> MeasuredReads:
    few, many = low.point.numjobs, high.point.numjobs
    least, most = rate_bounds((few, low.read.iops), (many, high.read.iops), jobs)
    reading = _in_flight(low) + (_in_flight(high) - _in_flight(low)) * (jobs - few) / (many - few)
    return replace(
        _at_rate(found, math.sqrt(least * most), reading),
        bounds=(_at_rate(found, most, reading), _at_rate(found, least, reading)),
    )


def _in_flight(measured: MeasuredReads) -> float:
    """Reads in flight on average (Little's law); a mixed point has writes beside them."""
    assert measured.histogram is not None
    return measured.read.iops * _mean_ns(measured.histogram) / 1e9


def _at_rate(found: MeasuredReads, iops: float, reading: float) -> MeasuredReads:
    """The same reads at another rate: every latency scaled so that as many are in flight."""
    assert found.histogram is not None
    factor = reading / iops * 1e9 / _mean_ns(found.histogram)
    counts: Counter[int] = Counter()
    for ns, count in found.histogram.bins:
        counts[max(1, round(ns * factor))] += count
    histogram = Histogram.from_counts(counts)
    read = _direction(histogram, iops, found.point.io_bytes)
    return MeasuredReads(replace(found.point, read=read), read, histogram, found.alone_s)


def between_sizes(known: Sequence[MeasuredReads], io_bytes: int) -> MeasuredReads | None:
    """The reads of ``io_bytes`` bytes from the neighbours in ``known`` (one number of jobs); None outside them."""
    ordered = sorted(known, key=lambda item: item.point.io_bytes)
    for low, high in pairwise(ordered):
        if low.point.io_bytes < io_bytes < high.point.io_bytes:
            share = _share(low.point.io_bytes, high.point.io_bytes, io_bytes)
            return _between(low, high, share, io_bytes, low.point.numjobs)
    return None


def _share(low: int, high: int, at: int) -> float:
    return math.log(at / low) / math.log(high / low)


def _between(low: MeasuredReads, high: MeasuredReads, share: float, io_bytes: int, jobs: int) -> MeasuredReads | None:
    if low.histogram is None or high.histogram is None:
        return None
    histogram = _quantiles_between(low.histogram, high.histogram, share)
    iops = _log(low.read.iops, high.read.iops, share)
    runtime_s = min(low.point.runtime_s or 0.0, high.point.runtime_s or 0.0)
    read = _direction(histogram, iops, io_bytes)
    marked = PointWarning(
        "interpolated",
        f"not measured: between {low.point.id} and {high.point.id}",
        f"measure it: --numjobs {jobs}" if low.point.numjobs != high.point.numjobs else "measure a model of that size",
        {"low": low.point.id, "high": high.point.id, "share": round(share, 4)},
    )
    warnings = {warning.code: warning for warning in (*low.point.warnings, *high.point.warnings, marked)}
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
        over_time=_over_time(low.point, high.point),
        warnings=tuple(warnings.values()),
    )
    return MeasuredReads(point, read, histogram, _alone_s(low, high, share))


def _direction(histogram: Histogram, iops: float, io_bytes: int) -> Direction:
    return Direction(
        ios=histogram.samples,
        bytes=histogram.samples * io_bytes,
        iops=iops,
        bytes_per_s=iops * io_bytes,
        latency_ns=latency_of(
            [histogram],
            mean_ns=_mean_ns(histogram),
            min_ns=histogram.bins[0][0],
            max_ns=histogram.bins[-1][0],
        ),
    )


def _mean_ns(histogram: Histogram) -> float:
    return sum(ns * count for ns, count in histogram.bins) / histogram.samples


def _over_time(low: PointResult, high: PointResult) -> dict[str, OverTime]:
    """How well the rate is known: as well as that of the worse known neighbour, not at all where one is not known."""
    known = [found for point in (low, high) if (found := known_over_time(point, "read")) is not None]
    if len(known) < 2:
        return {}
    return {"read": OverTime(min(item.batches for item in known), max(item.relative_error for item in known))}


def _alone_s(low: MeasuredReads, high: MeasuredReads, share: float) -> float | None:
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
