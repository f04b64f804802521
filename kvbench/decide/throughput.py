"""What a server with a tier serves when it is full: requests per second at a hit rate, bounded by GPUs and tier (pure).

A request that hits takes the GPUs T(L) less what the hit spares, any other T(L). The tier must give back the bytes of
every hit, and take those of every prompt that is computed: whatever is not found is stored again. What a tier does of
both at once lies between the mixes that were measured: it can spend a share of its time on each of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from kvbench.decide.crossover import Crossover
from kvbench.prefill.curve import PrefillCurve

LimitedBy = Literal["GPUs", "reads", "stores"]


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes per second that a tier was measured to read and to write at the same time, in each mix and load."""

    pairs: tuple[tuple[float, float], ...]

    @property
    def read(self) -> float:
        """The most that was read."""
        return max((read for read, _ in self.pairs), default=0.0)

    @property
    def written(self) -> float:
        """The most that was written; 0 where that was not measured."""
        return max((written for _, written in self.pairs), default=0.0)

    def at_most(self, read: float, written: float) -> float:
        """How many times ``read`` and ``written`` bytes a second the tier does together.

        Sharing its time it does every mean of the pairs, and whatever is less: the least over the weights of a byte of
        each kind of the best pair : what is asked for (duality of linear programs). Only where two pairs are as good
        can the least lie.
        """
        weights = {0.0, 1.0}
        for (one, of_one), (other, of_other) in combinations(self.pairs, 2):
            if (slope := (one - other) - (of_one - of_other)) != 0:
                weights.add((of_other - of_one) / slope)
        return min(
            max(weight * most + (1 - weight) * stored for most, stored in self.pairs) / asked
            for weight in weights
            if 0 <= weight <= 1 and (asked := weight * read + (1 - weight) * written) > 0
        )


@dataclass(frozen=True, slots=True)
class Throughput:
    """Requests per second at saturation: without a tier, with it, and with it if stores cost nothing.

    ``store_share`` is what storing takes of the most that the tier was seen to write, if stores did not limit: above 1
    they do, and below where reads take the rest. It is None where no write was measured; stores are not counted then.
    """

    tokens: int
    hit_rate: float
    without_per_s: float
    free_stores_per_s: float
    with_per_s: float
    limited_by: LimitedBy
    store_share: float | None

    @property
    def gain(self) -> float:
        """How many times as many requests are served with the tier."""
        return self.with_per_s / self.without_per_s

    @property
    def free_gain(self) -> float:
        """The same if stores cost nothing."""
        return self.free_stores_per_s / self.without_per_s


def throughput(crossover: Crossover, curve: PrefillCurve, hit_rate: float, rates: Rates) -> Throughput | None:
    """The throughput of requests of the target length; None where prefill or the tier's reads were not measured."""
    at = crossover.at_target
    if at is None or at.recompute_s is None or not rates.read or not at.bytes:
        return None
    miss_s = float(curve.seconds(at.tokens)[0])
    spared_s = float(curve.prefix_seconds(at.restored_tokens)[0])
    hit_bytes, miss_bytes = hit_rate * at.bytes, (1 - hit_rate) * at.bytes
    bounds: dict[LimitedBy, float] = {"GPUs": 1 / (miss_s - hit_rate * spared_s), "reads": rates.read / hit_bytes}
    free = min(bounds.values())
    share = None
    if rates.written:
        share = free * miss_bytes / rates.written
        bounds["stores"] = rates.at_most(hit_bytes, miss_bytes)
    limited_by = min(bounds, key=lambda name: bounds[name])
    return Throughput(at.tokens, hit_rate, 1 / miss_s, free, bounds[limited_by], limited_by, share)
