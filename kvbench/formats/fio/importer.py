"""fio results that somebody else made, as points (pure): the same judgement as for our own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvbench.checks import judge
from kvbench.formats.fio.asked import asked_runtime_s, beside_in_flight, counted_jobs, unnamed_jobs
from kvbench.formats.fio.disks import DirectReads, delivered_share, direct_reads
from kvbench.formats.fio.merge import merged
from kvbench.formats.fio.options import (
    access_of,
    block_size_text,
    dataset_bytes,
    direct_of,
    duration_s,
    in_flight_at_start,
    io_bytes_of,
    number,
    paced_by,
    reads_were_written,
)
from kvbench.formats.fio.point import (
    direction_of,
    failed_ios,
    failure_of,
    histograms_of,
    latency_source_of,
    submission_ns_of,
)
from kvbench.formats.fio.read import FioJob, FioOutput
from kvbench.formats.fio.warnings import notes_of
from kvbench.record.point import jobs_in, slug
from kvbench.record.results import Conditions, Mix, Observation, PointResult, PointWarning, Status
from kvbench.tiers.limits import Limit

_MIX_OF_RW: dict[str, Mix] = {
    "read": "read",
    "randread": "read",
    "write": "write",
    "randwrite": "write",
    "rw": "mixed",
    "readwrite": "mixed",
    "randrw": "mixed",
}
# A run that a signal ended is complete where it had its time (fio 3.33 writes both alike).
_WHOLE = 0.95


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a point comes from: the file, its jobs that wrote (see _writers), and what the tier's link allows.

    ``delivered_share`` is the most that devices can have delivered of a run's direct reads, where it is short of them.
    """

    tier: str
    file: str
    writers: tuple[tuple[dict[str, str], int], ...]
    limit: Limit | None
    delivered_share: float | None = None


def imported_points(
    outputs: Sequence[FioOutput], tier: str, source: str, limit: Limit | None = None
) -> list[Observation]:
    """One point per fio group and job name of every run, judged; entries of one name are merged exactly.

    Processes of several servers merge as well; the servers are numbered, since their names are nobody's business.
    """
    origin = _Source(tier, source, tuple(_writers(outputs)), limit)
    unused = _Unused()
    points = []
    for output in outputs:
        entries: dict[tuple[int, str], list[FioJob]] = {}
        for job in output.jobs:
            entries.setdefault((job.group, job.name), []).append(_assigned(job))
        total = output.total if len(entries) == 1 else None
        of_run = replace(origin, delivered_share=_delivered_share(output))
        for (_, name), jobs in entries.items():
            imported = _imported(jobs, output, of_run, total)
            identity = unused(f"{slug(tier)}-{slug(name)}")
            points.append(replace(imported, point=replace(imported.point, id=identity)))
    return points


def _imported(jobs: Sequence[FioJob], output: FioOutput, origin: _Source, total: FioJob | None) -> Observation:
    job = merged(jobs, total)
    mix = mix_of(job)
    hosts = tuple(dict.fromkeys(entry.host for entry in jobs if entry.host is not None))
    numjobs = unnamed_jobs(job) if len(jobs) == 1 else None
    numjobs = numjobs or counted_jobs(job, len(jobs), max(1, len(hosts)))
    io_bytes, contradiction = _io_bytes(job, numjobs)
    apart = _apart(job, mix)
    status, reason = _status(job, output)
    point = PointResult(
        id="",
        job=job.name,
        source=origin.file,
        tier=origin.tier,
        driver="fio",
        io_bytes=io_bytes,
        mix=mix,
        numjobs=numjobs if apart is None else apart[0],
        clients=tuple(f"client {number}" for number in range(1, len(hosts) + 1)),
        runtime_s=job.runtime_s,
        latency_source=latency_source_of(job),
        status=status,
        reason=reason,
        read=direction_of(job.read),
        write=direction_of(job.write),
        conditions=replace(_conditions(job, mix, max(1, len(hosts)), numjobs, origin), storing_jobs=apart and apart[1]),
    )
    judged = judge(point)
    own = [] if status == "failed" else [item for item in (contradiction, *notes_of(output, jobs, job)) if item]
    return Observation(replace(judged, warnings=(*own, *judged.warnings)), histograms_of(job))


def _assigned(job: FioJob) -> FioJob:
    """The job with its numbers under the direction that they belong to.

    With unified_rw_reporting=mixed a job of one direction has hidden nothing: its numbers are that direction's. The
    reads of a write job with ``verify`` come after its writes, so that nothing was mixed; they are left out.
    """
    mix = _MIX_OF_RW.get(_rw(job), "mixed")
    if mix == "write" and job.write is not None and "verify" in job.options:
        return replace(job, read=None, runtime_s=job.write.runtime_s)
    if not job.unified or mix == "mixed":
        return job
    read, write = (job.mixed, None) if mix == "read" else (None, job.mixed)
    return replace(job, unified=False, mixed=None, read=read, write=write)


def mix_of(job: FioJob) -> Mix:
    """What the job did. Both directions done settles it: a group takes its last section's options (axboe/fio#2132)."""
    if job.read is not None and job.write is not None:
        return "mixed"
    if job.read is None and job.write is None:
        return _MIX_OF_RW.get(_rw(job), "read")
    return "read" if job.write is None else "write"


def _rw(job: FioJob) -> str:
    return job.options.get("rw", job.options.get("readwrite", "")).split(":")[0].lower()


def _apart(job: FioJob, mix: Mix) -> tuple[int, int] | None:
    """Jobs that read and jobs that only write in a mixed point of kvbench's own, None in any other group.

    A group's options are those of its last section (axboe/fio#2132), the paced writers'. How many read says the name:
    the summed runtime does not, since a job that waits for its last operation counts for longer.
    """
    readers, writers = jobs_in(job.name), number(job.options, "numjobs", 1)
    paced = "rate" in job.options and _MIX_OF_RW.get(_rw(job)) == "write"
    return (readers, writers) if mix == "mixed" and paced and readers and writers else None


def _status(job: FioJob, output: FioOutput) -> tuple[Status, str | None]:
    if failure := failure_of(job, output.preamble.splitlines()):
        return "failed", failure
    asked_s = duration_s(job.options.get("runtime"))
    if output.interrupted and (asked_s is None or job.runtime_s < asked_s * _WHOLE):
        return "interrupted", "fio was stopped by a signal before this job had its time"
    return "ok", None


def _io_bytes(job: FioJob, jobs: int) -> tuple[int, PointWarning | None]:
    """Bytes per operation as done; the option only confirms them, since it can be another job's (axboe/fio#2132)."""
    sides = {name: side for name, side in (("read", job.read), ("write", job.write)) if side is not None}
    ios, done = sum(side.ios for side in sides.values()), sum(side.bytes for side in sides.values())
    asked = io_bytes_of(job.options, *sides) if len(sides) == 1 else io_bytes_of(job.options)
    if ios == 0:
        return asked or 0, None
    spare = failed_ios(job) + max(1, ios // 1000)
    before = in_flight_at_start(job.options, jobs)
    if asked is not None and -asked * spare <= done - asked * ios <= asked * (spare + before):
        return asked, None
    measured, text = round(done / ios), block_size_text(job.options)
    if text is None:
        return measured, None
    return measured, PointWarning(
        "block-size",
        f"the job says {text} and moved {measured:,} bytes per operation on average",
        "the entry mixes block sizes; run fio with one group per block size",
        {"bs": asked, "bytes_per_operation": measured},
    )


def _conditions(job: FioJob, mix: Mix, hosts: int, numjobs: int, origin: _Source) -> Conditions:
    options, limit = job.options, origin.limit
    # Without options (fio before 2.3, some client results) a default would be a guess.
    depth = (number(options, "iodepth", 1) or None) if job.options_known else None
    capped = depth is not None and depth > 1 and job.depth_one_percent is not None and job.depth_one_percent > 99.9
    jobs = number(options, "numjobs", 0) or unnamed_jobs(job) or 1
    size = dataset_bytes(options, jobs) if job.options_known else None
    share = number(options, "rwmixread", 50) if mix == "mixed" and _MIX_OF_RW.get(_rw(job)) == "mixed" else None
    return Conditions(
        ioengine=options.get("ioengine", "psync" if job.options_known else None),
        direct=direct_of(options) if job.options_known else None,
        iodepth=depth,
        iodepth_reached=False if capped else None,
        # A group of readers and writers (axboe/fio#2132) was never asked for a mix.
        rwmixread=share if share is not None and share <= 100 else None,
        requested_runtime_s=asked_runtime_s(job, numjobs, hosts),
        dataset_bytes=None if size is None else size * hosts,
        failed_ios=failed_ios(job),
        device_read_bytes=_delivered_bytes(job, origin.delivered_share),
        submission_ns=submission_ns_of(job),
        access=access_of(options) if job.options_known else None,
        paced=paced_by(options),
        beside_in_flight=beside_in_flight(job),
        objects_written=None if job.read is None else reads_were_written(options, origin.writers),
        limit_bytes_per_s=None if limit is None else limit.bytes_per_s,
        limit_source=None if limit is None else limit.source,
        limit_asked=limit is not None and limit.asked,
    )


def _delivered_share(output: FioOutput) -> float | None:
    return delivered_share(output.disks, [found for job in output.jobs for found in _direct_reads(job)])


def _delivered_bytes(job: FioJob, share: float | None) -> int | None:
    """The most that the devices can have delivered to this job's reads, where that is short of them; else None."""
    return None if share is None or job.read is None or not _direct_reads(job) else round(share * job.read.bytes)


def _direct_reads(job: FioJob) -> list[DirectReads]:
    if job.read is None or not job.options_known:
        return []
    found = direct_reads(job.options, job.read.ios, job.read.bytes, job.read.runtime_s)
    return [] if found is None else [found]


def _writers(outputs: Sequence[FioOutput]) -> list[tuple[dict[str, str], int]]:
    """Options and operations of the jobs that wrote without an error, whatever else they did."""
    return [
        (job.options, job.write.ios)
        for output in outputs
        for job in output.jobs
        if job.write is not None and not job.error and job.read is None
    ]


class _Unused:
    """Names that were not given away yet: the wanted one, else with the first free number."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def __call__(self, name: str) -> str:
        candidate, count = name, self._next.get(name, 2)
        while candidate in self._taken:
            candidate, count = f"{name}-{count}", count + 1
        # Thousands of jobs may share a name: looking from 2 on each time would be quadratic.
        self._next[name] = count
        self._taken.add(candidate)
        return candidate
