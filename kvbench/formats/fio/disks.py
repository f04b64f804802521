"""What the devices delivered of what fio read, from the ``disk_util`` of its JSON (pure).

fio reads a device's counters every 250 ms and never again once its files are closed (diskutil.c, fio 3.33: 0 of the 100
reads of a run of 19 ms, 907 of the 1,000 of one of 162 ms), so the end of a run is not in them. Sectors came with 3.36;
before, a device is known only by its requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvbench.formats.fio.options import access_of, direct_of
from kvbench.formats.fio.schema import Disk

_SECTOR_BYTES = 512
# One interval of fio's, and what its helper thread may be late.
_UNSEEN_S = 0.3
_SHARE = 0.90
# The kernel's default for the largest request up to 6.14 (blk-settings.c, BLK_DEF_MAX_SECTORS).
_LARGEST_REQUEST_BYTES = 1280 << 10
_NVME_NAMESPACE = re.compile(r"nvme\d+n\d+")


@dataclass(frozen=True, slots=True)
class DirectReads:
    """What one job read past the page cache."""

    ios: int
    bytes: int
    runtime_s: float
    random: bool


def direct_reads(options: dict[str, str], ios: int, moved: int, runtime_s: float) -> DirectReads | None:
    """The reads of a job as the devices should have seen them; None where the page cache or no device answers."""
    if not direct_of(options):
        return None
    return DirectReads(ios, moved, runtime_s, access_of(options) == "random")


def delivered_share(disks: Sequence[Disk], reads: Iterable[DirectReads]) -> float | None:
    """The most that the devices can have delivered of the reads, where that is short of them; None where it is not.

    The counters are those of the whole run, so that nothing tells its jobs apart.
    """
    known = list(reads)
    asked = sum(job.bytes for job in known)
    seen_of = sum(job.bytes * max(0.0, 1 - _UNSEEN_S / job.runtime_s) for job in known if job.runtime_s)
    most = _most_bytes(disks, known)
    if not asked or most is None or most >= seen_of * _SHARE:
        return None
    return most / asked


def _most_bytes(disks: Sequence[Disk], reads: Sequence[DirectReads]) -> float | None:
    counting = [disk for disk in disks if disk.read_ios is not None and not _counts_nothing(disk)]
    if not counting or not reads:
        return None
    if all(disk.read_sectors is not None for disk in counting):
        return _below(counting, [(disk.read_sectors or 0) * _SECTOR_BYTES for disk in counting])
    # Neighbouring operations of a sequential job may share a request; of a random one only the pieces of one do.
    merges = not all(job.random for job in reads)
    requests = _below(counting, [(disk.read_ios or 0) + (disk.read_merges or 0) * merges for disk in counting])
    # A request can hold a whole operation, whatever is usual: then only fewer of them than operations tell.
    if requests >= _SHARE * sum(job.ios for job in reads):
        return None
    largest = max(job.bytes / job.ios for job in reads)
    return requests * min(largest, _LARGEST_REQUEST_BYTES)


def _below(disks: Sequence[Disk], counts: Sequence[int]) -> int:
    """The sum without counting twice what a device-mapper or RAID device passes on to the disks below it."""
    above = sum(count for disk, count in zip(disks, counts, strict=True) if disk.aggr_read_ios is not None)
    return max(above, sum(counts) - above)


def _counts_nothing(disk: Disk) -> bool:
    # With native multipath a namespace shows zeros on many kernels: its paths count (sysstat/sysstat#341).
    idle = not any((disk.read_ios, disk.read_sectors, disk.write_ios, disk.in_queue))
    return idle and _NVME_NAMESPACE.fullmatch(disk.name) is not None
