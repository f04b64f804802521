"""What a CephFS mount says about itself: client, pool, layout, and how many copies its pool keeps.

The layout comes from the extended attributes that both clients offer (Ceph documentation, "File layouts"): a directory
without a layout of its own inherits that of the nearest one above. Where a sub-directory of CephFS is mounted that one
may lie above the mount, and only a new file shows its layout. The number of copies is not in the file system; the
``ceph`` program is asked for it where it is installed and belongs to the same cluster.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kvbench.tiers.mounts import Mount

Client = Literal["kernel", "ceph-fuse"]
Value = str | int | None

# The ceph program waits for its monitors for ever unless told otherwise.
_CONNECT_S, _ASK_S = 5, 15
_ERASURE_CODED = 3

FUSE_FILESYSTEMS = frozenset({"fuse.ceph-fuse", "fuse.ceph"})
FUSE_REQUEST_BYTES = 128 << 10
FUSE_WARNING = (
    "ceph-fuse splits every request at 128 KiB (libfuse 2: a block of 2304 KiB became 18 RADOS operations), "
    "so these latencies do not stand for the kernel client"
)


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How files of a directory are cut into RADOS objects, and in which pool those are."""

    pool: str | None
    stripe_unit_bytes: int | None
    stripe_count: int | None
    object_bytes: int | None


def client_of(mount: Mount | None) -> Client | None:
    """Which client mounted CephFS here, or None when the mount is no CephFS."""
    if mount is None:
        return None
    if mount.filesystem in FUSE_FILESYSTEMS:
        return "ceph-fuse"
    return "kernel" if mount.filesystem == "ceph" else None


def warning_of(client: Client | None) -> str | None:
    """What a measurement through this client does not say, or None."""
    return FUSE_WARNING if client == "ceph-fuse" else None


def facts(path: Path, mount: Mount | None, new_file_attribute: Callable[[str], str | None]) -> dict[str, Value]:
    """Facts of a directory on CephFS for the result file, each known or "unknown: because"; empty elsewhere.

    ``new_file_attribute`` makes a file in ``path``, reads an attribute of it and removes it; it is called when no
    directory shows a layout.
    """
    client = client_of(mount)
    if client is None or mount is None:
        return {}
    layout = layout_of(path, Path(mount.mount_point), read_attribute)
    if layout.pool is None:
        layout = parse_layout(new_file_attribute("ceph.file.layout") or "")
    fsid = read_attribute(Path(mount.mount_point), "ceph.cluster_fsid")
    return {
        "ceph_client": client,
        "ceph_pool": _known(layout.pool),
        "ceph_stripe_unit_bytes": _known(layout.stripe_unit_bytes),
        "ceph_stripe_count": _known(layout.stripe_count),
        "ceph_object_bytes": _known(layout.object_bytes),
        **redundancy(ask_cluster(), fsid, layout.pool),
    }


def layout_of(path: Path, mount_point: Path, read: Callable[[Path, str], str | None]) -> FileLayout:
    """The layout that a new file in ``path`` gets: the directory's own or that of the nearest one above."""
    for folder in (path, *path.parents):
        text = read(folder, "ceph.dir.layout")
        if text is not None:
            return parse_layout(text)
        if folder == mount_point:
            break
    return FileLayout(None, None, None, None)


def parse_layout(text: str) -> FileLayout:
    """``stripe_unit=4194304 stripe_count=1 object_size=4194304 pool=NAME`` as a FileLayout."""
    fields = dict(word.partition("=")[::2] for word in text.split())

    def number(name: str) -> int | None:
        value = fields.get(name, "")
        return int(value) if value.isdecimal() else None

    return FileLayout(fields.get("pool"), number("stripe_unit"), number("stripe_count"), number("object_size"))


def redundancy(dump: Mapping[str, Any] | str, fsid: str | None, pool: str | None) -> dict[str, Value]:
    """Copies of every object and OSDs that are up, from ``ceph osd dump`` (or the reason for having none)."""
    if isinstance(dump, str):
        return {"ceph_copies": f"unknown: {dump}", "ceph_osds_up": f"unknown: {dump}"}
    if fsid is None or dump.get("fsid") != fsid:
        why = "unknown: the ceph program on this host belongs to another cluster than the mount"
        return {"ceph_copies": why, "ceph_osds_up": why}
    found = next((item for item in dump.get("pools", []) if item.get("pool_name") == pool), None)
    up = sum(1 for osd in dump.get("osds", []) if osd.get("up") == 1)
    copies = "unknown: the mount does not name its pool" if pool is None else _copies(found)
    return {"ceph_copies": copies, "ceph_osds_up": up}


def ask_cluster() -> Mapping[str, Any] | str:
    """``ceph osd dump`` with this host's configuration ($CEPH_CONF or /etc/ceph), or why there is none."""
    program = shutil.which("ceph")
    if program is None:
        return "the ceph program is not installed here"
    command = [program, "--connect-timeout", str(_CONNECT_S), "osd", "dump", "--format", "json"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_ASK_S, check=False, stdin=subprocess.DEVNULL
        )
        answer = json.loads(done.stdout) if done.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired, ValueError, RecursionError):
        answer = None
    return (
        answer if isinstance(answer, dict) else "the cluster does not answer 'ceph osd dump' with the keys on this host"
    )


def read_attribute(path: Path, name: str) -> str | None:
    """An extended attribute as text, or None when the file system does not have it."""
    try:
        return os.getxattr(path, name).decode(errors="replace").strip("\0 \n") or None
    except OSError:
        return None


def _copies(pool: Mapping[str, Any] | None) -> Value:
    if pool is None:
        return "unknown: the pool is not listed"
    if pool.get("type") == _ERASURE_CODED:
        return f"erasure coded over {pool.get('size')} chunks"
    size = pool.get("size")
    return size if isinstance(size, int) else "unknown: the pool says no size"


def _known(value: Value) -> Value:
    return "unknown: the mount does not say" if value is None else value
