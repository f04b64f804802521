"""Order statistics: how sure a percentile is, given the number of samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from kvbench.record.histogram import Histogram, merge

# A percentile with fewer than 10 samples beyond it is one outlier away from another value: p99 needs 1000.
SAMPLES_BEYOND_PERCENTILE = 10


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


def percentile_interval_ns(
    histogram: Histogram, percent: float, dispersion: float = 1.0
) -> tuple[int | None, int | None]:
    """The 95 % confidence interval of a percentile in ns; a side that the samples cannot bound is None.

    ``dispersion`` (see dispersion_of) divides the number of samples: operations of one second resemble each other, so
    a thousand of them say less than a thousand independent ones.
    """
    samples = histogram.samples
    if samples == 0:
        return None, None
    effective = max(1, int(samples / dispersion))
    low, high = interval_ranks(effective, percent)
    return (
        None if low is None else histogram.at_rank(max(1, math.floor(low * samples / effective))),
        None if high is None else histogram.at_rank(min(samples, math.ceil(high * samples / effective))),
    )


def dispersion_of(rounds: Sequence[Histogram], percent: float) -> float:
    """How much more the rounds' shares of operations beyond the pooled percentile vary than chance allows; at least 1.

    Pearson's chi-square of the counts beyond it, divided by its degrees of freedom (the variance inflation of
    McCullagh & Nelder, Generalized Linear Models, 2nd ed., 4.5); 1 for a single round.
    """
    present = [histogram for histogram in rounds if histogram.samples]
    if len(present) < 2:
        return 1.0
    edge = merge(present).percentile(percent)
    beyond = [sum(count for ns, count in histogram.bins if ns > edge) for histogram in present]
    total = sum(histogram.samples for histogram in present)
    share = sum(beyond) / total
    if share in (0.0, 1.0):
        return 1.0
    chi_square = sum(
        (count - histogram.samples * share) ** 2 / (histogram.samples * share * (1 - share))
        for count, histogram in zip(beyond, present, strict=True)
    )
    return max(1.0, chi_square / (len(present) - 1))


def relative_half_width(percentile: int, low: int | None, high: int | None) -> float:
    """Half the interval over the percentile; infinite when a side is unknown or the percentile is 0."""
    if low is None or high is None or percentile == 0:
        return math.inf
    return (high - low) / 2 / percentile


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
