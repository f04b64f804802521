"""Figure: what a request needs from a tier at each context, and what it gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kvbench.decide.breakeven import needed_bytes_per_s
from kvbench.decide.decision import Judged
from kvbench.decide.recompute import queued, spared_s
from kvbench.decide.runs import LoadedRun
from kvbench.record.point import slug
from kvbench.report.cells import SHOWN_LENGTHS, SPARED, point_name, shown_lengths
from kvbench.report.data import FigureData
from kvbench.report.drawing import (
    BEHIND_TEXT,
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
    series_colour,
)
from kvbench.report.scene import Scene
from kvbench.units import (
    format_bandwidth,
    format_tokens,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# One length is no line.
_FEWEST_LENGTHS = 2
_NEED_LABEL = "break-even"


@dataclass(frozen=True, slots=True)
class RateLine:
    """Bytes per second against context: what one request needs to break even, or gets from a tier."""

    label: str
    tokens: tuple[int, ...]
    bytes_per_s: tuple[float, ...]
    source: str


@dataclass(frozen=True, slots=True)
class BreakEvenMap(FigureData):
    """Figure: bandwidth times context; above ``need`` restoring wins, ``given`` is what each tier gives one request."""

    model: str
    target_tokens: int
    need: RateLine
    given: tuple[RateLine, ...]
    note: str = field(
        default="Thick line: the bandwidth at which restoring takes as long as recomputing, within the measured "
        "prompts. A tier pays wherever its line lies in the shaded area. Lookups and copies count as time of the tier; "
        "for several at once counts that their prefills would wait for each other.",
        kw_only=True,
    )


def make(scene: Scene) -> list[BreakEvenMap]:
    """The map of one use; empty without a prefill curve of its model, or with fewer than two lengths of a block."""
    first, label = scene.judged[0], scene.label
    curve = first.curve
    if curve is None or not (curve.b_s_per_token or curve.c_s_per_token2):
        return []
    tokens = np.unique(np.geomspace(curve.measured_from, curve.measured_to, SHOWN_LENGTHS).round()).astype(int)
    tokens = tokens[tokens >= first.use.block_tokens]
    if len(tokens) < _FEWEST_LENGTHS:
        return []
    prefill = spared_s(curve, np.array([first.use.restored_tokens(int(at)) for at in tokens], dtype=float), 1)
    need = RateLine(
        _NEED_LABEL,
        tuple(int(value) for value in tokens),
        tuple(needed_bytes_per_s(first.use, int(at), float(left)) for at, left in zip(tokens, prefill, strict=True)),
        f"bytes of the context / ({SPARED})",
    )
    given = tuple(_given(item, scene.runs) for item in scene.judged)
    target = first.goal.target_tokens
    return [BreakEvenMap(f"breakeven-{slug(label)}", _title(label, first, need, target), label, target, need, given)]


def _given(item: Judged, runs: Sequence[LoadedRun]) -> RateLine:
    restore, curve = item.restore, item.curve
    assert restore is not None
    assert curve is not None
    picked = shown_lengths(restore)
    several = item.crossover.concurrent_restores
    picked = picked[(restore.restored[picked] > 0) & (restore.seconds[picked] > 0)]
    # Several that come at once may take as much longer as their prefills would have to wait.
    taken_s = restore.seconds / queued(curve, restore.restored, several)
    rates = [needed_bytes_per_s(item.use, int(restore.tokens[at]), float(taken_s[at])) for at in picked]
    name = item.tier if several == 1 else f"{item.tier} ×{several}"
    point = point_name(item.run, item.crossover.point, runs)
    source = f"point {point}, bytes of the context / restore time x mean wait of a prefill"
    return RateLine(name, tuple(int(restore.tokens[at]) for at in picked), tuple(rates), source)


def _title(label: str, item: Judged, need: RateLine, target: int) -> str:
    assert item.curve is not None
    at = target if need.tokens[0] <= target <= need.tokens[-1] else need.tokens[-1]
    rate = needed_bytes_per_s(item.use, at, float(spared_s(item.curve, item.use.restored_tokens(at), 1)[0]))
    return f"{label}: a request of {format_tokens(at)} tokens gains from {format_bandwidth(rate)} on"


def draw(figure: BreakEvenMap, tiers: Sequence[str]) -> Figure:
    """Bandwidth against context, both logarithmic; above the break-even line restoring wins."""
    longest = max(len(line.label) for line in (figure.need, *figure.given))
    drawing, axes = canvas(
        height_for(len(figure.given) + 1, 3.3), left=0.95, right=0.3 + 0.073 * min(longest, LONGEST_LABEL)
    )
    rates = [rate for line in (figure.need, *figure.given) for rate in line.bytes_per_s]
    # Room above and below all lines for the words.
    room = max(1.6, (max(rates) / min(rates)) ** 0.18)
    low, high = min(rates) / room, max(rates) * room
    need = figure.need
    axes.fill_between(need.tokens, need.bytes_per_s, high, color=INK, alpha=0.07, linewidth=0)
    axes.plot(need.tokens, need.bytes_per_s, color=INK, linewidth=2.4, gid=gid(need.source))
    ends = [(need.bytes_per_s[-1], need.label, INK)]
    for line in figure.given:
        number = line_number(line.label, tiers)
        colour = series_colour(number)
        axes.plot(
            line.tokens, line.bytes_per_s, color=colour, linewidth=1.8, linestyle=DASHES[number % len(DASHES)],
            marker=MARKERS[number % len(MARKERS)], markevery=0.2, markersize=5, gid=gid(line.source),
        )  # fmt: skip
        ends.append((line.bytes_per_s[-1], line.label, colour))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlim(need.tokens[0], max(line.tokens[-1] for line in (need, *figure.given)))
    axes.set_ylim(low, high)
    axes.text(0.02, 0.95, "restoring wins", transform=axes.transAxes, color=MUTED, va="top", bbox=BEHIND_TEXT)
    axes.text(0.02, 0.05, "recomputing wins", transform=axes.transAxes, color=MUTED, va="bottom", bbox=BEHIND_TEXT)
    if figure.target_tokens <= axes.get_xlim()[1]:
        axes.axvline(figure.target_tokens, color=MUTED, linestyle=(0, (1, 2)), linewidth=1)
        above = axes.get_xaxis_transform()
        axes.text(figure.target_tokens, 1.0, "target", transform=above, ha="center", va="bottom", color=MUTED)
    log_axis(axes, "x", format_tokens, base=2)
    log_axis(axes, "y", format_bandwidth, base=2)
    axes.set_xlabel("context in tokens (log scale)")
    axes.set_ylabel("bandwidth of one request (log scale)")
    axes.grid(True)
    labels_right(axes, ends)
    return drawing
