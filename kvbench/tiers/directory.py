"""A directory as a tier: checked before anything is written, worked in below a marked sub-directory, left as it was."""

from __future__ import annotations

import os
import secrets
import socket
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kvbench.border.escaping import escaped
from kvbench.errors import RemovalHangs, TierError, ToolError
from kvbench.record.results import TierPlace
from kvbench.tiers import ceph, parents
from kvbench.tiers.data import Data, FileData
from kvbench.tiers.device import device_facts, sector_bytes
from kvbench.tiers.guard import Guard, processes_with
from kvbench.tiers.held import Held, HeldDirectory, Identity, identity_of, made
from kvbench.tiers.mounts import Mount, backing_of, mount_of
from kvbench.tiers.pagecache import direct_write_error
from kvbench.tiers.removal import OUR_NAME, PAUSES_S, WORK_PREFIX, Kept, Marker, Rule, remove, why_kept
from kvbench.tiers.shared import is_shared
from kvbench.tiers.tier import Ordinary
from kvbench.tiers.unmounted import unmounted
from kvbench.units import format_bytes

if TYPE_CHECKING:
    from kvbench.tiers.tier import Kind

_MOST_SAID = 3

# Who answers a read of each kind of mount.
_CLIENTS = {
    "block": "kernel, local device",
    "network": "kernel client of a server",
    "fuse": "FUSE program, which may cache",
    "memory": "kernel, memory",
    "overlay": "kernel, overlay of other directories",
    "other": "kernel",
}

# File systems that refuse O_DIRECT of parts of a sector (EINVAL; seen on ext4 and XFS, sectors of 512 and 4096 bytes).
_SECTOR_BOUND = frozenset({"ext2", "ext3", "ext4", "xfs"})

DEFAULT_DATASET_BYTES = 4 << 30
_SMALLEST_MARGIN_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class DirectoryTier(Ordinary):
    """A directory that passed the checks; ``path`` is resolved, ``free_bytes`` is what this user may still write.

    With ``identity`` nothing is made below another directory that has come to be at ``path`` since.
    """

    name: str
    path: Path
    mount: Mount | None
    free_bytes: int
    identity: Identity | None = None

    @property
    def kind(self) -> Kind:
        """A directory."""
        from kvbench.tiers.directory_kind import KIND

        return KIND

    @property
    def shared(self) -> bool | None:
        """Whether the file system is other hosts' as well."""
        return is_shared(self.mount)

    @property
    def place(self) -> TierPlace | None:
        """The directory."""
        return TierPlace(str(self.path))

    @property
    def storage(self) -> str:
        """Two directories of one file system are one tier, and so are two mounts of one export."""
        if self.mount is None:
            return f"directory {self.path}"
        network = self.mount.kind == "network"
        return f"file system {self.mount.source if network else self.mount.device_numbers}"

    @property
    def directory(self) -> Path | None:
        """Itself: every run makes a sub-directory here."""
        return self.path

    @property
    def slow_opens(self) -> bool:
        """Where a server or a FUSE program has to be asked."""
        return self.mount is not None and self.mount.kind in ("network", "fuse")

    def renamed_by(self) -> str | None:
        """Who else may write in it or above it, up to its mount point."""
        return parents.shared_by(self.path, self.mount)

    def unmounted(self) -> str | None:
        """Why it is probably a mount point without its mount."""
        return unmounted(self.path)

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
            number = direct_write_error(space.place / "probe", size)
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

    def require_aligned(self, sizes: Sequence[int]) -> None:
        """TierError unless every I/O size is a whole number of the sectors that this file system is known to insist on.

        Others take any size, fall back to the page cache, or say only when tried: see ``require_direct_io``.
        """
        below = (backing_of(self.mount) or self.mount) if self.mount else None
        sector = sector_bytes(self.mount) if below is not None and below.filesystem in _SECTOR_BOUND else None
        for size in sizes:
            if sector and size % sector:
                raise TierError(
                    f"{self.path} is on a device with sectors of {sector} bytes and refuses O_DIRECT with {size} "
                    "bytes; choose a model, TP or block size whose unit is a multiple."
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
                file = space.place / "probe"
                file.touch()
                return ceph.read_attribute(file, name)
        except (TierError, OSError):
            return None


@dataclass(frozen=True, slots=True)
class Workspace:
    """The marked sub-directory of a tier that this run owns, and the token that its child processes carry.

    ``held`` is what the run works on by descriptor: the sub-directory, or a device; nothing for what has no descriptor.
    """

    path: Path
    token: str
    held: Held | None = field(default=None, kw_only=True)

    @property
    def shown(self) -> Path:
        """What people are told that is measured."""
        return self.path

    def data(self, names: Iterable[str], size: int) -> Data:
        """The data set of ``size`` bytes, which lies in the files of these names."""
        return FileData([self.place / name for name in names])

    @property
    def place(self) -> Path:
        """Where to read and write: through the descriptor, which nobody can rename."""
        return self.path if self.held is None else self.held.place

    @property
    def inherited(self) -> tuple[int, ...]:
        """Descriptors that a child needs to work at ``place``."""
        return () if self.held is None else (self.held.descriptor,)

    def require_same(self) -> None:
        """MeasurementError unless this is what it was when it was made, data files included; nothing is written."""
        if self.held is not None:
            self.held.require_same()


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
    return DirectoryTier(name, path, mount_of(path), space.f_bavail * space.f_frsize, identity_of(path))


@contextmanager
def workspace(tier: DirectoryTier) -> Iterator[Workspace]:
    """A fresh marked sub-directory of the tier, removed at the end whatever happens, also after SIGKILL (see guard).

    What stays is said on stderr; ``kvbench clean`` finds it. RemovalHangs when the tier does not answer.
    """
    remove_leftovers(tier.path)
    token = secrets.token_hex(8)
    path = tier.path / f"{WORK_PREFIX}{token}"
    with ExitStack() as stack:
        held = _new_marked(tier, path, token, stack)
        guard = _guard(token, path, held.owner)
        try:
            if held.owner != os.geteuid():
                # A server that maps users (NFS with root_squash): only now is it known whose our leftovers are.
                remove_leftovers(tier.path, held.owner)
            yield Workspace(path, token, held=held)
        finally:
            left = guard.release()
            if left:
                later = f"'kvbench clean --tier {escaped(str(tier.path))}' removes it later"
                _say(f"{escaped(str(path))} was not removed: {left}; {later}.")
        # Not beside another error, which says more.
        if guard.hangs:
            raise RemovalHangs(f"{path} could not be removed, because the tier does not answer")


def _new_marked(tier: DirectoryTier, path: Path, token: str, stack: ExitStack) -> HeldDirectory:
    """The new directory, held by the stack; TierError, and nothing left, when it cannot be made or marked."""
    try:
        held = stack.enter_context(made(tier.path, path.name, tier.identity, tier.mount))
        held.mark({**this_machine(), "pid": os.getpid(), "token": token})
    except OSError as error:
        with suppress(OSError):
            path.rmdir()
        raise TierError(
            f"cannot create a sub-directory in {tier.path} ({error.strerror}); "
            "mount it read-write and give this user the right to write."
        ) from None
    return held


def _guard(token: str, path: Path, owner: int) -> Guard:
    try:
        return Guard(token, path, owner)
    except OSError as error:
        remove(path, Rule(frozenset({owner}), alive=lambda marker: None))
        raise ToolError(
            f"the guard process cannot be started ({error.strerror}); end some processes or raise their limit."
        ) from None


@dataclass(frozen=True, slots=True)
class Leftover:
    """A sub-directory that looks like one of kvbench's, and why it stays; None when it is removed, or may be."""

    path: Path
    kept: Kept | None


def remove_leftovers(directory: Path, owner: int | None = None) -> list[Path]:
    """Remove what a kvbench that is dead left here; work of another host or of a living process stays.

    What is not as kvbench leaves it is said on stderr and stops nothing.
    """
    rule = _rule(os.geteuid() if owner is None else owner)
    found = [
        Leftover(item.path, remove(item.path, rule, pauses_s=()) if item.kept is None else item.kept)
        for item in _leftovers(directory, rule)
    ]
    worth_a_word = [item for item in found if item.kept and item.kept.kind in ("odd", "stuck")]
    for item in worth_a_word[:_MOST_SAID]:
        _say(f"{escaped(str(item.path))} stays: {item.kept.why if item.kept else ''}.")
    if len(worth_a_word) > _MOST_SAID:
        rest = len(worth_a_word) - _MOST_SAID
        _say(f"{rest} more stay; 'kvbench clean --tier {escaped(str(directory))}' names them.")
    return [item.path for item in found if item.kept is None]


def clean(
    directory: Path, *, dry_run: bool, older_than_s: float | None = None, any_owner: bool = False
) -> list[Leftover]:
    """Remove what dead runs left here, or only look; every sub-directory that looks like kvbench's.

    A process of another host, or of a container that is gone, cannot be asked: with ``older_than_s`` such a run counts
    as dead when its marker is older. Other users' directories are removed with ``any_owner`` only.
    """
    rule = _rule(None if any_owner else os.geteuid(), older_than_s)
    found = _leftovers(directory, rule)
    if dry_run:
        return found
    return [Leftover(item.path, remove(item.path, rule, PAUSES_S)) if item.kept is None else item for item in found]


def why_at_work(marker: Marker, age_s: float, older_than_s: float | None) -> str | None:
    """Why the run that made a marker may still be at work, or None when it is dead or counts as dead by its age."""
    if _is_here(marker):
        living = is_at_work(marker.process) or processes_with(marker.token)
        return f"process {marker.process} is still at work" if living else None
    if older_than_s is not None and age_s > older_than_s:
        return None
    return f"made on {escaped(marker.host)}, by a process that cannot be asked from here"


def _rule(owner: int | None, older_than_s: float | None = None) -> Rule:
    return Rule(
        None if owner is None else frozenset({owner}),
        lambda marker: why_at_work(marker, time.time() - marker.written_s, older_than_s),
    )


def _leftovers(directory: Path, rule: Rule) -> list[Leftover]:
    found = []
    for path in sorted(directory.glob(f"{WORK_PREFIX}*")):
        try:
            kept = why_kept(path, rule)
        except FileNotFoundError:
            continue
        # A user's directory may be called kvbench-results.
        if kept is None or kept.kind != "unmarked" or OUR_NAME.fullmatch(path.name):
            found.append(Leftover(path, kept))
    return found


def _say(text: str) -> None:
    with suppress(OSError):
        print(f"kvbench: {text}", file=sys.stderr, flush=True)


def is_at_work(process: int) -> bool:
    """Whether the process lives; one that nobody waited for stays in /proc as a zombie (proc(5), states Z and X)."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def _is_here(marker: Marker) -> bool:
    """Whether a marker was written where process ids mean the same as here."""
    return {"host": marker.host, "boot": marker.boot, "pid_namespace": marker.pid_namespace} == this_machine()


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
