"""How fast a round began and how fast it ended, from its one-second series (pure)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kvbench.record.results import Round

# Shorter quarters are a second or two, which one pause of the tier changes by half.
_LEAST_SECONDS = 12
# Counts of operations stray by their root; so many of it apart is no chance.
_SIGMAS = 3.0

Series = Sequence[Mapping[str, Any]]


def with_quarters(rounds: Sequence[Round], series: Series) -> tuple[Round, ...]:
    """The rounds with the rates of their first and last quarter; the series of a single round need not number it."""
    return tuple(
        replace(
            item,
            read_quarters_bytes_per_s=_quarters(own, "read"),
            write_quarters_bytes_per_s=_quarters(own, "write"),
        )
        for number, item in enumerate(rounds, start=1)
        for own in [[entry for entry in series if entry.get("round", 1) == number]]
    )


def _quarters(series: Series, way: str) -> tuple[float, float] | None:
    """Mean rates of the first and of the last quarter; None where they are short, or differ by no more than chance.

    The first and the last second are left out: either may be broken.
    """
    whole = [entry.get(way, {}) for entry in series[1:-1]]
    if len(whole) < _LEAST_SECONDS:
        return None
    length = len(whole) // 4
    ends = whole[:length], whole[-length:]
    operations = [sum(second.get("iops", 0) for second in end) for end in ends]
    rates = [sum(second.get("bytes_per_s", 0) for second in end) / length for end in ends]
    if not all(rates) or abs(operations[0] - operations[1]) <= _SIGMAS * math.sqrt(sum(operations)):
        return None
    return rates[0], rates[1]
