"""Reasons to distrust a point: each check is one pure function of the point; CHECKS lists them by what they say.

They run on every point, measured or imported, and again whenever somebody asks, because they need only the result file.
docs/warnings.md says for each code what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvbench.checks.asked import (
    clock_went_on,
    completion_latency_only,
    failed_operations,
    few_samples,
    long_runtime,
    no_latency,
    saturated,
    shallow_queue,
    short_runtime,
    wrong_mix,
)
from kvbench.checks.caches import (
    buffered,
    cache_state,
    cache_unknown,
    ceph_fuse,
    device_counters,
    memory_filesystem,
    page_cache,
    small_data_set,
)
from kvbench.checks.data import hot_object, not_mounted, rereads, sequential, unproven_objects, unwritten
from kvbench.checks.events import disturbed, other_runs
from kvbench.checks.requests import by_round
from kvbench.checks.speed import above_link, cpu_short, cpu_steal, drift, line_rate, littles_law, paced, too_fast
from kvbench.checks.tails import impossible_mean
from kvbench.record.results import PointResult, PointWarning

__all__ = ["CHECKS", "CODES", "VOIDING", "Check", "cache_state", "judge", "voiding"]

Check = Callable[[PointResult], PointWarning | None]


def judge(point: PointResult) -> PointResult:
    """The point with the warnings that its own numbers deserve, in the order of CHECKS."""
    if point.status in ("failed", "skipped"):
        return replace(point, warnings=())
    point = replace(point, conditions=replace(point.conditions, cache_state=cache_state(point)))
    return replace(point, warnings=tuple(warning for check in CHECKS.values() if (warning := check(point)) is not None))


CHECKS: dict[str, Check] = {
    "short-runtime": short_runtime,
    "stalled": long_runtime,
    "clock-went-on": clock_went_on,
    "saturated": saturated,
    "drift": drift,
    "requests-by-round": by_round,
    "events": disturbed,
    "other-runs": other_runs,
    "failed-operations": failed_operations,
    "memory-filesystem": memory_filesystem,
    "buffered": buffered,
    "page-cache": page_cache,
    "reads-not-from-device": device_counters,
    "unwritten-data": unwritten,
    "not-mounted": not_mounted,
    "cache-state-unknown": cache_unknown,
    "ceph-fuse": ceph_fuse,
    "fits-memory": small_data_set,
    "objects-not-proven": unproven_objects,
    "hot-object": hot_object,
    "re-read": rereads,
    "sequential": sequential,
    "line-rate": line_rate,
    "above-link": above_link,
    "too-fast": too_fast,
    "littles-law": littles_law,
    "impossible-mean": impossible_mean,
    "paced": paced,
    "wrong-mix": wrong_mix,
    "queue-depth": shallow_queue,
    "few-samples": few_samples,
    "completion-latency": completion_latency_only,
    "no-latency": no_latency,
    "cpu-steal": cpu_steal,
    "cpu-short": cpu_short,
}

# Every code that a point can carry: those of CHECKS, and what only a file's reader or the whole run can see.
CODES = frozenset(CHECKS) | {
    "block-size",
    "cache-not-invalidated",
    "cut-off",
    "idle-jobs",
    "interpolated",
    "jobs-not-named",
    "percentile-dropped",
    "percentiles-missing",
    "percentiles-not-mergeable",
    "requests-by-tier",
    "several-runs",
    "sync-left-out",
}

# With one of these the numbers are not the tier's, or contradict each other: no verdict may rest on them.
VOIDING = frozenset(
    {
        "littles-law",
        "impossible-mean",
        "clock-went-on",
        "block-size",
        "buffered",
        "page-cache",
        "reads-not-from-device",
        "unwritten-data",
        "objects-not-proven",
        "line-rate",
        "too-fast",
    }
)


def voiding(point: PointResult) -> list[str]:
    """The codes of the point's warnings that forbid a verdict."""
    return [warning.code for warning in point.warnings if warning.code in VOIDING]
