"""Batches of time: what a point did in stretches that are far enough apart to be told one by one (pure).

Operations of one moment resemble each other, because the device was in one state: a thousand of them say little more
than one. Stretches that begin ten seconds apart resemble each other less, so they are what an interval is made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from kvbench.record.histogram import Histogram, merge
from kvbench.record.results import WAYS, Direction, Observation, OverTime, PointResult, Round, Span, Way
from kvbench.record.stats import log_error

# Twice the slowest state that the intervals are checked with (benchmarks/coverage.py, tau of 5 s): what is left of it
# after 10 s is e^-2 = 14 %.
SEPARATE_S = 10.0
# Batches that follow each other at once still resemble each other a little: with tau of 5 s the error of the mean of
# six is 1.36 times what their differences show (integrals of the autocorrelation e^(-t / tau) over 10 s and over 60 s).
_AT_ONCE_S = SEPARATE_S / 2
_AT_ONCE_ERROR = 1.36
# A last batch with less of its time is an outlier of its own making.
_ENOUGH_OF_A_BATCH = 0.5


@dataclass(frozen=True, slots=True)
class Batch:
    """What a point did in one stretch of time: seconds measured, operations and latencies by direction.

    ``at_once``: it began where the batch before it ended.
    """

    seconds: float
    ios: Mapping[str, int]
    histograms: Mapping[str, Histogram]
    at_once: bool = False


def rate_batches(rounds: Sequence[Observation]) -> tuple[Batch, ...]:
    """The batches that rates are compared over: every driver logs each second."""
    return _grouped([piece for item, began in _placed(rounds) for piece in _pieces(item, began, latencies=False)])


def latency_batches(rounds: Sequence[Observation]) -> tuple[Batch, ...]:
    """The batches that latencies are compared over: seconds where the driver keeps their latencies, else rounds."""
    return _grouped([piece for item, began in _placed(rounds) for piece in _pieces(item, began, latencies=True)])


def rates_over_time(batches: Sequence[Batch]) -> dict[str, OverTime]:
    """How much the rate of each direction changes from batch to batch; none where they are too few."""
    present = [batch for batch in batches if batch.seconds > 0]
    found: dict[str, OverTime] = {}
    for way in WAYS:
        if not any(way in batch.ios for batch in present):
            continue
        # A batch in which nothing ended had less than one operation, and not none: its logarithm exists.
        error = log_error([max(batch.ios.get(way, 0), 0.5) / batch.seconds for batch in present])
        if error is not None:
            followed = 2 * sum(batch.at_once for batch in present) >= len(present)
            found[way] = OverTime(len(present), error * (_AT_ONCE_ERROR if followed else 1.0))
    return found


def known_over_time(point: PointResult, way: Way) -> OverTime | None:
    """How well the rate of a direction of a point is known; None for one section.

    Results of before it was recorded do not say when a round began: there the repeats of the run are the batches.
    """
    if way in point.over_time:
        return point.over_time[way]
    visits: dict[int, list[float]] = {}
    for item in point.rounds:
        rate = item.side(way).bytes_per_s
        if item.began_s is None and rate:
            visits.setdefault(item.repeat, []).append(rate)
    error = log_error([fmean(rates) for rates in visits.values()])
    return None if error is None else OverTime(len(visits), error)


def p99_interval_ns(point: PointResult, side: Direction | None) -> tuple[int | None, int | None]:
    """The 95 % interval of a direction's p99; none in results of before batches of time were told apart.

    Those have one of independent operations, which held the p99 of the next minute in 3 of 16 cases.
    """
    if side is None or side.latency_ns is None or not point.over_time:
        return None, None
    return side.latency_ns.p99_low, side.latency_ns.p99_high


def rounds_apart(rounds: Sequence[Round]) -> list[list[Round]]:
    """The rounds of a saved point by batch of time; without the time of its beginning a round followed the last one."""
    groups: list[list[Round]] = []
    first_s = end_s = 0.0
    for item in rounds:
        began_s = end_s if item.began_s is None else item.began_s
        end_s = began_s + item.runtime_s
        if groups and item.repeat == groups[-1][-1].repeat and 0 <= began_s - first_s < SEPARATE_S:
            groups[-1].append(item)
        else:
            first_s = began_s
            groups.append([item])
    return groups


def histograms_over_time(batches: Sequence[Batch], way: str) -> list[Histogram]:
    """The latencies of one direction, batch by batch."""
    return [batch.histograms[way] for batch in batches if way in batch.histograms]


def spans_of(series: Sequence[Mapping[str, Any]]) -> tuple[Span, ...]:
    """The seconds of a driver's one-second series; own drivers put the latencies of each second into it."""
    found = []
    for place, entry in enumerate(series):
        sides = {way: entry[way] for way in WAYS if isinstance(entry.get(way), dict)}
        found.append(
            Span(
                float(place),
                1.0,
                {way: round(side.get("iops", 0)) for way, side in sides.items()},
                {
                    way: Histogram.from_counts({int(ns): count for ns, count in side["bins"].items()})
                    for way, side in sides.items()
                    if side.get("bins")
                },
            )
        )
    return tuple(found)


def _placed(rounds: Sequence[Observation]) -> Iterator[tuple[Observation, float]]:
    """Each round with the time at which it began; one that was recorded without follows the one before it."""
    end = 0.0
    for item in rounds:
        known = item.point.rounds[0].began_s if item.point.rounds else None
        began = end if known is None else known
        end = began + (item.point.runtime_s or 0.0)
        yield item, began


def _pieces(item: Observation, began_s: float, *, latencies: bool) -> list[Span]:
    """The parts of a round that may fall into different batches, placed in time."""
    point = item.point
    fine = [Span(began_s + span.began_s, span.seconds, span.ios, span.histograms) for span in item.spans]
    if (point.runtime_s or 0.0) > SEPARATE_S and fine and not (latencies and not any(s.histograms for s in fine)):
        return fine
    ios: dict[str, int] = {way: side.ios for way, side in point.sides()}
    return [Span(began_s, point.runtime_s or 0.0, ios, item.histograms)]


def _grouped(pieces: Sequence[Span]) -> tuple[Batch, ...]:
    """Pieces that begin within SEPARATE_S of the first one of their batch belong to it."""
    groups: list[list[Span]] = []
    for piece in pieces:
        if groups and 0 <= piece.began_s - groups[-1][0].began_s < SEPARATE_S:
            groups[-1].append(piece)
        else:
            groups.append([piece])
    if len(groups) > 1 and _seconds(groups[-1]) < _ENOUGH_OF_A_BATCH * median(map(_seconds, groups)):
        tail = groups.pop()
        groups[-1] += tail
    ends_s = [max(piece.began_s + piece.seconds for piece in group) for group in groups]
    at_once = [abs(now[0].began_s - end_s) < _AT_ONCE_S for now, end_s in zip(groups[1:], ends_s, strict=False)]
    return tuple(_batch(group, near) for group, near in zip(groups, [False, *at_once], strict=False))


def _seconds(group: Sequence[Span]) -> float:
    return sum(piece.seconds for piece in group)


def _batch(group: Sequence[Span], at_once: bool) -> Batch:
    ways = {way for piece in group for way in piece.ios}
    kinds = {kind for piece in group for kind in piece.histograms}
    return Batch(
        _seconds(group),
        {way: sum(piece.ios.get(way, 0) for piece in group) for way in sorted(ways)},
        {kind: merge([p.histograms[kind] for p in group if kind in p.histograms]) for kind in sorted(kinds)},
        at_once,
    )
