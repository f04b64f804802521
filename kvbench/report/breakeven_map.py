"""The numbers of the break-even map: what a request needs from a tier at each context, and what it gets (pure)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvbench.decide.breakeven import needed_bytes_per_s
from kvbench.decide.judged import Judged, LoadedRun
from kvbench.report.cells import point_name
from kvbench.report.data import BreakEvenMap, RateLine
from kvbench.run.plan import slug
from kvbench.units import format_bandwidth, format_tokens

_SHOWN_LENGTHS = 48
_NEED_LABEL = "break-even"


def breakeven_map(label: str, items: Sequence[Judged], runs: Sequence[LoadedRun]) -> list[BreakEvenMap]:
    """The map of one use; empty without a prefill curve of its model."""
    curve, first = items[0].curve, items[0]
    if curve is None:
        return []
    tokens = np.unique(np.geomspace(curve.measured_from, curve.measured_to, _SHOWN_LENGTHS).round()).astype(int)
    prefill = curve.seconds(tokens.astype(float))
    need = RateLine(
        _NEED_LABEL,
        tuple(int(value) for value in tokens),
        tuple(needed_bytes_per_s(first.use, int(at), float(left)) for at, left in zip(tokens, prefill, strict=True)),
        "bytes of the context / fitted prefill",
    )
    given = tuple(_given(item, runs) for item in items)
    target = first.goal.target_tokens
    return [BreakEvenMap(f"breakeven-{slug(label)}", _title(label, first, need, target), label, target, need, given)]


def _given(item: Judged, runs: Sequence[LoadedRun]) -> RateLine:
    restore = item.restore
    assert restore is not None
    picked = np.unique(np.linspace(0, len(restore.tokens) - 1, _SHOWN_LENGTHS).round().astype(int))
    rates = [needed_bytes_per_s(item.use, int(restore.tokens[at]), float(restore.seconds[at])) for at in picked]
    several = item.crossover.concurrent_restores
    name = item.tier if several == 1 else f"{item.tier} ×{several}"
    source = f"point {point_name(item.run, item.crossover.point, runs)}, bytes of the context / restore time"
    return RateLine(name, tuple(int(restore.tokens[at]) for at in picked), tuple(rates), source)


def _title(label: str, item: Judged, need: RateLine, target: int) -> str:
    assert item.curve is not None
    at = target if need.tokens[0] <= target <= need.tokens[-1] else need.tokens[-1]
    rate = needed_bytes_per_s(item.use, at, float(item.curve.seconds(at)[0]))
    return f"{label}: a request of {format_tokens(at)} tokens gains from {format_bandwidth(rate)} on"
