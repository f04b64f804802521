"""GPU time and money that hits save, where the load was given (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvbench.decide.cost import Saving, saving
from kvbench.decide.crossover import AtTarget
from kvbench.decide.decision import Judged
from kvbench.report.columns import Column, name, number, sheet, subject
from kvbench.report.data import Sheet
from kvbench.report.scene import Scene
from kvbench.units import format_count, format_duration_s, format_tokens

_NOTE = (
    "A hit saves the prefill of its prompt on every GPU; while it is restored the GPUs serve others. On a tier "
    "that is not viable the same time is saved, but the request waits longer than recomputing would take."
)
_PER_HIT = "recompute time x --gpus"
_LOAD = "--hit-rate x --requests-per-s x 86,400"


@dataclass(frozen=True, slots=True)
class Saved:
    """What hits save on one tier."""

    item: Judged
    at: AtTarget
    saving: Saving


COLUMNS: tuple[Column[Saved], ...] = (
    *subject(lambda row: row.item),
    name("verdict", "verdict", lambda row: row.item.crossover.verdict),
    number("tokens", "tokens of a hit", lambda row: row.saving.tokens, format_tokens, "--target-context"),
    number("gpu_s_per_hit", "GPU time of a hit", lambda row: row.saving.gpu_s_per_hit, format_duration_s, _PER_HIT),
    number("wait_s", "it waits", lambda row: row.at.p50_s, format_duration_s, "median of the simulated requests"),
    number("hits_per_day", "hits a day", lambda row: row.saving.hits_per_day, format_count, _LOAD),
    number(
        "gpu_hours_per_day",
        "GPU-hours a day",
        lambda row: row.saving.gpu_s_per_day / 3600,
        lambda hours: f"{hours:,.1f}",
        f"{_PER_HIT} x {_LOAD} / 3,600",
    ),
    number(
        "price_per_day",
        "money a day",
        lambda row: row.saving.price_per_day,
        lambda price: f"{price:,.2f}",
        "GPU-hours x --gpu-price",
    ),
)


def savings(scene: Scene) -> Sheet:
    """One row for each judgement with a prefill curve."""
    return sheet("savings", "What hits save", COLUMNS, _rows(scene), _NOTE)


def _rows(scene: Scene) -> Iterator[Saved]:
    traffic = scene.wanted.traffic
    for item in scene.judged if traffic else ():
        at = item.crossover.at_target
        if item.curve is not None and at is not None and traffic is not None:
            saved = saving(item.curve, at.tokens, traffic)
            if saved is not None:
                yield Saved(item, at, saved)
