"""What restoring saves: GPU time for each hit and each day, and money where prices are given (pure)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvbench.decide.crossover import AtTarget
from kvbench.prefill.curve import PrefillCurve

_SECONDS_PER_HOUR = 3600
_SECONDS_PER_DAY = 86_400
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """What the server does: requests per second, the share of their prompts that is restored, GPUs, and a price.

    ``gpu_hour_price`` is that of one GPU for one hour, in the currency of the user; without it money is left out.
    """

    hit_rate: float
    requests_per_s: float
    gpus: int = 1
    gpu_hour_price: float | None = None


@dataclass(frozen=True, slots=True)
class Saving:
    """GPU-seconds that one hit on a prompt of ``tokens`` tokens saves, and a day of them; ``low``/``high`` at 95 %.

    ``hits_per_day`` are those that the tier and the GPUs can serve of the ones that come. ``price_per_day`` is None
    without a price.
    """

    tokens: int
    gpu_s_per_hit: float
    gpu_s_per_hit_low: float
    gpu_s_per_hit_high: float
    hits_per_day: float
    gpu_s_per_day: float
    price_per_day: float | None


def saving(curve: PrefillCurve, at: AtTarget, traffic: ServerLoad, most_per_s: float | None = None) -> Saving | None:
    """What hits on prompts of the target length save; None outside the prompts that were measured.

    A hit spares the prefill of its prefix on every GPU of the server. The restore itself takes no GPU time beyond the
    copy into its memory, which runs beside other requests' work. No more requests are served than ``most_per_s``, and
    no more is saved than all GPUs have to give: who is asked for more than that needs more servers either way.
    """
    if at.recompute_s is None:
        return None
    restored = np.array([float(at.restored_tokens)])
    middle = float(curve.prefix_seconds(restored)[0]) * traffic.gpus
    drawn = curve.drawn_prefix_seconds(restored)[:, 0] * traffic.gpus
    low, high = np.quantile(drawn, [(1 - _CONFIDENCE) / 2, (1 + _CONFIDENCE) / 2])
    served_per_s = traffic.requests_per_s if most_per_s is None else min(traffic.requests_per_s, most_per_s)
    hits = traffic.hit_rate * served_per_s * _SECONDS_PER_DAY
    per_day = min(hits * middle, traffic.gpus * _SECONDS_PER_DAY)
    price = None if traffic.gpu_hour_price is None else per_day / _SECONDS_PER_HOUR * traffic.gpu_hour_price
    return Saving(at.tokens, middle, min(float(low), middle), max(float(high), middle), hits, per_day, price)
