"""Reasons to distrust that only the foreign file itself shows (pure); the checks of kvbench.checks see the point."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kvbench.formats.fio.asked import in_flight, unnamed_jobs
from kvbench.formats.fio.options import direct_of
from kvbench.formats.fio.read import FioBeside, FioJob, FioLatency, FioOutput
from kvbench.record.results import PointWarning, Value
from kvbench.units import format_count, format_duration_ns

_NOT_INVALIDATED = re.compile(r"cache invalidation of .* failed", re.IGNORECASE)
_CAPPED = re.compile(r"^note: both iodepth >= 1 and synchronous I/O engine", re.MULTILINE)


def notes_of(output: FioOutput, entries: Sequence[FioJob], job: FioJob) -> Iterator[PointWarning]:
    """What the file says about itself that a reader of ``job`` must know."""
    if output.cut_off:
        yield _cut_off()
    if output.earlier_runs:
        yield _several_runs(output.earlier_runs)
    if _NOT_INVALIDATED.search(output.preamble) and direct_of(job.options) is False:
        yield _not_invalidated()
    if _CAPPED.search(output.preamble) and job.depth_one_percent is None:
        yield _capped()
    if len(entries) == 1 and (jobs := unnamed_jobs(job)) is not None:
        yield _jobs_not_named(job, jobs)
    if job.syncs is not None and (name := _syncing(job)) is not None:
        yield _syncs_left_out(job.syncs, name)
    yield from _not_mergeable(entries, job)
    yield from _percentiles_missing(job)


def _cut_off() -> PointWarning:
    return PointWarning(
        "cut-off",
        "the last document of the file is cut off; these are the counts of the one before",
        "keep fio's whole output",
    )


def _several_runs(earlier: int) -> PointWarning:
    return PointWarning(
        "several-runs",
        f"the file holds {earlier + 1} runs of the same jobs one after the other; only the last one counts here",
        "import each run from a file of its own",
        {"runs": earlier + 1},
    )


def _not_invalidated() -> PointWarning:
    # axboe/fio#1060: the run goes on without the right to invalidate, and reads may be cached.
    return PointWarning(
        "cache-not-invalidated",
        "fio could not invalidate the cache of its file before the run, so reads may have been cached",
        "run fio with the right to do so, or with direct=1 on a mount that honours it",
    )


def _capped() -> PointWarning:
    # axboe/fio#1333, #1388: the note is all that is left of the depth that was asked for.
    return PointWarning(
        "queue-depth",
        "fio notes that its synchronous engine caps the queue depth at 1",
        "use an asynchronous ioengine or more jobs",
    )


def _jobs_not_named(job: FioJob, jobs: int) -> PointWarning:
    depth = job.options.get("iodepth", "1")
    busy = in_flight(job) or 0.0
    return PointWarning(
        "jobs-not-named",
        f"the file does not say how many jobs ran (axboe/fio#237): {busy:.1f} operations were in flight on average at "
        f"depth {depth}, so {jobs} are taken",
        "run fio again with numjobs in the job's own section, or with fio 3.5 or later",
        {"numjobs": jobs, "in_flight": round(busy, 2)},
    )


def _syncing(job: FioJob) -> str | None:
    return next((name for name in ("fdatasync", "fsync", "sync_file_range") if job.options.get(name, "0") != "0"), None)


def _syncs_left_out(syncs: FioBeside, name: str) -> PointWarning:
    # axboe/fio#1477: fio times them in a section of their own.
    return PointWarning(
        "sync-left-out",
        f"the write latency leaves out {name}: {format_count(syncs.ios)} of them took "
        f"{format_duration_ns(syncs.mean_ns)} each on average",
        f"add it to what a write costs, or measure without {name}",
        {"syncs": syncs.ios, "sync_mean_ns": round(syncs.mean_ns)},
    )


def _percentiles_missing(job: FioJob) -> Iterator[PointWarning]:
    """Percentiles that a decision needs and fio was not asked for, or gave wrong."""
    for name in ("read", "write"):
        latency = _latency(job, name)
        if latency is None:
            continue
        if latency.dropped:
            percent, why = latency.dropped[0]
            yield PointWarning(
                "percentile-dropped",
                f"of the {name} latencies {why}: it is left out, the others agree with each other",
                "see where the file was changed, or measure again with --output-format=json+",
                {"direction": name, "percent": percent},
            )
        missing = [f"p{percent:g}" for percent in (50.0, 99.0) if _is_missing(latency, percent)]
        if missing:
            yield PointWarning(
                "percentiles-missing",
                f"fio's percentile_list leaves out {' and '.join(missing)} of the {name}s, and there is no histogram",
                "run fio without percentile_list, or with --output-format=json+",
                {"direction": name},
            )


def _is_missing(latency: FioLatency, percent: float) -> bool:
    gone = {wrong for wrong, _ in latency.dropped}
    return (
        bool(latency.percentiles_ns) and latency.histogram is None and percent not in {*latency.percentiles_ns, *gone}
    )


def _not_mergeable(entries: Sequence[FioJob], job: FioJob) -> Iterator[PointWarning]:
    """Percentiles of several processes without histograms: only that the whole lies between the parts is known."""
    parts = {name: _p99s(entries, name) for name in ("read", "write") if _has_no_percentiles(job, name)}
    parts = {name: known for name, known in parts.items() if len(known) > 1}
    if not parts:
        return
    text = " and ".join(
        f"{format_duration_ns(known[0])} to {format_duration_ns(known[-1])} for {name}s"
        for name, known in parts.items()
    )
    values: dict[str, Value] = {"processes": max(map(len, parts.values()))}
    for name, known in parts.items():
        values |= {f"{name}_p99_low_ns": known[0], f"{name}_p99_high_ns": known[-1]}
    yield PointWarning(
        "percentiles-not-mergeable",
        f"{format_count(len(entries))} processes reported percentiles of their own (p99 {text}), "
        "which cannot be averaged",
        "run fio with --output-format=json+ or group_reporting=1",
        values,
    )


def _has_no_percentiles(job: FioJob, name: str) -> bool:
    latency = _latency(job, name)
    return latency is not None and latency.histogram is None and not latency.percentiles_ns


def _p99s(entries: Sequence[FioJob], name: str) -> list[int]:
    found = [latency for entry in entries if (latency := _latency(entry, name)) is not None]
    return sorted(latency.percentiles_ns[99.0] for latency in found if 99.0 in latency.percentiles_ns)


def _latency(job: FioJob, name: str) -> FioLatency | None:
    side = job.read if name == "read" else job.write
    return side.latency if side is not None else None
