"""What a job was asked for, where fio's JSON does not say it plainly: for how long, and by how many jobs (pure)."""

from __future__ import annotations

from kvbench.formats.fio.options import duration_s, is_set, number, size_bytes, size_of_job
from kvbench.formats.fio.options import kb_base as base_of
from kvbench.formats.fio.read import FioJob

# A run that ended within these shares of its time, or of its bytes, had them.
_WHOLE = 0.95
# Rate x latency says how many operations were in flight, closed-loop runs within a few percent.
_NEAR = 0.10


def asked_runtime_s(job: FioJob, jobs: int, hosts: int = 1) -> float | None:
    """Seconds that the job should have run, or None where it says none or was done before.

    fio leaves a ``time_based`` without a value out of its JSON, and without it ``runtime`` is only a cap: a job that
    ended before moved all that it was asked for, or ended early.
    """
    asked = duration_s(job.options.get("runtime"))
    if not asked:
        return None
    if is_set(job.options, "time_based") or job.runtime_s >= asked * _WHOLE:
        return asked
    # A group takes its last section's options (axboe/fio#2132), so that the sizes of the others are not known.
    one_section = unnamed_jobs(job) is not None or jobs == (number(job.options, "numjobs", 1) or 1) * hosts
    return asked if one_section and _is_unfinished(job, jobs) else None


def _is_unfinished(job: FioJob, jobs: int) -> bool:
    """Whether the job moved less than its size; what ran in the ramp is not counted, so the rate fills it in."""
    sides = [side for side in (job.read, job.write, job.mixed) if side is not None]
    moved, ios = sum(side.bytes for side in sides), sum(side.ios for side in sides)
    ramp_s = duration_s(job.options.get("ramp_time")) or 0.0
    longer = 1 + ramp_s / job.runtime_s if job.runtime_s else 1.0
    if operations := number(job.options, "number_ios", 0):
        return ios * longer < operations * jobs * _WHOLE
    each = size_bytes(job.options.get("io_size", job.options.get("io_limit")), base_of(job.options))
    each = each or size_of_job(job.options)
    loops = number(job.options, "loops", 1) or 1
    return each is not None and moved * longer < each * jobs * loops * _WHOLE


def counted_jobs(job: FioJob, entries: int, hosts: int) -> int:
    """Jobs as asked for, as listed, or as their summed runtime shows (several sections in one group)."""
    together = round(job.job_runtime_s / job.runtime_s) if job.job_runtime_s and job.runtime_s else 0
    return max((number(job.options, "numjobs", 1) or 1) * hosts, entries, together)


def unnamed_jobs(job: FioJob) -> int | None:
    """How many jobs an entry stands for whose options name none, by what was in flight; None where nothing is odd.

    Files before fio 3.5 lack options of the [global] section (axboe/fio#237) and the summed runtime as well.
    """
    depth = number(job.options, "iodepth", 1)
    if not job.options_known or "numjobs" in job.options or job.job_runtime_s is not None or not depth:
        return None
    busy = in_flight(job)
    jobs = round(busy / depth) if busy is not None else 1
    return jobs if busy is not None and jobs > 1 and abs(busy / depth - jobs) <= _NEAR * jobs else None


def in_flight(job: FioJob) -> float | None:
    """Operations in flight on average: rate x mean latency, with what that leaves out; None where it is not known."""
    total = 0.0
    for side in (job.read, job.write):
        if side is None:
            continue
        if side.latency is None or side.latency.mean_ns is None:
            return None
        total += side.iops * (side.latency.mean_ns + (side.latency.submission_ns or 0.0)) / 1e9
    return total or None


def beside_in_flight(job: FioJob) -> float | None:
    """Syncs and trims in flight on average: reads and writes wait for them; None where there were none."""
    parts = [beside for beside in (job.syncs, job.trims) if beside is not None]
    busy_s = sum(beside.ios * beside.mean_ns for beside in parts) / 1e9
    return busy_s / job.runtime_s if parts and job.runtime_s else None
