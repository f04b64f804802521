"""The prefill curve T(L) = a + bL + cL^2 with non-negative coefficients, and how sure it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from kvbench.prefill.least_squares import Floats, non_negative, powers
from kvbench.prefill.robust import trusted
from kvbench.prefill.samples import Sample, Samples

__all__ = ["DRAWS", "Floats", "PrefillCurve", "Shape", "fit"]

Shape = Literal["quadratic", "linear"]

_TERMS: dict[Shape, tuple[int, ...]] = {"quadratic": (0, 1, 2), "linear": (0, 1)}

DRAWS = 1000
# max_num_batched_tokens of vLLM's API server on GPUs of 70 to 160 GiB (engine/arg_utils.py); 2,048 on smaller ones.
STEP_TOKENS = 8192
_SEED = 20260101
# With fewer lengths the curve passes through them whatever they are: nothing says how much they stray.
FEWEST_LENGTHS = 3
# A drawn time stays positive: at least this share of the fitted one.
_SHORTEST = 0.05
_MOST_ROUNDS = 100
_WHOLE_STEPS = 10
_SETTLED = 1e-9


@dataclass(frozen=True)
class PrefillCurve:
    """TTFT in seconds as a function of prompt tokens, fitted to measurements between two lengths.

    ``draws`` holds bootstrap coefficients, shape (DRAWS, 3), or is empty when the samples leave no degree of freedom.
    ``residuals_s`` are measured less fitted seconds of the samples that were fitted, ``set_aside`` the samples that
    stand too far from all others, ``linear_residual_s`` the largest residual that a straight line leaves at best.
    ``notes``, ``ttft_column`` and ``any_speed`` are the samples' own. ``step_tokens``: computed at once.
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
    notes: tuple[str, ...] = ()
    residuals_s: tuple[tuple[int, float], ...] = ()
    set_aside: tuple[Sample, ...] = ()
    linear_residual_s: float | None = None
    ttft_column: str | None = None
    any_speed: bool = False
    step_tokens: int = STEP_TOKENS

    @cached_property
    def coefficients(self) -> Floats:
        """a, b and c, shape (3,)."""
        return np.array([self.a_s, self.b_s_per_token, self.c_s_per_token2])

    @property
    def largest_residual_s(self) -> float | None:
        """The largest distance of a fitted sample from the curve in seconds, None when none is known."""
        return max((abs(residual) for _, residual in self.residuals_s), default=None)

    def seconds(self, tokens: Floats | Sequence[float] | float) -> Floats:
        """Fitted TTFT in seconds at each number of tokens."""
        return powers(np.atleast_1d(np.asarray(tokens, dtype=float))) @ self.coefficients

    def prefix_seconds(self, tokens: Floats | Sequence[float] | float) -> Floats:
        """What computing the first ``tokens`` tokens of a prompt adds to its TTFT: bP + cP^2, in seconds.

        T(P + S) less a + bS + c((P + S)^2 - P^2), which a prompt with P tokens in a cache still takes: the constant and
        whatever comes after the prefix are paid by both.
        """
        return powers(np.atleast_1d(np.asarray(tokens, dtype=float)))[:, 1:] @ self.coefficients[1:]

    def drawn_prefix_seconds(self, tokens: Floats) -> Floats:
        """``prefix_seconds`` under each bootstrap draw, shape (draws, tokens); the fit itself without draws."""
        coefficients = self.draws if len(self.draws) else self.coefficients[np.newaxis, :]
        return coefficients[:, 1:] @ powers(tokens)[:, 1:].T

    def drawn_seconds(self, tokens: Floats) -> Floats:
        """TTFT under each bootstrap draw, shape (draws, tokens); the fit itself when there are no draws."""
        coefficients = self.draws if len(self.draws) else self.coefficients[np.newaxis, :]
        return coefficients @ powers(tokens).T


def fit(samples: Samples, shape: Shape = "quadratic") -> PrefillCurve:
    """The curve that minimises squared relative errors: prefill work is linear in L plus quadratic attention.

    Relative, because a millisecond at 2k tokens counts as much as 25 ms at 48k, and relative to the fitted time: errors
    relative to the measured one favour the samples that came out short (by twice the variance). A sample that stands
    far from all others is set aside (see robust). Two lengths carry two terms and no interval; one length carries one,
    the cost of a token.
    """
    measured = np.array([sample.prompt_tokens for sample in samples.rows], dtype=float)
    kept = trusted(measured, np.array([sample.ttft_s for sample in samples.rows]))
    rows = [sample for sample, keep in zip(samples.rows, kept, strict=True) if keep]
    set_aside = tuple(sample for sample, keep in zip(samples.rows, kept, strict=True) if not keep)
    tokens = np.array([sample.prompt_tokens for sample in rows], dtype=float)
    seconds = np.array([sample.ttft_s for sample in rows])
    coefficients = _coefficients(tokens, seconds, shape)
    fitted = powers(tokens) @ coefficients
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
        draws=_draws(tokens, seconds, fitted, used=int((coefficients > 0).sum()), shape=shape),
        notes=(*samples.notes, *_warnings(rows, set_aside)),
        residuals_s=tuple((int(at), float(left)) for at, left in zip(tokens, seconds - fitted, strict=True)),
        set_aside=set_aside,
        linear_residual_s=_line_residual_s(tokens, seconds),
        ttft_column=samples.ttft_column,
        any_speed=samples.any_speed,
    )


def _line_residual_s(tokens: Floats, seconds: Floats) -> float:
    """The largest residual of the least-squares line through the seconds themselves, the line's best case."""
    line = powers(tokens)[:, :2]
    found = np.linalg.lstsq(line, seconds, rcond=None)[0]
    return float(np.abs(seconds - line @ found).max())


def _coefficients(tokens: Floats, seconds: Floats, shape: Shape) -> Floats:
    """The solution of quasi-likelihood for errors in proportion to the time, by iteratively reweighted least squares.

    Source: McCullagh & Nelder, Generalized Linear Models, 2nd ed., 2.5 and 9.2 (variance mu squared, identity link).
    """
    lengths = len(set(tokens))
    # One length says what a token costs, and nothing about a constant part.
    terms = (1,) if lengths == 1 else _TERMS[shape]
    weights, found = seconds, np.zeros(3)
    for count in range(_MOST_ROUNDS):
        design = powers(tokens) / weights[:, np.newaxis]
        found = non_negative(design, (seconds / weights)[:, np.newaxis], most_terms=lengths, allowed=terms)[0]
        fitted = powers(tokens) @ found
        if np.allclose(fitted, weights, rtol=_SETTLED, atol=0):
            break
        # Whole steps settle within a few rounds, or swing between two curves where the times contradict each other:
        # then half steps, in logarithms.
        weights = fitted if count < _WHOLE_STEPS else np.sqrt(weights * fitted)
    return found


def _warnings(kept: Sequence[Sample], set_aside: Sequence[Sample]) -> list[str]:
    found = [
        f"set aside the sample at {sample.prompt_tokens:,} tokens ({sample.ttft_s:.3g} s), far from all others"
        for sample in set_aside
    ]
    if len({sample.prompt_tokens for sample in kept}) == 1:
        found.append("one prompt length only: prefill is taken as proportional to the prompt, which no server is")
    return found


def _draws(tokens: Floats, seconds: Floats, fitted: Floats, *, used: int, shape: Shape) -> Floats:
    """Coefficients refitted to times drawn around the fit; none where no degree of freedom says how much they stray.

    A parametric bootstrap (Davison & Hinkley, Bootstrap Methods and their Application, 6.2) whose error variance is
    drawn from its own chi-square distribution, so that its quantiles are those of Student's t: with five samples two
    degrees of freedom are left of three terms, and 1.96 standard deviations would hold 81 % instead of 95 %.
    """
    count, lengths = len(tokens), len(set(tokens))
    freedom = count - used
    if lengths < FEWEST_LENGTHS or freedom < 1:
        return np.empty((0, 3))
    generator = np.random.default_rng(_SEED)
    squares = float(((seconds / fitted - 1) ** 2).sum())
    spread = np.sqrt(squares / generator.chisquare(freedom, size=(DRAWS, 1)))
    drawn = fitted * np.maximum(_SHORTEST, 1 + spread * generator.standard_normal((DRAWS, count)))
    # Weights of the original fit, so that every draw is one more right-hand side of the same least-squares problem.
    design = powers(tokens) / fitted[:, np.newaxis]
    return non_negative(design, (drawn / fitted).T, most_terms=lengths, allowed=_TERMS[shape])
