"""What a hit spares the GPUs: the prefill of the prefix that is restored, waiting its turn where several come at once.

A prompt of P + S tokens takes T(P + S); with P of them in a cache the S others are computed after them, and the
constant of T is paid as well. The difference is bP + cP^2. R prompts that come at once are computed one after the other
(vLLM v1/core/sched/scheduler.py fills each step from the front of its queue): the mean of them waits for (R - 1) / 2
others and takes (R + 1) / 2 times as long as one.
"""

from __future__ import annotations

from kvbench.decide.restore import RestoreCurve
from kvbench.prefill.curve import Floats, PrefillCurve


def queued(concurrent: int) -> float:
    """How many times as long a prefill takes, in the mean, when ``concurrent`` of them come at once."""
    return (concurrent + 1) / 2


def spared_s(curve: PrefillCurve, restored: Floats | float, concurrent: int) -> Floats:
    """Seconds to compute ``restored`` tokens of a prefix while ``concurrent`` requests come at once."""
    return curve.prefix_seconds(restored) * queued(concurrent)


def drawn_spared_s(curve: PrefillCurve, restored: Floats, concurrent: int) -> Floats:
    """``spared_s`` under each bootstrap draw of the curve, shape (draws, lengths)."""
    return curve.drawn_prefix_seconds(restored) * queued(concurrent)


def still_computed_s(curve: PrefillCurve, restore: RestoreCurve) -> Floats:
    """Seconds that a hit takes beside its restore: the constant of T, and what comes after its whole blocks."""
    computed: Floats = curve.seconds(restore.tokens) - curve.prefix_seconds(restore.restored)
    return computed
