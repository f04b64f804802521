"""Reasons to distrust a number: every warning, what to do, and every point that did not finish (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvbench.decide.runs import LoadedRun
from kvbench.report.cells import plain, point_name
from kvbench.report.columns import Column, Short, name, narrow, sheet, words
from kvbench.report.scene import Scene
from kvbench.report.sheet import Sheet

TITLE = "Reasons to distrust a number"
_UNFINISHED = "see the point's folder, measure it again"
_EMPTY = Short(unknown="")


@dataclass(frozen=True, slots=True)
class Seen:
    """One reason and its point; ``ok`` unless it is that the point did not finish."""

    point: str
    code: str
    message: str
    hint: str
    values: str = ""
    ok: bool = True


COLUMNS: tuple[Column[Seen], ...] = (
    name("point", "point", lambda seen: seen.point),
    name("code", "code", lambda seen: seen.code),
    name("message", "what was seen", lambda seen: seen.message, short=_EMPTY),
    name("hint", "what to do", lambda seen: seen.hint, short=_EMPTY),
    name("values", "numbers", lambda seen: seen.values),
)


def distrust(scene: Scene) -> Sheet:
    """Every reason of the report's runs."""
    return sheet("distrust", TITLE, COLUMNS, _seen(scene.runs))


def short_distrust(runs: Sequence[LoadedRun]) -> Sheet:
    """The same in short."""
    return narrow(TITLE, COLUMNS, _seen(runs), "point", "code", "message", "hint")


def distrust_by_kind(runs: Sequence[LoadedRun]) -> Sheet:
    """One row for each kind: how many points carry it, and the first one's words; then what did not finish."""
    seen = list(_seen(runs))
    counts = Counter(item.code for item in seen if item.ok)
    total = sum(len(run.result.points) for run in runs)
    first = {item.code: item for item in reversed(seen) if item.ok}
    columns: tuple[Column[Seen], ...] = (
        *COLUMNS,
        words("points", "points", lambda item: f"{counts[item.code]} of {total}" if item.ok else item.point),
        words("first", "what was seen, first", lambda item: item.message, unknown=""),
    )
    rows = [*(first[code] for code in counts), *(item for item in seen if not item.ok)]
    return narrow(TITLE, columns, rows, "code", "points", "first", "hint")


def _seen(runs: Sequence[LoadedRun]) -> Iterator[Seen]:
    for run in runs:
        for point in run.result.points:
            named = point_name(run, point.id, runs)
            if point.status != "ok":
                yield Seen(named, point.status, point.reason or "", _UNFINISHED, ok=False)
            for warning in point.warnings:
                values = ", ".join(f"{key} = {plain(value)}" for key, value in warning.values.items())
                yield Seen(named, warning.code, warning.message, warning.hint, values)
