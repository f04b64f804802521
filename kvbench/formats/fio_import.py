"""fio results that somebody else made, as points (pure): the same judgement as for our own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvbench.checks import judge
from kvbench.drivers.fio.point import direction_of, failed_ios, failure_of, histograms_of, latency_source_of
from kvbench.formats.fio import FioDirection, FioJob, FioLatency, FioOutput
from kvbench.formats.fio_options import duration_s, is_set, size_bytes
from kvbench.histogram import Histogram, merge
from kvbench.plan import slug
from kvbench.results import Caveat, Conditions, Mix, PointResult

_MIX_OF_RW: dict[str, Mix] = {
    "read": "read",
    "randread": "read",
    "write": "write",
    "randwrite": "write",
    "rw": "mixed",
    "readwrite": "mixed",
    "randrw": "mixed",
}


@dataclass(frozen=True, slots=True)
class ImportedPoint:
    """A point and the histograms that belong beside it."""

    point: PointResult
    histograms: dict[str, Histogram]


def imported_points(output: FioOutput, tier: str, source: str) -> list[ImportedPoint]:
    """One point per fio job name, judged; entries of one name (no group_reporting) are merged exactly."""
    by_name: dict[str, list[FioJob]] = {}
    for job in output.jobs:
        by_name.setdefault(job.name, []).append(job)
    taken: set[str] = set()
    points = []
    for name, entries in by_name.items():
        imported = _imported(_merged(entries), len(entries), output, tier, source)
        identity = _unused(f"{slug(tier)}-{slug(name)}", taken)
        points.append(replace(imported, point=replace(imported.point, id=identity)))
    return points


def _imported(job: FioJob, entries: int, output: FioOutput, tier: str, source: str) -> ImportedPoint:
    mix = _mix(job)
    conditions = _conditions(job, mix)
    failure = failure_of(job, output.preamble.splitlines())
    io_bytes, contradiction = _io_bytes(job)
    point = PointResult(
        id="",
        job=job.name,
        source=source,
        tier=tier,
        driver="fio",
        io_bytes=io_bytes,
        mix=mix,
        numjobs=max(int(job.options.get("numjobs", "1") or 1), entries) if _is_number(job, "numjobs") else entries,
        runtime_s=job.runtime_s,
        latency_source=latency_source_of(job),
        status="failed" if failure else "ok",
        reason=failure,
        read=direction_of(job.read),
        write=direction_of(job.write),
        conditions=conditions,
    )
    judged = judge(point)
    if contradiction is not None and not failure:
        judged = replace(judged, warnings=(contradiction, *judged.warnings))
    return ImportedPoint(judged, histograms_of(job))


def _mix(job: FioJob) -> Mix:
    known = _MIX_OF_RW.get(job.options.get("rw", job.options.get("readwrite", "")).split(":")[0].lower())
    if known is not None:
        return known
    if job.read is not None and job.write is not None:
        return "mixed"
    return "write" if job.read is None and job.write is not None else "read"


def _io_bytes(job: FioJob) -> tuple[int, Caveat | None]:
    """Bytes per operation as done; the option only confirms them, since it can be another job's (axboe/fio#2132)."""
    sides = [side for side in (job.read, job.write) if side is not None]
    ios, done = sum(side.ios for side in sides), sum(side.bytes for side in sides)
    asked = size_bytes(
        job.options.get("bs", job.options.get("blocksize")), int(job.options.get("kb_base", "1024") or 1024)
    )
    if ios == 0:
        return asked or 0, None
    measured = done / ios
    if asked is not None and abs(asked * ios - done) <= asked * (failed_ios(job) + max(1, ios // 1000)):
        return asked, None
    if asked is None:
        return round(measured), None
    return round(measured), Caveat(
        "block-size",
        f"the job says bs={asked} and moved {measured:.0f} bytes per operation",
        "the entry mixes jobs of several block sizes; run fio with one group per block size",
        {"bs": asked, "bytes_per_operation": round(measured)},
    )


def _conditions(job: FioJob, mix: Mix) -> Conditions:
    options = job.options
    depth = int(options.get("iodepth", "1") or 1) if _is_number(job, "iodepth") else None
    jobs = int(options.get("numjobs", "1") or 1) if _is_number(job, "numjobs") else 1
    size = size_bytes(options.get("size", options.get("filesize")))
    shared = "filename" in options
    capped = depth is not None and depth > 1 and job.depth_one_percent is not None and job.depth_one_percent > 99.9
    return Conditions(
        ioengine=options.get("ioengine"),
        direct=is_set(options, "direct"),
        iodepth=depth,
        iodepth_reached=False if capped else None,
        rwmixread=int(options.get("rwmixread", "50") or 50)
        if mix == "mixed" and _is_number(job, "rwmixread")
        else None,
        requested_runtime_s=duration_s(options.get("runtime")) if is_set(options, "time_based") else None,
        dataset_bytes=None if size is None else size * (1 if shared else jobs),
        failed_ios=failed_ios(job),
    )


def _is_number(job: FioJob, option: str) -> bool:
    return job.options.get(option, "1").isdecimal()


def _merged(entries: Sequence[FioJob]) -> FioJob:
    if len(entries) == 1:
        return entries[0]
    return replace(
        entries[0],
        error=next((entry.error for entry in entries if entry.error), 0),
        runtime_s=max(entry.runtime_s for entry in entries),
        read=_merged_direction([entry.read for entry in entries]),
        write=_merged_direction([entry.write for entry in entries]),
    )


def _merged_direction(sides: Sequence[FioDirection | None]) -> FioDirection | None:
    present = [side for side in sides if side is not None]
    if not present:
        return None
    return FioDirection(
        ios=sum(side.ios for side in present),
        bytes=sum(side.bytes for side in present),
        iops=sum(side.iops for side in present),
        bytes_per_s=sum(side.bytes_per_s for side in present),
        runtime_s=max(side.runtime_s for side in present),
        latency=_merged_latency([side.latency for side in present]),
    )


def _merged_latency(parts: Sequence[FioLatency | None]) -> FioLatency | None:
    present = [part for part in parts if part is not None]
    samples = sum(part.samples for part in present)
    histograms = [part.histogram for part in present if part.histogram is not None]
    # Percentiles of several processes cannot be averaged: without every histogram there is no merged percentile.
    if not present or len(present) != len(parts) or len(histograms) != len(present):
        return None
    return FioLatency(
        source=present[0].source,
        samples=samples,
        mean_ns=sum(part.mean_ns * part.samples for part in present) / samples,
        min_ns=min(part.min_ns for part in present),
        max_ns=max(part.max_ns for part in present),
        histogram=merge(histograms),
        percentiles_ns={},
    )


def _unused(name: str, taken: set[str]) -> str:
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}-{number}", number + 1
    taken.add(candidate)
    return candidate
