"""Latency histograms as sparse bins, merged exactly: the common currency of every driver and importer."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate


@dataclass(frozen=True)
class Histogram:
    """Counts per latency bin: ``bins`` is ``((latency_ns, count), ...)`` in rising order, every count positive."""

    bins: tuple[tuple[int, int], ...]

    @classmethod
    def from_counts(cls, counts: Mapping[int, int]) -> Histogram:
        """The histogram of ``{latency_ns: count}``; empty bins are dropped."""
        return cls(tuple(sorted([item for item in counts.items() if item[1] > 0])))

    @cached_property
    def samples(self) -> int:
        """Number of operations."""
        return sum([count for _, count in self.bins])

    def at_rank(self, rank: int) -> int:
        """Latency in ns of the ``rank``-th fastest operation (1-based); ValueError outside 1..samples."""
        if not 1 <= rank <= self.samples:
            raise ValueError(f"rank {rank} is outside 1..{self.samples}")
        return self.bins[bisect_left(self._up_to, rank)][0]

    @cached_property
    def _up_to(self) -> list[int]:
        """How many operations every bin and those before it hold."""
        return list(accumulate(count for _, count in self.bins))

    def percentile(self, percent: float) -> int:
        """Nearest-rank percentile in ns, equal to fio's own grouped percentile (checked with fio 3.33 json+)."""
        return self.at_rank(nearest_rank(self.samples, percent))


def bin_of(latency_ns: int) -> int:
    """The middle of the bin that fio would count a latency in: at most 0.8 % off, exact below 128 ns.

    64 bins for every power of two (fio 3.33 stat.c, plat_val_to_idx and plat_idx_to_val with FIO_IO_U_PLAT_BITS 6).
    """
    shift = max(0, latency_ns.bit_length() - 7)
    return latency_ns if shift == 0 else (latency_ns >> shift << shift) + (1 << shift - 1)


def nearest_rank(samples: int, percent: float) -> int:
    """The 1-based rank of the nearest-rank percentile: ceil(percent/100 x samples), in exact arithmetic."""
    if samples < 1:
        raise ValueError("a percentile needs at least one sample")
    exact = _exact(percent)
    return max(1, -(-exact.numerator * samples // (exact.denominator * 100)))


@lru_cache(maxsize=1024)
def _exact(percent: float) -> Fraction:
    return Fraction(str(percent))


def merge(histograms: Iterable[Histogram]) -> Histogram:
    """The histogram of all operations together; percentiles of the merge are exact, unlike averaged percentiles."""
    parts = list(histograms)
    if len(parts) == 1:
        return parts[0]
    total: Counter[int] = Counter()
    for histogram in parts:
        total.update(dict(histogram.bins))
    return Histogram.from_counts(total)
