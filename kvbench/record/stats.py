"""How sure a percentile or a rate is: order statistics where operations are independent, batches of time where not."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from statistics import stdev

from kvbench.record.histogram import Histogram, merge, nearest_rank

# A percentile with fewer than 10 samples beyond it is one outlier away from another value: p99 needs 1000.
SAMPLES_BEYOND_PERCENTILE = 10

# Two batches of time have one difference, whose t quantile is 12.7: an interval of no use.
FEWEST_BATCHES = 3


def samples_needed(percent: float) -> int:
    """How many samples a percentile needs before it is more than an outlier: 10 / (1 - q)."""
    return math.ceil(round(SAMPLES_BEYOND_PERCENTILE / (1 - percent / 100), 6))


# fio's histogram ends at 2^34 ns; slower operations are counted in its last bin, whose middle this is (fio 3.33
# stat.c plat_idx_to_val of 1855: 2^33 + 63.5 x 2^27).
FIO_LAST_BIN_NS = 17_112_760_320


@lru_cache(maxsize=1024)
def interval_ranks(samples: int, percent: float, confidence: float = 0.95) -> tuple[int | None, int | None]:
    """Ranks (1-based) of the order statistics that bracket the true percentile; None where no sample can.

    Distribution-free: the number of samples below the true q-quantile is Binomial(n, q), so X_(l) and X_(u) bracket it
    with at least ``confidence`` when P(B < l) <= alpha/2 and P(B < u) >= 1 - alpha/2 (David & Nagaraja, Order
    Statistics, 3rd ed., 7.1).
    """
    from scipy.special import betainc

    def at_most(successes: int) -> float:
        # P(B <= k) is an incomplete beta function (Abramowitz & Stegun 26.5.24), which takes any number of samples.
        return float(betainc(samples - successes, successes + 1, 1 - percent / 100))

    alpha = (1 - confidence) / 2
    # P(B <= k) = P(B < k + 1): the ranks are one more than the last k below alpha and the first k from 1 - alpha on.
    low = bisect_right(range(samples), alpha, key=at_most)
    high = bisect_left(range(samples), 1 - alpha, key=at_most) + 1
    return low or None, high if high <= samples else None


@lru_cache(maxsize=8192)
def t_quantile(probability: float, degrees_of_freedom: float) -> float:
    """The quantile of Student's t distribution: how many standard errors few samples are uncertain by."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, probability))


def log_error(values: Sequence[float]) -> float | None:
    """The standard error of the mean logarithm, hence relative; None below FEWEST_BATCHES positive values."""
    logs = [math.log(value) for value in values if value > 0]
    if len(logs) < max(FEWEST_BATCHES, len(values)):
        return None
    return stdev(logs) / math.sqrt(len(logs))


def percentile_interval_ns(
    histogram: Histogram, percent: float, confidence: float = 0.95
) -> tuple[int | None, int | None]:
    """The confidence interval of a percentile in ns of independent operations; a side without a bound is None."""
    low, high = interval_ranks(histogram.samples, percent, confidence) if histogram.samples else (None, None)
    return (
        None if low is None else histogram.at_rank(low),
        None if high is None else histogram.at_rank(high),
    )


def interval_over_time_ns(
    batches: Sequence[Histogram], percent: float, confidence: float = 0.95
) -> tuple[int | None, int | None]:
    """The confidence interval of a long-run percentile in ns from batches of time; none below FEWEST_BATCHES.

    The widest of three, because each is too narrow somewhere (benchmarks/coverage.py): the ranks that independent
    operations would allow; the percentile's rank moved by how much the share of slow operations differs between the
    batches; and how far the percentiles of the batches lie apart. A side that the samples cannot bound is None.
    """
    present = [histogram for histogram in batches if histogram.samples]
    if len(present) < FEWEST_BATCHES:
        return None, None
    pooled = merge(present)
    low, high = percentile_interval_ns(pooled, percent, confidence)
    reach = t_quantile((1 + confidence) / 2, len(present) - 1)
    rank = nearest_rank(pooled.samples, percent)
    moved = math.ceil(reach * _rank_error(present, pooled, percent))
    apart = math.exp(reach * (log_error([max(1, histogram.percentile(percent)) for histogram in present]) or 0.0))
    value = pooled.at_rank(rank)
    return (
        None if low is None else min(low, pooled.at_rank(max(1, rank - moved)), math.floor(value / apart)),
        None
        if high is None
        else max(high, pooled.at_rank(min(pooled.samples, rank + moved)), math.ceil(value * apart)),
    )


def _rank_error(batches: Sequence[Histogram], pooled: Histogram, percent: float) -> float:
    """The standard error of the percentile's rank: the operations beyond it are counted batch by batch.

    The linearised error of a ratio (Cochran, Sampling Techniques, 3rd ed., 6.4), since batches differ in size.
    """
    edge = pooled.percentile(percent)
    beyond = [sum(count for ns, count in histogram.bins if ns > edge) for histogram in batches]
    share, count = sum(beyond) / pooled.samples, len(batches)
    squares = sum((one - share * batch.samples) ** 2 for one, batch in zip(beyond, batches, strict=True))
    return math.sqrt(squares * count / (count - 1))


def relative_half_width(percentile: int, low: int | None, high: int | None) -> float:
    """Half the interval over the percentile; infinite when a side is unknown or the percentile is 0."""
    if low is None or high is None or percentile == 0:
        return math.inf
    return (high - low) / 2 / percentile
