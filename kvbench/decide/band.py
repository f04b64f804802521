"""A value with its interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvbench.decide.recompute import drawn_spared_s, spared_s
from kvbench.prefill.curve import Floats, PrefillCurve

_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Band:
    """A value with its 95 % interval; both ends equal the value where there is no interval."""

    low: float
    middle: float
    high: float


def band(draws: Floats, middle: float) -> Band:
    """The middle with the 95 % interval of the draws."""
    low, high = np.quantile(draws, [(1 - _CONFIDENCE) / 2, (1 + _CONFIDENCE) / 2])
    return Band(min(float(low), middle), middle, max(float(high), middle))


def recompute_band(curve: PrefillCurve, restored: float, concurrent: int = 1) -> Band:
    """Seconds to compute ``restored`` tokens of a prefix, ``concurrent`` at once, with the 95 % bootstrap interval."""
    drawn = drawn_spared_s(curve, np.array([float(restored)]), concurrent)[:, 0]
    return band(drawn, float(spared_s(curve, restored, concurrent)[0]))
