"""What a directory is on, in words: the file system, who serves it, and what that means for a measurement."""

from __future__ import annotations

from kvbench.tiers import ceph
from kvbench.tiers.mounts import Mount, backing_of, device_model, device_name

# fstype or source of FUSE mounts of object stores (mountinfo): s3fs-fuse, rclone mount, Mountpoint for Amazon S3.
_OBJECT_MOUNTS = {
    "fuse.s3fs": "s3fs",
    "s3fs": "s3fs",
    "fuse.rclone": "rclone",
    "fuse.mountpoint-s3": "Mountpoint for S3",
    "mountpoint-s3": "Mountpoint for S3",
    "fuse.gcsfuse": "gcsfuse",
    "fuse.goofys": "goofys",
    "fuse.geesefs": "GeeseFS",
}


def describe(mount: Mount | None) -> str:
    """One phrase for what holds the files of a directory."""
    if mount is None:
        return "a directory; the system does not say on which file system"
    if client := ceph.client_of(mount):
        return "CephFS through ceph-fuse" if client == "ceph-fuse" else "CephFS, kernel client"
    if program := object_mount(mount):
        return f"an object store mounted with {program} ({mount.source})"
    if mount.filesystem.startswith("nfs"):
        return f"NFS from {mount.source}"
    by_kind = {
        "memory": f"{mount.filesystem}: memory, not storage",
        "overlay": _overlay(mount),
        "network": f"{mount.filesystem} from {mount.source}",
        "fuse": f"{mount.filesystem} ({mount.source}), a FUSE program",
        "block": f"local {mount.filesystem} on {_device(mount)}",
    }
    return by_kind.get(mount.kind, f"{mount.filesystem} from {mount.source}")


def object_mount(mount: Mount) -> str | None:
    """The program that mounts an object store here, or None when it is no such mount."""
    return _OBJECT_MOUNTS.get(mount.filesystem) or _OBJECT_MOUNTS.get(mount.source)


def warning(mount: Mount | None) -> str | None:
    """What measuring this kind of directory does not say, with the next step; None when there is nothing to warn of."""
    if mount is None:
        return None
    if program := object_mount(mount):
        return f"{program} keeps local copies, so reads may never reach the object store; measure s3://bucket/prefix"
    if said := ceph.warning_of(ceph.client_of(mount)):
        return f"{said}; mount CephFS with the kernel client to measure what a server would use"
    said_by_kind = {
        "memory": "its data is in this host's memory, O_DIRECT or not; name a directory on the storage tier",
        "overlay": "a container's own root file system, not a volume; name the directory where the volume is mounted",
        "fuse": "a FUSE program may cache despite O_DIRECT; compare with the storage server's own counters",
        "network": "the server's cache may answer and cannot be seen from here; use a data set above its memory",
    }
    return said_by_kind.get(mount.kind)


def _overlay(mount: Mount) -> str:
    below = backing_of(mount)
    return f"an overlay on {describe(below)}" if below else "an overlay (a container's root file system)"


def _device(mount: Mount) -> str:
    name = device_name(mount.device_numbers)
    model = device_model(mount.device_numbers)
    return (f"/dev/{name}" if name else mount.source) + (f" ({model})" if model else "")
