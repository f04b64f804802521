"""Every direction of every point: rate, bandwidth and latency, with the codes of its warnings (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kvbench.decide.runs import LoadedRun
from kvbench.record.batches import p99_interval_ns
from kvbench.record.requests import requests_each
from kvbench.record.results import Direction, LatencyNs, PointResult
from kvbench.record.stats import FEWEST_BATCHES, FIO_LAST_BIN_NS
from kvbench.report.cells import format_iops, point_name
from kvbench.report.columns import AS_IS, Column, Short, name, narrow, number, sheet, words
from kvbench.report.scene import Scene
from kvbench.report.sheet import Cell, Sheet
from kvbench.units import (
    format_bandwidth,
    format_bytes,
    format_count,
    format_duration_ns,
    format_duration_s,
    format_mib_per_s,
    format_ms,
    format_rate,
    format_requests,
)

_SHORT = (
    *("io_bytes", "mix", "jobs", "direction", "iops", "bytes_per_s", "p50_ns", "p99_ns", "p99_interval"),
    *("requests_each", "distrust"),
)


@dataclass(frozen=True, slots=True)
class SideRow:
    """One direction of a point, or its status where it measured none; ``tier`` names its driver beside others."""

    run: LoadedRun
    point: PointResult
    name: str
    measured: Direction | None
    tier: str
    runs: Sequence[LoadedRun]

    @property
    def latency(self) -> LatencyNs:
        """Its latency, empty where nothing timed it."""
        return (self.measured and self.measured.latency_ns) or LatencyNs()

    @property
    def p99_interval_ns(self) -> tuple[int | None, int | None]:
        """What the p99 lies within, by its batches of time."""
        return p99_interval_ns(self.point, self.measured)

    def rate(self, pick: Callable[[Direction], float]) -> float | None:
        """A number of the direction, None where there is none."""
        return None if self.measured is None else pick(self.measured)

    @property
    def requests_each(self) -> float | None:
        """Device requests for each operation, None where nothing counts them."""
        return next((requests_each(self.point, way) for way, _ in self.point.sides() if way == self.name), None)

    def source(self, what: str) -> str:
        """Where a number of it stands."""
        return f"{self.point.source}: {what}"

    def latency_source(self, how: str) -> str:
        """Where a latency comes from."""
        return self.source(f"{self.point.latency_source or 'unknown'} latency of {self.name}s, {how}")


def _at_least(shown: Callable[[float], str]) -> Callable[[float], str]:
    """What lies in fio's last bin is at least that slow."""
    return lambda ns: f"≥{shown(ns)}" if ns >= FIO_LAST_BIN_NS else shown(ns)


def _latency(
    key: str, heading: str, ns: Callable[[LatencyNs], float | None], how: str, short: Short = AS_IS
) -> Column[SideRow]:
    shown = _at_least(format_duration_ns)
    return number(key, heading, lambda at: ns(at.latency), shown, lambda at: at.latency_source(how), short=short)


def _bound(key: str, heading: str, which: int) -> Column[SideRow]:
    return number(
        key,
        heading,
        lambda at: at.p99_interval_ns[which],
        format_duration_ns,
        lambda at: at.latency_source("over batches of time"),
    )


def _interval(at: SideRow) -> str:
    low, high = at.p99_interval_ns
    if low is None and high is None:
        # Without batches of time nothing says how far the next minute's p99 would be from this one's.
        few = "one section" if len(at.point.rounds) < FEWEST_BATCHES else "too few batches"
        return "" if at.latency.p99 is None else few
    return f"{'?' if low is None else format_ms(low)} to {'?' if high is None else format_ms(high)}"


def _warnings(at: SideRow) -> str:
    """The codes of its warnings, what is not known of its cache, and why it did not finish.

    For reads that nothing proves that no cache answered this is said; it is no fault of a result, so no warning.
    """
    point = at.point
    found = [warning.code for warning in point.warnings]
    unproven = at.name == "read" and not point.of_memory and point.conditions.cache_state == "unknown"
    if unproven and "cache-state-unknown" not in found:
        found.append("(cache state unknown)")
    if point.status != "ok":
        found.append(point.reason or "" if at.measured is None else f"{point.status}: {point.reason or ''}")
    return ", ".join(filter(None, found))


COLUMNS: tuple[Column[SideRow], ...] = (
    name("point", "point", lambda at: point_name(at.run, at.point.id, at.runs), lambda at: at.point.source),
    Column("tier", "tier", lambda at: Cell(at.tier, at.run.label(at.point.tier, at.runs))),
    number("io_bytes", "I/O", lambda at: at.point.io_bytes, format_bytes, lambda at: at.source("bs")),
    name("mix", "mix", lambda at: at.point.mix),
    number("jobs", "jobs", lambda at: at.point.numjobs, format_count, lambda at: at.source("numjobs")),
    name("direction", "direction", lambda at: at.name, short=Short("side")),
    number(
        "ios",
        "operations",
        lambda at: at.rate(lambda side: side.ios),
        format_count,
        lambda at: at.source(f"{at.name} total_ios"),
    ),
    number(
        "iops",
        "IO/s",
        lambda at: at.rate(lambda side: side.iops),
        format_iops,
        lambda at: at.source(f"{at.name} iops"),
        short=Short(text=format_rate, falls=3),
    ),
    number(
        "bytes_per_s",
        "bandwidth",
        lambda at: at.rate(lambda side: side.bytes_per_s),
        format_bandwidth,
        lambda at: at.source(f"{at.name} bytes / runtime"),
        short=Short("MiB/s", format_mib_per_s),
    ),
    _latency("mean_ns", "mean", lambda latency: latency.mean, "mean"),
    _latency(
        "p50_ns", "p50", lambda latency: latency.p50, "nearest rank", Short("p50 ms", _at_least(format_ms), falls=2)
    ),
    _latency("p99_ns", "p99", lambda latency: latency.p99, "nearest rank", Short("p99 ms", _at_least(format_ms))),
    _bound("p99_low_ns", "p99 95 % low", 0),
    _bound("p99_high_ns", "p99 95 % high", 1),
    words("p99_interval", "95 % interval", _interval, right=True, falls=1),
    number("runtime_s", "ran", lambda at: at.point.runtime_s, format_duration_s, lambda at: at.source("runtime")),
    number(
        "requests_each",
        "device requests each",
        lambda at: at.requests_each,
        format_requests,
        "/proc/diskstats: requests / operations",
        short=Short("requests", falls=4),
    ),
    name("buffer_memory", "memory", lambda at: at.point.conditions.buffer_memory or "", "--buffers"),
    name("distrust", "distrust", _warnings, short=Short(unknown="")),
)


def measured(scene: Scene) -> Sheet:
    """Every direction of the report's runs; device requests where one was seen, and the memory where it is known."""
    rows = list(sides(scene.runs))
    unknown = _unknown(rows)
    return sheet("measured", "Measured points", (column for column in COLUMNS if column.key not in unknown), rows)


def short_measured(runs: Sequence[LoadedRun]) -> Sheet:
    """The same in short, so that rows compare at a glance; one tier is named by the title alone."""
    rows = list(sides(runs))
    tiers = list(dict.fromkeys(side.tier for side in rows))
    unknown = _unknown(rows)
    keys = [key for key in _SHORT if key not in unknown]
    if len(tiers) > 1:
        return narrow("Measured", COLUMNS, rows, "tier", *keys)
    return narrow(" on ".join(["Measured", *(side.point.tier for side in rows[:1])]), COLUMNS, rows, *keys)


def _unknown(sides: Sequence[SideRow]) -> set[str]:
    """The columns that would be empty because nothing recorded what they show."""
    known = {
        "requests_each": any(side.requests_each is not None for side in sides),
        "buffer_memory": any(side.point.conditions.buffer_memory for side in sides),
    }
    return {key for key, is_known in known.items() if not is_known}


def sides(runs: Sequence[LoadedRun]) -> Iterator[SideRow]:
    """Every direction of the runs' points, and those that measured none once."""
    for run in runs:
        several = len({point.driver for point in run.result.points}) > 1
        for point in run.result.points:
            tier = run.label(point.tier, runs) + (f", {point.driver}" if several else "")
            shown: Sequence[tuple[str, Direction | None]] = point.sides() or [(point.status, None)]
            for way, side in shown:
                yield SideRow(run, point, way, side, tier, runs)
