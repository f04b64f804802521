"""The columns that say what a judgement is about, for every table of judgements (pure)."""

from __future__ import annotations

from collections.abc import Callable

from kvbench.decide.decision import Judged
from kvbench.report.cells import use_label
from kvbench.report.columns import Column, Row, name, number
from kvbench.units import format_count


def at_once(of: Callable[[Row], Judged]) -> Column[Row]:
    """The column of how many requests restore at once."""
    return number(
        "concurrent_restores",
        "at once",
        lambda row: of(row).crossover.concurrent_restores,
        format_count,
        "--concurrent-restores",
    )


def subject(of: Callable[[Row], Judged]) -> tuple[Column[Row], ...]:
    """The columns that say what a judgement is about: tier, use and load."""
    model: Column[Row] = name("model", "model", lambda row: use_label(of(row)))
    return name("tier", "tier", lambda row: of(row).tier), model, at_once(of)
