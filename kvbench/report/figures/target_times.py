"""Figure: time to get the target context back, restored or recomputed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvbench.decide.band import Band
from kvbench.decide.crossover import Verdict
from kvbench.report.cells import MOST_NAMED, point_name, tier_label, use_label
from kvbench.report.data import FigureData
from kvbench.report.drawing import (
    BEHIND_TEXT,
    INK,
    MUTED,
    PAPER,
    VERDICTS,
    canvas,
    few_ticks,
    gid,
    left_edge,
    short,
)
from kvbench.report.scene import Scene
from kvbench.units import (
    format_duration_s,
    format_number,
    format_tokens,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HATCHES: dict[Verdict, str] = {"viable": "", "not viable": "////", "cannot say": "---"}
_WORDS: dict[Verdict, str] = {"viable": "✓ viable", "not viable": "✕ not viable", "cannot say": "? cannot say"}
_LONGEST_TIER = 18


@dataclass(frozen=True, slots=True)
class TargetBar:
    """Seconds at the target length for one tier and use; ``recompute_s`` is None where nobody measured it."""

    tier: str
    model: str
    verdict: Verdict
    restore_s: Band | None
    recompute_s: Band | None
    source: str


@dataclass(frozen=True, slots=True)
class TargetTimes(FigureData):
    """Figure: time to get the target context back, restored or recomputed."""

    target_tokens: int
    budget_s: float | None
    bars: tuple[TargetBar, ...]
    note: str = field(
        default="Bars: restore time with its 95 % interval. Vertical line: recompute time of the model. Colour, "
        "hatching and word: the verdict.",
        kw_only=True,
    )


def make(scene: Scene) -> list[TargetTimes]:
    """Restore and recompute time at the target length for every tier and use."""
    if all(item.restore is None for item in scene.judged):
        return []
    goal = scene.wanted.goal
    bars = tuple(
        TargetBar(
            tier=tier_label(item, scene.judged),
            model=use_label(item),
            verdict=item.crossover.verdict,
            restore_s=item.restore_at(goal.target_tokens),
            recompute_s=item.recompute_at(goal.target_tokens),
            source=f"point {point_name(item.run, item.crossover.point, scene.runs)}" if item.crossover.point else "",
        )
        for item in scene.judged
    )
    title = _title(bars, goal.target_tokens)
    return [TargetTimes("target", title, goal.target_tokens, goal.ttft_budget_s, bars)]


def _title(bars: Sequence[TargetBar], target: int) -> str:
    compared = [bar for bar in bars if bar.restore_s and bar.recompute_s and bar.verdict != "cannot say"]
    tokens = format_tokens(target)
    if 0 < len(compared) <= MOST_NAMED:
        single = len({bar.model for bar in compared}) == 1
        parts = [bar.tier + ("" if single else f" for {bar.model}") + f" {_compared(bar)}" for bar in compared]
        return f"{tokens} tokens" + (f" of {compared[0].model}" if single else "") + f": {', '.join(parts)}"
    if compared:
        faster = sum(_ratio(bar) < 1 for bar in compared)
        return f"{tokens} tokens come back faster than the GPUs recompute them in {faster} of {len(compared)} cases"
    known = [bar.restore_s.middle for bar in bars if bar.restore_s]
    if not known:
        return f"Nothing was measured that says how long {tokens} tokens take"
    spread = _spread(format_duration_s(min(known)), format_duration_s(max(known)))
    unknown = all(bar.recompute_s is None for bar in bars)
    return f"{tokens} tokens come back in {spread}" + ("; recomputing them was not measured" if unknown else "")


def _ratio(bar: TargetBar) -> float:
    if bar.restore_s is None or bar.recompute_s is None or not bar.recompute_s.middle:
        return math.inf
    return bar.restore_s.middle / bar.recompute_s.middle


def _compared(bar: TargetBar) -> str:
    ratio = _ratio(bar)
    return (
        f"takes {format_number(ratio)} times as long as recomputing"
        if ratio >= 1
        else f"is {format_number(1 / ratio)} times as fast as recomputing"
    )


def _spread(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def draw(figure: TargetTimes, tiers: Sequence[str]) -> Figure:
    """Bars from zero: restore time at the target for each tier, the recompute time of each model as a line across."""
    models = list(dict.fromkeys(bar.model for bar in figure.bars))
    rows = [(model, [bar for bar in figure.bars if bar.model == model]) for model in models]
    left = 0.3 + 0.08 * min(_LONGEST_TIER, max(4, *(len(bar.tier) for bar in figure.bars)))
    drawing, axes = canvas(0.7 + 0.36 * len(figure.bars) + 0.4 * len(models), left=left, right=0.15, top=0.05)
    ends = [end for bar in figure.bars for end in (bar.restore_s, bar.recompute_s) if end is not None]
    limit = max([1e-9, *(end.high for end in ends), figure.budget_s or 0.0]) * 1.42
    place, ticks = 0.0, []
    for model, bars in rows:
        recompute = next((bar.recompute_s for bar in bars if bar.recompute_s is not None), None)
        edge = left_edge(drawing, axes)
        text = f"{short(model)}: {_recompute_text(recompute)}"
        axes.text(0.01, place, text, transform=edge, va="center", weight="bold", bbox=BEHIND_TEXT)
        first = place
        for bar in bars:
            place += 1.0
            ticks.append((place, bar.tier))
            _bar(axes, place, bar, limit)
        if recompute is not None:
            axes.fill_betweenx(
                [first + 0.5, place + 0.45], recompute.low, recompute.high, color=INK, alpha=0.18, linewidth=0
            )
            axes.plot([recompute.middle] * 2, [first + 0.42, place + 0.45], color=INK, linewidth=2.2)
        place += 1.05
    if figure.budget_s is not None:
        axes.axvline(figure.budget_s, color=INK, linestyle=(0, (1, 2)))
        axes.text(figure.budget_s, -0.75, f" budget {format_duration_s(figure.budget_s)}", va="center")
    axes.set_yticks([at for at, _ in ticks], [short(tier, _LONGEST_TIER) for _, tier in ticks])
    axes.set_ylim(place - 0.3, -1.0 if figure.budget_s is not None else -0.5)
    axes.set_xlim(0, limit)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    few_ticks(axes, 6, plain=True)
    axes.set_xlabel(f"seconds until {format_tokens(figure.target_tokens)} tokens are back (shorter is better)")
    axes.grid(axis="x")
    return drawing


def _bar(axes: Axes, place: float, bar: TargetBar, limit: float) -> None:
    if bar.restore_s is None:
        text = f"not measured · {_WORDS[bar.verdict]}"
        axes.text(limit * 0.01, place, text, va="center", color=MUTED, bbox=BEHIND_TEXT)
        return
    seconds, colour = bar.restore_s, VERDICTS[bar.verdict]
    axes.barh(place, seconds.middle, height=0.62, color=colour, alpha=0.8, linewidth=0, gid=gid(bar.source))
    axes.barh(place, seconds.middle, height=0.62, fill=False, edgecolor=colour, linewidth=1)
    if _HATCHES[bar.verdict]:
        axes.barh(
            place, seconds.middle, height=0.62, fill=False, edgecolor=PAPER, hatch=_HATCHES[bar.verdict], linewidth=0
        )
    axes.plot([seconds.low, seconds.high], [place, place], color=INK, linewidth=1.3)
    end = max(seconds.high, bar.recompute_s.high if bar.recompute_s and bar.recompute_s.high > seconds.middle else 0)
    end = seconds.high if end > limit * 0.55 and seconds.high < limit * 0.3 else end
    text = f"{format_duration_s(seconds.middle)} · {_WORDS[bar.verdict]}"
    axes.text(end + limit * 0.012, place, text, va="center", bbox=BEHIND_TEXT)


def _recompute_text(seconds: Band | None) -> str:
    return "recompute not measured" if seconds is None else f"recompute {format_duration_s(seconds.middle)} (┃)"
