"""GPU time and money that hits save, where the load was given (pure)."""

from __future__ import annotations

from collections.abc import Callable

from kvbench.decide.cost import Saving
from kvbench.report.columns import Column, name, number, sheet
from kvbench.report.scene import Scene
from kvbench.report.sheet import Sheet
from kvbench.report.subject import subject
from kvbench.report.tables.throughput import Served, served
from kvbench.units import format_count, format_duration_s, format_tokens

_NOTE = (
    "A hit spares the prefill of its prefix on every GPU; while it is restored the GPUs serve others. No more hits "
    "count than the tier and the GPUs can serve, and no more time than the GPUs have. Empty where a tier is not viable."
)
_PER_HIT = "recompute time x --gpus"
_LOAD = "--hit-rate x the lesser of --requests-per-s and what a full server serves x 86,400"


def _saved(value: Callable[[Saving], float | None]) -> Callable[[Served], float | None]:
    """That value of the saving, None on a tier that is not viable: a request there waits longer than it computes."""

    def of_viable(row: Served) -> float | None:
        return value(row.saving) if row.saving is not None and row.item.crossover.verdict == "viable" else None

    return of_viable


def _wait_s(row: Served) -> float | None:
    at = row.item.crossover.at_target
    return None if at is None else at.p50_s


COLUMNS: tuple[Column[Served], ...] = (
    *subject(lambda row: row.item),
    name("verdict", "verdict", lambda row: row.item.crossover.verdict),
    number("tokens", "tokens of a hit", lambda row: row.at.tokens, format_tokens, "--target-context"),
    number("gpu_s_per_hit", "GPU time of a hit", _saved(lambda one: one.gpu_s_per_hit), format_duration_s, _PER_HIT),
    number("wait_s", "it waits", _wait_s, format_duration_s, "median of the simulated requests"),
    number("hits_per_day", "hits a day", _saved(lambda one: one.hits_per_day), format_count, _LOAD),
    number(
        "gpu_hours_per_day",
        "GPU-hours a day",
        _saved(lambda one: one.gpu_s_per_day / 3600),
        lambda hours: f"{hours:,.1f}",
        f"{_PER_HIT} x {_LOAD} / 3,600, at most 24 x --gpus",
    ),
    number(
        "price_per_day",
        "money a day",
        _saved(lambda one: one.price_per_day),
        lambda price: f"{price:,.2f}",
        "GPU-hours x --gpu-price",
    ),
)


def savings(scene: Scene) -> Sheet:
    """One row for each judgement with a prefill curve."""
    return sheet("savings", "What hits save", COLUMNS, served(scene), _NOTE)
