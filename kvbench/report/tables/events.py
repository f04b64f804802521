"""What happened during the runs, and what each direction did before and after (pure)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvbench.decide.runs import LoadedRun
from kvbench.record.events import WINDOW_S
from kvbench.report.cells import point_name
from kvbench.report.columns import Column, Short, name, narrow, number, sheet, words
from kvbench.report.events import NO_CHANGE, Change, Happening, Stretch, effect, happenings
from kvbench.report.scene import Scene
from kvbench.report.sheet import Sheet
from kvbench.units import format_bandwidth, format_count, format_duration_ns

TITLE = "What happened during the runs"
_NOTE = (
    f"Before: the {WINDOW_S} s before the event. After: the {WINDOW_S} s from the event on (of a standstill: from its "
    "end on). Both end with the round, and leave out seconds of standstill, which are events of their own. Slowest "
    "second: the largest mean latency of a second. p99 before and after: where the driver has latencies by second; fio "
    "has them by round. Quiet rounds: those without an event, the median of their p99."
)


@dataclass(frozen=True, slots=True)
class Effect:
    """An event and what one direction did; ``file`` holds the seconds."""

    happened: Happening
    change: Change
    point: str

    @property
    def file(self) -> str:
        """The series, or the fio output where there is none."""
        return self.happened.point.series or self.happened.point.source

    def of(self, when: str, pick: Callable[[Stretch], float | None]) -> float | None:
        """A number of the seconds ``before`` or ``after``, None where there are none."""
        stretch = self.change.before if when == "before" else self.change.after
        return None if stretch is None else pick(stretch)


def _both(
    key: str, heading: str, pick: Callable[[Stretch], float | None], shown: Callable[[float], str], how: str
) -> tuple[Column[Effect], Column[Effect]]:
    """The columns of a number before and after."""

    def column(when: str) -> Column[Effect]:
        named = key.format(when), f"{heading} {when}"
        return number(*named, lambda row: row.of(when, pick), shown, lambda row: f"{row.file}: {how}")

    return column("before"), column("after")


def _in_words(row: Effect) -> str:
    return "; ".join(filter(None, map(effect, row.happened.changes)))


COLUMNS: tuple[Column[Effect], ...] = (
    number("number", "no.", lambda row: row.happened.number, format_count, lambda row: row.file),
    name("point", "point", lambda row: row.point, lambda row: row.happened.point.source),
    number("second", "second", lambda row: row.happened.event.second, format_count, lambda row: row.file),
    name("event", "what happened", lambda row: row.happened.event.text, lambda row: row.file, short=Short(unknown="")),
    words("effect", "before -> after", _in_words, unknown=""),
    name("direction", "direction", lambda row: row.change.way),
    *_both("{}_bytes_per_s", "rate", lambda part: part.bytes_per_s, format_bandwidth, "mean of the seconds"),
    *_both("{}_mean_ns", "mean", lambda part: part.mean_latency_ns, format_duration_ns, "mean of operations"),
    *_both("{}_slowest_ns", "slowest second", lambda part: part.slowest_ns, format_duration_ns, "slowest second"),
    *_both("{}_p99_ns", "p99", lambda part: part.p99_ns, format_duration_ns, "bins of the seconds"),
    number(
        "round_p99_ns",
        "p99 of its round",
        lambda row: row.change.round_p99_ns,
        format_duration_ns,
        "histogram of the round",
    ),
    number(
        "quiet_p99_ns",
        "p99 of quiet rounds",
        lambda row: row.change.quiet_p99_ns,
        format_duration_ns,
        "median over the point's rounds without an event",
    ),
)


def events(scene: Scene) -> Sheet:
    """One row for each event and direction that ran."""
    rows = (
        Effect(item, change, point_name(item.run, item.point.id, scene.runs))
        for item in scene.events
        for change in item.changes or (NO_CHANGE,)
    )
    return sheet("events", TITLE, COLUMNS, rows, _NOTE)


def short_events(runs: Sequence[LoadedRun]) -> Sheet:
    """One row for each event, with what every direction did in words."""
    rows = (Effect(item, NO_CHANGE, point_name(item.run, item.point.id, runs)) for item in happenings(runs))
    return narrow(TITLE, COLUMNS, rows, "number", "point", "second", "event", "effect")
