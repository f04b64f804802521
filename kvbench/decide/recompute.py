"""What a hit spares the GPUs: the prefill of the prefix that is restored, waiting its turn where several come at once.

A prompt of P + S tokens takes T(P + S); with P of them in a cache the S others are computed after them, and the
constant of T is paid as well. The difference is bP + cP^2. R prompts that come at once are computed from the front of
the queue, in steps of so many tokens (vLLM v1/core/sched/scheduler.py fills each step with the prompts that wait): long
ones end one after the other, and the mean of them takes (R + 1) / 2 times as long as one; those that fit into one step
end together, each R times as late.
"""

from __future__ import annotations

import numpy as np

from kvbench.decide.restore import RestoreCurve
from kvbench.prefill.curve import Floats, PrefillCurve


def queued(curve: PrefillCurve, tokens: Floats | float, concurrent: int) -> Floats:
    """How many times as long as one a prefill takes, in the mean, when ``concurrent`` of each length come at once."""
    lengths = np.maximum(np.atleast_1d(np.asarray(tokens, dtype=float)), 1.0)
    # Tokens before and with the last one of each prompt; that one comes out at the end of its step.
    through = np.arange(1, concurrent + 1)[:, np.newaxis] * lengths
    ends = np.minimum(np.ceil(through / curve.step_tokens) * curve.step_tokens / lengths, concurrent)
    found: Floats = ends.mean(axis=0)
    return found


def spared_s(curve: PrefillCurve, restored: Floats | float, concurrent: int) -> Floats:
    """Seconds to compute ``restored`` tokens of a prefix while ``concurrent`` requests come at once."""
    return curve.prefix_seconds(restored) * queued(curve, restored, concurrent)


def drawn_spared_s(curve: PrefillCurve, restored: Floats, concurrent: int) -> Floats:
    """``spared_s`` under each bootstrap draw of the curve, shape (draws, lengths)."""
    return curve.drawn_prefix_seconds(restored) * queued(curve, restored, concurrent)


def computed_s(curve: PrefillCurve, tokens: Floats | float, concurrent: int) -> Floats:
    """Seconds of whole prompts without a cache, in the mean, while ``concurrent`` come at once.

    The constant is that of a request (HTTP, scheduling, a token sampled for all of a step at once): none waits for it.
    """
    return curve.a_s + spared_s(curve, tokens, concurrent)


def still_computed_s(curve: PrefillCurve, restore: RestoreCurve, concurrent: int) -> Floats:
    """Seconds that a hit takes beside its restore: the constant of T, and what comes after its whole blocks."""
    after: Floats = curve.prefix_seconds(restore.tokens) - curve.prefix_seconds(restore.restored)
    return curve.a_s + after * queued(curve, restore.tokens - restore.restored, concurrent)
