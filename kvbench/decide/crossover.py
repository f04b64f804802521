"""Restore or recompute: from which context length on a tier beats the GPUs (pure; numpy only).

Two models stand side by side. *Single block* is the published method: the prompt length whose prefill takes as long as
the p99 of one block. *Request* decides: the time to bring back every block of the prompt with the parallelism that one
request gets, against the prefill of that prompt.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kvbench.checks import voiding
from kvbench.decide.breakeven import BreakEven, break_even, budget_reach
from kvbench.decide.recompute import computed_s, drawn_spared_s, spared_s, still_computed_s
from kvbench.decide.restore import (
    NOTHING_AROUND,
    USUAL_VARIATION,
    Around,
    MeasuredReads,
    RestoreCurve,
    restore_curve,
    restore_tokens_per_s,
)
from kvbench.prefill.curve import Floats, PrefillCurve
from kvbench.record.batches import known_over_time
from kvbench.record.results import PointWarning, Use
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
    """One request at the target length: bytes, and seconds to restore them at p50 and p99 of the simulated requests.

    ``restored_tokens`` of its tokens are in whole blocks. ``recompute_s`` is what computing them takes and
    ``still_computed_s`` what a hit computes all the same; both are None without a prefill that reaches there.
    """

    tokens: int
    bytes: int
    p50_s: float
    p99_s: float
    restored_tokens: int
    recompute_s: float | None = None
    still_computed_s: float | None = None


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
    warnings: tuple[PointWarning, ...] = ()
    run: str = ""
    measured: MeasuredReads | None = None
    around: Around = NOTHING_AROUND
    at_target: AtTarget | None = None
    budget: Budget | None = None
    break_even: tuple[BreakEven, ...] = ()
    what_if: str = ""


@dataclass(frozen=True)
class Versus:
    """Both sides of the comparison for ``concurrent`` requests at once, at the lengths of ``restore``."""

    restore: RestoreCurve
    curve: PrefillCurve
    concurrent: int

    @cached_property
    def is_measured(self) -> NDArray[np.bool_]:
        """Which lengths lie within the measured prompts, shape (lengths,)."""
        tokens = self.restore.tokens
        return (tokens >= self.curve.measured_from) & (tokens <= self.curve.measured_to)

    @cached_property
    def spared_s(self) -> Floats:
        """Seconds that computing what is restored would take, shape (lengths,)."""
        return spared_s(self.curve, self.restore.restored, self.concurrent)

    @cached_property
    def drawn_spared_s(self) -> Floats:
        """The same under each draw of the curve, shape (draws, lengths)."""
        return drawn_spared_s(self.curve, self.restore.restored, self.concurrent)

    @cached_property
    def beside_s(self) -> Floats:
        """Seconds that a hit computes all the same, shape (lengths,)."""
        return still_computed_s(self.curve, self.restore, self.concurrent)

    @cached_property
    def wins(self) -> NDArray[np.bool_]:
        """Where restoring takes no longer than computing; nothing is won where no block is whole."""
        won: NDArray[np.bool_] = (self.restore.seconds <= self.spared_s) & (self.restore.restored > 0)
        return won

    @cached_property
    def lost(self) -> NDArray[np.bool_]:
        """Where restoring takes longer, for each pair of draws of both sides, shape (draws, lengths)."""
        spared, restore = _paired(self.drawn_spared_s, self.restore.draws)
        found: NDArray[np.bool_] = (restore > spared) | (self.restore.restored == 0)
        return found


@dataclass(frozen=True, slots=True)
class Goal:
    """What the user needs: restoring must pay from ``target_tokens`` on, within ``ttft_budget_s`` there."""

    target_tokens: int = DEFAULT_TARGET_TOKENS
    ttft_budget_s: float | None = None


def decide(
    use: Use,
    tier: str,
    concurrent: int,
    measured: MeasuredReads | None,
    single: MeasuredReads | None,
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
    versus = Versus(restore, curve, concurrent)
    request = request_crossover(versus, level)
    verdict, why = verdict_of(request, versus, goal, level)
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
        warnings=measured.point.warnings,
        measured=measured,
        around=around,
        at_target=at_target(use, restore, goal.target_tokens, versus),
        budget=None if goal.ttft_budget_s is None else within_budget(versus, goal.ttft_budget_s, level),
        break_even=tuple(
            found
            for tokens in sorted({SHORT_TOKENS, goal.target_tokens})
            if (found := break_even(use, measured, restore, curve, tokens, concurrent)) is not None
        ),
    )


def _how_sure(measured: MeasuredReads, verdict: Verdict) -> str:
    """What the interval behind a verdict rests on, where it is not the tier's own batches of time."""
    if measured.bounds is not None:
        quick, slow = (bound.read.bytes_per_s for bound in measured.bounds)
        jobs = measured.point.numjobs
        text = f"; {jobs} jobs read {format_bandwidth(slow)} to {format_bandwidth(quick)} by their neighbours"
        return text + (f": measure them, --numjobs {jobs}" if verdict == "cannot say" else "")
    if known_over_time(measured.point, "read") is None:
        return f"; one section does not show how the tier changes: taken within a factor of {USUAL_VARIATION:g}"
    return ""


def at_target(use: Use, restore: RestoreCurve, tokens: int, versus: Versus | None = None) -> AtTarget | None:
    """One request of ``tokens`` tokens, or None where its restore was not computed."""
    at = int(np.searchsorted(restore.tokens, tokens))
    if at >= len(restore.tokens) or tokens < restore.tokens[0]:
        return None
    p50, p99 = np.quantile(restore.requests[:, at], [0.5, 0.99])
    known = versus is not None and versus.curve.measured_from <= tokens <= versus.curve.measured_to
    return AtTarget(
        tokens,
        use.units(tokens) * use.io_bytes,
        float(p50),
        float(p99),
        use.restored_tokens(tokens),
        float(versus.spared_s[at]) if versus is not None and known else None,
        float(versus.beside_s[at]) if versus is not None and known else None,
    )


def within_budget(versus: Versus, seconds: float, confidence: float = CONFIDENCE) -> Budget:
    """How long a context may be for a whole hit, or for computing it, within ``seconds``."""
    certain = np.quantile(versus.restore.draws, (1 + confidence) / 2, axis=0) + versus.beside_s
    measured = versus.restore.tokens[versus.is_measured]
    return Budget(
        seconds,
        *budget_reach(versus.restore.tokens, certain, seconds),
        *budget_reach(measured, computed_s(versus.curve, measured, versus.concurrent), seconds),
    )


def single_block_crossover(measured: MeasuredReads, curve: PrefillCurve) -> SingleBlock | None:
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


def request_crossover(versus: Versus, confidence: float = CONFIDENCE) -> RequestCrossover:
    """Compare restore and prefill at every length between the shortest and the longest measured prompt."""
    curve, inside = versus.curve, versus.is_measured
    if curve.measured_from == curve.measured_to:
        reason = f"prefill was measured at {curve.measured_to:,} tokens only, which says nothing of other lengths"
        return RequestCrossover("unknown", None, None, None, f"{reason}; measure three lengths or more")
    tokens, wins = versus.restore.tokens[inside], versus.wins[inside]
    low, high, unbounded = None, None, "; the prefill curve has too few samples for an interval"
    if len(curve.draws):
        low, high = _interval(versus.lost[:, inside], tokens, confidence)
        unbounded = ""
    if wins.all():
        if high == tokens[0]:
            low = high = None
        reason = f"restoring wins at every length measured, {curve.measured_from:,} to {curve.measured_to:,} tokens"
        return RequestCrossover("always", None, low, high, reason + unbounded)
    if wins[-1]:
        start = int(wins.size - wins[::-1].argmin())
        crossing = _cross(tokens, (versus.restore.seconds - versus.spared_s)[inside], start)
        inside_interval = max(low or crossing, min(high or crossing, crossing))
        return RequestCrossover("from", inside_interval, low, high, f"restoring wins beyond{unbounded}")
    if wins.any():
        first, last = (int(tokens[index]) for index in wins.nonzero()[0][[0, -1]])
        where = (
            f"up to about {last:,} tokens and loses" if wins[0] else f"only between {first:,} and {last:,} tokens, not"
        )
        reason = f"restoring wins {where} beyond: there is no single crossover"
        return RequestCrossover("unknown", None, None, None, reason)
    return RequestCrossover("never", None, low, high, _how_lost(versus) + unbounded)


def _how_lost(versus: Versus) -> str:
    """How restoring loses at the longest prompt that was measured."""
    at = int(versus.is_measured.nonzero()[0][-1])
    where = f"at {versus.curve.measured_to:,} tokens"
    if not versus.restore.restored[at]:
        return f"{where} no block is whole, so nothing is restored"
    if not versus.spared_s[at]:
        return f"{where} a prompt takes no longer than a short one, so that there is nothing to win"
    ratio = versus.restore.seconds[at] / versus.spared_s[at]
    return f"{where} restoring takes {format_number(float(ratio))} times as long as prefill"


def verdict_of(
    request: RequestCrossover, versus: Versus, goal: Goal, confidence: float = CONFIDENCE
) -> tuple[Verdict, str]:
    """The verdict of design section 4: it needs the whole interval on one side of the target."""
    over = _over_budget(versus, goal, confidence)
    if over is not None and over[0] == "not viable":
        return over
    if request.kind == "unknown":
        return _lost_at_target(versus, goal.target_tokens, confidence) or ("cannot say", request.reason)
    crossing = _against_target(request, versus.curve, goal.target_tokens)
    if (
        crossing[0] != "cannot say"
        and not len(versus.curve.draws)
        and _noise_flips(crossing[0], versus, goal.target_tokens)
    ):
        return "cannot say", (
            f"{crossing[1]}, but too few prefill samples for an interval: an error of {_USUAL_ERROR:.0%} would decide "
            "otherwise; measure more lengths or repeats"
        )
    if crossing[0] == "viable":
        return over or _beyond_measured(versus, goal.target_tokens, confidence) or crossing
    return crossing


def _lost_at_target(versus: Versus, target: int, confidence: float) -> tuple[Verdict, str] | None:
    """A tier that surely loses at the target is not viable, wherever else it wins; None where it may win there."""
    curve = versus.curve
    if not len(curve.draws) or curve.measured_from == curve.measured_to:
        return None
    if not curve.measured_from <= target <= curve.measured_to:
        return None
    at = int(np.searchsorted(versus.restore.tokens, target))
    if versus.lost[:, at].mean() < (1 + confidence) / 2:
        return None
    takes, spared = format_number(float(versus.restore.seconds[at])), format_number(float(versus.spared_s[at]))
    return "not viable", f"at the target of {target:,} tokens restoring takes {takes} s and recomputing {spared} s"


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


def _noise_flips(verdict: Verdict, versus: Versus, target: int) -> bool:
    """Whether prefill times with the usual error would turn the verdict; True for a target beyond the measured ones."""
    if target > versus.curve.measured_to:
        return True
    # Where no block is whole both sides are 0, which no noise can turn.
    inside = versus.is_measured & (versus.restore.tokens <= target) & (versus.restore.restored > 0)
    spared, restored = versus.spared_s[inside], versus.restore.seconds[inside]
    if verdict == "viable":
        return bool(restored[-1] > spared[-1] * (1 - _USUAL_ERROR))
    return bool((restored <= spared * (1 + _USUAL_ERROR)).any())


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


def _beyond_measured(versus: Versus, target: int, confidence: float) -> tuple[Verdict, str] | None:
    """None when the target was measured, or when the fitted curve carried on to it still surely loses to restoring."""
    if target <= versus.curve.measured_to:
        return None
    at = int(np.searchsorted(versus.restore.tokens, target))
    if 1 - versus.lost[:, at].mean() >= (1 + confidence) / 2:
        return None
    return "cannot say", f"prefill was measured up to {versus.curve.measured_to:,} tokens, the target is {target:,}"


def _over_budget(versus: Versus, goal: Goal, confidence: float) -> tuple[Verdict, str] | None:
    """None within the budget; else why not, with the time of a whole hit at the target length."""
    if goal.ttft_budget_s is None:
        return None
    at = int(np.searchsorted(versus.restore.tokens, goal.target_tokens))
    if at >= len(versus.restore.tokens):
        return "cannot say", "the restore time at the target length is beyond what was computed"
    beside_s = float(versus.beside_s[at])
    low, high = np.quantile(versus.restore.draws[:, at], [(1 - confidence) / 2, (1 + confidence) / 2]) + beside_s
    takes = format_number(float(versus.restore.seconds[at]) + beside_s)
    text = f"a hit of {goal.target_tokens:,} tokens takes {takes} s of {goal.ttft_budget_s:g} s allowed"
    if low > goal.ttft_budget_s:
        return "not viable", text
    return ("cannot say", text + " and lies within the interval") if high > goal.ttft_budget_s else None


def _grid(use: Use, curve: PrefillCurve, goal: Goal) -> Floats:
    """Context lengths in whole blocks: the measured range, finely, and the target."""
    lengths = np.geomspace(curve.measured_from, curve.measured_to, _GRID)
    blocks = np.ceil(lengths / use.block_tokens) * use.block_tokens
    ends = [curve.measured_from, curve.measured_to, goal.target_tokens]
    return np.unique(np.concatenate([blocks[blocks <= curve.measured_to], ends]).astype(float))


def _interval(loses: NDArray[np.bool_], tokens: Floats, confidence: float) -> tuple[int | None, int | None]:
    """The interval of the length from which restoring wins for good, over paired draws; None beyond the range."""
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
