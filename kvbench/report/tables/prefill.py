"""Measured TTFT beside the fitted curve (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvbench.decide.decision import Wanted
from kvbench.prefill.curve import PrefillCurve
from kvbench.report.columns import Column, number, sheet
from kvbench.report.scene import Scene
from kvbench.report.sheet import Sheet
from kvbench.units import format_duration_s, format_tokens


@dataclass(frozen=True, slots=True)
class Fitted:
    """A sample, and what the curve makes of its length."""

    tokens: int
    ttft_s: float
    fitted_s: float


COLUMNS: tuple[Column[Fitted], ...] = (
    number("prompt_tokens", "prompt tokens", lambda row: row.tokens, format_tokens, "TTFT file"),
    number("ttft_s", "measured TTFT", lambda row: row.ttft_s, format_duration_s, "TTFT file"),
    number("fitted_s", "fitted", lambda row: row.fitted_s, format_duration_s, "a + bL + cL²"),
    number(
        "deviation",
        "off by",
        lambda row: row.fitted_s / row.ttft_s - 1,
        lambda share: f"{share:+.1%}",
        "fitted / measured - 1",
    ),
)


def prefill(scene: Scene) -> Sheet:
    """One row for each sample."""
    curve = scene.wanted.curve
    about = f" of {curve.model}" if curve and curve.model else ""
    note = _note(curve) if curve else ""
    return sheet("prefill", f"Prefill{about}", COLUMNS, _rows(scene.wanted), note)


def _rows(wanted: Wanted) -> Iterator[Fitted]:
    if wanted.curve is not None and wanted.samples is not None:
        for sample in wanted.samples.rows:
            fitted_s = float(wanted.curve.seconds(sample.prompt_tokens)[0])
            yield Fitted(sample.prompt_tokens, sample.ttft_s, fitted_s)


def _note(curve: PrefillCurve) -> str:
    note = f"a = {curve.a_s:.4g} s, b = {curve.b_s_per_token:.4g} s, c = {curve.c_s_per_token2:.4g} s; {curve.source}"
    if curve.largest_residual_s is not None and curve.linear_residual_s is not None:
        note += (
            f". The curve is off by {format_duration_s(curve.largest_residual_s)} at most; a straight line would be by "
            f"{format_duration_s(curve.linear_residual_s)}"
        )
    return note + "".join(f". Note: {text}" for text in curve.notes)
