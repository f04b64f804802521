"""A block device as a tier: read-only unless the user repeats its path, checked before every use, then claimed."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kvbench.errors import TierError
from kvbench.tiers import block, directory
from kvbench.tiers.block import BlockDevice, Kernel
from kvbench.tiers.data import Data
from kvbench.tiers.device import device_facts
from kvbench.tiers.directory import DEFAULT_DATASET_BYTES, DirectoryTier, Workspace
from kvbench.tiers.held import HeldDevice
from kvbench.tiers.mounts import Mount
from kvbench.tiers.tier import DeviceUse, Ordinary
from kvbench.units import format_bytes

if TYPE_CHECKING:
    from kvbench.tiers.tier import Kind

_SAMPLES = 128
_WINDOW_BYTES = 1 << 30
_SAMPLE_BYTES = 4096
# Data in use holds zeros as well; from this share on they say that much of the range was never written.
_TOO_EMPTY = 0.05


@dataclass(frozen=True, slots=True)
class DeviceTier(Ordinary):
    """A block device that passed the checks; ``writable`` only after the user repeated its resolved path."""

    name: str
    device: BlockDevice
    numbers: str
    writable: bool

    @property
    def path(self) -> Path:
        """The device's resolved path."""
        return self.device.path

    @property
    def free_bytes(self) -> int:
        """What a data set may take: the whole device."""
        return self.device.size_bytes

    @property
    def mount(self) -> Mount:
        """What stands where a directory has its mount, so that counters and link limits are found the same way."""
        return Mount(str(self.path), "block device", str(self.path), "", self.numbers)

    @property
    def kind(self) -> Kind:
        """A block device."""
        from kvbench.tiers.device_kind import KIND

        return KIND

    @property
    def storage(self) -> str:
        """The device, whatever path leads to it."""
        return f"device {self.numbers}"

    @property
    def device_use(self) -> DeviceUse | None:
        """Read only, unless the user repeated its path."""
        return "write" if self.writable else "read"

    @property
    def consent_path(self) -> str | None:
        """Its resolved path."""
        return str(self.path)

    def would(self, dataset: str) -> str:
        """What lies on the device is read, or lost."""
        return f"OVERWRITE {dataset} of" if self.writable else f"read {dataset} of"

    def require_consent(self, allow_destroy: Sequence[str]) -> None:
        """TierError unless ``--allow-destroy`` repeats the resolved path."""
        block.require_consent(self.device, allow_destroy)

    def default_dataset_bytes(self) -> int:
        """4 GiB or the whole device, whichever is less, in whole MiB."""
        return min(DEFAULT_DATASET_BYTES, self.device.size_bytes) >> 20 << 20

    def require_space(self, dataset_bytes: int) -> None:
        """TierError unless the data set lies within the device: fio cuts a size beyond the end silently (3.33)."""
        if dataset_bytes > self.device.size_bytes:
            raise TierError(
                f"{self.path} has {format_bytes(self.device.size_bytes)} and the data set needs "
                f"{format_bytes(dataset_bytes)}; use a smaller --dataset."
            )

    def require_direct_io(self, space: Workspace, sizes: Sequence[int]) -> None:
        """TierError unless every I/O size is a whole number of the device's sectors, which O_DIRECT needs."""
        self.require_aligned(sizes)

    def require_aligned(self, sizes: Sequence[int]) -> None:
        """The same: a device says its sectors."""
        sector = self.device.logical_sector_bytes
        for size in sizes:
            if size % sector:
                raise TierError(
                    f"{self.path} has sectors of {sector} bytes and refuses O_DIRECT with {size} bytes; "
                    "choose a model, TP or block size whose unit is a multiple."
                )

    def workspace(self, run_dir: Path) -> AbstractContextManager[Workspace]:
        """See ``workspace``."""
        return workspace(self, run_dir)

    def facts(self) -> dict[str, str | int | None]:
        """What the tier is, for the result file."""
        return {
            "path": str(self.path),
            "filesystem": "none: a raw block device",
            "client": "kernel, local device",
            "access": "read and written (--allow-destroy)" if self.writable else "read only",
            **device_facts(self.mount),
            "size_bytes": self.device.size_bytes,
            "logical_sector_bytes": self.device.logical_sector_bytes,
            "physical_sector_bytes": self.device.physical_sector_bytes,
        }


@dataclass(frozen=True, slots=True)
class DeviceSpace(Workspace):
    """A work space whose data lies on a device; the guard watches ``path``, a folder of the run."""

    tier: DeviceTier = field(kw_only=True)

    @property
    def shown(self) -> Path:
        """The device."""
        return self.tier.path

    def data(self, names: Iterable[str], size: int) -> Data:
        """The first ``size`` bytes of the device; no file has a name."""
        return DeviceData(self.tier, size)


@dataclass(frozen=True, slots=True)
class DeviceData:
    """A data set on the first ``size`` bytes of a device."""

    tier: DeviceTier
    size: int

    def cached_fraction(self) -> float | None:
        """See ``Data``."""
        return cached_fraction(self.tier, self.size)

    def drop_cached(self) -> str:
        """See ``Data``."""
        return drop_cached(self.tier, self.size)

    def unwritten_bytes(self) -> int | None:
        """As a sample of it says."""
        return unwritten_estimate(self.tier, self.size)


def inspect(name: str, target: str, allow_destroy: Sequence[str]) -> DeviceTier:
    """The block device ``target`` as a tier; TierError when something uses it or consent names another path."""
    kernel = Kernel.here()
    device = block.identify(target, kernel)
    block.require_unused(device, kernel)
    writable = str(device.path) in allow_destroy
    if writable:
        block.require_expendable(device, *block.read_ends(device))
    status = device.path.stat()
    return DeviceTier(name, device, f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}", writable)


@contextmanager
def workspace(tier: DeviceTier, run_dir: Path) -> Iterator[Workspace]:
    """The device held for exclusive use and all checks passed once more; the guard watches a folder of the run."""
    again = inspect(tier.name, str(tier.path), [str(tier.path)] if tier.writable else [])
    with _held(tier.device) as held:
        # The path was followed twice; what is held is what is measured.
        if (again.device, again.numbers, held.numbers) != (tier.device, tier.numbers, tier.numbers):
            raise TierError(
                f"{tier.path} is not the device that it was when this run started; nothing was touched. "
                "'lsblk' lists the block devices of this host."
            )
        with directory.workspace(DirectoryTier(tier.name, run_dir.resolve(), None, 0)) as space:
            yield DeviceSpace(space.path, space.token, held=held, tier=tier)


def cached_fraction(tier: DeviceTier, size: int) -> float | None:
    """Share of the first ``size`` bytes that is in the page cache of the device, or None when it cannot be seen."""
    try:
        descriptor = os.open(tier.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        windows = [(at, min(_WINDOW_BYTES, size - at)) for at in range(0, size, _WINDOW_BYTES)]
        resident = [_resident_pages(descriptor, at, length) for at, length in windows]
    finally:
        os.close(descriptor)
    pages = -(-size // mmap.PAGESIZE)
    known = [count for count in resident if count is not None]
    return sum(known) / pages if pages and len(known) == len(resident) else None


def drop_cached(tier: DeviceTier, size: int) -> str:
    """Drop the device's cached pages (POSIX_FADV_DONTNEED) and say how it went."""
    try:
        descriptor = os.open(tier.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(descriptor, 0, size, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    except OSError as error:
        return f"failed: {error.strerror}"
    left = cached_fraction(tier, size)
    if left is None:
        return "asked for (fadvise); the outcome cannot be seen here"
    return "dropped" if left == 0 else f"failed: {left:.0%} of the pages stayed"


def unwritten_estimate(tier: DeviceTier, size: int) -> int | None:
    """Bytes of the first ``size`` that read as zeros, from 128 samples: most likely never written, or trimmed.

    Such ranges are answered without touching the medium. Below 5 % it is 0; None when the samples cannot be read.
    """
    pages = size // _SAMPLE_BYTES
    chosen = random.Random(0).sample(range(pages), min(_SAMPLES, pages))
    buffer = mmap.mmap(-1, _SAMPLE_BYTES)
    try:
        descriptor = os.open(tier.path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        try:
            empty = sum(1 for page in chosen if _is_empty(descriptor, buffer, page))
        finally:
            os.close(descriptor)
    except OSError:
        return None
    finally:
        buffer.close()
    if not chosen:
        return None
    return size * empty // len(chosen) if empty / len(chosen) >= _TOO_EMPTY else 0


def _resident_pages(descriptor: int, offset: int, length: int) -> int | None:
    """Pages of a range that are in the page cache (mincore(2), which sets the lowest bit and no other)."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    address = libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, offset)
    if address in (None, ctypes.c_void_p(-1).value):
        return None
    vector = ctypes.create_string_buffer(-(-length // mmap.PAGESIZE))
    try:
        return vector.raw.count(1) if libc.mincore(address, length, vector) == 0 else None
    finally:
        libc.munmap(address, length)


def _is_empty(descriptor: int, buffer: mmap.mmap, page: int) -> bool:
    os.preadv(descriptor, [buffer], page * _SAMPLE_BYTES)
    return not any(buffer[:])


@contextmanager
def _held(device: BlockDevice) -> Iterator[HeldDevice]:
    """The device claimed: while it is, the kernel lets nobody mount it, swap to it or build on it."""
    try:
        descriptor = os.open(device.path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC)
    except OSError as error:
        raise TierError(block.not_exclusive(device, error)) from None
    try:
        yield HeldDevice(device, descriptor)
    finally:
        os.close(descriptor)
