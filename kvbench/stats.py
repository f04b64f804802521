"""Order statistics: how sure a percentile is, given the number of samples."""

from __future__ import annotations

import math
from functools import lru_cache

from kvbench.histogram import Histogram

# A percentile with fewer than 10 samples beyond it is one outlier away from another value: p99 needs 1000.
SAMPLES_BEYOND_PERCENTILE = 10


def samples_needed(percent: float) -> int:
    """How many samples a percentile needs before it is more than an outlier: 10 / (1 - q)."""
    return math.ceil(round(SAMPLES_BEYOND_PERCENTILE / (1 - percent / 100), 6))


@lru_cache(maxsize=1024)
def interval_ranks(samples: int, percent: float, confidence: float = 0.95) -> tuple[int | None, int | None]:
    """Ranks (1-based) of the order statistics that bracket the true percentile; None where no sample can.

    Distribution-free: the number of samples below the true q-quantile is Binomial(n, q), so X_(l) and X_(u) bracket it
    with at least ``confidence`` when P(B < l) <= alpha/2 and P(B < u) >= 1 - alpha/2 (David & Nagaraja, Order
    Statistics, 3rd ed., 7.1).
    """
    alpha = (1 - confidence) / 2
    low = high = None
    for successes, cumulative in _binomial_cdf_window(samples, percent / 100):
        # cumulative = P(B <= successes) = P(B < successes + 1)
        if cumulative <= alpha:
            low = successes + 1
        if cumulative >= 1 - alpha:
            high = successes + 1
            break
    if low is not None and low < 1:
        low = None
    if high is not None and high > samples:
        high = None
    return low, high


def percentile_interval_ns(histogram: Histogram, percent: float) -> tuple[int | None, int | None]:
    """The 95 % confidence interval of a percentile in ns; a side that the samples cannot bound is None."""
    low, high = interval_ranks(histogram.samples, percent)
    return (
        None if low is None else histogram.at_rank(low),
        None if high is None else histogram.at_rank(high),
    )


def _binomial_cdf_window(n: int, q: float) -> list[tuple[int, float]]:
    """``(k, P(B <= k))`` for the k within 9 standard deviations of n x q, which hold all but 1e-18."""
    spread = 9 * math.sqrt(n * q * (1 - q)) + 9
    first, last = max(0, math.floor(n * q - spread)), min(n, math.ceil(n * q + spread))
    log_q, log_p = math.log(q), math.log1p(-q)
    log_n = math.lgamma(n + 1)
    cumulative, window = 0.0, []
    for k in range(first, last + 1):
        log_pmf = log_n - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * log_q + (n - k) * log_p
        cumulative += math.exp(log_pmf)
        window.append((k, cumulative))
    return window
