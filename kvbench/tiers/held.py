"""What a run works on, held open: no name can lead it elsewhere, and before each round the names are looked at again.

While a run lasts a name can be given to something else: by those who may rename in the tier's directory, by umount, by
rm -rf, by udev. A descriptor cannot. So a run reads and writes through descriptors, and asks the names whether they
still lead to the same: when they do not, what is held is no longer the tier, and the point fails.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kvbench.errors import MeasurementError, TierError
from kvbench.tiers import block, removal
from kvbench.tiers.block import BlockDevice, Kernel
from kvbench.tiers.mounts import Mount
from kvbench.units import format_bytes

# What a file system says that has lost its server, its program or its device: the tier is dying, kvbench is not.
TIER_GONE = frozenset(
    {
        *(errno.ENOTCONN, errno.ESTALE, errno.EIO, errno.ENODEV, errno.ENXIO, errno.ESHUTDOWN, errno.ECONNABORTED),
        *(errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ETIMEDOUT, errno.EREMOTEIO, errno.ENOMEDIUM),
    }
)

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Held(Protocol):
    """What a run works on. Children get ``descriptor``; ``place`` is then a path to it that no rename changes."""

    @property
    def descriptor(self) -> int:
        """The open descriptor."""

    @property
    def place(self) -> Path:
        """A path through the descriptor."""

    def require_same(self) -> None:
        """MeasurementError unless every name still leads to what is held."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells a file from every other one that exists at the same time, and whose it is."""

    device: int
    inode: int
    owner: int

    @classmethod
    def of(cls, status: os.stat_result) -> Identity:
        """The identity that a stat says."""
        return cls(status.st_dev, status.st_ino, status.st_uid)


@dataclass(frozen=True, slots=True)
class _File:
    identity: Identity
    size_bytes: int


class HeldDirectory:
    """A directory that this run made on a tier, and the data files in it that were laid out."""

    def __init__(self, path: Path, above: int, descriptor: int, *, keeps_inodes: bool) -> None:
        """Hold ``path`` by its ``descriptor`` and the tier's directory by ``above``."""
        self.path, self._descriptor, self._keeps_inodes = path, descriptor, keeps_inodes
        self._above, self._itself = Identity.of(os.fstat(above)), Identity.of(os.fstat(descriptor))
        self._own = self._itself
        self._files: dict[str, _File] = {}

    @property
    def descriptor(self) -> int:
        """The descriptor of the directory."""
        return self._descriptor

    @property
    def place(self) -> Path:
        """The directory whatever it is called now."""
        return _place(self._descriptor)

    @property
    def owner(self) -> int:
        """Whose the file system says that it is: a server may map this user to another."""
        return self._own.owner

    def mark(self, said: Mapping[str, object]) -> None:
        """Write the marker, the first file of the directory; TierError when somebody else's took its place.

        OSError when it cannot be written; then none is left.
        """
        if _entries(self._descriptor):
            raise _replaced_at_once(self.path)
        # Who this user is on the tier, only a file of its own tells: a server may map root to nobody.
        self._own = Identity.of(removal.mark(self._descriptor, said))
        if self._own.owner != self._itself.owner:
            os.unlink(removal.MARKER_NAME, dir_fd=self._descriptor)
            raise _replaced_at_once(self.path)

    def require_absent(self, files: Mapping[str, int]) -> None:
        """MeasurementError when a data file is there before it is laid out: fio would write into it."""
        there = sorted(_entries(self._descriptor) & set(files))
        if there:
            raise MeasurementError(f"{self.path / there[0]} is there and this run did not make it; nothing was written")

    def keep(self, files: Mapping[str, int]) -> None:
        """Remember the data files that were laid out, name and bytes; MeasurementError when one is not as it should."""
        for name, size in files.items():
            status = self._status(name)
            objection = "is not there" if status is None else _objection(status, self._own, size)
            if status is None or objection is not None:
                raise MeasurementError(f"{name} {objection}")
            self._files[name] = _File(Identity.of(status), size)

    def require_ours(self, places: Iterable[Path], size_bytes: int) -> None:
        """MeasurementError unless each of these files below ``place``, made at any time, is a whole one of this run."""
        with _answering(self.path.parent):
            for place in places:
                name = str(place.relative_to(self.place))
                status = self._status(name)
                objection = "is gone" if status is None else _objection(status, self._own, size_bytes)
                if objection is not None:
                    raise MeasurementError(f"{self.path / name} {objection}; nothing was written")

    def require_same(self) -> None:
        """MeasurementError unless the tier, the directory and each data file are what they were, and whole."""
        with _answering(self.path.parent):
            _require_named(self.path.parent, self._above)
            _require_named(self.path, self._itself)
            for name, file in self._files.items():
                objection = self._changed(name, file)
                if objection is not None:
                    raise MeasurementError(f"{self.path / name} {objection}; nothing was written")

    def _changed(self, name: str, file: _File) -> str | None:
        status = self._status(name)
        if status is None:
            return "is gone"
        objection = _objection(status, self._own, file.size_bytes)
        if objection is None and self._keeps_inodes and Identity.of(status) != file.identity:
            return "is another file than the one that was laid out"
        return objection

    def _status(self, name: str) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None


class HeldDevice:
    """A block device that this run has claimed."""

    def __init__(self, device: BlockDevice, descriptor: int) -> None:
        """Hold the device that is open as ``descriptor``."""
        self.device, self._descriptor = device, descriptor
        self._number = os.fstat(descriptor).st_rdev

    @property
    def descriptor(self) -> int:
        """The descriptor of the device."""
        return self._descriptor

    @property
    def place(self) -> Path:
        """The device whatever its path leads to now."""
        return _place(self._descriptor)

    @property
    def numbers(self) -> str:
        """Its major and minor number, as the kernel writes them."""
        return f"{os.major(self._number)}:{os.minor(self._number)}"

    def require_same(self) -> None:
        """MeasurementError unless the path leads to the same device and the kernel says of it what it said."""
        path = self.device.path
        with _answering(path):
            status = _named(path)
            if status is None or not stat.S_ISBLK(status.st_mode) or status.st_rdev != self._number:
                raise MeasurementError(f"{path} is no longer the device {self.numbers}; nothing was written")
        try:
            now = block.device_of(path, self.numbers, Kernel.here())
        except TierError:
            now = None
        if now != self.device:
            raise MeasurementError(f"the device {self.numbers} behind {path} is gone or another; nothing was written")


@contextmanager
def made(parent: Path, name: str, known: Identity | None, mount: Mount | None) -> Iterator[HeldDirectory]:
    """A new sub-directory of ``parent``, held; OSError when it cannot be made.

    TierError when ``parent`` is not the directory ``known``: it is not made below something else.
    """
    with ExitStack() as stack:
        above = _open(stack, parent, os.O_PATH | _DIRECTORY)
        if known is not None and known != Identity.of(os.fstat(above)):
            raise TierError(
                f"{parent} is not the directory that it was when this run started: it was unmounted, mounted over or "
                "replaced. Nothing was written; look at its mount, then continue with --resume."
            )
        os.mkdir(name, 0o700, dir_fd=above)
        try:
            descriptor = _open(stack, name, os.O_RDONLY | _DIRECTORY, above)
        except OSError as error:
            raise _replaced_at_once(parent / name) from error
        yield HeldDirectory(parent / name, above, descriptor, keeps_inodes=_keeps_inodes(mount))


def identity_of(path: Path) -> Identity:
    """The identity of what a path leads to now."""
    return Identity.of(path.stat())


def _place(descriptor: int) -> Path:
    # A path of a process's own, so it means the same in a child that has inherited the descriptor (proc(5)).
    return Path(f"/proc/self/fd/{descriptor}")


def _open(stack: ExitStack, name: str | Path, flags: int, directory: int | None = None) -> int:
    descriptor = os.open(name, flags, dir_fd=directory)
    stack.callback(_close, descriptor)
    return descriptor


def _entries(descriptor: int) -> set[str]:
    with os.scandir(descriptor) as entries:
        return {entry.name for entry in entries}


def _close(descriptor: int) -> None:
    # A tier that has died may answer even this with an error; the descriptor is closed all the same (close(2)).
    with suppress(OSError):
        os.close(descriptor)


def _keeps_inodes(mount: Mount | None) -> bool:
    # FUSE programs on libfuse number a file anew after the kernel has forgotten it, unless they ask for use_ino; so
    # does cifs with noserverino.
    return mount is None or not (mount.kind == "fuse" or mount.filesystem in ("cifs", "smb3", "9p"))


def _replaced_at_once(path: Path) -> TierError:
    return TierError(
        f"somebody else changed {path} while kvbench made it; nothing was written. "
        "Name a directory that only you may write to."
    )


def _named(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _require_named(path: Path, known: Identity) -> None:
    status = _named(path)
    if status is None:
        raise MeasurementError(f"{path} is gone: it was removed, renamed or unmounted; nothing was written")
    if Identity.of(status) != known:
        raise MeasurementError(
            f"{path} is not the directory that it was: it was replaced, unmounted or mounted over; nothing was written"
        )


@contextmanager
def dying(tier: str) -> Iterator[None]:
    """MeasurementError in place of the OSError that comes from a tier while it dies; others are not the tier's."""
    try:
        yield
    except OSError as error:
        if error.errno not in TIER_GONE:
            raise
        raise MeasurementError(f"the tier {tier} does not answer any more ({error.strerror})") from None


@contextmanager
def _answering(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MeasurementError(f"{path} cannot be reached any more ({error.strerror})") from None


def _objection(status: os.stat_result, own: Identity, size_bytes: int) -> str | None:
    """Why a data file is not one that this run made, or not whole; None when there is nothing against it."""
    objections = {
        "is a symbolic link": stat.S_ISLNK(status.st_mode),
        "is no regular file": not stat.S_ISREG(status.st_mode),
        # Some file systems count no links at all.
        f"has {status.st_nlink} names (hard links)": status.st_nlink > 1,
        f"belongs to user {status.st_uid}": status.st_uid != own.owner,
        "lies on another device": status.st_dev != own.device,
        f"has {format_bytes(status.st_size)} of {format_bytes(size_bytes)}": status.st_size < size_bytes,
    }
    return next((text for text, applies in objections.items() if applies), None)
