"""Figure: restore and recompute time against context for one use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from kvbench.decide.band import Band, band, recompute_band
from kvbench.decide.decision import Judged
from kvbench.decide.runs import LoadedRun
from kvbench.prefill.curve import PrefillCurve
from kvbench.record.point import slug
from kvbench.report.cells import MOST_NAMED, SHOWN_LENGTHS, SPARED, point_name, shown_lengths, tier_label
from kvbench.report.data import FigureData
from kvbench.report.drawing import (
    DASHES,
    INK,
    LONGEST_LABEL,
    MARKERS,
    MUTED,
    canvas,
    gid,
    height_for,
    labels_right,
    line_number,
    log_axis,
    round_duration,
    series_colour,
)
from kvbench.report.scene import Scene
from kvbench.units import (
    format_tokens,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NO_CURVE_NOTE = "Bands: 95 % intervals. No line for recomputing: nobody gave the prefill of this model."


@dataclass(frozen=True, slots=True)
class TimeLine:
    """Seconds against context with a band: restoring from one tier, or recomputing; never extrapolated."""

    label: str
    restore: bool
    tokens: tuple[int, ...]
    seconds: tuple[Band, ...]
    source: str


@dataclass(frozen=True, slots=True)
class TimeCurves(FigureData):
    """Figure: restore and recompute time against context for one use; ``samples`` are the measured TTFT."""

    model: str
    target_tokens: int
    lines: tuple[TimeLine, ...]
    samples: tuple[tuple[int, float], ...]
    note: str = field(
        default="Bands: 95 % intervals. Crosses: measured TTFT less its constant part, which a hit takes as well. "
        "Restoring pays wherever its line is below the recompute line.",
        kw_only=True,
    )


def make(scene: Scene) -> list[TimeCurves]:
    """Restore and recompute time against context for one use, a band around each."""
    items, label = scene.judged, scene.label
    lines = tuple(_restore_line(item, items, scene.runs) for item in items)
    curve = items[0].curve
    samples: tuple[tuple[int, float], ...] = ()
    if curve is not None:
        tokens = np.geomspace(curve.measured_from, curve.measured_to, SHOWN_LENGTHS).round().astype(int)
        shown = tuple(int(value) for value in tokens)
        measured = scene.wanted.samples.rows if scene.wanted.samples is not None else ()
        samples = tuple((sample.prompt_tokens, sample.ttft_s - curve.a_s) for sample in measured)
        samples = tuple(sample for sample in samples if sample[1] > 0)
        loads = dict.fromkeys(item.crossover.concurrent_restores for item in items)
        lines = (*(_recompute_line(curve, shown, load, alone=len(loads) == 1) for load in loads), *lines)
    key, target = f"times-{slug(label)}", items[0].goal.target_tokens
    drawn = TimeCurves(key, _title(label, items), label, target, lines, samples)
    return [drawn if curve is not None else replace(drawn, note=_NO_CURVE_NOTE)]


def _recompute_line(curve: PrefillCurve, shown: tuple[int, ...], load: int, *, alone: bool) -> TimeLine:
    bands = tuple(recompute_band(curve, value, load) for value in shown)
    name = "recompute" if alone else f"recompute ×{load}"
    return TimeLine(name, False, shown, bands, f"{SPARED}; {curve.source}")


def _title(label: str, items: Sequence[Judged]) -> str:
    if items[0].curve is None:
        rates = [item.crossover.restore_tokens_per_s or 0 for item in items]
        best = tier_label(items[rates.index(max(rates))], items)
        if not max(rates):
            return f"{label}: a restore stops growing with the context"
        return f"{label}: {best} gives back {max(rates):,.0f} tokens/s; slower GPUs gain by restoring"
    if len(items) > MOST_NAMED:
        counts = Counter(_outcome(item, "from some length on") for item in items)
        return f"{label}: restoring {', '.join(f'{outcome} in {count}' for outcome, count in counts.items())} cases"
    starts = [f"from {format_tokens(item.crossover.request.tokens or 0)} tokens" for item in items]
    parts = [f"{tier_label(item, items)} {_outcome(item, start)}" for item, start in zip(items, starts, strict=True)]
    return f"{label}: restoring from {', '.join(parts)}"


def _outcome(item: Judged, start: str) -> str:
    """Where restoring wins, in words; an interval on both sides of an answer leaves none."""
    request = item.crossover.request
    if request.kind == "from" and request.high is not None:
        return f"wins {start}"
    if request.kind in ("unknown", "from") or request.low is not None:
        return "has no clear answer"
    return f"{request.kind} wins"


def _restore_line(item: Judged, items: Sequence[Judged], runs: Sequence[LoadedRun]) -> TimeLine:
    restore = item.restore
    assert restore is not None
    picked = shown_lengths(restore)
    bands = tuple(band(restore.draws[:, index], float(restore.seconds[index])) for index in picked)
    tokens = tuple(int(restore.tokens[index]) for index in picked)
    source = f"point {point_name(item.run, item.crossover.point, runs)}, units list-scheduled"
    return TimeLine(tier_label(item, items), True, tokens, bands, source)


def draw(figure: TimeCurves, tiers: Sequence[str]) -> Figure:
    """Restore and recompute time against context, both axes logarithmic, with 95 % bands."""
    longest = max(len(_line_name(line)) for line in figure.lines)
    drawing, axes = canvas(
        height_for(len(figure.lines), 3.4), left=0.8, right=0.3 + 0.073 * min(longest, LONGEST_LABEL)
    )
    ends = []
    for line in figure.lines:
        number = line_number(line.label, tiers)
        colour = series_colour(number) if line.restore else INK
        middle = [value.middle for value in line.seconds]
        axes.plot(
            line.tokens, middle, color=colour, linewidth=1.8 if line.restore else 2.4,
            linestyle=DASHES[number % len(DASHES)] if line.restore else "-",
            marker=MARKERS[number % len(MARKERS)] if line.restore else "", markevery=0.2, markersize=5,
            gid=gid(line.source),
        )  # fmt: skip
        low, high = [value.low for value in line.seconds], [value.high for value in line.seconds]
        axes.fill_between(line.tokens, low, high, color=colour, alpha=0.22, linewidth=0)
        ends.append((middle[-1], _line_name(line), colour))
    if figure.samples:
        axes.plot(
            *zip(*figure.samples, strict=True),
            linestyle="",
            marker="x",
            color=INK,
            markersize=6,
            gid=gid("measured TTFT"),
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.axvline(figure.target_tokens, color=MUTED, linestyle=(0, (1, 2)), linewidth=1)
    axes.text(
        figure.target_tokens, 1.0, "target", transform=axes.get_xaxis_transform(), ha="center", va="bottom", color=MUTED
    )
    log_axis(axes, "x", format_tokens, base=2)
    log_axis(axes, "y", round_duration)
    axes.set_xlabel("context in tokens (log scale)")
    axes.set_ylabel("time (log scale)")
    axes.grid(True)
    labels_right(axes, ends)
    return drawing


def _line_name(line: TimeLine) -> str:
    return f"restore from {line.label}" if line.restore else "recompute (prefill)"
