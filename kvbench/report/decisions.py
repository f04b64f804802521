"""The decision as tables: verdict and reason for each tier and model (pure)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kvbench.decide.breakeven import BreakEven
from kvbench.decide.crossover import Budget, Crossover, RequestCrossover, SingleBlock, published_tokens, single_block_at
from kvbench.decide.decision import PUBLISHED_COSTS_S, Decisions
from kvbench.prefill.curve import PrefillCurve
from kvbench.report.tables import Table
from kvbench.units import format_bandwidth, format_bytes, format_duration_ns, format_duration_s, format_tokens

PUBLISHED_NOTE = (
    "Published method: L = p99 of one block / prefill cost of one token. It compares one block's tail with the prefill "
    "of L tokens. For whole requests, which decide, run 'kvbench crossover RUN_DIR --ttft-csv FILE'."
)


def all_tables(decided: Decisions) -> tuple[Table, ...]:
    """Every table of a decision that has rows, the verdicts first."""
    tables = (decision_table(decided), explanation_table(decided), needs_table(decided), what_if_table(decided))
    return tuple(table for table in tables if table.rows)


def needs_table(decided: Decisions) -> Table:
    """One request at the target length, and what a tier would have to give it to tie with the GPUs."""
    budget = any(crossover.budget for crossover in decided.crossovers)
    rows = []
    for crossover in decided.crossovers:
        at, ties = crossover.at_target, crossover.break_even
        if at is None:
            continue
        rows.append(
            (
                crossover.tier,
                f"{crossover.use.model} TP{crossover.use.tp}",
                format_bytes(at.bytes),
                f"{format_duration_s(at.p50_s)} / {format_duration_s(at.p99_s)}",
                "; ".join(_tie_text(tie) for tie in ties) or "-",
                *((_budget_text(crossover.budget),) if budget else ()),
            )
        )
    columns = (
        "tier",
        "model",
        "one request",
        "p50 / p99",
        "to tie, it needs",
        *(("within the budget",) if budget else ()),
    )
    return Table(f"One request of {format_tokens(decided.goal.target_tokens)} tokens", columns, tuple(rows), (2, 3))


def what_if_table(decided: Decisions) -> Table:
    """Other deployments on the same measurements; they decide nothing."""
    rows = [
        (
            crossover.what_if,
            crossover.tier,
            f"{crossover.use.model} TP{crossover.use.tp}",
            format_bytes(crossover.use.io_bytes),
            crossover.verdict,
            outcome_text(crossover),
            _rate(crossover.restore_tokens_per_s),
            crossover.point or crossover.verdict_reason,
        )
        for crossover in decided.what_ifs
    ]
    columns = ("what if", "tier", "model", "I/O", "verdict", "restoring wins", "restores tokens/s", "rests on")
    return Table("What if", columns, tuple(rows), (3, 6))


def _tie_text(tie: BreakEven) -> str:
    at = f"at {format_tokens(tie.tokens)}"
    if tie.bytes_per_s is None:
        return f"{at}: no tier is fast enough"
    tail = "" if tie.p99_ns is None else f" (p99 {format_duration_ns(tie.p99_ns)})"
    return f"{at}: {format_bandwidth(tie.bytes_per_s)}{tail}"


def _budget_text(budget: Budget | None) -> str:
    if budget is None:
        return "-"
    restore = _reach_text(budget.restore_tokens, beyond=budget.restore_beyond)
    recompute = _reach_text(budget.recompute_tokens, beyond=budget.recompute_beyond)
    return f"restoring {restore}, recomputing {recompute}"


def _reach_text(tokens: int | None, *, beyond: bool) -> str:
    return "never" if tokens is None else f"up to {format_tokens(tokens)}" + (" at least" if beyond else "")


def decision_table(decided: Decisions) -> Table:
    """One row for each tier and use: the verdict, from which length restoring wins, and the speeds behind it."""
    rows = [
        (
            crossover.tier,
            f"{crossover.use.model} TP{crossover.use.tp}",
            str(crossover.concurrent_restores),
            crossover.verdict.upper(),
            outcome_text(crossover),
            _rate(crossover.restore_tokens_per_s),
            single_text(crossover.single_block, decided.curve),
        )
        for crossover in decided.crossovers
    ]
    columns = ("tier", "model", "at once", "verdict", "restoring wins", "restores tokens/s", "single block (published)")
    title = f"Restore or recompute, for contexts of {format_tokens(decided.goal.target_tokens)} tokens"
    return Table(title, columns, tuple(rows), (2, 5))


def explanation_table(decided: Decisions) -> Table:
    """Why each verdict is what it is: the deciding reason, the point it rests on, and its warnings."""
    rows = [
        (
            crossover.tier,
            f"{crossover.use.model} TP{crossover.use.tp}",
            crossover.request.reason if crossover.request.reason == crossover.verdict_reason else _both(crossover),
            crossover.point or "-",
            ", ".join(caveat.code for caveat in crossover.caveats),
        )
        for crossover in decided.crossovers
    ]
    return Table("Why", ("tier", "model", "reason", "rests on point", "distrust"), tuple(rows))


def footnotes(decided: Decisions) -> list[str]:
    """What the tables mean and rest on, one line each."""
    curve = decided.curve
    return [
        *([] if curve is None else [_prefill_note(curve)]),
        "The request model decides: it restores every block of the prompt. The single block compares one block's p99 "
        "with the prefill of L tokens, as published, and is shown for comparison.",
        "Restoring wins wherever the GPUs prefill slower than the tier restores tokens/s.",
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


def published_table(tails_s: Sequence[float], curve: PrefillCurve | None) -> Table:
    """The published figure as a table: prefill cost down, block tail across, crossover length in the cells."""
    rows = [
        (
            f"{cost * 1000:g}",
            f"{1 / cost:,.0f}",
            *(format_tokens(math.ceil(published_tokens(tail, cost))) for tail in tails_s),
        )
        for cost in PUBLISHED_COSTS_S
    ]
    if curve is not None:
        measured = (single_text(single_block_at(tail, curve, None), curve) for tail in tails_s)
        rows.append(("measured", curve.source, *measured))
    columns = ("prefill ms/token", "tokens/s", *(f"p99 {format_duration_s(tail)}" for tail in tails_s))
    return Table("Crossover in tokens, single block", columns, tuple(rows), tuple(range(len(columns))))


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


def _rate(tokens_per_s: float | None) -> str:
    return "-" if tokens_per_s is None else f"{tokens_per_s:,.0f}"


def _both(crossover: Crossover) -> str:
    return f"{crossover.request.reason}; {crossover.verdict_reason}"
