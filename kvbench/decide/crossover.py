"""Restore or recompute: from which context length on a tier beats the GPUs (pure; numpy only).

Two models stand side by side. *Single block* is the published method: the prompt length whose prefill takes as long as
the p99 of one block. *Request* decides: the time to bring back every block of the prompt with the parallelism that one
request gets, against the prefill of that prompt.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kvbench.checks import voiding
from kvbench.decide.breakeven import BreakEven, break_even, budget_reach
from kvbench.decide.restore import (
    NOTHING_AROUND,
    USUAL_VARIATION,
    Around,
    Measured,
    RestoreCurve,
    restore_curve,
    restore_tokens_per_s,
)
from kvbench.prefill.curve import Floats, PrefillCurve
from kvbench.record.batches import known_over_time
from kvbench.record.results import Caveat, Use
from kvbench.units import format_bandwidth, format_number

SingleKind = Literal["from", "below-range", "above-range"]
RequestKind = Literal["always", "from", "never", "unknown"]
Verdict = Literal["viable", "not viable", "cannot say"]

DEFAULT_TARGET_TOKENS = 32 * 1024
PUBLISHED_JOBS = 16

# Besides the target, the length that the study's readers ask about.
SHORT_TOKENS = 8 * 1024

_GRID = 256
CONFIDENCE = 0.95
# Single TTFT stray by up to 20 % between honest servers' runs; twice that holds 95 % of them.
_USUAL_ERROR = 0.4


@dataclass(frozen=True, slots=True)
class SingleBlock:
    """The published crossover: prompt tokens whose prefill takes as long as one block's p99."""

    kind: SingleKind
    tokens: int | None
    p99_ns: int
    point: str | None


@dataclass(frozen=True, slots=True)
class RequestCrossover:
    """The crossover of whole requests; ``low``/``high`` bound it with 95 %, None beyond what was measured."""

    kind: RequestKind
    tokens: int | None
    low: int | None
    high: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class AtTarget:
    """One request at the target length: bytes, and seconds to restore them at p50 and p99 of the simulated requests."""

    tokens: int
    bytes: int
    p50_s: float
    p99_s: float


@dataclass(frozen=True, slots=True)
class Budget:
    """The longest contexts within the TTFT budget: None when no length is, ``*_beyond`` when every computed one is.

    ``restore``: with 97.5 % certainty; ``recompute``: by the fitted curve, within the measured prompts.
    """

    seconds: float
    restore_tokens: int | None
    restore_beyond: bool
    recompute_tokens: int | None
    recompute_beyond: bool


@dataclass(frozen=True)
class Crossover:
    """The answer for one tier and use, with everything that a figure needs to show it."""

    tier: str
    use: Use
    concurrent_restores: int
    point: str | None
    restore_tokens_per_s: float | None
    single_block: SingleBlock | None
    request: RequestCrossover
    verdict: Verdict
    verdict_reason: str
    restore: RestoreCurve | None = None
    caveats: tuple[Caveat, ...] = ()
    run: str = ""
    measured: Measured | None = None
    around: Around = NOTHING_AROUND
    at_target: AtTarget | None = None
    budget: Budget | None = None
    break_even: tuple[BreakEven, ...] = ()
    what_if: str = ""


@dataclass(frozen=True, slots=True)
class Goal:
    """What the user needs: restoring must pay from ``target_tokens`` on, within ``ttft_budget_s`` there."""

    target_tokens: int = DEFAULT_TARGET_TOKENS
    ttft_budget_s: float | None = None


def decide(
    use: Use,
    tier: str,
    concurrent: int,
    measured: Measured | None,
    single: Measured | None,
    curve: PrefillCurve,
    goal: Goal,
    around: Around = NOTHING_AROUND,
    confidence: float = CONFIDENCE,
) -> Crossover:
    """The crossover of ``use`` on ``tier`` with ``concurrent`` requests restoring at once.

    ``measured`` is the point at ``concurrent`` x the use's parallelism, ``single`` the one at the published 16 jobs;
    either may be None, and the answer then says what was not measured. Of a load within bounds each bound counts with
    ``confidence``.
    """
    single_block = None if single is None else single_block_crossover(single, curve)
    if measured is None:
        jobs = use.in_flight(concurrent)
        reason = f"no read latency was measured at {use.io_bytes} bytes and {jobs} jobs; add --numjobs {jobs}"
        request = RequestCrossover("unknown", None, None, None, reason)
        return Crossover(tier, use, concurrent, None, None, single_block, request, "cannot say", reason)
    restore = restore_curve(use, measured, concurrent, _grid(use, curve, goal), around)
    level = confidence if measured.bounds is None else (1 + confidence) / 2
    request = request_crossover(restore, curve, level)
    verdict, why = verdict_of(request, restore, curve, goal, level)
    why += _how_sure(measured, verdict)
    if codes := voiding(measured.point):
        verdict, why = "cannot say", f"the point it rests on is void: {', '.join(codes)}"
    return Crossover(
        tier=tier,
        use=use,
        concurrent_restores=concurrent,
        point=measured.point.id,
        restore_tokens_per_s=restore_tokens_per_s(use, measured, concurrent, around),
        single_block=single_block,
        request=request,
        verdict=verdict,
        verdict_reason=why,
        restore=restore,
        caveats=measured.point.warnings,
        measured=measured,
        around=around,
        at_target=at_target(use, restore, goal.target_tokens),
        budget=None if goal.ttft_budget_s is None else within_budget(restore, curve, goal.ttft_budget_s, level),
        break_even=tuple(
            found
            for tokens in sorted({SHORT_TOKENS, goal.target_tokens})
            if (found := break_even(use, measured, restore, curve, tokens)) is not None
        ),
    )


def _how_sure(measured: Measured, verdict: Verdict) -> str:
    """What the interval behind a verdict rests on, where it is not the tier's own batches of time."""
    if measured.bounds is not None:
        quick, slow = (bound.read.bytes_per_s for bound in measured.bounds)
        jobs = measured.point.numjobs
        text = f"; {jobs} jobs read {format_bandwidth(slow)} to {format_bandwidth(quick)} by their neighbours"
        return text + (f": measure them, --numjobs {jobs}" if verdict == "cannot say" else "")
    if known_over_time(measured.point, "read") is None:
        return f"; one section does not show how the tier changes: taken within a factor of {USUAL_VARIATION:g}"
    return ""


def at_target(use: Use, restore: RestoreCurve, tokens: int) -> AtTarget | None:
    """One request of ``tokens`` tokens, or None where its restore was not computed."""
    at = int(np.searchsorted(restore.tokens, tokens))
    if at >= len(restore.tokens) or tokens < restore.tokens[0]:
        return None
    p50, p99 = np.quantile(restore.requests[:, at], [0.5, 0.99])
    return AtTarget(tokens, use.units(tokens) * use.io_bytes, float(p50), float(p99))


def within_budget(restore: RestoreCurve, curve: PrefillCurve, seconds: float, confidence: float = CONFIDENCE) -> Budget:
    """How long a context may be to be restored, or recomputed, within ``seconds``."""
    certain = np.quantile(restore.draws, (1 + confidence) / 2, axis=0)
    measured = restore.tokens[(restore.tokens >= curve.measured_from) & (restore.tokens <= curve.measured_to)]
    return Budget(
        seconds,
        *budget_reach(restore.tokens, certain, seconds),
        *budget_reach(measured, curve.seconds(measured), seconds),
    )


def single_block_crossover(measured: Measured, curve: PrefillCurve) -> SingleBlock | None:
    """Where T_prefill(L) equals the p99 of one block, within the measured lengths; None without a p99."""
    latency = measured.read.latency_ns
    if latency is None or latency.p99 is None:
        return None
    return single_block_at(latency.p99 / 1e9, curve, measured.point.id)


def single_block_at(p99_s: float, curve: PrefillCurve, point: str | None) -> SingleBlock:
    """The single-block crossover of a given tail."""
    return SingleBlock(*_inverse(curve, p99_s), round(p99_s * 1e9), point)


def published_tokens(p99_s: float, prefill_s_per_token: float) -> float:
    """The study's shortcut, and the axis of its figure: L = p99 / (TTFT / context length)."""
    return p99_s / prefill_s_per_token


def request_crossover(restore: RestoreCurve, curve: PrefillCurve, confidence: float = CONFIDENCE) -> RequestCrossover:
    """Compare restore and prefill at every length between the shortest and the longest measured prompt."""
    if curve.measured_from == curve.measured_to:
        reason = f"prefill was measured at {curve.measured_to:,} tokens only, which says nothing of other lengths"
        return RequestCrossover("unknown", None, None, None, f"{reason}; measure three lengths or more")
    inside = (restore.tokens >= curve.measured_from) & (restore.tokens <= curve.measured_to)
    tokens, seconds = restore.tokens[inside], restore.seconds[inside]
    prefill = curve.seconds(tokens)
    wins = seconds <= prefill
    low, high, unbounded = None, None, "; the prefill curve has too few samples for an interval"
    if len(curve.draws):
        low, high = _interval(restore.draws[:, inside], curve.drawn_seconds(tokens), tokens, confidence)
        unbounded = ""
    if wins.all():
        if high == tokens[0]:
            low = high = None
        reason = f"restoring wins at every length measured, {curve.measured_from:,} to {curve.measured_to:,} tokens"
        return RequestCrossover("always", None, low, high, reason + unbounded)
    if wins[-1]:
        start = int(wins.size - wins[::-1].argmin())
        crossing = _cross(tokens, seconds - prefill, start)
        inside_interval = max(low or crossing, min(high or crossing, crossing))
        return RequestCrossover("from", inside_interval, low, high, f"restoring wins beyond{unbounded}")
    if wins.any():
        first, last = (int(tokens[index]) for index in wins.nonzero()[0][[0, -1]])
        where = (
            f"up to about {last:,} tokens and loses" if wins[0] else f"only between {first:,} and {last:,} tokens, not"
        )
        reason = f"restoring wins {where} beyond: there is no single crossover"
        return RequestCrossover("unknown", None, None, None, reason)
    ratio = seconds[-1] / prefill[-1]
    reason = f"at {curve.measured_to:,} tokens restoring takes {format_number(ratio)} times as long as prefill"
    return RequestCrossover("never", None, low, high, reason + unbounded)


def verdict_of(
    request: RequestCrossover, restore: RestoreCurve, curve: PrefillCurve, goal: Goal, confidence: float = CONFIDENCE
) -> tuple[Verdict, str]:
    """The verdict of design section 4: it needs the whole interval on one side of the target."""
    target = goal.target_tokens
    if request.kind == "unknown":
        return "cannot say", request.reason
    over = _over_budget(restore, goal, confidence)
    if over is not None and over[0] == "not viable":
        return over
    crossing = _against_target(request, curve, target)
    if crossing[0] != "cannot say" and not len(curve.draws) and _noise_flips(crossing[0], restore, curve, target):
        return "cannot say", (
            f"{crossing[1]}, but too few prefill samples for an interval: an error of {_USUAL_ERROR:.0%} would decide "
            "otherwise; measure more lengths or repeats"
        )
    if crossing[0] == "viable":
        return over or _beyond_measured(restore, curve, target, confidence) or crossing
    return crossing


def _against_target(request: RequestCrossover, curve: PrefillCurve, target: int) -> tuple[Verdict, str]:
    if target < curve.measured_from:
        return "cannot say", f"prefill was measured from {curve.measured_from:,} tokens on, the target is {target:,}"
    if request.kind == "always":
        if request.low is not None and (request.high is None or request.high > target):
            reach = "beyond what was measured" if request.high is None else f"{request.high:,} tokens"
            return "cannot say", f"the interval of the crossover reaches {reach}"
        return "viable", "restoring wins at every length measured"
    if request.kind == "never":
        return _never(request, curve, target)
    if request.low is None and request.high is None:
        return "cannot say", "too few prefill samples for an interval; measure more lengths or repeats"
    if request.high is not None and request.high <= target:
        return "viable", f"restoring wins from {request.high:,} tokens at the latest"
    if request.low is not None and request.low > target:
        return (
            "not viable",
            f"restoring wins from {request.low:,} tokens at the earliest, the target is {target:,}",
        )
    return "cannot say", f"the interval of the crossover holds the target of {target:,} tokens"


def _noise_flips(verdict: Verdict, restore: RestoreCurve, curve: PrefillCurve, target: int) -> bool:
    """Whether prefill times with the usual error would turn the verdict; True for a target beyond the measured ones."""
    if target > curve.measured_to:
        return True
    inside = (restore.tokens >= curve.measured_from) & (restore.tokens <= min(curve.measured_to, target))
    prefill, restored = curve.seconds(restore.tokens[inside]), restore.seconds[inside]
    if verdict == "viable":
        return bool(restored[-1] > prefill[-1] * (1 - _USUAL_ERROR))
    return bool((restored <= prefill * (1 + _USUAL_ERROR)).any())


def _never(request: RequestCrossover, curve: PrefillCurve, target: int) -> tuple[Verdict, str]:
    if request.low is not None and request.low > target:
        return (
            "not viable",
            f"restoring could win from {request.low:,} tokens at the earliest, the target is {target:,}",
        )
    if request.low is not None:
        return "cannot say", f"within the interval it could win from {request.low:,} tokens on"
    if curve.measured_to < target:
        return "cannot say", f"prefill was measured up to {curve.measured_to:,} tokens, the target is {target:,}"
    return "not viable", f"restoring never wins up to {curve.measured_to:,} tokens"


def _beyond_measured(
    restore: RestoreCurve, curve: PrefillCurve, target: int, confidence: float
) -> tuple[Verdict, str] | None:
    """None when the target was measured, or when the fitted curve carried on to it still surely loses to restoring."""
    if target <= curve.measured_to:
        return None
    at = int(np.searchsorted(restore.tokens, target))
    prefill, restored = _paired(curve.drawn_seconds(restore.tokens[at : at + 1]), restore.draws[:, at : at + 1])
    if (restored <= prefill).mean() >= (1 + confidence) / 2:
        return None
    return "cannot say", f"prefill was measured up to {curve.measured_to:,} tokens, the target is {target:,}"


def _over_budget(restore: RestoreCurve, goal: Goal, confidence: float) -> tuple[Verdict, str] | None:
    """None within the budget; else why not, with the restore time at the target length."""
    if goal.ttft_budget_s is None:
        return None
    at = int(np.searchsorted(restore.tokens, goal.target_tokens))
    if at >= len(restore.tokens):
        return "cannot say", "the restore time at the target length is beyond what was computed"
    low, high = np.quantile(restore.draws[:, at], [(1 - confidence) / 2, (1 + confidence) / 2])
    takes = format_number(float(restore.seconds[at]))
    text = f"restoring {goal.target_tokens:,} tokens takes {takes} s of {goal.ttft_budget_s:g} s allowed"
    if low > goal.ttft_budget_s:
        return "not viable", text
    return ("cannot say", text + " and lies within the interval") if high > goal.ttft_budget_s else None


def _grid(use: Use, curve: PrefillCurve, goal: Goal) -> Floats:
    """Context lengths in whole blocks: the measured range, finely, and the target."""
    lengths = np.geomspace(curve.measured_from, curve.measured_to, _GRID)
    blocks = np.ceil(lengths / use.block_tokens) * use.block_tokens
    ends = [curve.measured_from, curve.measured_to, goal.target_tokens]
    return np.unique(np.concatenate([blocks[blocks <= curve.measured_to], ends]).astype(float))


def _interval(restore: Floats, prefill: Floats, tokens: Floats, confidence: float) -> tuple[int | None, int | None]:
    """The interval of the length from which restoring wins for good, over paired draws; None beyond the range."""
    prefill, restore = _paired(prefill, restore)
    loses = restore > prefill
    # Index after the last length that loses; len(tokens) means "not within the range".
    first_win = np.where(loses.any(axis=1), loses.shape[1] - loses[:, ::-1].argmax(axis=1), 0)
    low = int(np.quantile(first_win, (1 - confidence) / 2, method="lower"))
    high = int(np.quantile(first_win, (1 + confidence) / 2, method="higher"))
    # The crossing lies between the last length that loses and the first that wins: take the outer ends.
    return (
        None if low == len(tokens) else int(tokens[max(0, low - 1)]),
        None if high == len(tokens) else int(tokens[high]),
    )


def _paired(one: Floats, other: Floats) -> tuple[Floats, Floats]:
    """Both sets of draws repeated to the same number, so that each draw of one meets a draw of the other."""
    count = np.arange(max(len(one), len(other)))
    return one[count % len(one)], other[count % len(other)]


def _cross(tokens: Floats, difference: Floats, start: int) -> int:
    """Tokens where the difference reaches zero between the last losing and the first winning length."""
    before, after = difference[start - 1], difference[start]
    share = before / (before - after)
    return round(float(tokens[start - 1] + share * (tokens[start] - tokens[start - 1])))


def _inverse(curve: PrefillCurve, seconds: float) -> tuple[SingleKind, int | None]:
    """The prompt length whose fitted prefill takes ``seconds``."""
    ends = curve.seconds([curve.measured_from, curve.measured_to])
    if seconds < ends[0]:
        return "below-range", None
    if seconds > ends[1]:
        return "above-range", None
    low, high = float(curve.measured_from), float(curve.measured_to)
    while high - low > 0.5:
        middle = (low + high) / 2
        low, high = (middle, high) if curve.seconds(middle)[0] < seconds else (low, middle)
    return "from", math.ceil(high)
