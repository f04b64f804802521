"""What happened to the tiers during the runs, and what it did to rates and latencies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import Any

from kvbench.decide.runs import LoadedRun
from kvbench.record import results
from kvbench.record.events import WINDOW_S, running, standstills
from kvbench.record.histogram import Histogram, merge
from kvbench.record.results import WAYS, Event, PointResult, Way
from kvbench.units import format_mib_per_s, format_ms

Entries = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some seconds of one direction: mean rate, mean latency and p99 of operations, and the slowest second's mean.

    p99 is None where the driver gives no latency bins for each second; fio does not.
    """

    bytes_per_s: float
    mean_latency_ns: float | None
    slowest_ns: int | None
    p99_ns: int | None


@dataclass(frozen=True, slots=True)
class Change:
    """One direction before and after an event; None where there is no such second."""

    way: str
    before: Stretch | None
    after: Stretch | None
    round_p99_ns: int | None
    quiet_p99_ns: int | None


NO_CHANGE = Change("", None, None, None, None)


@dataclass(frozen=True, slots=True)
class Happening:
    """One event, numbered over the whole report, and what each direction did."""

    number: int
    run: LoadedRun
    point: PointResult
    event: Event
    changes: tuple[Change, ...]

    def of(self, run: LoadedRun, point: PointResult) -> bool:
        """Whether it happened to this point of this run."""
        return self.run is run and self.point.id == point.id


def happenings(runs: Sequence[LoadedRun]) -> tuple[Happening, ...]:
    """Every event of the runs in the order of runs, points and seconds."""
    found: list[Happening] = []
    for run in runs:
        for point in run.result.points:
            if not point.events:
                continue
            entries = results.load_series(run.path, point)
            for event in point.events:
                found.append(Happening(len(found) + 1, run, point, event, _changes(point, event, entries)))
    return tuple(found)


def effect(change: Change) -> str:
    """``reads 210 -> 95 MiB/s, latency 12.0 -> 48.0 ms``; empty where nothing can be compared."""
    before, after = change.before, change.after
    if before is None or after is None:
        return ""
    rates = f"{format_mib_per_s(before.bytes_per_s)} -> {format_mib_per_s(after.bytes_per_s)} MiB/s"
    means = [before.mean_latency_ns, after.mean_latency_ns]
    shown = " -> ".join("-" if mean is None else format_ms(mean) for mean in means)
    p99s = [before.p99_ns, after.p99_ns]
    tails = "" if None in p99s else f", p99 {' -> '.join(format_ms(p99) for p99 in p99s if p99 is not None)} ms"
    return f"{change.way}s {rates}, mean latency {shown} ms{tails}"


def _changes(point: PointResult, event: Event, entries: Entries) -> tuple[Change, ...]:
    number = next((entry.get("round", 1) for entry in entries if entry["second"] == event.second), None)
    of_round = [entry for entry in entries if entry.get("round", 1) == number]
    found = []
    for way in WAYS:
        if any(way in entry for entry in of_round):
            before, after = (_stretch(window, way) for window in _windows(event, of_round, way))
            found.append(Change(way, before, after, *_round_p99s(point, entries, number, way)))
    return tuple(found)


def _windows(event: Event, of_round: Entries, way: str) -> tuple[Entries, Entries]:
    """The seconds before and after an event of a round in which the direction ran."""
    lasted = sum(pause.seconds for pause in standstills(of_round) if pause.event == event)
    first = event.second + lasted
    ran = running(of_round, way)
    before = [entry for entry in ran if event.second - WINDOW_S <= entry["second"] < event.second]
    return before, [entry for entry in ran if first <= entry["second"] < first + WINDOW_S]


def _stretch(entries: Entries, way: str) -> Stretch | None:
    sides = [entry.get(way, {}) for entry in entries]
    if not sides:
        return None
    timed = [
        (side["iops"], side["mean_latency_ns"]) for side in sides if side.get("iops") and "mean_latency_ns" in side
    ]
    operations = sum(iops for iops, _ in timed)
    return Stretch(
        bytes_per_s=sum(side.get("bytes_per_s", 0) for side in sides) / len(sides),
        mean_latency_ns=sum(iops * mean for iops, mean in timed) / operations if operations else None,
        slowest_ns=max((round(mean) for _, mean in timed), default=None),
        p99_ns=_p99(sides),
    )


def _p99(sides: Sequence[Mapping[str, Any]]) -> int | None:
    """The p99 of all operations of these seconds, exact to a bin; None unless every second with operations has bins."""
    parts = [side.get("bins") for side in sides if side.get("iops")]
    if not parts or not all(parts):
        return None
    return merge(
        Histogram.from_counts({int(ns): count for ns, count in part.items()}) for part in parts if part
    ).percentile(99)


def _round_p99s(point: PointResult, entries: Entries, number: int | None, way: Way) -> tuple[int | None, int | None]:
    """p99 of the event's round, and the median of those of the rounds without any event."""
    disturbed = {key for key, group in groupby(entries, lambda entry: entry.get("round", 1)) if _any_event(group)}
    p99s = {
        place: p99 for place, item in enumerate(point.rounds, start=1) if (p99 := item.side(way).p99_ns) is not None
    }
    quiet = [p99 for place, p99 in p99s.items() if place not in disturbed]
    return (p99s.get(number) if number is not None else None), round(median(quiet)) if quiet else None


def _any_event(entries: Iterator[Mapping[str, Any]]) -> bool:
    return any(entry.get("events") for entry in entries)
