"""Figures as files for slides, PNG and SVG: the same drawings, in the light colours of the page."""

from __future__ import annotations

import io
import re
import textwrap
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.colors import to_hex, to_rgba_array
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text

from kvbench.report.data import Report
from kvbench.report.drawing import INK, PAPER, css_variables, svg
from kvbench.report.figures import draw
from kvbench.report.ours import PNG_MARK, require_ours

_CSS = Path(__file__).resolve().parent / "templates" / "report.css"
_DPI = 160
_TITLE_WIDTH = 72
# Every colour that an artist may carry.
_PROPERTIES = ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor")


def write_pngs(report: Report, folder: Path) -> tuple[Path, ...]:
    """Write every figure of the report as FOLDER/<key>.png, its title in it; the paths.

    UsageError when a file of that name is there and kvbench did not make it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for figure in report.figures:
        path = folder / f"{figure.key}.png"
        require_ours(path, PNG_MARK)
        path.write_bytes(png(draw(figure, report.tiers), figure.title))
        written.append(path)
    return tuple(written)


def png(drawing: Figure, title: str) -> bytes:
    """The drawing with its title above it, in the light theme."""
    colours = _light_colours()
    for artist in drawing.findobj():
        for part in (artist, *_beside(artist)):
            _coloured(part, colours)
    heading = "\n".join(textwrap.wrap(title, _TITLE_WIDTH))
    drawing.text(0.01, 1.0, heading, va="bottom", weight="bold", color=colours[INK])
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "text.parse_math": False}):
        drawing.savefig(
            buffer,
            format="png",
            metadata={"Software": "kvbench"},
            dpi=_DPI,
            facecolor=colours[PAPER],
            bbox_inches="tight",
        )
    return buffer.getvalue()


def standalone_svg(drawing: Figure, key: str, title: str) -> str:
    """The drawing as an SVG file that needs no page around it, in the light theme."""
    text = svg(drawing, key, title, _light_colours()).replace("var(--font)", "sans-serif")
    return text.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" style="background: #ffffff" ', 1) + "\n"


def _light_colours() -> dict[str, str]:
    """The page's own colours by placeholder."""
    css = _CSS.read_text(encoding="utf-8").partition("@media")[0]
    named: dict[str, str] = dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]{6})", css))
    found = {}
    for placeholder, variable in css_variables().items():
        name = variable.removeprefix("var(--").removesuffix(")")
        found[placeholder] = named.get(name, named["ink"])
    return found


def _beside(artist: Artist) -> list[Artist]:
    """What belongs to a text and is not found with it: the box behind it and its arrow."""
    box = artist.get_bbox_patch() if isinstance(artist, Text) else None
    arrow = artist.arrow_patch if isinstance(artist, Annotation) else None
    return [part for part in (box, arrow) if part is not None]


def _coloured(artist: Artist, colours: dict[str, str]) -> None:
    for name in _PROPERTIES:
        getter, setter = getattr(artist, f"get_{name}", None), getattr(artist, f"set_{name}", None)
        if getter is None or setter is None:
            continue
        try:
            now: Any = to_rgba_array(getter())
        except (TypeError, ValueError):
            continue
        replaced = [colours.get(to_hex(colour)) for colour in now]
        if not len(now) or all(colour is None for colour in replaced):
            continue
        shown = [
            (*to_rgba_array(new)[0][:3], old[3]) if new is not None else tuple(old)
            for new, old in zip(replaced, now, strict=True)
        ]
        setter(shown[0] if len(shown) == 1 else shown)
