"""Two measurements of the same kind of point beside each other: two runs, or fio and the replay (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kvbench.decide.runs import LoadedRun
from kvbench.record.comparison import Difference
from kvbench.record.fidelity import compare_drivers
from kvbench.report.columns import Column, Short, name, narrow, number, sheet, words
from kvbench.report.scene import Scene
from kvbench.report.sheet import Cell, Sheet
from kvbench.units import (
    format_bandwidth,
    format_bytes,
    format_count,
    format_duration_ns,
    format_mib_per_s,
    format_ms,
    format_requests,
)

FIDELITY_TITLE = "fio against the connector's own calls"
_INTERVAL = "rounds of both drivers in turns, Welch on logarithms"
_UNITS = {"bandwidth": "MiB/s", "requests": "requests"}
_SHORT = ("tier", "io_bytes", "mix", "jobs", "direction")


@dataclass(frozen=True, slots=True)
class Pair:
    """One direction and metric of both, and the word for what follows."""

    tier: str
    difference: Difference
    outcome: str


def _values(key: str, heading: str, which: str) -> Column[Pair]:
    def cell(pair: Pair) -> Cell:
        found, value = pair.difference, float(getattr(pair.difference, which))
        shown = format_bandwidth if found.metric == "bandwidth" else format_duration_ns
        return Cell(shown(value), value, "mean of the rounds")

    return Column(key, heading, cell, True)


def _in_one_unit(key: str, heading: str, which: str, *, falls: int) -> Column[Pair]:
    def text(pair: Pair) -> str:
        value = float(getattr(pair.difference, which))
        if pair.difference.metric == "requests":
            return format_requests(value)
        return format_mib_per_s(value) if pair.difference.metric == "bandwidth" else format_ms(value)

    return words(key, heading, text, right=True, falls=falls)


def _ratio(ratio: float) -> str:
    return f"{ratio:.3f}"


def _interval(pair: Pair) -> str:
    low, high = pair.difference.low, pair.difference.high
    return "" if low is None or high is None else f"{_ratio(low)} to {_ratio(high)}"


def _spreads(pair: Pair) -> str:
    spreads = (pair.difference.spread_a, pair.difference.spread_b)
    return ", ".join("-" if value is None else f"{value:.0%}" for value in spreads)


COLUMNS: tuple[Column[Pair], ...] = (
    name("tier", "tier", lambda pair: pair.tier),
    number("io_bytes", "I/O", lambda pair: pair.difference.io_bytes, format_bytes, "point"),
    name("mix", "mix", lambda pair: pair.difference.mix),
    number("jobs", "jobs", lambda pair: pair.difference.numjobs, format_count, "point"),
    name("direction", "direction", lambda pair: pair.difference.direction, short=Short("side")),
    name("metric", "what", lambda pair: pair.difference.metric),
    words("unit", "what", lambda pair: _UNITS.get(pair.difference.metric, f"{pair.difference.metric} ms")),
    _values("fio", "fio", "b"),
    _values("replay", "replay", "a"),
    _in_one_unit("a", "A", "a", falls=2),
    _in_one_unit("b", "B", "b", falls=3),
    number("ratio", "fio / replay", lambda pair: pair.difference.ratio, _ratio, _INTERVAL),
    words("ratio_of_runs", "B / A", lambda pair: _ratio(pair.difference.ratio), right=True),
    number("ratio_low", "95 % low", lambda pair: pair.difference.low, _ratio, _INTERVAL),
    number("ratio_high", "95 % high", lambda pair: pair.difference.high, _ratio, _INTERVAL),
    words("interval", "95 % interval", _interval, right=True, falls=1),
    words("spreads", "spread A, B", _spreads, right=True, falls=4),
    name("agreement", "fio is", lambda pair: pair.outcome),
    words("outcome", "B is", lambda pair: pair.outcome),
)


def fidelity(scene: Scene) -> Sheet:
    """Every direction and metric that fio and the replay both measured."""
    return sheet("fidelity", FIDELITY_TITLE, COLUMNS, _fidelity(scene.runs))


def short_fidelity(runs: Sequence[LoadedRun]) -> Sheet:
    """The same in short."""
    keys = ("metric", "fio", "replay", "ratio", "interval", "agreement")
    return narrow(FIDELITY_TITLE, COLUMNS, _fidelity(runs), *_SHORT, *keys)


def differences(found: Iterable[Difference]) -> Sheet:
    """Run B against run A: both values, B / A with its interval, each spread, and the word."""
    rows = [
        Pair(item.tier_a if item.tier_a == item.tier_b else f"{item.tier_a} : {item.tier_b}", item, item.outcome)
        for item in found
    ]
    keys = ("unit", "a", "b", "ratio_of_runs", "interval", "spreads", "outcome")
    return narrow("B against A", COLUMNS, rows, *_SHORT, *keys)


def _fidelity(runs: Sequence[LoadedRun]) -> Iterator[Pair]:
    for run in runs:
        for item in compare_drivers(run.result):
            yield Pair(run.label(item.difference.tier_a, runs), item.difference, item.agreement)
