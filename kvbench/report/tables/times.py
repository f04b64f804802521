"""Restore and recompute time at each power of two of tokens and at the target (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from kvbench.decide.band import Band
from kvbench.decide.decision import Judged
from kvbench.report.cells import SPARED, band_cell, point_name, units_text
from kvbench.report.columns import Column, name, number, sheet
from kvbench.report.scene import Scene
from kvbench.report.sheet import Cell, Sheet
from kvbench.report.subject import subject
from kvbench.units import format_tokens


@dataclass(frozen=True, slots=True)
class Length:
    """One length of one judgement."""

    item: Judged
    tokens: int
    point: str


def _restore(row: Length) -> Cell:
    return band_cell(row.item.restore_at(row.tokens), f"point {row.point}: {units_text(row.item, row.tokens)}")


def _recompute(row: Length) -> Cell:
    curve = row.item.curve
    return band_cell(row.item.recompute_at(row.tokens), f"{SPARED}; {curve.source}" if curve else "")


def _faster(row: Length) -> str:
    restore, recompute = row.item.restore_at(row.tokens), row.item.recompute_at(row.tokens)
    return "" if restore is None or recompute is None else _faster_of(restore, recompute)


def _faster_of(restore: Band, recompute: Band) -> str:
    if restore.high < recompute.low:
        return "restore"
    return "recompute" if recompute.high < restore.low else "within the interval"


COLUMNS: tuple[Column[Length], ...] = (
    *subject(lambda row: row.item),
    number("tokens", "tokens", lambda row: row.tokens, format_tokens, "a power of two, or the target"),
    Column("restore_s", "restore", _restore, True),
    Column("recompute_s", "recompute", _recompute, True),
    name("faster", "faster", _faster),
)


def times(scene: Scene) -> Sheet:
    """One row for each judgement and length."""
    rows = (
        Length(item, tokens, point_name(item.run, item.crossover.point, scene.runs))
        for item in scene.judged
        for tokens in _lengths(item)
    )
    return sheet("times", "Time to restore and to recompute", COLUMNS, rows, "95 % intervals in brackets.")


def _lengths(item: Judged) -> list[int]:
    if item.restore is None:
        return []
    low, high = item.restore.tokens[0], item.restore.tokens[-1]
    powers = {2**exponent for exponent in range(8, 24) if low <= 2**exponent <= high}
    inside = {item.goal.target_tokens} if low <= item.goal.target_tokens <= high else set()
    return sorted(powers | inside)
