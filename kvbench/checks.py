"""Reasons to distrust a point: each check is one pure function of the point; CHECKS lists them.

They run on every point, measured or imported, and again whenever somebody asks, because they need only the result file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from kvbench.results import CacheState, Caveat, Direction, LatencyNs, PointResult, Round
from kvbench.stats import FIO_LAST_BIN_NS, samples_needed
from kvbench.tiers.directory import MEMORY_FILESYSTEMS
from kvbench.units import format_bandwidth, format_bytes, format_count

Check = Callable[[PointResult], Caveat | None]

# 16 jobs at depth 1 were busy 99.7 % of the time in clean runs (fio 3.33); 80 % leaves room for a loaded host.
_LITTLE_LOW = 0.80
# Latency times rate above jobs x depth is arithmetically impossible; 5 % covers rounding of short runs.
_LITTLE_HIGH = 1.05
_RUNTIME_SHORT = 0.95
_RUNTIME_LONG = 1.20
_MIX_TOLERANCE_POINTS = 2.0
_REREADS = 2.0
_CACHED = 0.01
_DEVICE_SHARE = 0.90
_NOISY_STEAL_PERCENT = 10.0
# Identical rounds on a noisy virtual machine strayed by up to 1.2 (fio 3.33); a full cache shows as 2 and more.
_DRIFT = 1.5


def judge(point: PointResult) -> PointResult:
    """The point with the caveats that its own numbers deserve, in the order of CHECKS."""
    if point.status in ("failed", "skipped"):
        return replace(point, warnings=())
    point = replace(point, conditions=replace(point.conditions, cache_state=cache_state(point)))
    return replace(point, warnings=tuple(caveat for check in CHECKS if (caveat := check(point)) is not None))


def cache_state(point: PointResult) -> CacheState:
    """``cold`` when this host's caches are proven to have stayed out of it, ``cached`` when not, else ``unknown``.

    Proof takes an empty page cache and, for reads, a device that delivered the bytes; what a storage server or a drive
    keeps in its own memory cannot be seen from here.
    """
    if any(check(point) is not None for check in (memory_filesystem, buffered, page_cache, device_counters)):
        return "cached"
    seen = point.conditions
    proven = seen.cached_fraction is not None and (point.read is None or seen.device_read_bytes is not None)
    return "cold" if proven else "unknown"


def short_runtime(point: PointResult) -> Caveat | None:
    """fio ends early on a signal or a full disk and still writes complete JSON (fio 3.33, exit 128)."""
    asked, got = point.conditions.requested_runtime_s, point.runtime_s
    if not asked or got is None or got >= asked * _RUNTIME_SHORT:
        return None
    return Caveat(
        "short-runtime",
        f"ran {got:.1f} s of the {asked:.0f} s asked for",
        "look for an error or a signal in fio's output and measure again",
        {"runtime_s": got, "requested_runtime_s": asked},
    )


def long_runtime(point: PointResult) -> Caveat | None:
    """A stalled tier makes the last operation outlast the run (a CephFS OSD paused for 10 s, fio rc 0)."""
    asked, got = point.conditions.requested_runtime_s, point.runtime_s
    if not asked or got is None or got <= asked * _RUNTIME_LONG + 1:
        return None
    return Caveat(
        "stalled",
        f"ran {got:.1f} s although {asked:.0f} s were asked for: an operation hung",
        "look at the tier's health and at the largest latency, then measure again",
        {"runtime_s": got, "requested_runtime_s": asked, "max_ns": _largest_latency(point)},
    )


def wrong_mix(point: PointResult) -> Caveat | None:
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
    if abs(got - asked) <= _MIX_TOLERANCE_POINTS + chance:
        return None
    return Caveat(
        "wrong-mix",
        f"{got:.0f} % of the operations were reads, {asked} % were asked for",
        "compare with points of the same mix only",
        {"read_percent": round(got, 1), "rwmixread": asked},
    )


def littles_law(point: PointResult) -> Caveat | None:
    """Little's law: operations in flight = rate x mean latency, and closed-loop jobs keep jobs x depth in flight."""
    depth = point.conditions.iodepth
    in_flight = _in_flight(point)
    if depth is None or in_flight is None:
        return None
    expected = point.numjobs * depth
    ratio = in_flight / expected
    if _LITTLE_LOW <= ratio <= _LITTLE_HIGH:
        return None
    values: dict[str, str | int | float | bool | None] = {"in_flight": round(in_flight, 2), "expected": expected}
    if ratio > 1:
        return Caveat(
            "littles-law",
            f"rate x mean latency needs {in_flight:.1f} operations in flight, {expected} were possible: "
            "the numbers contradict each other",
            "the file mixes runs or block sizes; measure again",
            values,
        )
    return Caveat(
        "idle-jobs",
        f"only {in_flight:.1f} of {expected} possible operations were in flight on average",
        "the host was short of CPU, a job ended early, or fio waited; see load and steal",
        values,
    )


def few_samples(point: PointResult) -> Caveat | None:
    """A p99 needs about 10 / (1 - 0.99) = 1000 samples before it is more than one outlier."""
    needed = samples_needed(99)
    counts = {name: side.ios for name, side in _sides(point) if side.ios < needed}
    if not counts:
        return None
    text = " and ".join(f"{format_count(ios)} {name}s" for name, ios in counts.items())
    return Caveat(
        "few-samples",
        f"p99 comes from {text}; it needs {format_count(needed)}",
        "use a longer --runtime",
        {**{f"{name}_ios": ios for name, ios in counts.items()}, "needed": needed},
    )


def saturated(point: PointResult) -> Caveat | None:
    """fio's histogram ends at 17.18 s: slower operations are all in its last bin (fio 3.33 stat.c)."""
    names = [name for name, side in _sides(point) if side.latency_ns and _reaches_end(side.latency_ns)]
    if not names:
        return None
    return Caveat(
        "saturated",
        f"the {' and '.join(names)} tail lies beyond the end of fio's histogram and is at least 17.1 s",
        "the tier hangs for that long; look at its health",
        {"histogram_end_ns": FIO_LAST_BIN_NS},
    )


def drift(point: PointResult) -> Caveat | None:
    """Burst credits, SLC caches and background work make a tier fast at first and slow later, or the reverse."""
    for name in ("read", "write"):
        rates = [rate for item in point.rounds if (rate := _round_rate(item, name)) is not None and rate > 0]
        if len(rates) < 2:
            continue
        change = rates[-1] / rates[0]
        if 1 / _DRIFT <= change <= _DRIFT:
            continue
        first, last = format_bandwidth(rates[0]), format_bandwidth(rates[-1])
        return Caveat(
            "drift",
            f"{name}s went from {first} in the first round to {last} in the last of {len(rates)}",
            "measure longer, or find out what changed: burst credits, a write cache that filled up, other users",
            {"first_bytes_per_s": round(rates[0]), "last_bytes_per_s": round(rates[-1]), "rounds": len(rates)},
        )
    return None


def rereads(point: PointResult) -> Caveat | None:
    """A data set that is read over and over fits caches that O_DIRECT does not bypass (controller, server, OSD)."""
    dataset = point.conditions.dataset_bytes
    if not dataset or point.read is None:
        return None
    factor = point.read.bytes / dataset
    memory = point.conditions.memory_bytes
    if factor <= _REREADS or (memory is not None and dataset > memory):
        return None
    fits = "is smaller than memory" if memory is not None else "may fit into memory"
    return Caveat(
        "re-read",
        f"the data set of {format_bytes(dataset)} was read {factor:.1f} times and {fits}: "
        "a cache below O_DIRECT may have answered",
        "use a larger --dataset, best above the memory of the storage server",
        {"re_read_factor": round(factor, 2), "dataset_bytes": dataset, "memory_bytes": memory},
    )


def page_cache(point: PointResult) -> Caveat | None:
    """O_DIRECT can be accepted and still fill the page cache (FUSE, overlay)."""
    cached = point.conditions.cached_fraction
    if cached is None or cached <= _CACHED or point.conditions.filesystem in MEMORY_FILESYSTEMS:
        return None
    return Caveat(
        "page-cache",
        f"{cached:.0%} of the data set sits in this host's page cache although O_DIRECT was asked for",
        "this mount does not bypass the page cache; use a data set larger than memory or another mount",
        {"cached_fraction": round(cached, 4)},
    )


def memory_filesystem(point: PointResult) -> Caveat | None:
    """tmpfs accepts O_DIRECT since Linux 6.6 and is RAM all the same."""
    kind = point.conditions.filesystem
    if kind not in MEMORY_FILESYSTEMS:
        return None
    return Caveat(
        "memory-filesystem",
        f"the tier is {kind}: this measured memory, not storage",
        "name a directory on the storage tier",
        {"filesystem": kind},
    )


def buffered(point: PointResult) -> Caveat | None:
    """Without O_DIRECT the page cache is measured along (D5 of the field's bug reports: 5,060 MiB/s instead of 340)."""
    if point.conditions.direct is not False:
        return None
    return Caveat(
        "buffered",
        "fio ran without direct=1, so the page cache took part",
        "measure again with direct=1",
        {},
    )


def device_counters(point: PointResult) -> Caveat | None:
    """Reads that the device never saw came from a cache."""
    seen = point.conditions.device_read_bytes
    if seen is None or point.read is None or seen >= point.read.bytes * _DEVICE_SHARE:
        return None
    return Caveat(
        "reads-not-from-device",
        f"fio read {format_bytes(point.read.bytes)} and the device delivered {format_bytes(seen)}: "
        "the rest came from a cache",
        "use a larger --dataset or a mount that bypasses the cache",
        {"read_bytes": point.read.bytes, "device_read_bytes": seen},
    )


def cache_unknown(point: PointResult) -> Caveat | None:
    """Network and FUSE mounts have no device counters, so nothing proves that no cache answered."""
    kind = point.conditions.filesystem
    if kind is None or cache_state(point) != "unknown":
        return None
    return Caveat(
        "cache-state-unknown",
        f"{kind} has no device counters on this host: nothing proves that no cache answered",
        "use a data set larger than the memory of the storage server",
        {"filesystem": kind},
    )


def completion_latency_only(point: PointResult) -> Caveat | None:
    """An asynchronous engine can block at submission, which clat leaves out: 10 us for 100 ms on ceph-fuse."""
    if point.latency_source != "clat" or point.conditions.ioengine in ("psync", "sync", "pvsync", "pvsync2", "vsync"):
        return None
    return Caveat(
        "completion-latency",
        "latency is fio's clat, which leaves out the time spent submitting",
        "run fio with lat_percentiles=1",
        {"ioengine": point.conditions.ioengine},
    )


def no_latency(point: PointResult) -> Caveat | None:
    """gtod_reduce=1 and disable_lat leave no latency at all."""
    if all(side.latency_ns is not None for _, side in _sides(point)):
        return None
    return Caveat(
        "no-latency",
        "fio recorded no latency percentiles",
        "run fio with lat_percentiles=1 and --output-format=json+",
        {},
    )


def shallow_queue(point: PointResult) -> Caveat | None:
    """Synchronous engines cap the depth at 1 with a note only; fio's iodepth_level tells the truth."""
    if point.conditions.iodepth_reached is not False:
        return None
    return Caveat(
        "queue-depth",
        f"iodepth {point.conditions.iodepth} was asked for and fio stayed at 1",
        "use an asynchronous ioengine or more jobs",
        {"iodepth": point.conditions.iodepth},
    )


def failed_operations(point: PointResult) -> Caveat | None:
    """fio counts failed operations in total_ios but not in the latency samples."""
    failed = point.conditions.failed_ios
    if not failed:
        return None
    return Caveat(
        "failed-operations",
        f"{format_count(failed)} operations have no latency sample: they failed or were cut short",
        "look into fio's output",
        {"failed_ios": failed},
    )


def cpu_steal(point: PointResult) -> Caveat | None:
    """p99 of identical runs was 3-7 ms below 10 % steal and 28-34 ms above 24 % (15 runs on one virtual machine)."""
    steal = point.conditions.cpu_steal_percent
    if steal is None or steal < _NOISY_STEAL_PERCENT:
        return None
    return Caveat(
        "cpu-steal",
        f"the hypervisor took {steal:.0f} % of the CPU time during this point; tails are inflated",
        "measure again on a quiet host",
        {"cpu_steal_percent": steal},
    )


CHECKS: tuple[Check, ...] = (
    short_runtime,
    long_runtime,
    saturated,
    drift,
    failed_operations,
    memory_filesystem,
    buffered,
    page_cache,
    device_counters,
    cache_unknown,
    rereads,
    littles_law,
    wrong_mix,
    shallow_queue,
    few_samples,
    completion_latency_only,
    no_latency,
    cpu_steal,
)


# With one of these the numbers are not the tier's, or contradict each other: no verdict may rest on them.
VOIDING = frozenset({"littles-law", "block-size", "buffered", "page-cache", "reads-not-from-device"})


def voiding(point: PointResult) -> list[str]:
    """The codes of the point's caveats that forbid a verdict."""
    return [caveat.code for caveat in point.warnings if caveat.code in VOIDING]


def _sides(point: PointResult) -> Iterator[tuple[str, Direction]]:
    for name, side in (("read", point.read), ("write", point.write)):
        if side is not None:
            yield name, side


def _latencies(point: PointResult) -> Iterator[tuple[Direction, LatencyNs]]:
    for _, side in _sides(point):
        if side.latency_ns is not None:
            yield side, side.latency_ns


def _in_flight(point: PointResult) -> float | None:
    parts = [side.iops * latency.mean / 1e9 for side, latency in _latencies(point) if latency.mean is not None]
    return sum(parts) if parts and len(parts) == len(list(_sides(point))) else None


def _reaches_end(latency: LatencyNs) -> bool:
    return any(value is not None and value >= FIO_LAST_BIN_NS for value in (latency.p99, latency.p99_9))


def _round_rate(item: Round, name: str) -> float | None:
    return item.read_bytes_per_s if name == "read" else item.write_bytes_per_s


def _largest_latency(point: PointResult) -> int | None:
    return max((latency.max for _, latency in _latencies(point) if latency.max is not None), default=None)
