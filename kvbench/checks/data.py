"""What was read: real data, enough of it, in which order (pure)."""

from __future__ import annotations

from kvbench.checks.sides import one_block_each
from kvbench.record.results import PointResult, PointWarning
from kvbench.tiers.mounts import cached_here_only
from kvbench.units import format_bytes, format_count

_REREADS = 2.0


def unwritten(point: PointResult) -> PointWarning | None:
    """Holes and unwritten extents are answered by the file system: 17 GB/s on a disk of 0.5 GB/s (fio 3.33, ext4)."""
    missing = point.conditions.unwritten_bytes
    if not missing or point.read is None:
        return None
    return PointWarning(
        "unwritten-data",
        f"{format_bytes(missing)} of the data set were never written (holes, unwritten extents, zeros on a "
        "device): reading them touches no storage",
        "lay the data out with real writes; fallocate and truncate are not enough",
        {"unwritten_bytes": missing, "dataset_bytes": point.conditions.dataset_bytes},
    )


def not_mounted(point: PointResult) -> PointWarning | None:
    """A volume that is not mounted leaves its empty directory behind, on the root file system."""
    said = point.conditions.unmounted
    if said is None:
        return None
    return PointWarning("not-mounted", said, "mount it and measure again, unless you mean the root file system", {})


def unproven_objects(point: PointResult) -> PointWarning | None:
    """fio's http engine takes a GET that is answered 404 for a full read without error (engines/http.c to 3.42)."""
    if point.conditions.objects_written is not False or point.read is None:
        return None
    return PointWarning(
        "objects-not-proven",
        "fio counts an S3 read of an object that does not exist as a full read, and nothing in the file shows that "
        "these objects were written",
        "import the run that wrote the objects in the same file, or check their names and sizes with another client",
        {"read_ios": point.read.ios},
    )


def hot_object(point: PointResult) -> PointWarning | None:
    """A job whose file is one block long reads that block for ever: the study's S3 reads (axboe/fio#2002)."""
    dataset = point.conditions.dataset_bytes
    if not dataset or point.read is None or not one_block_each(point):
        return None
    factor = point.read.bytes / dataset
    if factor <= _REREADS:
        return None
    what = "object" if point.of_objects else "block"
    blocks = max(1, round(dataset / point.io_bytes))
    return PointWarning(
        "hot-object",
        f"{format_count(blocks)} {what}{'s' if blocks > 1 else ''} of {format_bytes(point.io_bytes)} "
        f"{'were' if blocks > 1 else 'was'} read {factor:,.0f} times each: a cache answers that, not the tier",
        f"give every job many {what}s to read, more than the storage server's memory holds",
        {"re_read_factor": round(factor, 2), "distinct_blocks": blocks, "dataset_bytes": dataset},
    )


def rereads(point: PointResult) -> PointWarning | None:
    """A data set that is read over and over fits caches that O_DIRECT does not bypass (controller, server, OSD)."""
    dataset = point.conditions.dataset_bytes
    if not dataset or point.read is None:
        return None
    factor = point.read.bytes / dataset
    memory = _memory_of_server(point)
    if factor <= _REREADS or one_block_each(point) or (memory is not None and dataset > memory):
        return None
    fits = f"is smaller than the {format_bytes(memory)} of memory here" if memory else "may fit into memory"
    return PointWarning(
        "re-read",
        f"the data set of {format_bytes(dataset)} was read {factor:.1f} times and {fits}: "
        "a cache below O_DIRECT may have answered",
        "use a larger --dataset, best above the memory of the storage server",
        {"re_read_factor": round(factor, 2), "dataset_bytes": dataset, "memory_bytes": memory},
    )


def sequential(point: PointResult) -> PointWarning | None:
    """``rw=read`` is sequential: servers and drives read ahead, which scattered KV blocks do not allow."""
    if point.conditions.access != "sequential" or point.read is None or one_block_each(point):
        return None
    return PointWarning(
        "sequential",
        "the reads were sequential (rw=read), so read-ahead below O_DIRECT may have helped: these are no random reads",
        "measure with rw=randread, or compare with sequential points only",
        {"access": "sequential"},
    )


def _memory_of_server(point: PointResult) -> int | None:
    """Memory of the host that serves the data: this one's for local devices, unknown behind a network or FUSE."""
    conditions = point.conditions
    return conditions.memory_bytes if cached_here_only(conditions.filesystem or "") else None
