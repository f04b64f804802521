"""What a server with a tier serves when it is full: requests per second at a hit rate, bounded by GPUs and tier (pure).

A request that hits takes the GPUs T(L) less what the hit spares, any other T(L). The tier must give back the bytes of
every hit, and take those of every prompt that is computed: whatever is not found is stored again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvbench.decide.crossover import Crossover
from kvbench.prefill.curve import PrefillCurve

LimitedBy = Literal["GPUs", "reads", "stores"]


@dataclass(frozen=True, slots=True)
class Rates:
    """The most bytes per second that a tier was measured to read and to write at the judged size; None is not known."""

    read_bytes_per_s: float | None
    write_bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class Throughput:
    """Requests per second at saturation: without a tier, with it, and with it if stores cost nothing.

    ``store_share`` is what storing takes of the tier's write rate if stores did not limit: above 1 they do. It is None
    where no write was measured; then stores are not counted.
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
    if at is None or at.recompute_s is None or not rates.read_bytes_per_s or not at.bytes:
        return None
    miss_s = float(curve.seconds(at.tokens)[0])
    spared_s = float(curve.prefix_seconds(at.restored_tokens)[0])
    bounds: dict[LimitedBy, float] = {
        "GPUs": 1 / (miss_s - hit_rate * spared_s),
        "reads": rates.read_bytes_per_s / (hit_rate * at.bytes),
    }
    free = min(bounds.values())
    share = None
    if rates.write_bytes_per_s is not None:
        share = (1 - hit_rate) * free * at.bytes / rates.write_bytes_per_s
        bounds["stores"] = free / share if share else free
    limited_by = min(bounds, key=lambda name: bounds[name])
    return Throughput(at.tokens, hit_rate, 1 / miss_s, free, bounds[limited_by], limited_by, share)
