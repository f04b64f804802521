"""Cells of the report: a number as text, with its value in base units and where it comes from (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvbench.decide.band import Band
from kvbench.decide.crossover import Crossover
from kvbench.decide.decision import Judged
from kvbench.decide.restore import RestoreCurve
from kvbench.decide.runs import LoadedRun
from kvbench.record.results import PointResult
from kvbench.report.sheet import UNKNOWN, Cell, number_cell
from kvbench.units import format_bytes, format_count, format_duration_s, format_tokens

# More names than this no longer fit a sentence: then counts stand in for them.
MOST_NAMED = 3
# Of the fit a + bL + cL²: what a hit spares.
SPARED = "bP + cP² of the prefill curve"
# So many lengths of a curve are drawn.
SHOWN_LENGTHS = 48


def listed(items: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(items[:-1]), *items[-1:]]))


def point_name(run: LoadedRun, point_id: str | None, runs: Sequence[LoadedRun]) -> str:
    """A point's id, with its run where there are several."""
    if point_id is None:
        return ""
    return f"{run.name}/{point_id}" if len(runs) > 1 else point_id


def use_label(judged: Judged) -> str:
    """The use in one line: model, TP, and the connector unless it is the published method."""
    use = judged.use
    connector = "" if use.connector == "logical" else f", {use.connector} {use.engine_version or ''}".rstrip()
    return f"{use.model} TP{use.tp}{connector}"


def format_tokens_per_s(rate: float) -> str:
    """A token rate with thousands separators."""
    return f"{rate:,.0f} tokens/s"


def restore_cell(item: Judged, point: str) -> Cell:
    """Restore time at the target length, with its interval."""
    target = item.goal.target_tokens
    return band_cell(
        item.restore_at(target), f"point {point}: {units_text(item, target)}, median of simulated requests"
    )


def recompute_cell(item: Judged) -> Cell:
    """Time to compute what is restored at the target length, with its interval."""
    target = item.goal.target_tokens
    source = (
        f"{SPARED} at P = {format_tokens(item.use.restored_tokens(target))}; {item.curve.source}" if item.curve else ""
    )
    return band_cell(item.recompute_at(target), source)


def recompute_speed_cell(item: Judged) -> Cell:
    """Tokens that the GPUs prefill each second at the target length."""
    seconds = item.recompute_at(item.goal.target_tokens)
    restored = item.use.restored_tokens(item.goal.target_tokens)
    rate = restored / seconds.middle if seconds and seconds.middle else None
    return number_cell(rate, format_tokens_per_s, "tokens in whole blocks of the target / recompute time of them")


def restore_speed_source(crossover: Crossover, point: str) -> str:
    """Where the restore speed comes from, in one line."""
    use = crossover.use
    return (
        f"point {point}, reads: {use.block_tokens} tokens / ({use.units_per_block} x the larger of "
        f"{crossover.concurrent_restores} / IOPS and mean latency / {use.parallelism_per_request})"
    )


def band_cell(seconds: Band | None, source: str) -> Cell:
    """Seconds with their interval; the value is the middle."""
    if seconds is None:
        return Cell(UNKNOWN)
    return Cell(band_text(seconds), seconds.middle, source)


def band_text(seconds: Band) -> str:
    """``1.98 s (1.90 s to 2.07 s)``, or one number where the interval has no width."""
    middle, low, high = (format_duration_s(value) for value in (seconds.middle, seconds.low, seconds.high))
    return middle if low == high else f"{middle} ({low} to {high})"


def units_text(item: Judged, tokens: int) -> str:
    """What has to be read to restore ``tokens``, in words."""
    use = item.use
    return f"{use.units(tokens):,} units of {format_bytes(use.io_bytes)}, {use.parallelism_per_request} in parallel"


def format_iops(iops: float) -> str:
    """Operations each second: whole from ten on."""
    return format_count(iops) if iops >= 10 else f"{iops:.1f}"


def plain(value: Any, key: str = "") -> str:
    """A value of a result file in words."""
    if value is None:
        return "not known"
    if key.endswith("_bytes") and isinstance(value, int):
        return f"{format_bytes(value)} ({value:,} bytes)"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name}: {plain(item, name)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(plain(item) for item in value)
    return str(value)


def panel(point: PointResult, direction: str) -> str:
    """What one direction of a point is called: mixed points have two."""
    return f"mixed: {direction}" if point.mix == "mixed" else direction


def tier_label(item: Judged, items: Sequence[Judged]) -> str:
    """The tier, with the number of requests that restore at once where it is not the same for all."""
    several = len({one.crossover.concurrent_restores for one in items}) > 1
    return f"{item.tier} ×{item.crossover.concurrent_restores}" if several else item.tier


def shown_lengths(restore: RestoreCurve) -> NDArray[np.intp]:
    """Which of a restore curve's lengths are drawn: their places, evenly spread."""
    return np.unique(np.linspace(0, len(restore.tokens) - 1, SHOWN_LENGTHS).round().astype(np.intp))
