"""Did the tier answer, or did a cache: each check is one pure function of the point."""

from __future__ import annotations

from kvbench.record.results import CacheState, PointResult, PointWarning
from kvbench.tiers import ceph
from kvbench.tiers.mounts import MEMORY_FILESYSTEMS
from kvbench.units import format_bytes

_CACHED = 0.01
_DEVICE_SHARE = 0.90


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


def memory_filesystem(point: PointResult) -> PointWarning | None:
    """tmpfs accepts O_DIRECT since Linux 6.6 and is RAM all the same."""
    seen = point.conditions
    if seen.filesystem not in MEMORY_FILESYSTEMS and seen.backing_filesystem not in MEMORY_FILESYSTEMS:
        return None
    kind = seen.filesystem if seen.backing_filesystem is None else f"{seen.filesystem} on {seen.backing_filesystem}"
    return PointWarning(
        "memory-filesystem",
        f"the tier is {kind}: this measured memory, not storage",
        "name a directory on the storage tier",
        {"filesystem": kind},
    )


def buffered(point: PointResult) -> PointWarning | None:
    """Without O_DIRECT the page cache is measured along (D5 of the field's bug reports: 5,060 MiB/s instead of 340)."""
    if point.conditions.direct is not False:
        return None
    if point.conditions.ioengine == "mmap":
        return PointWarning(
            "buffered",
            "fio's mmap engine reads and writes the page cache, whatever direct says",
            "measure with libaio, io_uring or psync and direct=1",
            {},
        )
    return PointWarning(
        "buffered",
        "fio ran without direct=1, so the page cache took part",
        "measure again with direct=1",
        {},
    )


def page_cache(point: PointResult) -> PointWarning | None:
    """O_DIRECT can be accepted and still fill the page cache (FUSE, overlay)."""
    cached = point.conditions.cached_fraction
    if cached is None or cached <= _CACHED or memory_filesystem(point) is not None:
        return None
    return PointWarning(
        "page-cache",
        f"{cached:.0%} of the data set sits in this host's page cache although O_DIRECT was asked for",
        "this mount does not bypass the page cache; use a data set larger than memory or another mount",
        {"cached_fraction": round(cached, 4)},
    )


def device_counters(point: PointResult) -> PointWarning | None:
    """Reads that the device never saw came from a cache."""
    seen = point.conditions.device_read_bytes
    if seen is None or point.read is None or seen >= point.read.bytes * _DEVICE_SHARE:
        return None
    return PointWarning(
        "reads-not-from-device",
        f"fio read {format_bytes(point.read.bytes)} and the device delivered {format_bytes(seen)}: "
        "the rest came from a cache",
        "use a larger --dataset or a mount that bypasses the cache",
        {"read_bytes": point.read.bytes, "device_read_bytes": seen},
    )


def cache_unknown(point: PointResult) -> PointWarning | None:
    """Network and FUSE mounts have no device counters, so nothing proves that no cache answered."""
    kind = point.conditions.filesystem
    if kind is None or cache_state(point) != "unknown":
        return None
    return PointWarning(
        "cache-state-unknown",
        f"{kind} has no device counters on this host: nothing proves that no cache answered",
        "use a data set larger than the memory of the storage server",
        {"filesystem": kind},
    )


def ceph_fuse(point: PointResult) -> PointWarning | None:
    """libfuse 2 caps a request at 128 KiB: one block of 2304 KiB became 18 RADOS operations (ceph-fuse 16.2)."""
    said = ceph.FUSE_WARNING if point.conditions.filesystem in ceph.FUSE_FILESYSTEMS else None
    if said is None:
        return None
    return PointWarning(
        "ceph-fuse",
        said,
        "mount CephFS with the kernel client to measure what an inference server would use",
        {"request_bytes": ceph.FUSE_REQUEST_BYTES, "io_bytes": point.io_bytes},
    )


def small_data_set(point: PointResult) -> PointWarning | None:
    """A data set that memory can hold needs proof that it did not; with the proof there is nothing to say."""
    dataset, memory = point.conditions.dataset_bytes, point.conditions.memory_bytes
    if not dataset or not memory or point.read is None or dataset > memory or cache_state(point) != "unknown":
        return None
    return PointWarning(
        "fits-memory",
        f"the data set of {format_bytes(dataset)} is smaller than the {format_bytes(memory)} of memory of this host, "
        "and that of the storage server is not known: it may be held in memory throughout",
        "use a --dataset above the memory of the storage server, or drop its caches with --before-read",
        {"dataset_bytes": dataset, "memory_bytes": memory},
    )
