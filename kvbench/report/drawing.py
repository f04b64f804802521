"""What all figures share: placeholder colours, axes in words, labels beside what they name.

Every series has a marker or line style of its own and its name beside it, so that colour is never needed. matplotlib
is imported where something is drawn: the numbers of a figure, and a gate, need none of it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.decide.crossover import Verdict
from kvbench.report.svg import SOURCE_PREFIX, inlined
from kvbench.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Replaced by CSS variables in the SVG, so that one drawing serves light, dark and paper.
INK = "#010101"
MUTED = "#010102"
GRID = "#010103"
PAPER = "#010104"
SERIES = ("#020101", "#020102", "#020103", "#020104", "#020105", "#020106")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (2, 2)), (0, (6, 2, 1, 2)), (0, (1, 1.5)), (0, (8, 3, 2, 3)))
BEHIND_TEXT: Any = {"facecolor": PAPER, "edgecolor": "none", "pad": 1}
VERDICTS: dict[Verdict, str] = {"viable": "#030101", "not viable": "#030102", "cannot say": "#030103"}
_CSS = {
    INK: "currentColor",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    PAPER: "var(--paper)",
    **{colour: f"var(--s{number})" for number, colour in enumerate(SERIES, start=1)},
    **{colour: f"var(--{name.replace(' ', '-')})" for name, colour in VERDICTS.items()},
}
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "kvbench",
    "text.parse_math": False,
    "axes.formatter.use_mathtext": False,
    "font.size": 9.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.7,
}


WIDTH = 6.3
LONGEST_LABEL = 34
LABEL_INCHES = 0.17


def jobs_text(count: int) -> str:
    """``1 job`` or ``16 jobs``."""
    return "1 job" if count == 1 else f"{count} jobs"


def styled() -> AbstractContextManager[None]:
    """The style of all drawings while the context lasts; matplotlib's own settings stay as they were (no pyplot)."""
    import matplotlib

    return matplotlib.rc_context(_STYLE)


def css_variables() -> dict[str, str]:
    """The CSS variable of every placeholder colour."""
    return dict(_CSS)


def svg(drawing: Figure, key: str, label: str, colours: Mapping[str, str] = _CSS) -> str:
    """The drawing as inline SVG: no metadata, no outside reference, ids of its own, text as text, themed by CSS.

    ``colours`` are what placeholder colours become.
    """
    buffer = io.StringIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    with styled():
        drawing.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    return inlined(buffer.getvalue(), key, label, colours)


def canvas(height: float, *, left: float, right: float, top: float = 0.22) -> tuple[Figure, Axes]:
    """A figure with one axes and margins in inches."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(WIDTH, height))
    axes = drawing.add_axes(
        (left / WIDTH, 0.52 / height, (WIDTH - left - right) / WIDTH, (height - 0.52 - top) / height)
    )
    return drawing, axes


def canvases(count: int, height: float) -> tuple[Figure, Sequence[Axes]]:
    """A figure with axes side by side on one scale."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(WIDTH, height))
    grid = drawing.subplots(1, count, sharex=True, squeeze=False)[0]
    drawing.subplots_adjust(left=0.21, right=0.99, bottom=0.52 / height, top=1 - 0.28 / height, wspace=0.1)
    return drawing, list(grid)


def few_ticks(axes: Axes, most: int, *, plain: bool = False) -> None:
    """At most so many ticks across; ``plain`` puts them at round numbers and writes these without an offset."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    if not plain:
        axes.xaxis.set_major_locator(MaxNLocator(most))
        return
    axes.xaxis.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def height_for(labels: int, least: float) -> float:
    """The height in inches of a figure whose right edge bears that many names."""
    return max(least, LABEL_INCHES * labels + 0.9)


def left_edge(drawing: Figure, axes: Axes) -> Any:
    """Figure fraction across, data down: for headings that start at the left edge of the drawing."""
    from matplotlib.transforms import blended_transform_factory

    return blended_transform_factory(drawing.transFigure, axes.transData)


def tier_number(tier: str, tiers: Sequence[str]) -> int:
    """The place of a tier in the report, which decides its colour, marker and dashes in every figure."""
    return tiers.index(tier) if tier in tiers else 0


def line_number(label: str, tiers: Sequence[str]) -> int:
    """The place of the tier of a line, which bears the tier's name, or that and its load as in ``disk ×4``."""
    return tier_number(label if label in tiers else label.rpartition(" ×")[0], tiers)


def tier_colour(tier: str, tiers: Sequence[str]) -> str:
    """The placeholder colour of a tier."""
    return series_colour(tier_number(tier, tiers))


def series_colour(number: int) -> str:
    """The placeholder colour of the tier in that place."""
    return SERIES[number % len(SERIES)]


def log_axis(axes: Axes, which: str, shown: Callable[[float], str], base: int = 10) -> None:
    """Plain words at the powers of the base, and at 2 and 5 between them where there is room."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    ticks = list(_ticks(low, high, base, dense=which == "y"))
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda value, _: shown(value)))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def _ticks(low: float, high: float, base: int, *, dense: bool) -> Iterator[float]:
    span = np.log(high / low) / np.log(base)
    steps = (1,) if base == 2 or span > (4 if dense else 2) else (1, 3) if span > 2.2 else (1, 2, 5)
    stride = max(1, int(np.ceil(span / 7)))
    for exponent in range(int(np.floor(np.log(low) / np.log(base))), int(np.ceil(np.log(high) / np.log(base))) + 1):
        for step in steps:
            value = float(step) * float(base) ** exponent
            if low <= value <= high and exponent % stride == 0:
                yield value


def labels_right(axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Names at the right end of lines, pushed apart so that none covers another."""
    gap = LABEL_INCHES / (axes.bbox.height / axes.figure.dpi)
    places = sorted(
        (float(axes.transAxes.inverted().transform(axes.transData.transform((1, value)))[1]), text, colour)
        for value, text, colour in ends
    )
    for (place, text, colour), at in zip(places, pushed_apart([place for place, *_ in places], gap), strict=True):
        axes.annotate(
            short(text), (1.0, place), (1.03, at), xycoords="axes fraction", textcoords="axes fraction", va="center",
            color=colour, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.7, "relpos": (0, 0.5)},
        )  # fmt: skip


def pushed_apart(places: Sequence[float], gap: float) -> list[float]:
    """The rising ``places`` moved as little as keeps them ``gap`` apart and, where they fit, between 0 and 1."""
    groups: list[list[float]] = []
    for number, place in enumerate(places):
        groups.append([place - number * gap])
        while len(groups) > 1 and np.mean(groups[-2]) > np.mean(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
    highest = max(0.0, 1 - gap * (len(places) - 1))
    middles = [min(max(float(np.mean(group)), 0.0), highest) for group in groups for _ in group]
    return [middle + number * gap for number, middle in enumerate(middles)]


def labels_beside(axes: Axes, placed: Sequence[tuple[float, float, str, str]]) -> None:
    """Names beside dots, on the side that has room, pushed apart."""
    gap = 1.1 * LABEL_INCHES / (axes.bbox.height / axes.figure.dpi)
    ordered = sorted(placed, key=lambda item: item[1])
    dots = [axes.transAxes.inverted().transform(axes.transData.transform((x, y))) for x, y, *_ in ordered]
    for (across, up), at, (*_, text, colour) in zip(
        dots, pushed_apart([float(up) for _, up in dots], gap), ordered, strict=True
    ):
        left = across > 0.5
        axes.annotate(
            text, (across, up), (across + (-0.035 if left else 0.035), at), xycoords="axes fraction",
            textcoords="axes fraction", va="center", ha="right" if left else "left",
            bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1.5, "alpha": 0.9}, zorder=6,
            arrowprops={
                "arrowstyle": "-", "color": colour, "linewidth": 0.8, "shrinkB": 5, "relpos": (1 if left else 0, 0.5)
            },
        )  # fmt: skip


def bandwidth_unit(rate: float) -> tuple[str, float]:
    """The unit in which a rate is short, and its bytes."""
    unit = format_bytes(rate).partition(" ")[2]
    return unit, float({"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}.get(unit, 1 << 30))


def short(text: str, longest: int = LONGEST_LABEL) -> str:
    """Text that fits beside a line, without its middle: names often differ at the end. The tables hold it in full."""
    if len(text) <= longest:
        return text
    tail = longest // 3
    return f"{text[: longest - 1 - tail]}…{text[-tail:]}"


def round_duration(seconds: float) -> str:
    """A round number of seconds, milliseconds or microseconds without trailing zeros, for axes."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= factor * 0.9995:
            return f"{seconds / factor:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"


def gid(source: str) -> str:
    """An id that carries a source to the SVG, where it becomes the element's <title>."""
    return SOURCE_PREFIX + source.encode().hex()
