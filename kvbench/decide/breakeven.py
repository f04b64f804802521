"""What a tier would have to be to tie with the GPUs, and how far a TTFT budget reaches (pure)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvbench.decide.recompute import spared_s
from kvbench.decide.restore import MeasuredReads, RestoreCurve
from kvbench.prefill.curve import Floats, PrefillCurve
from kvbench.record.results import Use


@dataclass(frozen=True, slots=True)
class BreakEven:
    """What restoring ``tokens`` tokens needs to take exactly as long as their prefill.

    ``bytes_per_s`` is what one request must get from the tier, ``p99_ns`` the p99 of a unit if all latencies shrank or
    grew by the same factor. Both are None where lookups and the copy to the GPU alone take longer than prefill.
    """

    tokens: int
    bytes_per_s: float | None
    p99_ns: int | None


def break_even(
    use: Use, measured: MeasuredReads, restore: RestoreCurve, curve: PrefillCurve, tokens: int, concurrent: int = 1
) -> BreakEven | None:
    """The break-even at ``tokens``; None outside the prompts that were measured or the lengths that were computed.

    Scaling every latency by k scales the makespan by k, and the rate of a closed loop by 1 / k. With the reads T at the
    tie and ``restore.reads_s``: k = T (T + around) / (loaded (T + alone share x around)).
    """
    if not curve.measured_from <= tokens <= curve.measured_to or not use.restored_tokens(tokens):
        return None
    around_s, loaded_s = (
        float(np.interp(tokens, restore.tokens, values)) for values in (restore.around_s, restore.loaded_s)
    )
    left_s = float(spared_s(curve, float(use.restored_tokens(tokens)), concurrent)[0]) - around_s
    # One thread looks up for all: no cycle is shorter than that, however fast the reads.
    if left_s <= 0 or left_s + around_s < restore.least_s(tokens):
        return BreakEven(tokens, None, None)
    p99 = measured.read.latency_ns.p99 if measured.read.latency_ns else None
    at_once_s = loaded_s * (left_s + restore.alone_share * around_s)
    scaled = None if p99 is None or at_once_s <= 0 else round(p99 * left_s * (left_s + around_s) / at_once_s)
    return BreakEven(tokens, needed_bytes_per_s(use, tokens, left_s), scaled)


def needed_bytes_per_s(use: Use, tokens: int, seconds: float) -> float:
    """Bytes per second that one request must get to read ``tokens`` tokens in ``seconds``."""
    return use.units(tokens) * use.io_bytes / seconds


def budget_reach(tokens: Floats, seconds: Floats, budget_s: float) -> tuple[int | None, bool]:
    """The last of the rising ``tokens`` before any takes longer than the budget, and whether that is all of them."""
    if not len(tokens):
        return None, False
    over = seconds > budget_s
    if not over.any():
        return int(tokens[-1]), True
    first = int(over.argmax())
    return (int(tokens[first - 1]) if first else None), False
