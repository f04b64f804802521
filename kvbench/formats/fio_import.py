"""fio results that somebody else made, as points (pure): the same judgement as for our own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvbench.checks import judge
from kvbench.drivers.fio.point import direction_of, failed_ios, failure_of, histograms_of, latency_source_of
from kvbench.formats.fio import FioDirection, FioJob, FioLatency, FioOutput
from kvbench.formats.fio_options import duration_s, is_set, size_bytes
from kvbench.histogram import merge
from kvbench.plan import slug
from kvbench.results import Caveat, Conditions, Mix, Observation, PointResult

_MIX_OF_RW: dict[str, Mix] = {
    "read": "read",
    "randread": "read",
    "write": "write",
    "randwrite": "write",
    "rw": "mixed",
    "readwrite": "mixed",
    "randrw": "mixed",
}

_NO_PAGE_CACHE = frozenset(
    {"http", "null", "rados", "rbd", "nbd", "net", "rdma", "libcufile", "nfs", "io_uring_cmd", "sg"}
)


def imported_points(output: FioOutput, tier: str, source: str) -> list[Observation]:
    """One point per fio group and job name, judged; entries of one name (no group_reporting) are merged exactly."""
    entries: dict[tuple[int, str], list[FioJob]] = {}
    for job in output.jobs:
        entries.setdefault((job.group, job.name), []).append(job)
    taken: set[str] = set()
    points = []
    for (_, name), jobs in entries.items():
        imported = _imported(_merged(jobs), len(jobs), output, tier, source)
        identity = _unused(f"{slug(tier)}-{slug(name)}", taken)
        points.append(replace(imported, point=replace(imported.point, id=identity)))
    return points


def _imported(job: FioJob, entries: int, output: FioOutput, tier: str, source: str) -> Observation:
    mix = _mix(job)
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
        numjobs=max(_number(job, "numjobs", 1) or 1, entries),
        runtime_s=job.runtime_s,
        latency_source=latency_source_of(job),
        status="failed" if failure else "ok",
        reason=failure,
        read=direction_of(job.read),
        write=direction_of(job.write),
        conditions=_conditions(job, mix),
    )
    judged = judge(point)
    own = [caveat for caveat in (contradiction, _cut_off(output)) if caveat is not None and not failure]
    return Observation(replace(judged, warnings=(*own, *judged.warnings)), histograms_of(job))


def _mix(job: FioJob) -> Mix:
    # Both directions done settles it: a group takes the options of its last section (axboe/fio#2132).
    if job.read is not None and job.write is not None:
        return "mixed"
    if job.read is None and job.write is None:
        return _MIX_OF_RW.get(job.options.get("rw", job.options.get("readwrite", "")).split(":")[0].lower(), "read")
    return "read" if job.write is None else "write"


def _io_bytes(job: FioJob) -> tuple[int, Caveat | None]:
    """Bytes per operation as done; the option only confirms them, since it can be another job's (axboe/fio#2132)."""
    sides = [side for side in (job.read, job.write) if side is not None]
    ios, done = sum(side.ios for side in sides), sum(side.bytes for side in sides)
    text = job.options.get("bs", job.options.get("blocksize"))
    asked = size_bytes(text, _kb_base(job))
    if ios == 0:
        return asked or 0, None
    varied = next((f"{name}={job.options[name]}" for name in ("bssplit", "bsrange") if name in job.options), None)
    if (
        varied is None
        and asked is not None
        and abs(asked * ios - done) <= asked * (failed_ios(job) + max(1, ios // 1000))
    ):
        return asked, None
    measured = round(done / ios)
    if varied is None and text is None:
        return measured, None
    return measured, Caveat(
        "block-size",
        f"the job says {varied or f'bs={text}'} and moved {measured:,} bytes per operation on average",
        "the entry mixes block sizes; run fio with one group per block size",
        {"bs": asked, "bytes_per_operation": measured},
    )


def _cut_off(output: FioOutput) -> Caveat | None:
    if not output.cut_off:
        return None
    return Caveat(
        "cut-off",
        "the last document of the file is cut off; these are the counts of the one before",
        "keep fio's whole output",
    )


def _conditions(job: FioJob, mix: Mix) -> Conditions:
    options = job.options
    depth = _number(job, "iodepth", 1)
    size = size_bytes(options.get("size", options.get("filesize")), _kb_base(job))
    jobs = 1 if "filename" in options else _number(job, "numjobs", 1) or 1
    capped = depth is not None and depth > 1 and job.depth_one_percent is not None and job.depth_one_percent > 99.9
    return Conditions(
        ioengine=options.get("ioengine"),
        direct=_direct(job),
        iodepth=depth,
        iodepth_reached=False if capped else None,
        rwmixread=_number(job, "rwmixread", 50) if mix == "mixed" else None,
        requested_runtime_s=duration_s(options.get("runtime")) if is_set(options, "time_based") else None,
        dataset_bytes=None if size is None else size * jobs,
        failed_ios=failed_ios(job),
    )


def _direct(job: FioJob) -> bool | None:
    """Whether the page cache was bypassed; None for engines that have none. ``buffered`` is the opposite spelling."""
    if job.options.get("ioengine") in _NO_PAGE_CACHE:
        return None
    if "buffered" in job.options:
        return not is_set(job.options, "buffered")
    return is_set(job.options, "direct")


def _number(job: FioJob, option: str, default: int) -> int | None:
    """A whole-number option, ``default`` when it is absent, None when it is something else."""
    text = job.options.get(option, str(default))
    return int(text) if text.isascii() and text.isdecimal() else None


def _kb_base(job: FioJob) -> int:
    return 1000 if job.options.get("kb_base") in ("1000", "1k") else 1024


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
    histograms = [part.histogram for part in present if part.histogram is not None]
    # Percentiles of several processes cannot be averaged: without every histogram there is no merged percentile.
    if not present or len(present) != len(parts) or len(histograms) != len(present):
        return None
    return FioLatency(
        source=present[0].source,
        samples=sum(part.samples for part in present),
        mean_ns=_merged_mean(present),
        min_ns=min((part.min_ns for part in present if part.min_ns is not None), default=None),
        max_ns=max((part.max_ns for part in present if part.max_ns is not None), default=None),
        histogram=merge(histograms),
        percentiles_ns={},
    )


def _merged_mean(parts: Sequence[FioLatency]) -> float | None:
    means = [(part.mean_ns, part.samples) for part in parts if part.mean_ns is not None]
    if len(means) != len(parts):
        return None
    return sum(mean * samples for mean, samples in means) / sum(samples for _, samples in means)


def _unused(name: str, taken: set[str]) -> str:
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}-{number}", number + 1
    taken.add(candidate)
    return candidate
