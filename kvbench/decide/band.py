"""A value with its interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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


def recompute_band(curve: PrefillCurve, tokens: float) -> Band:
    """Fitted prefill seconds with the 95 % bootstrap interval."""
    return band(curve.drawn_seconds(np.array([float(tokens)]))[:, 0], float(curve.seconds(tokens)[0]))
