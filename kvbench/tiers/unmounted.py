"""A directory that looks like a mount point and is none: what is measured there is the root file system."""

from __future__ import annotations

import re
from pathlib import Path

from kvbench.tiers.mounts import mount_of, unescape

# Where people and the system mount file systems (hier(7), udisks); what lies directly below has the mount's name.
_FOLDERS = (("mnt",), ("media",), ("run", "media"))
# Directories of the root that are mounted where they exist: Kubernetes examples, HPC, and the names of storage itself.
_NAMED = re.compile(
    r"data\d*|scratch\d*|ssd\d*|efs|fsx|pvc?|kv-?cache|(?:nvme|ceph|nfs|lustre|gpfs|beegfs|weka|gluster)[\w-]*"
)


def unmounted(path: Path, mountinfo: str | None = None, fstab: str | None = None) -> str | None:
    """Why the directory is probably not where the user thinks, or None; ``path`` is resolved.

    Only what is listed in /etc/fstab and not mounted is certain; a name alone counts only on the root file system.
    """
    mount = mount_of(path, mountinfo)
    if mount is None:
        return None
    if fstab is None:
        fstab = _text(Path("/etc/fstab"))
    below = [point for point in _mount_points(fstab) if path.is_relative_to(point) and point != Path("/")]
    missing = [point for point in below if Path(mount.mount_point) in point.parents]
    lies = f"it lies on the {mount.filesystem} of {mount.mount_point}"
    if missing:
        return f"{max(missing, key=lambda point: len(point.parts))} is listed in /etc/fstab and not mounted: {lies}"
    named = _named_like_a_mount(path)
    if mount.mount_point != "/" or named is None:
        return None
    return f"{named} looks like a mount point and is none: {lies}, the root file system"


def _mount_points(fstab: str) -> list[Path]:
    rows = [line.split() for line in fstab.splitlines() if not line.lstrip().startswith("#")]
    return [Path(unescape(row[1])) for row in rows if len(row) > 1 and row[1].startswith("/")]


def _named_like_a_mount(path: Path) -> Path | None:
    parts = path.parts[1:]
    for folder in _FOLDERS:
        # Users' media are one level deeper: /run/media/USER/NAME.
        depth = len(folder) + (2 if folder == ("run", "media") else 1)
        if parts[: len(folder)] == folder and len(parts) >= depth:
            return Path("/", *parts[:depth])
    return Path("/", parts[0]) if parts and _NAMED.fullmatch(parts[0].lower()) else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
