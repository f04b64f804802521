"""What restoring saves: GPU time for each hit and each day, and money where prices are given (pure)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvbench.prefill.curve import PrefillCurve

_SECONDS_PER_HOUR = 3600
_SECONDS_PER_DAY = 86_400
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Traffic:
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

    ``price_per_day`` is None without a price.
    """

    tokens: int
    gpu_s_per_hit: float
    gpu_s_per_hit_low: float
    gpu_s_per_hit_high: float
    hits_per_day: float
    gpu_s_per_day: float
    price_per_day: float | None


def saving(curve: PrefillCurve, tokens: int, traffic: Traffic) -> Saving | None:
    """What hits on prompts of ``tokens`` tokens save; None outside the prompts that were measured.

    A hit saves the prefill of its prompt on every GPU of the server: T_prefill x GPUs. The restore itself takes no GPU
    time beyond the copy into its memory, which runs beside other requests' work.
    """
    if not curve.measured_from <= tokens <= curve.measured_to:
        return None
    middle = float(curve.seconds(tokens)[0]) * traffic.gpus
    drawn = curve.drawn_seconds(np.array([float(tokens)]))[:, 0] * traffic.gpus
    low, high = np.quantile(drawn, [(1 - _CONFIDENCE) / 2, (1 + _CONFIDENCE) / 2])
    hits = traffic.hit_rate * traffic.requests_per_s * _SECONDS_PER_DAY
    per_day = hits * middle
    price = None if traffic.gpu_hour_price is None else per_day / _SECONDS_PER_HOUR * traffic.gpu_hour_price
    return Saving(tokens, middle, min(float(low), middle), max(float(high), middle), hits, per_day, price)
