"""Numbers that no machine can have produced, or that drifted: physics and arithmetic (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import geometric_mean

from kvbench.checks.sides import latencies
from kvbench.record.results import WAYS, PointResult, PointWarning, Way
from kvbench.units import format_bandwidth, format_bytes, format_duration_ns

# 16 jobs at depth 1 were busy 99.7 % of the time in clean runs (fio 3.33); 80 % leaves room for a loaded host.
_LITTLE_LOW = 0.80
# Latency times rate above jobs x depth is arithmetically impossible; 5 % covers rounding of short runs.
_LITTLE_HIGH = 1.05
_LITTLE_SHORTEST_S = 0.1
_NOISY_STEAL_PERCENT = 10.0
# A choice: an idle host is near 0 %, one whose CPUs are all taken near 100 %.
_SHORT_OF_CPU_PERCENT = 30.0
_WAITING_TASKS = 1.0
# Identical rounds on a noisy virtual machine strayed by up to 1.2 (fio 3.33); a full cache shows as 2 and more.
_DRIFT = 1.5
# Rounding of a short run; a provisioned rate is not exceeded by more.
_LINE_RATE = 1.01
# The quickest block device answers 4 KiB in about 5 us; one operation at a time does not exceed 100 GB/s anywhere.
_FASTEST_DEVICE_NS = 2_000
_FASTEST_OPERATION = 100e9


def line_rate(point: PointResult) -> PointWarning | None:
    """No direction can be faster than the link or the provisioned rate (both are full duplex: each by itself)."""
    limit, fastest = point.conditions.limit_bytes_per_s, _fastest(point)
    if not limit or fastest is None or not point.conditions.limit_asked or fastest[1] <= limit * _LINE_RATE:
        return None
    name, rate = fastest
    return PointWarning(
        "line-rate",
        f"{name}s at {format_bandwidth(rate)} are faster than {point.conditions.limit_source} allows "
        f"({format_bandwidth(limit)}): a cache answered, or the units are wrong",
        "drop the caches or use a larger data set; or correct --limit",
        {"direction": name, "bytes_per_s": round(rate), "limit_bytes_per_s": limit},
    )


def above_link(point: PointResult) -> PointWarning | None:
    """Without --limit the fastest link of this host is the yardstick; a server on the same host needs none."""
    limit, fastest = point.conditions.limit_bytes_per_s, _fastest(point)
    if not limit or fastest is None or point.conditions.limit_asked or fastest[1] <= limit * _LINE_RATE:
        return None
    name, rate = fastest
    return PointWarning(
        "above-link",
        f"{name}s at {format_bandwidth(rate)} are faster than {point.conditions.limit_source} "
        f"({format_bandwidth(limit)}), the fastest link found here: a cache on this host may have answered",
        "say with --limit what the link or the volume allows",
        {"direction": name, "bytes_per_s": round(rate), "limit_bytes_per_s": limit},
    )


def too_fast(point: PointResult) -> PointWarning | None:
    """A median that no device and no link reaches: fio's null engine, memory, or latency without submission.

    A tier that is memory may be as fast as memory.
    """
    if point.of_memory:
        return None
    for name, side in point.sides():
        median = side.latency_ns.p50 if side.latency_ns else None
        if not median or not point.io_bytes:
            continue
        rate = point.io_bytes / median * 1e9
        if median >= _FASTEST_DEVICE_NS and rate <= _FASTEST_OPERATION:
            continue
        return PointWarning(
            "too-fast",
            f"half of the {name}s took {format_duration_ns(median)} for {format_bytes(point.io_bytes)}: "
            "no storage device answers that fast",
            "see whether memory, fio's null engine or latency without submission (clat) was measured",
            {"direction": name, "p50_ns": median, "io_bytes": point.io_bytes},
        )
    return None


def littles_law(point: PointResult) -> PointWarning | None:
    """Little's law: operations in flight = rate x mean latency, and closed-loop jobs keep jobs x depth in flight."""
    # A synchronous engine stays at 1 whatever was asked for (axboe/fio#1388).
    depth = 1 if point.conditions.iodepth_reached is False else point.conditions.iodepth
    in_flight = _in_flight(point)
    # fio rounds its runtime to ms: below 0.1 s that alone moves the rate by a percent and more.
    if not depth or in_flight is None or (point.runtime_s or 0.0) < _LITTLE_SHORTEST_S:
        return None
    expected = point.numjobs * depth
    ratio = in_flight / expected
    if _LITTLE_LOW <= ratio <= _LITTLE_HIGH or (ratio < 1 and point.conditions.paced is not None):
        return None
    values: dict[str, str | int | float | bool | None] = {"in_flight": round(in_flight, 2), "expected": expected}
    if ratio > 1:
        return PointWarning(
            "littles-law",
            f"rate x mean latency needs {in_flight:.1f} operations in flight, {expected} were possible: "
            "the numbers contradict each other",
            "the file mixes runs or block sizes; measure again",
            values,
        )
    return PointWarning(
        "idle-jobs",
        f"only {in_flight:.1f} of {expected} possible operations were in flight on average",
        "the host was short of CPU, a job ended early, or fio waited; see load and steal",
        values,
    )


def drift(point: PointResult) -> PointWarning | None:
    """Burst credits, SLC caches and background work make a tier fast at first and slow later, or the reverse.

    The first third of the rounds against the last: single rounds of a few seconds stray by as much without a drift.
    """
    for name in WAYS:
        for first, last, where in _starts_and_ends(point, name):
            if 1 / _DRIFT <= last / first <= _DRIFT:
                continue
            return PointWarning(
                "drift",
                f"{name}s went from {format_bandwidth(first)} in the first {where[0]} to {format_bandwidth(last)} "
                f"in the {where[1]}",
                "measure longer, or find out what changed: burst credits, a write cache that filled up, other users",
                {"first_bytes_per_s": round(first), "last_bytes_per_s": round(last), "rounds": len(point.rounds)},
            )
    return None


def _starts_and_ends(point: PointResult, way: Way) -> Iterator[tuple[float, float, tuple[str, str]]]:
    """Rates at the start and at the end: of the rounds, then within each that is long enough."""
    rates = [rate for item in point.rounds if (rate := item.side(way).bytes_per_s) is not None and rate > 0]
    if len(rates) > 1:
        # Single rounds of a few seconds stray by as much without a drift.
        some = max(1, len(rates) // 3)
        first, last = geometric_mean(rates[:some]), geometric_mean(rates[-some:])
        where = ("round", f"last of {len(rates)}") if some == 1 else (f"{some} rounds", f"last {some} of {len(rates)}")
        yield first, last, where
    for number, item in enumerate(point.rounds, start=1):
        quarters = item.side(way).quarters_bytes_per_s
        if quarters is not None and min(quarters) > 0:
            yield *quarters, ("quarter", f"last of round {number}")


def paced(point: PointResult) -> PointWarning | None:
    """With a rate or think time fio keeps the tier idle: its bandwidth is what was asked for."""
    how = point.conditions.paced
    if how is None:
        return None
    return PointWarning(
        "paced",
        f"fio was told to go slower than it could ({how}): the rates are what was asked for, not what the tier can do",
        "measure without it",
        {"option": how},
    )


def cpu_steal(point: PointResult) -> PointWarning | None:
    """p99 of identical runs was 3-7 ms below 10 % steal and 28-34 ms above 24 % (15 runs on one virtual machine)."""
    steal = point.conditions.cpu_steal_percent
    if steal is None or steal < _NOISY_STEAL_PERCENT:
        return None
    return PointWarning(
        "cpu-steal",
        f"the hypervisor took {steal:.0f} % of the CPU time during this point; tails are inflated",
        "measure again on a quiet host",
        {"cpu_steal_percent": steal},
    )


def cpu_short(point: PointResult) -> PointWarning | None:
    """A task that waits for a CPU ends late: DRAM with p50 230 us and p99 300 ms on a busy host of 2 CPUs."""
    stalled, waiting = point.conditions.cpu_stalled_percent, point.conditions.cpu_waiting
    is_short = stalled >= _SHORT_OF_CPU_PERCENT if stalled is not None else (waiting or 0.0) >= _WAITING_TASKS
    if not is_short:
        return None
    share = None if stalled is None else f"in {stalled:.0f} % of the time some task waited for a CPU (pressure stall)"
    queue = None if waiting is None else f"{waiting:.1f} tasks waited on average (run-queue delay)"
    return PointWarning(
        "cpu-short",
        f"this host was short of CPU during this point: {', '.join(text for text in (share, queue) if text)}; "
        "tails are inflated",
        "measure again on a quiet host, or with fewer --numjobs than it has CPUs",
        {"cpu_stalled_percent": stalled, "cpu_waiting": waiting},
    )


def _fastest(point: PointResult) -> tuple[str, float] | None:
    rates = [(name, side.bytes_per_s) for name, side in point.sides()]
    return max(rates, key=lambda item: item[1], default=None)


def _in_flight(point: PointResult) -> float | None:
    # clat leaves out the time in submission, which is part of an operation's life.
    left_out = (point.conditions.submission_ns or 0.0) if point.latency_source == "clat" else 0.0
    # Jobs that only store are paced by those that read, and not all of them are busy.
    counted = point.sides() if point.conditions.storing_jobs is None else point.sides()[:1]
    parts = [
        side.iops * (latency.mean + left_out) / 1e9 for side, latency in latencies(point) if latency.mean is not None
    ][: len(counted)]
    beside = point.conditions.beside_in_flight or 0.0
    return sum(parts) + beside if parts and len(parts) == len(counted) else None
