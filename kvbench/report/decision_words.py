"""The decision in words: where restoring wins, why, and what the numbers mean and rest on (pure)."""

from __future__ import annotations

from kvbench.decide.crossover import Crossover, RequestCrossover, SingleBlock
from kvbench.decide.decision import Decisions
from kvbench.prefill.curve import PrefillCurve
from kvbench.units import format_duration_ns, format_duration_s, format_tokens

PUBLISHED_NOTE = (
    "Published method: L = p99 of one block / prefill cost of one token. It compares one block's tail with the prefill "
    "of L tokens. For whole requests, which decide, run 'kvbench crossover RUN_DIR --ttft-csv FILE'."
)


def footnotes(decided: Decisions) -> list[str]:
    """What the tables mean and rest on, one line each."""
    curve = decided.curve
    return [
        *([] if curve is None else [_prefill_note(curve)]),
        "The request model decides: it restores every block of the prompt. The single block compares one block's p99 "
        "with the prefill of L tokens, as published, and is shown for comparison.",
        "Restoring wins wherever the GPUs prefill slower than the tier restores tokens/s. The verdict is about the "
        "latency of a request; what a full server serves at a hit rate, with its stores, says 'kvbench report "
        "--hit-rate'.",
        *([] if curve is None else _curve_notes(curve)),
        *(f"Note: {note}." for note in decided.notes),
    ]


def _prefill_note(curve: PrefillCurve) -> str:
    about = f" of {curve.model}" if curve.model else ""
    return (
        f"Prefill{about}: {curve.samples} TTFT samples from {format_tokens(curve.measured_from)} to "
        f"{format_tokens(curve.measured_to)} tokens, about {1 / average_cost(curve):,.0f} tokens/s at "
        f"{format_tokens(curve.measured_to)}; source: {curve.source}."
    )


def _curve_notes(curve: PrefillCurve) -> list[str]:
    """How well the curve fits, and how well a straight line would; nothing where that was not computed."""
    if curve.largest_residual_s is None or curve.linear_residual_s is None or curve.samples < 3:
        return []
    kind = "a straight line" if curve.c_s_per_token2 == 0 else "a + bL + cL²"
    line = (
        ""
        if curve.c_s_per_token2 == 0
        else f"; a straight line would be off by {format_duration_s(curve.linear_residual_s)} at best"
    )
    return [f"The prefill curve ({kind}) is off by at most {format_duration_s(curve.largest_residual_s)}{line}."]


def outcome_text(crossover: Crossover) -> str:
    """From which length restoring wins; without a prefill curve of the model, below which prefill speed it does."""
    if crossover.request.kind == "unknown" and crossover.restore_tokens_per_s is not None:
        return f"if prefill is below {crossover.restore_tokens_per_s:,.0f} tokens/s"
    return request_text(crossover.request)


def request_text(request: RequestCrossover) -> str:
    """``from 12,345 tokens (11,000 to 14,000)``, ``always``, ``never`` or ``unknown``."""
    if request.kind != "from" or request.tokens is None:
        return request.kind
    low = "?" if request.low is None else format_tokens(request.low)
    high = "?" if request.high is None else format_tokens(request.high)
    return f"from {format_tokens(request.tokens)} tokens ({low} to {high})"


def single_text(single: SingleBlock | None, curve: PrefillCurve | None) -> str:
    """The single-block crossover with its tail, such as ``3,700 tokens (p99 107 ms)``."""
    if single is None or curve is None:
        return "-"
    tail = f"(p99 {format_duration_ns(single.p99_ns)})"
    if single.tokens is not None:
        return f"from {format_tokens(single.tokens)} tokens {tail}"
    edge = curve.measured_from if single.kind == "below-range" else curve.measured_to
    return f"{'below' if single.kind == 'below-range' else 'above'} {format_tokens(edge)} tokens {tail}"


def average_cost(curve: PrefillCurve) -> float:
    """Seconds for each token at the longest measured prompt: TTFT / context length."""
    return float(curve.seconds(curve.measured_to)[0]) / curve.measured_to


def reasons_text(crossover: Crossover) -> str:
    """Why the request model says what it says, and why the verdict follows where that is another sentence."""
    return "; ".join(dict.fromkeys([crossover.request.reason, crossover.verdict_reason]))
