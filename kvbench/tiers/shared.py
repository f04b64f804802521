"""Whether other hosts can read what this one writes to a file system, by its type (mountinfo)."""

from __future__ import annotations

from collections.abc import Mapping

from kvbench.record.results import TierPlace
from kvbench.tiers import ceph, filesystems
from kvbench.tiers.mounts import NETWORK_FILESYSTEMS, Mount, backing_of

# Cluster file systems on a device that several hosts see.
_CLUSTERED = frozenset({"gfs2", "ocfs2"})
# FUSE clients of servers beside ceph-fuse and those of object stores; any other FUSE program may keep its data here.
_FUSE_CLIENTS = frozenset(
    {"fuse.blobfuse", "fuse.blobfuse2", "fuse.glusterfs", "fuse.juicefs", "fuse.mfs", "fuse.seaweedfs", "fuse.sshfs"}
)
# A disk or a pool of this host: ntfs-3g's type is fuseblk, ZFS has data sets instead of a device.
_LOCAL = frozenset({"fuseblk", "zfs"})


def is_shared(mount: Mount | None) -> bool | None:
    """Whether a mount's data is other hosts' as well; None where its type does not tell."""
    if mount is None:
        return None
    if _has_a_server(mount):
        return True
    if mount.kind == "overlay":
        # Of a container: what is written to it lies where its upper directory does.
        below = backing_of(mount)
        return False if below is None else is_shared(below)
    return False if mount.filesystem in _LOCAL or mount.kind in ("block", "memory") else None


def was_shared(facts: Mapping[str, object]) -> bool | None:
    """The same from the facts of a run that is older than ``RunResult.traits``; None where they do not tell."""
    filesystem, source = facts.get("filesystem"), facts.get("mount_source")
    if not isinstance(filesystem, str):
        return None
    # What those runs wrote of what is no mount: "none: S3 objects", "none: a raw block device", "none: memory ...".
    if filesystem.startswith("none: "):
        return filesystem == "none: S3 objects"
    return is_shared(Mount("", filesystem, source if isinstance(source, str) else "", "", ""))


def place_was(facts: Mapping[str, object]) -> TierPlace | None:
    """The same from the facts of a run that is older than ``TierTraits.place``; None where they do not tell."""
    path, endpoint = str(facts.get("path") or ""), str(facts.get("endpoint") or "")
    if path.startswith("s3://"):
        return TierPlace(path.removeprefix("s3://"), endpoint, str(facts.get("region") or "")) if endpoint else None
    return TierPlace(path) if path.startswith("/") and not path.startswith("/dev/") else None


def _has_a_server(mount: Mount) -> bool:
    types = NETWORK_FILESYSTEMS | _CLUSTERED | _FUSE_CLIENTS
    return mount.filesystem in types or bool(ceph.client_of(mount)) or filesystems.object_mount(mount) is not None
