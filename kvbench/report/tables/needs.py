"""What one request takes, what it would need to tie with the GPUs, and how far a budget reaches (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kvbench.decide.breakeven import BreakEven
from kvbench.decide.crossover import AtTarget, Budget
from kvbench.decide.decision import Decisions
from kvbench.report.columns import Column, narrow, number, sheet, words
from kvbench.report.scene import Scene
from kvbench.report.sheet import UNKNOWN, Cell, Sheet
from kvbench.report.subject import subject
from kvbench.report.tables.verdicts import Ruling, ruling, rulings
from kvbench.units import (
    format_bandwidth,
    format_bytes,
    format_duration_ns,
    format_duration_s,
    format_tokens,
)

_NOTE = "p50 and p99 are those of whole requests at the target length. 'To tie' scales every latency alike."


@dataclass(frozen=True, slots=True)
class Need:
    """One request at the target length, and one length at which it could tie."""

    ruling: Ruling
    at: AtTarget
    tie: BreakEven | None = None

    @property
    def budget(self) -> Budget | None:
        """How far the TTFT budget reaches, None where there is none."""
        return self.ruling.crossover.budget

    def of_tie(self, pick: Callable[[BreakEven], float | None]) -> float | None:
        """A number of the tie, None where there is none."""
        return None if self.tie is None else pick(self.tie)

    @property
    def simulated(self) -> str:
        """Where the quantiles come from."""
        return f"point {self.ruling.point}: quantile of the simulated requests"


def _tie(
    key: str, heading: str, pick: Callable[[BreakEven], float | None], shown: Callable[[float], str], source: str
) -> Column[Need]:
    return number(key, heading, lambda row: row.of_tie(pick), shown, source)


def _reach(key: str, heading: str, tokens: str, beyond: str) -> Column[Need]:
    def cell(row: Need) -> Cell:
        if row.budget is None:
            return Cell(UNKNOWN)
        reach: int | None = getattr(row.budget, tokens)
        if reach is None:
            return Cell("never", 0, "--ttft-budget")
        least = "at least " if getattr(row.budget, beyond) else ""
        return Cell(least + format_tokens(reach), reach, "--ttft-budget")

    return Column(key, heading, cell, True)


def _ties_text(row: Need) -> str:
    return "; ".join(map(_tie_text, row.ruling.crossover.break_even))


def _tie_text(tie: BreakEven) -> str:
    at = f"at {format_tokens(tie.tokens)}"
    if tie.bytes_per_s is None:
        return f"{at}: no tier is fast enough"
    tail = "" if tie.p99_ns is None else f" (p99 {format_duration_ns(tie.p99_ns)})"
    return f"{at}: {format_bandwidth(tie.bytes_per_s)}{tail}"


def _budget_text(row: Need) -> str:
    if row.budget is None:
        return ""
    restore = _reach_text(row.budget.restore_tokens, beyond=row.budget.restore_beyond)
    recompute = _reach_text(row.budget.recompute_tokens, beyond=row.budget.recompute_beyond)
    return f"restoring {restore}, recomputing {recompute}"


def _reach_text(tokens: int | None, *, beyond: bool) -> str:
    return "never" if tokens is None else f"up to {format_tokens(tokens)}" + (" at least" if beyond else "")


COLUMNS: tuple[Column[Need], ...] = (
    words("short_model", "model", lambda row: row.ruling.short_model),
    *subject(lambda row: row.ruling.item),
    number(
        "request_bytes",
        "one request",
        lambda row: row.at.bytes,
        format_bytes,
        lambda row: f"units of {format_tokens(row.at.tokens)} tokens x bytes of a unit",
    ),
    words(
        "quantiles",
        "p50 / p99",
        lambda row: f"{format_duration_s(row.at.p50_s)} / {format_duration_s(row.at.p99_s)}",
        right=True,
    ),
    number("request_p50_s", "p50", lambda row: row.at.p50_s, format_duration_s, lambda row: row.simulated),
    number("request_p99_s", "p99", lambda row: row.at.p99_s, format_duration_s, lambda row: row.simulated),
    words("ties", "to tie, it needs", _ties_text),
    _tie(
        "tie_tokens",
        "to tie at",
        lambda tie: tie.tokens,
        format_tokens,
        "target, and the shortest length that is asked for",
    ),
    _tie(
        "tie_bytes_per_s",
        "it needs",
        lambda tie: tie.bytes_per_s,
        format_bandwidth,
        "bytes / (recompute time - lookups - copy)",
    ),
    _tie(
        "tie_p99_ns", "or a p99 of", lambda tie: tie.p99_ns, format_duration_ns, "p99 x recompute time / restore time"
    ),
    words("budget", "within the budget", _budget_text),
    _reach("budget_restore_tokens", "budget: restore up to", "restore_tokens", "restore_beyond"),
    _reach("budget_recompute_tokens", "recompute up to", "recompute_tokens", "recompute_beyond"),
)


def needs(scene: Scene) -> Sheet:
    """One row for each judgement and length at which it could tie."""
    return sheet("needs", "What a request takes, and what it would need", COLUMNS, _rows(scene), _NOTE)


def short_needs(decided: Decisions) -> Sheet:
    """One row for each crossover, its ties in words."""
    found = [(row, row.crossover.at_target) for row in rulings(decided.crossovers, decided)]
    rows = [Need(row, at) for row, at in found if at is not None]
    budget = ["budget"] if any(crossover.budget for crossover in decided.crossovers) else []
    title = f"One request of {format_tokens(decided.goal.target_tokens)} tokens"
    return narrow(title, COLUMNS, rows, "tier", "short_model", "request_bytes", "quantiles", "ties", *budget)


def _rows(scene: Scene) -> Iterator[Need]:
    for item in scene.judged:
        if (at := item.crossover.at_target) is not None:
            for tie in item.crossover.break_even or (None,):
                yield Need(ruling(item, scene.runs), at, tie)
