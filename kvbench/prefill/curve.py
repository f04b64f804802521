"""The prefill curve T(L) = a + bL + cL^2 with non-negative coefficients, and how sure it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from kvbench.prefill.samples import Samples

Floats = NDArray[np.float64]

DRAWS = 1000
_SEED = 20260101


@dataclass(frozen=True)
class PrefillCurve:
    """TTFT in seconds as a function of prompt tokens, fitted to measurements between two lengths.

    ``draws`` holds bootstrap coefficients, shape (DRAWS, 3), or is empty when the samples leave no degree of freedom.
    """

    a_s: float
    b_s_per_token: float
    c_s_per_token2: float
    measured_from: int
    measured_to: int
    samples: int
    model: str | None
    source: str
    draws: Floats

    @cached_property
    def coefficients(self) -> Floats:
        """a, b and c, shape (3,)."""
        return np.array([self.a_s, self.b_s_per_token, self.c_s_per_token2])

    def seconds(self, tokens: Floats | Sequence[float] | float) -> Floats:
        """Fitted TTFT in seconds at each number of tokens."""
        return _powers(np.atleast_1d(np.asarray(tokens, dtype=float))) @ self.coefficients

    def drawn_seconds(self, tokens: Floats) -> Floats:
        """TTFT under each bootstrap draw, shape (draws, tokens); the fit itself when there are no draws."""
        coefficients = self.draws if len(self.draws) else self.coefficients[np.newaxis, :]
        return coefficients @ _powers(tokens).T


def fit(samples: Samples) -> PrefillCurve:
    """The curve that minimises squared relative errors: prefill work is linear in L plus quadratic attention.

    Relative, because a millisecond at 2k tokens counts as much as 25 ms at 48k. The bootstrap resamples the relative
    residuals, widened by n / (n - p) (Davison & Hinkley, Bootstrap Methods and their Application, 6.2.3). Two lengths
    carry two terms and no interval.
    """
    tokens = np.array([sample.prompt_tokens for sample in samples.rows], dtype=float)
    seconds = np.array([sample.ttft_s for sample in samples.rows])
    lengths = len(set(tokens))
    design = _powers(tokens) / seconds[:, np.newaxis]
    coefficients = _non_negative(design, np.ones((len(tokens), 1)), most_terms=lengths)[0]
    fitted = _powers(tokens) @ coefficients
    draws = _bootstrap(tokens, seconds, fitted, used=int((coefficients > 0).sum()), lengths=lengths)
    a, b, c = coefficients
    return PrefillCurve(
        a_s=float(a),
        b_s_per_token=float(b),
        c_s_per_token2=float(c),
        measured_from=int(tokens.min()),
        measured_to=int(tokens.max()),
        samples=len(tokens),
        model=samples.model,
        source=samples.source,
        draws=draws,
    )


def _bootstrap(tokens: Floats, seconds: Floats, fitted: Floats, *, used: int, lengths: int) -> Floats:
    count = len(tokens)
    if lengths < 3 or count <= used:
        return np.empty((0, 3))
    residuals = (seconds / fitted - 1) * np.sqrt(count / (count - used))
    residuals -= residuals.mean()
    generator = np.random.default_rng(_SEED)
    drawn = fitted * np.maximum(0.05, 1 + generator.choice(residuals, size=(DRAWS, count)))
    # Weights of the original fit, so that every draw is one more right-hand side of the same least-squares problem.
    design = _powers(tokens) / fitted[:, np.newaxis]
    return _non_negative(design, (drawn / fitted).T, most_terms=lengths)


def _non_negative(design: Floats, targets: Floats, *, most_terms: int) -> Floats:
    """Non-negative least squares with up to ``most_terms`` terms for every column of ``targets``: (columns, terms).

    With at most three terms the optimum is the best of the unconstrained solutions over all subsets of terms that comes
    out non-negative, which is exact.
    """
    terms, columns = design.shape[1], targets.shape[1]
    best = np.zeros((columns, terms))
    best_error = (targets**2).sum(axis=0)
    for size in range(1, min(terms, most_terms) + 1):
        for subset in combinations(range(terms), size):
            part = design[:, subset]
            scale = np.linalg.norm(part, axis=0)
            solution = np.linalg.lstsq(part / scale, targets, rcond=None)[0] / scale[:, np.newaxis]
            error = ((part @ solution - targets) ** 2).sum(axis=0)
            better = (solution >= 0).all(axis=0) & (error < best_error * (1 - 1e-12))
            best[better] = 0
            best[np.ix_(better.nonzero()[0], subset)] = solution.T[better]
            best_error[better] = error[better]
    return best


def _powers(tokens: Floats) -> Floats:
    return np.stack([np.ones_like(tokens), tokens, tokens**2], axis=1)
