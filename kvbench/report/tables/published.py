"""The published figure as a table (pure)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kvbench.decide.crossover import published_tokens, single_block_at
from kvbench.decide.decision import PUBLISHED_COSTS_S
from kvbench.prefill.curve import PrefillCurve
from kvbench.report.columns import Column, narrow, words
from kvbench.report.decision_words import single_text
from kvbench.report.sheet import Sheet
from kvbench.units import format_duration_s, format_tokens


@dataclass(frozen=True, slots=True)
class Cost:
    """A prefill cost, or the measured curve."""

    s_per_token: float
    curve: PrefillCurve | None = None

    @property
    def cost(self) -> str:
        """Its milliseconds for each token."""
        return "measured" if self.curve else f"{self.s_per_token * 1000:g}"

    @property
    def speed(self) -> str:
        """Its tokens each second, or what was measured."""
        return self.curve.source if self.curve else f"{1 / self.s_per_token:,.0f}"

    def tokens(self, tail_s: float) -> str:
        """The crossover of a block's tail."""
        if self.curve is not None:
            return single_text(single_block_at(tail_s, self.curve, None), self.curve)
        return format_tokens(math.ceil(published_tokens(tail_s, self.s_per_token)))


def _tail(tail_s: float) -> Column[Cost]:
    shown = format_duration_s(tail_s)
    return words(shown, f"p99 {shown}", lambda cost: cost.tokens(tail_s), right=True)


def published(tails_s: Sequence[float], curve: PrefillCurve | None) -> Sheet:
    """Prefill cost down, block tail across, crossover length in the cells."""
    columns: tuple[Column[Cost], ...] = (
        words("cost", "prefill ms/token", lambda cost: cost.cost, right=True),
        words("speed", "tokens/s", lambda cost: cost.speed, right=True),
        *map(_tail, tails_s),
    )
    rows = [*map(Cost, PUBLISHED_COSTS_S), *([Cost(0.0, curve)] if curve else [])]
    return narrow("Crossover in tokens, single block", columns, rows)
