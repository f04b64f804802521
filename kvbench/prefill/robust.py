"""Which TTFT samples stand so far from all others that one of them would bend the curve (pure)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from kvbench.prefill.least_squares import Floats, non_negative, powers

_TERMS = 3
# A curve through the other samples misses a good one by its own error; 6 of those are a chance of one in a billion.
# Below 25 % nothing is called bad: so far do honest servers stray, and short prompts from any parabola.
_FAR_SIGMAS = 6.0
_SMALLEST_SIGMA = 0.01
_FAR = 0.25
# More than one in five is no bad sample but a server that strays: then all of them count.
_MOST = 0.2
# Nor when most of the samples at the longest prompts would go: there the curve rests on them, and it may be the others
# that are wrong, as later turns of conversations are, which a cache answered.
_LONGEST = 1 / 3
# Among so many samples one bad one no longer bends anything.
_ENOUGH = 400


def trusted(tokens: Floats, seconds: Floats) -> NDArray[np.bool_]:
    """A mask of the samples to fit, shape (samples,): all of them, less the few that stand far from the rest.

    Each sample in turn is left out and predicted by the curve through the others (deletion residuals, Cook & Weisberg,
    Residuals and Influence in Regression, 2.2.1); the farthest is set aside, and the rest looked at again.
    """
    kept = np.ones(len(tokens), dtype=bool)
    if len(tokens) > _ENOUGH:
        return kept
    most = max(1, int(len(tokens) * _MOST))
    for _ in range(most + 1):
        worst = _worst(tokens[kept], seconds[kept])
        if worst is None:
            return kept if _keeps_the_longest(tokens, kept) else np.ones(len(tokens), dtype=bool)
        kept[kept.nonzero()[0][worst]] = False
    return np.ones(len(tokens), dtype=bool)


def _keeps_the_longest(tokens: Floats, kept: NDArray[np.bool_]) -> bool:
    """Whether at least half of the samples in the longest third stay."""
    longest = np.argsort(tokens, kind="stable")[-math.ceil(len(tokens) * _LONGEST) :]
    return bool(kept[longest].mean() >= 1 / 2)


def _worst(tokens: Floats, seconds: Floats) -> int | None:
    """The sample whose removal leaves the best fit, if that fit then misses it by far; None when all are good."""
    best: tuple[float, int, bool] | None = None
    for left_out in range(len(tokens)):
        rest = np.arange(len(tokens)) != left_out
        # Three terms pass through three lengths exactly: a fourth says that one of them is wrong, not which.
        if len(set(tokens[rest])) <= _TERMS:
            return None
        design = powers(tokens[rest]) / seconds[rest, np.newaxis]
        coefficients = non_negative(design, np.ones((len(design), 1)), most_terms=_TERMS)[0]
        residuals = design @ coefficients - 1
        spread = float(np.sqrt((residuals**2).sum() / (len(design) - _TERMS)))
        here = powers(tokens[[left_out]])[0]
        predicted = here @ coefficients
        missed = float(seconds[left_out] / predicted - 1)
        sigma = max(spread, _SMALLEST_SIGMA) * _prediction_factor(design, here / predicted)
        if best is None or spread < best[0]:
            best = spread, left_out, abs(missed) > max(_FAR, _FAR_SIGMAS * sigma)
    return best[1] if best is not None and best[2] else None


def _prediction_factor(design: Floats, here: Floats) -> float:
    """By how much a prediction is less certain than a sample: beyond the other lengths, much."""
    scale = np.linalg.norm(design, axis=0)
    inverse = np.linalg.pinv((design / scale).T @ (design / scale))
    return float(np.sqrt(1 + (here / scale) @ inverse @ (here / scale)))
