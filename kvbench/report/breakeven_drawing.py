"""The drawing of the break-even map: bandwidth against context."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from kvbench.report.data import BreakEvenMap
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
from kvbench.units import format_bandwidth, format_tokens


def breakeven_map(figure: BreakEvenMap, tiers: Sequence[str]) -> Figure:
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
