"""Figure: the published view, L = p99 / prefill cost for fixed tails, with the tiers as points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kvbench.decide.crossover import SingleBlock, published_tokens
from kvbench.decide.decision import PUBLISHED_COSTS_S
from kvbench.prefill.curve import PrefillCurve
from kvbench.record.point import slug
from kvbench.report.cells import MOST_NAMED, point_name
from kvbench.report.data import FigureData
from kvbench.report.drawing import (
    MARKERS,
    MUTED,
    PAPER,
    canvas,
    gid,
    labels_beside,
    labels_right,
    log_axis,
    round_duration,
    series_colour,
    short,
    tier_number,
)
from kvbench.report.scene import Scene
from kvbench.units import (
    format_duration_s,
    format_tokens,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PUBLISHED_TAILS_S = (0.005, 0.05, 0.5)


@dataclass(frozen=True, slots=True)
class TierDot:
    """One tier in the published figure: p99 of one block over the measured prefill cost."""

    tier: str
    p99_s: float
    cost_s_per_token: float | None
    tokens: int | None
    source: str


@dataclass(frozen=True, slots=True)
class CrossoverMap(FigureData):
    """Figure: L = p99 / prefill cost for fixed tails, with the tiers as points at the measured prefill cost."""

    model: str
    tails_s: tuple[float, ...]
    costs_s_per_token: tuple[float, ...]
    dots: tuple[TierDot, ...]
    note: str = field(
        default="The published view: a dot is one tier at the prompt whose measured TTFT equals the p99 of a block; "
        "the lines are fixed tails. It compares one block with a whole prompt and does not decide.",
        kw_only=True,
    )


def make(scene: Scene) -> list[CrossoverMap]:
    """The published figure: one dot for each tier with a p99 at the published 16 jobs."""
    dots, items, label = [], scene.judged, scene.label
    for item in items:
        single, curve = item.crossover.single_block, item.curve
        if (
            single is None
            or curve is None
            or item.crossover.concurrent_restores != items[0].crossover.concurrent_restores
        ):
            continue
        p99_s, where = single.p99_ns / 1e9, f"point {point_name(item.run, single.point, scene.runs)}"
        dots.append(_dot(item.tier, p99_s, single, curve, where))
    if not dots:
        return []
    title = f"{label}: by one block's p99 alone, {_pays_text(dots)}"
    return [CrossoverMap(f"crossover-{slug(label)}", title, label, PUBLISHED_TAILS_S, PUBLISHED_COSTS_S, tuple(dots))]


def _dot(tier: str, p99_s: float, single: SingleBlock, curve: PrefillCurve, where: str) -> TierDot:
    """Where TTFT = p99 the published formulas are one: L = p99 / (TTFT / L); beyond the measured prompts a token costs
    what it costs at the nearest of them."""
    if single.tokens is not None:
        return TierDot(tier, p99_s, p99_s / single.tokens, single.tokens, f"{where}, TTFT(L) = p99")
    end = curve.measured_from if single.kind == "below-range" else curve.measured_to
    cost = float(curve.seconds(end)[0]) / end
    source = f"{where}, p99 / (TTFT / context at {format_tokens(end)} tokens), beyond the measured prompts"
    return TierDot(tier, p99_s, cost, math.ceil(published_tokens(p99_s, cost)), source)


def _pays_text(dots: Sequence[TierDot]) -> str:
    if len(dots) <= MOST_NAMED:
        return ", ".join(f"{dot.tier} pays from {format_tokens(dot.tokens or 0)} tokens" for dot in dots)
    ordered = sorted(dots, key=lambda dot: dot.tokens or 0)
    first, last = (f"{format_tokens(dot.tokens or 0)} tokens ({dot.tier})" for dot in (ordered[0], ordered[-1]))
    return f"{len(dots)} tiers pay from {first} to {last} on"


def draw(figure: CrossoverMap, tiers: Sequence[str]) -> Figure:
    """The published figure: crossover length against prefill cost for fixed tails, the tiers as points."""
    drawing, axes = canvas(3.3, left=0.85, right=1.2)
    measured = [dot.cost_s_per_token for dot in figure.dots if dot.cost_s_per_token]
    costs = np.geomspace(min([*figure.costs_s_per_token, *measured]), max([*figure.costs_s_per_token, *measured]), 2)
    ends = []
    for tail in figure.tails_s:
        axes.plot(costs * 1e3, tail / costs, color=MUTED, linewidth=1)
        ends.append((tail / costs[-1], f"p99 = {round_duration(tail)}", MUTED))
    placed = []
    for dot in figure.dots:
        if dot.cost_s_per_token is None or dot.tokens is None:
            continue
        number = tier_number(dot.tier, tiers)
        axes.plot(
            [dot.cost_s_per_token * 1e3], [dot.tokens], color=series_colour(number),
            marker=MARKERS[number % len(MARKERS)], markersize=9, markeredgecolor=PAPER, linestyle="",
            gid=gid(dot.source), zorder=5,
        )  # fmt: skip
        text = f"{short(dot.tier, 24)}: {format_tokens(dot.tokens)} tokens (p99 {format_duration_s(dot.p99_s)})"
        placed.append((dot.cost_s_per_token * 1e3, dot.tokens, text, series_colour(number)))
    axes.set_xscale("log")
    axes.set_yscale("log")
    log_axis(axes, "x", lambda value: f"{value:g}")
    log_axis(axes, "y", format_tokens)
    axes.set_xlabel("prefill cost in ms for each token (log scale)")
    axes.set_ylabel("crossover in tokens (log scale)")
    axes.grid(True)
    labels_right(axes, ends)
    labels_beside(axes, placed)
    return drawing
