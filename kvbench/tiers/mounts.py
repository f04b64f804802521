"""Which file system and device a path lives on, from /proc/self/mountinfo and /sys (Linux)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kvbench.border.redaction import redacted

MountKind = Literal["block", "network", "fuse", "memory", "overlay", "other"]

# File systems that keep file data in memory: O_DIRECT succeeds there on current kernels and proves nothing.
MEMORY_FILESYSTEMS = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
NETWORK_FILESYSTEMS = frozenset(
    {"nfs", "nfs4", "ceph", "cifs", "smb3", "lustre", "beegfs", "gpfs", "glusterfs", "9p", "wekafs", "afs", "pvfs2"}
)


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount: where, what type, from which source, which options (credentials removed), on which device."""

    mount_point: str
    filesystem: str
    source: str
    options: str
    device_numbers: str

    @property
    def kind(self) -> MountKind:
        """What answers a read here: a block device, a server, a FUSE program, memory, or other directories."""
        if self.filesystem in MEMORY_FILESYSTEMS:
            return "memory"
        if self.filesystem in NETWORK_FILESYSTEMS:
            return "network"
        if _is_fuse(self.filesystem):
            return "fuse"
        if self.filesystem == "overlay":
            return "overlay"
        return "block" if self.source.startswith("/dev/") else "other"


def cached_here_only(filesystem: str) -> bool:
    """Whether this host's own memory is what may cache a file system's data: not behind a network or a program."""
    return filesystem not in NETWORK_FILESYSTEMS and not _is_fuse(filesystem)


def _is_fuse(filesystem: str) -> bool:
    """Whether a program answers; fuseblk is a local disk (ntfs-3g) all the same behind one with a cache of its own."""
    return filesystem.startswith("fuse")


@dataclass(frozen=True, slots=True)
class DeviceCounters:
    """Bytes that a block device has read and written since boot, and the requests that did it."""

    read_bytes: int
    written_bytes: int
    read_requests: int = 0
    write_requests: int = 0


def mount_of(path: Path, mountinfo: str | None = None) -> Mount | None:
    """The mount that holds ``path`` (resolved), or None when the system does not say.

    The last line with the longest matching mount point wins: later mounts hide earlier ones on the same place.
    """
    if mountinfo is None:
        source = Path("/proc/self/mountinfo")
        if not source.exists():
            return None
        mountinfo = source.read_text(errors="replace")
    best: Mount | None = None
    for line in mountinfo.splitlines():
        mount = _parse(line)
        if mount is None or not path.is_relative_to(mount.mount_point):
            continue
        if best is None or len(mount.mount_point) >= len(best.mount_point):
            best = mount
    return best


def backing_of(mount: Mount, mountinfo: str | None = None) -> Mount | None:
    """The mount that really holds what is written to an overlay, or None when it is no overlay or cannot be seen.

    Inside a container the upper directory is a path of the host, which is not there.
    """
    match = re.search(r"(?:^|,)upperdir=([^,]+)", mount.options)
    if mount.kind != "overlay" or match is None:
        return None
    upper = Path(unescape(match[1]))
    if mountinfo is None and not upper.is_dir():
        return None
    found = mount_of(upper, mountinfo)
    return None if found is None or found.kind == "overlay" else found


def device_name(device_numbers: str, sys_block: Path = Path("/sys/dev/block")) -> str | None:
    """The kernel's name of a block device such as ``nvme0n1p1``, or None for file systems without one."""
    link = sys_block / device_numbers
    return link.resolve().name if link.exists() else None


def device_model(device_numbers: str, sys_block: Path = Path("/sys/dev/block")) -> str | None:
    """The device's model text, from the disk itself or from the disk of a partition, or None."""
    link = sys_block / device_numbers
    if not link.exists():
        return None
    for folder in (link.resolve(), link.resolve().parent):
        model = folder / "device" / "model"
        if model.is_file():
            return model.read_text(errors="replace").strip() or None
    return None


def device_counters(device_numbers: str, diskstats: str | None = None) -> DeviceCounters | None:
    """Bytes and requests of the device so far (/proc/diskstats: completed requests, 512-byte sectors), or None."""
    if diskstats is None:
        source = Path("/proc/diskstats")
        if not source.exists():
            return None
        diskstats = source.read_text()
    rows = [fields for line in diskstats.splitlines() if len(fields := line.split()) >= 10]
    own = next((fields for fields in rows if fields[:2] == device_numbers.split(":")), None)
    if own is None:
        return None
    # An NVMe namespace with native multipath shows zeros on many kernels: its paths, nvme0c1n1, count
    # (sysstat/sysstat#341, Atoptool/atop#157). What it counts itself, they count too.
    namespace = re.match(r"nvme(\d+)n(\d+)", own[2])
    path_name = re.compile(rf"nvme{namespace[1]}c\d+n{namespace[2]}") if namespace else None
    paths = [fields for fields in rows if path_name and path_name.fullmatch(fields[2])]
    reads, read, writes, written = (max(int(own[at]), sum(int(fields[at]) for fields in paths)) for at in (3, 5, 7, 9))
    return DeviceCounters(read * 512, written * 512, reads, writes)


def _parse(line: str) -> Mount | None:
    # proc(5): id parent major:minor root mount-point options [optional fields] - type source super-options
    left, separator, right = line.partition(" - ")
    fields, tail = left.split(), right.split()
    if not separator or len(fields) < 6 or len(tail) < 2:
        return None
    options = ",".join([fields[5], *tail[2:3]])
    return Mount(
        mount_point=unescape(fields[4]),
        filesystem=tail[0],
        source=redacted(unescape(tail[1])),
        options=redacted(options),
        device_numbers=fields[2],
    )


def unescape(text: str) -> str:
    """A field of mountinfo or fstab as it was before the kernel or its writer escaped it."""
    # The kernel writes blanks, tabs, newlines and backslashes as octal.
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)
