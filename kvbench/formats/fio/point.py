"""fio's jobs as point results (pure): the same for our own runs and for imported files."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence

from kvbench.formats.fio.read import FioDirection, FioJob, FioLatency
from kvbench.record.histogram import Histogram
from kvbench.record.latency import latency_of
from kvbench.record.results import Direction, LatencyNs, LatencySource


def direction_of(fio: FioDirection | None) -> Direction | None:
    """One direction of a fio job with its percentiles; None when it did no I/O."""
    if fio is None:
        return None
    return Direction(
        ios=fio.ios,
        bytes=fio.bytes,
        iops=fio.iops,
        bytes_per_s=fio.bytes_per_s,
        latency_ns=None if fio.latency is None else _latency_of(fio.latency),
    )


def histograms_of(job: FioJob) -> dict[str, Histogram]:
    """The histograms that the job recorded, by direction."""
    sides = {"read": job.read, "write": job.write}
    return {
        name: side.latency.histogram
        for name, side in sides.items()
        if side is not None and side.latency is not None and side.latency.histogram is not None
    }


def latency_source_of(job: FioJob) -> LatencySource | None:
    """Which of fio's latencies the job's percentiles come from."""
    sides = [side for side in (job.read, job.write) if side is not None and side.latency is not None]
    return next((side.latency.source for side in sides if side.latency is not None), None)


def failed_ios(job: FioJob) -> int:
    """Operations that fio counted but whose latency it did not record: they failed (fio 3.33, total_ios - lat_ns.N)."""
    sides = [side for side in (job.read, job.write) if side is not None and side.latency is not None]
    return sum(max(0, side.ios - side.latency.samples) for side in sides if side.latency is not None)


def submission_ns_of(job: FioJob) -> float | None:
    """Mean time per operation that the job's percentiles leave out (submission, for clat), or None when unknown."""
    sides = [side for side in (job.read, job.write) if side is not None and side.latency is not None]
    parts = [
        (side.ios, side.latency.submission_ns)
        for side in sides
        if side.latency is not None and side.latency.submission_ns is not None
    ]
    total = sum(ios for ios, _ in parts)
    return sum(ios * left_out for ios, left_out in parts) / total if total and len(parts) == len(sides) else None


def failure_of(job: FioJob, preamble: Sequence[str] = ()) -> str | None:
    """Why the job's numbers must not be used, or None. fio's exit code is not asked: 256 failed jobs give 0."""
    if job.error:
        # fio reports -1 as an unsigned number when an engine has no errno.
        known = 0 < job.error < 4096
        text = os.strerror(job.error) if known else "an error of its I/O engine"
        said = next((line for line in preamble if line.startswith("fio:")), "")
        explained = explain(job.error, job.options)
        number = f" (error {job.error})" if known else ""
        return f"fio reports {text}{number}{f': {said}' if said else ''}{f'; {explained}' if explained else ''}"
    if job.problem is not None:
        return job.problem
    if job.unified:
        return "fio ran with unified_rw_reporting, which hides reads behind writes; run it without"
    if job.read is None and job.write is None:
        said = next((line for line in preamble if line.startswith("fio:")), "")
        return f"fio did no I/O{f': {said}' if said else ''}"
    return None


def explain(error: int, options: Mapping[str, str]) -> str | None:
    """What an error number means for a fio job with these options and what to do, or None."""
    engine = options.get("ioengine", "")
    if error == errno.EAGAIN and engine == "libaio":  # axboe/fio#539, #1961
        return "all libaio slots of the host are taken (fs.aio-max-nr): use fewer jobs or raise it"
    if error in (errno.EPERM, errno.ENOSYS) and engine.startswith("io_uring"):  # moby/moby#46762, containerd#9320
        return "io_uring is blocked here, as containers do by default: use libaio or another seccomp profile"
    if error == errno.EINVAL and options.get("direct", "0") not in ("0", ""):  # axboe/fio#253
        return "the file system refuses O_DIRECT at this size: use a multiple of its sector size, or another mount"
    if error == errno.EACCES:  # red-hat-storage/ocs-ci#4896
        return "the user of the pod may not open the file: check fsGroup and the SELinux label of the volume"
    return None


def asked(options: Mapping[str, str], name: str) -> int | None:
    """A whole-number option of the job, or None when it is absent or not a plain number."""
    text = options.get(name, "")
    return int(text) if text.isdecimal() else None


def _latency_of(latency: FioLatency) -> LatencyNs:
    if latency.histogram is not None:
        return latency_of([latency.histogram], mean_ns=latency.mean_ns, min_ns=latency.min_ns, max_ns=latency.max_ns)
    known = latency.percentiles_ns
    return LatencyNs(
        mean=latency.mean_ns,
        min=latency.min_ns,
        max=latency.max_ns,
        p50=known.get(50.0),
        p90=known.get(90.0),
        p95=known.get(95.0),
        p99=known.get(99.0),
        p99_9=known.get(99.9),
    )
