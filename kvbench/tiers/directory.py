"""A directory as a tier: checked before anything is written, worked in below a marked sub-directory, left as it was."""

from __future__ import annotations

import json
import os
import secrets
import socket
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kvbench.errors import TierError
from kvbench.tiers import ceph
from kvbench.tiers.device import device_facts
from kvbench.tiers.guard import MARKER_NAME, Guard, processes_with, remove_marked
from kvbench.tiers.mounts import Mount, backing_of, mount_of
from kvbench.tiers.pagecache import direct_write_error
from kvbench.units import format_bytes

WORK_PREFIX = "kvbench-"

# Who answers a read of each kind of mount.
_CLIENTS = {
    "block": "kernel, local device",
    "network": "kernel client of a server",
    "fuse": "FUSE program, which may cache",
    "memory": "kernel, memory",
    "overlay": "kernel, overlay of other directories",
    "other": "kernel",
}

DEFAULT_DATASET_BYTES = 4 << 30
_SMALLEST_MARGIN_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class DirectoryTier:
    """A directory that passed the checks; ``path`` is resolved, ``free_bytes`` is what this user may still write."""

    name: str
    path: Path
    mount: Mount | None
    free_bytes: int

    @property
    def driver(self) -> str:
        """The driver that measures a directory unless another is asked for."""
        return "fio"

    def default_dataset_bytes(self) -> int:
        """4 GiB or a quarter of the free space, whichever is less, in whole MiB."""
        return min(DEFAULT_DATASET_BYTES, self.free_bytes // 4) >> 20 << 20

    def require_space(self, dataset_bytes: int) -> None:
        """TierError unless the data set fits with a margin that leaves the file system usable."""
        needed = dataset_bytes + max(_SMALLEST_MARGIN_BYTES, dataset_bytes // 20)
        if needed > self.free_bytes:
            raise TierError(
                f"{self.path} has {format_bytes(self.free_bytes)} free and the data set needs {format_bytes(needed)} "
                "(with a margin of 5 %, at least 64 MiB); free some space or use a smaller --dataset."
            )

    def require_direct_io(self, space: Workspace, sizes: Sequence[int]) -> None:
        """TierError unless O_DIRECT takes every I/O size: nothing is measured through the page cache silently."""
        for size in sizes:
            number = direct_write_error(space.path / "probe", size)
            if number is None:
                continue
            kind = self.mount.filesystem if self.mount else "unknown"
            if size % 512 or size % 4096:
                raise TierError(
                    f"{self.path} ({kind}) refuses O_DIRECT with {size} bytes ({os.strerror(number)}): "
                    "not a multiple of its sector size; choose a model, TP or block size whose unit is."
                )
            raise TierError(
                f"{self.path} ({kind}) refuses O_DIRECT ({os.strerror(number)}), so its page cache would be measured "
                "instead of the tier; name a directory on a file system that supports O_DIRECT."
            )

    def workspace(self, run_dir: Path) -> AbstractContextManager[Workspace]:
        """See ``workspace``; the run directory plays no part."""
        return workspace(self)

    def facts(self) -> dict[str, str | int | None]:
        """What the tier is, for the result file; what cannot be known says why."""
        mount = self.mount
        unknown = "unknown: the system does not say what the directory is mounted from"
        below = backing_of(mount) if mount else None
        return {
            "path": str(self.path),
            "filesystem": mount.filesystem if mount else unknown,
            "client": _CLIENTS[mount.kind] if mount else unknown,
            "backing_filesystem": below.filesystem if below else None,
            "mount_point": mount.mount_point if mount else unknown,
            "mount_source": mount.source if mount else unknown,
            "mount_options": mount.options if mount else unknown,
            **device_facts(mount),
            **ceph.facts(self.path, mount, self._new_file_attribute),
            "free_bytes": self.free_bytes,
        }

    def _new_file_attribute(self, name: str) -> str | None:
        """An extended attribute of a file that is made in a work space of its own; None when it cannot be had."""
        try:
            with workspace(self) as space:
                file = space.path / "probe"
                file.touch()
                return ceph.read_attribute(file, name)
        except (TierError, OSError):
            return None


@dataclass(frozen=True, slots=True)
class Workspace:
    """The marked sub-directory of a tier that this run owns, and the token that its child processes carry."""

    path: Path
    token: str


def inspect(name: str, target: str) -> DirectoryTier:
    """The directory ``target`` as a tier; TierError with the next step when it cannot be measured."""
    if "://" in target:
        raise TierError(f"tier {target!r} is unknown; kvbench measures directories, block devices, dram and s3://.")
    path = Path(target).expanduser()
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise TierError(f"the tier directory {path} does not exist; create it or name another.") from None
    except OSError as error:
        raise TierError(
            f"the tier {path} cannot be used ({error.strerror}); check the mount and your rights."
        ) from None
    if stat.S_ISCHR(mode):
        raise TierError(f"{path} is a character device; name a directory on the tier, or a block device.")
    if not stat.S_ISDIR(mode):
        raise TierError(f"{path} is not a directory; name a directory on the tier.")
    path = path.resolve()
    space = os.statvfs(path)
    return DirectoryTier(name, path, mount_of(path), space.f_bavail * space.f_frsize)


@contextmanager
def workspace(tier: DirectoryTier) -> Iterator[Workspace]:
    """A fresh marked sub-directory of the tier, removed at the end whatever happens, also after SIGKILL (see guard)."""
    remove_leftovers(tier.path)
    token = secrets.token_hex(8)
    path = tier.path / f"{WORK_PREFIX}{token}"
    try:
        path.mkdir(mode=0o700)
        (path / MARKER_NAME).write_text(json.dumps({**this_machine(), "pid": os.getpid(), "token": token}))
    except OSError as error:
        raise TierError(
            f"cannot create a sub-directory in {tier.path} ({error.strerror}); "
            "mount it read-write and give this user the right to write."
        ) from None
    guard = Guard(token, path)
    try:
        yield Workspace(path, token)
    finally:
        guard.release()


def remove_leftovers(directory: Path) -> list[Path]:
    """Remove what a kvbench that is dead left here; work of another host or of a living process stays."""
    removed = [path for path, why in leftovers(directory) if why is None]
    for path in removed:
        remove_marked(path)
    return removed


def leftovers(directory: Path, older_than_s: float | None = None) -> list[tuple[Path, str | None]]:
    """Sub-directories that kvbench made here; why each must stay, or None when the run that made it is dead.

    A process of another host, or of a container that is gone, cannot be asked: with ``older_than_s`` such a run counts
    as dead when its directory is older.
    """
    return [
        (path, _why_kept(path, older_than_s))
        for path in sorted(directory.glob(f"{WORK_PREFIX}*"))
        if (path / MARKER_NAME).is_file() and not path.is_symlink()
    ]


def _why_kept(path: Path, older_than_s: float | None) -> str | None:
    marker = path / MARKER_NAME
    try:
        owner = json.loads(marker.read_text())
        here, process, token = is_this_machine(owner), int(owner["pid"]), str(owner["token"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return "its marker cannot be read"
    if here:
        living = is_at_work(process) or processes_with(token)
        return f"process {process} is still at work" if living else None
    if older_than_s is not None and time.time() - marker.stat().st_mtime > older_than_s:
        return None
    return f"made on {owner['host']}, by a process that cannot be asked from here"


def is_at_work(process: int) -> bool:
    """Whether the process lives; one that nobody waited for stays in /proc as a zombie (proc(5), states Z and X)."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def is_this_machine(owner: Mapping[str, object]) -> bool:
    """Whether a marker was written where process ids mean the same as here; KeyError when it does not say."""
    here = this_machine()
    return {key: owner[key] for key in here} == here


def this_machine() -> dict[str, str]:
    """What tells this host, since its last boot, and this namespace of process ids from others, for a marker."""
    # Two containers of one pod share host name and boot, not process ids; only the namespace tells them apart.
    boot = Path("/proc/sys/kernel/random/boot_id")
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return {
        "host": socket.gethostname(),
        "boot": boot.read_text().strip() if boot.exists() else "",
        "pid_namespace": namespace,
    }
