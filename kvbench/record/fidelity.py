"""How far a fio job is from the connector that it stands for: both measured on one tier in turns (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kvbench.record.comparison import Difference, compare_points
from kvbench.record.results import PointResult, RunResult

Agreement = Literal["within 10 %", "differs", "cannot say"]

FIO, REPLAY = "fio", "replay"

# The study's conclusions survive 10 % in a latency or a rate; a verdict near its crossover does not survive more.
_TOLERANCE = 0.10


@dataclass(frozen=True, slots=True)
class Fidelity:
    """One number of fio against the same of the replay: ``difference.ratio`` is fio / replay, with its 95 % interval.

    The rounds of both are the sample; ``agreement`` asks whether the whole interval lies within 10 % of 1, or beyond.
    """

    difference: Difference
    agreement: Agreement


def compare_drivers(run: RunResult) -> list[Fidelity]:
    """Every direction of every kind of point that fio and the replay both measured on the same tier."""
    replayed = {_kind(point): point for point in run.points if point.driver == REPLAY and point.status == "ok"}
    return [
        Fidelity(item, _agreement(item.low, item.high))
        for point in run.points
        if point.driver == FIO and point.status == "ok" and _kind(point) in replayed
        for item in compare_points(replayed[_kind(point)], point, ("p50", "p99", "bandwidth"))
    ]


def fidelity_json(found: Sequence[Fidelity]) -> list[dict[str, Any]]:
    """The same as plain data: latencies in ns, bandwidths in bytes per second."""
    return [
        {
            "tier": item.difference.tier_a,
            "io_bytes": item.difference.io_bytes,
            "mix": item.difference.mix,
            "numjobs": item.difference.numjobs,
            "direction": item.difference.direction,
            "metric": item.difference.metric,
            "replay": item.difference.a,
            "fio": item.difference.b,
            "ratio": item.difference.ratio,
            "low": item.difference.low,
            "high": item.difference.high,
            "agreement": item.agreement,
        }
        for item in found
    ]


def _kind(point: PointResult) -> tuple[str, int, str, int]:
    return point.tier, point.io_bytes, point.mix, point.numjobs


def _agreement(low: float | None, high: float | None) -> Agreement:
    if low is None or high is None:
        return "cannot say"
    nearest, furthest = 1 - _TOLERANCE, 1 + _TOLERANCE
    if nearest <= low and high <= furthest:
        return "within 10 %"
    return "differs" if high < nearest or low > furthest else "cannot say"
