"""What happened to a tier while a point was measured, on its one-second series: changes of state, and standstills.

Seconds count from 1 within a round; ``runner`` counts them on when it joins the rounds of a point.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from kvbench.record.results import WAYS, Event, write_atomically

Series = Sequence[Mapping[str, Any]]

# Seconds before and after an event that are compared: beyond them other things move a rate.
WINDOW_S = 10
_LONGEST_STANDSTILL_S = 60
# A second counts as one of standstill below this share of the usual rate.
_STANDSTILL = 0.05
# So many operations must be missing: a slow tier has seconds without any by chance.
_MISSING_OPERATIONS = 20
_LEAST_SECONDS = 3


@dataclass(frozen=True, slots=True)
class Standstill:
    """Seconds ``first`` to ``first + seconds - 1`` in which a direction that usually runs did not."""

    first: int
    seconds: int
    text: str

    @property
    def event(self) -> Event:
        """The standstill as an event of its first second."""
        return Event(self.first, self.text)


def mark(path: Path, changes: Sequence[Event]) -> None:
    """Write the events of a round into its series file; ``changes`` are those that somebody saw from outside.

    A file that is not there, because the driver got no series, is made when there is something to keep.
    """
    entries = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    if not entries and not changes:
        return
    whole = complete(entries)
    found = [*changes, *(pause.event for pause in standstills(whole))]
    write_atomically(path, json.dumps(_slim(with_events(whole, found))) + "\n")


def complete(entries: Series) -> list[dict[str, Any]]:
    """The series with every second from 1 on; those in which nothing ended show zeros.

    fio writes no line for a second without an operation (3.33, stat.c: "No entries for interval").
    """
    by_second = {int(entry["second"]): dict(entry) for entry in entries}
    ways = [way for way in WAYS if any(way in entry for entry in entries)]
    zeros = {"bytes_per_s": 0, "iops": 0}
    return [
        {"second": second, **{way: dict(zeros) for way in ways}, "host": {}, **by_second.get(second, {})}
        for second in range(1, max(by_second, default=0) + 1)
    ]


def standstills(entries: Series) -> list[Standstill]:
    """Stretches in which reads, writes or both moved less than 5 % of their median second, and 20 operations less.

    Stretches of both directions that overlap are one.
    """
    found: list[list[_Pause]] = []
    for pause in sorted((pause for way in WAYS for pause in _pauses(entries, way)), key=lambda one: one.first):
        if found and pause.first <= max(one.last for one in found[-1]):
            found[-1].append(pause)
        else:
            found.append([pause])
    return [
        Standstill(group[0].first, max(one.last for one in group) - group[0].first + 1, _words(group))
        for group in found
    ]


def running(entries: Series, way: str) -> list[Mapping[str, Any]]:
    """The series without the seconds in which that direction stood still."""
    still = {second for pause in _pauses(entries, way) for second in range(pause.first, pause.last + 1)}
    return [entry for entry in entries if entry["second"] not in still]


@dataclass(frozen=True, slots=True)
class _Pause:
    """A standstill of one direction, from its first to its last second; ``what`` says how complete it was."""

    first: int
    last: int
    what: str


def _words(group: Sequence[_Pause]) -> str:
    lengths = [pause.last - pause.first + 1 for pause in group]
    if len(set(lengths)) == 1:
        return f"{' and '.join(pause.what for pause in group)} for {lengths[0]} s"
    return " and ".join(f"{pause.what} for {length} s" for pause, length in zip(group, lengths, strict=True))


def _pauses(entries: Series, way: str) -> Iterator[_Pause]:
    rates = [(int(entry["second"]), float(entry.get(way, {}).get("iops", 0))) for entry in entries]
    moving = [rate for _, rate in rates if rate > 0]
    if len(moving) < _LEAST_SECONDS:
        return
    usual = median(moving)
    for still, group in groupby(rates, key=lambda item: item[1] < usual * _STANDSTILL):
        stretch = list(group)
        moved = sum(rate for _, rate in stretch)
        if still and usual * len(stretch) - moved >= _MISSING_OPERATIONS:
            yield _Pause(stretch[0][0], stretch[-1][0], f"{'hardly any' if moved else 'no'} {way}s")


def with_events(entries: Series, found: Sequence[Event]) -> list[dict[str, Any]]:
    """The series with these events and no others; one after the last second is put on it."""
    latest = max((event.second for event in found), default=0)
    entries = entries or [{"second": second} for second in range(1, latest + 1)]
    last = int(entries[-1]["second"]) if entries else 0
    texts: dict[int, list[str]] = {}
    for event in found:
        texts.setdefault(min(max(event.second, 1), last), []).append(event.text)
    plain = [{key: value for key, value in entry.items() if key != "events"} for entry in entries]
    return [{**entry, "events": texts[entry["second"]]} if entry["second"] in texts else entry for entry in plain]


def _slim(entries: Series) -> list[dict[str, Any]]:
    """The series without the latency bins of seconds that no event is compared with; they are most of its size."""
    near = {
        second
        for entry in entries
        if entry.get("events")
        for second in range(int(entry["second"]) - WINDOW_S, int(entry["second"]) + _LONGEST_STANDSTILL_S + WINDOW_S)
    }
    return [
        dict(entry) if entry["second"] in near else {key: _without_bins(value) for key, value in entry.items()}
        for entry in entries
    ]


def _without_bins(value: Any) -> Any:
    return {key: item for key, item in value.items() if key != "bins"} if isinstance(value, dict) else value


def events_of(entries: Series) -> tuple[Event, ...]:
    """The events of a series in the order of its seconds."""
    return tuple(Event(int(entry["second"]), str(text)) for entry in entries for text in entry.get("events", ()))
