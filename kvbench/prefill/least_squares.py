"""Non-negative least squares with three terms, exactly (pure).

scipy.optimize.nnls solves one right-hand side at a time, where a bootstrap has thousands, and cannot be told how many
terms or which; loading it takes twice as long as the part of scipy that `kvbench.record.stats` uses.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def powers(tokens: Floats) -> Floats:
    """1, L and L squared for each length, shape (lengths, 3)."""
    return np.stack([np.ones_like(tokens), tokens, tokens**2], axis=1)


def non_negative(design: Floats, targets: Floats, *, most_terms: int, allowed: tuple[int, ...] = (0, 1, 2)) -> Floats:
    """Non-negative least squares with up to ``most_terms`` of the ``allowed`` terms for every column of ``targets``.

    Shape (columns, terms). With at most three terms the optimum is the best of the unconstrained solutions over all
    subsets of terms that comes out non-negative, which is exact.
    """
    terms, columns = design.shape[1], targets.shape[1]
    best = np.zeros((columns, terms))
    best_error = (targets**2).sum(axis=0)
    for size in range(1, min(len(allowed), most_terms) + 1):
        for subset in combinations(allowed, size):
            part = design[:, subset]
            scale = np.linalg.norm(part, axis=0)
            solution = np.linalg.lstsq(part / scale, targets, rcond=None)[0] / scale[:, np.newaxis]
            error = ((part @ solution - targets) ** 2).sum(axis=0)
            better = (solution >= 0).all(axis=0) & (error < best_error * (1 - 1e-12))
            best[better] = 0
            best[np.ix_(better.nonzero()[0], subset)] = solution.T[better]
            best_error[better] = error[better]
    return best
