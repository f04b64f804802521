"""Did fio do what it was asked, and record enough of it (pure)."""

from __future__ import annotations

import math

from kvbench.checks.sides import latencies
from kvbench.record.results import LatencyNs, PointResult, PointWarning
from kvbench.record.stats import FIO_LAST_BIN_NS, samples_needed
from kvbench.units import format_count, format_duration_ns

_RUNTIME_SHORT = 0.95
_RUNTIME_LONG = 1.20
_MIX_TOLERANCE_POINTS = 2.0
# Stores beside the readers follow the rate that the round before had.
_PACED_TOLERANCE_POINTS = 5.0
_SYNCHRONOUS = frozenset({"psync", "sync", "pvsync", "pvsync2", "vsync", "http"})


def short_runtime(point: PointResult) -> PointWarning | None:
    """fio ends early on a signal or a full disk and still writes complete JSON (fio 3.33, exit 128)."""
    asked, got = point.conditions.requested_runtime_s, point.runtime_s
    if not asked or got is None or got >= asked * _RUNTIME_SHORT:
        return None
    return PointWarning(
        "short-runtime",
        f"ran {got:.{1 if got >= 1 else 3}f} s of the {asked:.0f} s asked for",
        "look for an error or a signal in fio's output and measure again",
        {"runtime_s": got, "requested_runtime_s": asked},
    )


def long_runtime(point: PointResult) -> PointWarning | None:
    """A stalled tier makes the last operation outlast the run (a CephFS OSD paused for 10 s, fio rc 0)."""
    found = _overrun(point)
    if found is None or clock_went_on(point) is not None:
        return None
    asked, got = found
    return PointWarning(
        "stalled",
        f"ran {got:.1f} s although {asked:.0f} s were asked for: an operation hung",
        "look at the tier's health and at the largest latency, then measure again",
        {"runtime_s": got, "requested_runtime_s": asked, "max_ns": _largest_latency(point)},
    )


def clock_went_on(point: PointResult) -> PointWarning | None:
    """No operation hung, so the time is not the work's: a status report may count on for a group that finished."""
    found, longest = _overrun(point), _largest_latency(point)
    if found is None or longest is None or longest >= (found[1] - found[0]) * 1e9 / 2:
        return None
    asked, got = found
    return PointWarning(
        "clock-went-on",
        f"ran {got:.1f} s although {asked:.0f} s were asked for, and no operation took longer than "
        f"{format_duration_ns(longest)}: the clock went on after the work was done, so the rates are too low",
        "take the last document of a run that ended by itself, with one group for each job",
        {"runtime_s": got, "requested_runtime_s": asked, "max_ns": longest},
    )


def _overrun(point: PointResult) -> tuple[float, float] | None:
    """The time asked for and the time taken, where that is much longer."""
    asked, got = point.conditions.requested_runtime_s, point.runtime_s
    return None if not asked or got is None or got <= asked * _RUNTIME_LONG + 1 else (asked, got)


def saturated(point: PointResult) -> PointWarning | None:
    """fio's histogram ends at 17.18 s: slower operations are all in its last bin (fio 3.33 stat.c)."""
    names = [name for name, side in point.sides() if side.latency_ns and _reaches_end(side.latency_ns)]
    if not names:
        return None
    return PointWarning(
        "saturated",
        f"the {' and '.join(names)} tail lies beyond the end of fio's histogram and is at least 17.1 s",
        "the tier hangs for that long; look at its health",
        {"histogram_end_ns": FIO_LAST_BIN_NS},
    )


def failed_operations(point: PointResult) -> PointWarning | None:
    """fio counts failed operations in total_ios but not in the latency samples."""
    failed = point.conditions.failed_ios
    if not failed:
        return None
    return PointWarning(
        "failed-operations",
        f"{format_count(failed)} operations have no latency sample: they failed or were cut short",
        "look into fio's output",
        {"failed_ios": failed},
    )


def wrong_mix(point: PointResult) -> PointWarning | None:
    """The share of reads that was asked for (rwmixread) against what was done."""
    asked = point.conditions.rwmixread
    if point.mix != "mixed" or asked is None:
        return None
    reads = point.read.ios if point.read else 0
    total = reads + (point.write.ios if point.write else 0)
    if total == 0:
        return None
    got = 100 * reads / total
    # fio draws the direction of each operation, so a small sample strays by chance: allow three standard errors more.
    chance = 300 * math.sqrt(asked / 100 * (1 - asked / 100) / total)
    tolerated = _MIX_TOLERANCE_POINTS if point.conditions.storing_jobs is None else _PACED_TOLERANCE_POINTS
    if abs(got - asked) <= tolerated + chance:
        return None
    return PointWarning(
        "wrong-mix",
        f"{got:.0f} % of the operations were reads, {asked} % were asked for",
        "compare with points of the same mix only",
        {"read_percent": round(got, 1), "rwmixread": asked},
    )


def shallow_queue(point: PointResult) -> PointWarning | None:
    """Synchronous engines cap the depth at 1 with a note only; fio's iodepth_level tells the truth."""
    if point.conditions.iodepth_reached is not False:
        return None
    return PointWarning(
        "queue-depth",
        f"iodepth {point.conditions.iodepth} was asked for and fio stayed at 1",
        "use an asynchronous ioengine or more jobs",
        {"iodepth": point.conditions.iodepth},
    )


def few_samples(point: PointResult) -> PointWarning | None:
    """A p99 needs about 10 / (1 - 0.99) = 1000 samples before it is more than one outlier."""
    needed = samples_needed(99)
    counts = {name: side.ios for name, side in point.sides() if side.ios < needed}
    if not counts:
        return None
    text = " and ".join(f"{format_count(ios)} {name}s" for name, ios in counts.items())
    return PointWarning(
        "few-samples",
        f"p99 comes from {text}; it needs {format_count(needed)}",
        "use a longer --runtime",
        {**{f"{name}_ios": ios for name, ios in counts.items()}, "needed": needed},
    )


def completion_latency_only(point: PointResult) -> PointWarning | None:
    """An asynchronous engine can block at submission, which clat leaves out: 10 us for 100 ms on ceph-fuse."""
    left_out = point.conditions.submission_ns
    # A synchronous engine submits and completes in one call: fio then measures no submission (slat N = 0).
    if point.latency_source != "clat" or point.conditions.ioengine in _SYNCHRONOUS or left_out == 0:
        return None
    known = "" if left_out is None else f", {format_duration_ns(left_out)} on average"
    return PointWarning(
        "completion-latency",
        f"latency is fio's clat, which leaves out the time spent submitting{known}",
        "run fio with lat_percentiles=1",
        {"ioengine": point.conditions.ioengine, "submission_ns": left_out},
    )


def no_latency(point: PointResult) -> PointWarning | None:
    """gtod_reduce=1 and disable_lat leave no latency at all."""
    if all(side.latency_ns is not None for _, side in point.sides()):
        return None
    return PointWarning(
        "no-latency",
        "fio recorded no latency percentiles",
        "run fio with lat_percentiles=1 and --output-format=json+, without gtod_reduce or disable_lat",
        {},
    )


def _reaches_end(latency: LatencyNs) -> bool:
    return any(value is not None and value >= FIO_LAST_BIN_NS for value in (latency.p99, latency.p99_9))


def _largest_latency(point: PointResult) -> int | None:
    return max((latency.max for _, latency in latencies(point) if latency.max is not None), default=None)
