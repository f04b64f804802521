"""What was measured on both the engine's kind of memory and on huge pages (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kvbench.decide.runs import LoadedRun
from kvbench.record.comparison import Difference
from kvbench.report.columns import Column, name, number, sheet
from kvbench.report.memory import TITLE, pairs
from kvbench.report.scene import Scene
from kvbench.report.sheet import Sheet
from kvbench.units import format_bandwidth, format_bytes, format_count, format_requests


@dataclass(frozen=True, slots=True)
class Both:
    """One direction on both kinds of memory, with the device's requests where they are known."""

    tier: str
    rate: Difference
    requests: Difference | None


def _rate(key: str, heading: str, pick: Callable[[Difference], float], buffers: str) -> Column[Both]:
    source = f"mean of the rounds, --buffers {buffers}"
    return number(key, heading, lambda row: pick(row.rate), format_bandwidth, source)


def _ratio(key: str, heading: str, pick: Callable[[Difference], float | None]) -> Column[Both]:
    source = "rounds of both runs, Welch on logarithms"
    return number(key, heading, lambda row: pick(row.rate), format_requests, source)


def _requests(key: str, heading: str, pick: Callable[[Difference], float]) -> Column[Both]:
    def value(row: Both) -> float | None:
        return None if row.requests is None else pick(row.requests)

    return number(key, heading, value, format_requests, "device requests / operations")


COLUMNS: tuple[Column[Both], ...] = (
    name("tier", "tier", lambda row: row.tier),
    number("io_bytes", "I/O", lambda row: row.rate.io_bytes, format_bytes, "point"),
    name("mix", "mix", lambda row: row.rate.mix),
    number("jobs", "jobs", lambda row: row.rate.numjobs, format_count, "point"),
    name("direction", "direction", lambda row: row.rate.direction),
    _rate("engine_bytes_per_s", "4 KiB pages", lambda rate: rate.a, "engine"),
    _rate("huge_bytes_per_s", "huge pages", lambda rate: rate.b, "huge"),
    _ratio("ratio", "huge / 4 KiB", lambda rate: rate.ratio),
    _ratio("ratio_low", "95 % low", lambda rate: rate.low),
    _ratio("ratio_high", "95 % high", lambda rate: rate.high),
    _requests("engine_requests", "requests each, 4 KiB", lambda requests: requests.a),
    _requests("huge_requests", "requests each, huge", lambda requests: requests.b),
)


def memory(scene: Scene) -> Sheet:
    """Every direction of every point that was measured on both kinds of memory."""
    return sheet("memory", TITLE, COLUMNS, _rows(scene.runs))


def _rows(runs: Sequence[LoadedRun]) -> Iterator[Both]:
    for pair in pairs(runs):
        for rate, requests in pair.found():
            yield Both(pair.tier, rate, requests)
