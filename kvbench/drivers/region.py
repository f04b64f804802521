"""Memory that I/O lands in: one region for all threads, as the engine's CPU tier has it, or a what-if.

vLLM's CPU tier is one file in /dev/shm, mapped shared and populated with MADV_POPULATE_WRITE, every block at its place
(v1/kv_offload, shared_offload_region.py, 0.24.0 to 0.33.0). Which pages are behind a buffer decides into how many
requests the device's queue splits a direct read (docs/buffers.md).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kvbench.drivers.settings import Buffers
from kvbench.errors import MeasurementError, TierError
from kvbench.host import environment
from kvbench.tiers.mounts import mount_of
from kvbench.units import format_bytes

SHARED_MEMORY = Path("/dev/shm")
HUGE_BYTES = 2 << 20

# include/uapi/asm-generic/mman-common.h, Linux 5.14; Python's mmap module does not name it.
_POPULATE_WRITE = 23
# What may be taken of the memory that is left, so that others do not run out of it.
_SHARE = 0.9
# Of a mapping, at its ends, a huge page may not fit.
_MOSTLY_HUGE = 0.8
_TRIAL_BYTES = 4 * HUGE_BYTES


@dataclass(frozen=True, slots=True)
class Memory:
    """A place for each block in flight, page-aligned and populated, and what that memory is in words."""

    places: tuple[memoryview, ...]
    described: str


def memory_for(kind: Buffers, blocks: int, size: int, folder: Path = SHARED_MEMORY) -> Memory:
    """Places for ``blocks`` blocks; MeasurementError when huge pages are wanted and this kernel gives none.

    ``engine`` falls back to anonymous shared memory where ``folder`` has no room or cannot be used, and says why.
    """
    if kind == "own":
        return Memory(tuple(_touched(size) for _ in range(blocks)), "anonymous shared memory of each thread's own")
    stride = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    total = blocks * stride
    mapping, described = _huge(total, folder) if kind == "huge" else _as_the_engine(total, folder)
    return Memory(tuple(mapping[at : at + size] for at in range(0, total, stride)), described)


def _as_the_engine(total: int, folder: Path) -> tuple[memoryview, str]:
    why = _no_room(total, folder)
    if why is None:
        try:
            return memoryview(_shared(total, folder)), f"one populated region in {folder}, as the engine's"
        except OSError as error:
            why = f"{folder} cannot be used ({error.strerror})"
    return _touched(total), f"anonymous shared memory, because {why}"


def require_given(kind: Buffers, folder: Path = SHARED_MEMORY) -> None:
    """TierError when huge pages are wanted and this kernel gives none to a mapping of a few MiB."""
    if kind != "huge":
        return
    try:
        _huge(_TRIAL_BYTES, folder)
    except MeasurementError as error:
        raise TierError(f"{error}.") from None


def _no_room(total: int, folder: Path) -> str | None:
    """Why the region does not fit, or None. Of a disk's file system it would be pages of the page cache."""
    mount = mount_of(folder.resolve())
    if mount is not None and mount.filesystem != "tmpfs":
        return f"{folder} is on {mount.filesystem} and no tmpfs"
    try:
        status = os.statvfs(folder)
    except OSError as error:
        return f"{folder} cannot be used ({error.strerror})"
    free = status.f_bavail * status.f_frsize
    if total > free * _SHARE:
        return f"{folder} has {format_bytes(free)} free and {format_bytes(total)} of blocks in flight would fill it"
    left = environment.memory_left_bytes()
    if left is not None and total > left * _SHARE:
        return f"{format_bytes(left)} of memory are left and {format_bytes(total)} of blocks in flight would fill it"
    return None


def _shared(total: int, folder: Path, advice: int | None = None) -> mmap.mmap:
    """A file without a name in ``folder``, mapped and populated: nothing is left of it however this process ends."""
    descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, total)
        memory = mmap.mmap(descriptor, total)
    finally:
        os.close(descriptor)
    _populate(memory, advice)
    return memory


def _populate(memory: mmap.mmap, advice: int | None) -> None:
    """Every page present; OSError where there is no memory for it, where touching pages would be a signal."""
    try:
        if advice is not None:
            memory.madvise(advice)
        memory.madvise(_POPULATE_WRITE)
    except OSError:
        memory.close()
        raise


def _touched(size: int) -> memoryview:
    memory = memoryview(mmap.mmap(-1, size))
    memory[:] = bytes(size)
    return memory


def _huge(total: int, folder: Path) -> tuple[memoryview, str]:
    """The nearest to a tmpfs of huge pages that this process can have; what it got is looked up, not believed."""
    # Room to begin at a huge page, and the last one in full.
    rounded = (-(-total // HUGE_BYTES) + 1) * HUGE_BYTES
    kinds: tuple[tuple[str, Callable[[], mmap.mmap]], ...] = (
        (f"one region in {folder}", lambda: _shared(rounded, folder, mmap.MADV_HUGEPAGE)),
        ("anonymous shared memory", lambda: _advised(rounded, mmap.MAP_SHARED)),
        ("anonymous private memory", lambda: _advised(rounded, mmap.MAP_PRIVATE)),
    )
    for described, allocate in kinds:
        try:
            memory = allocate()
        except OSError:
            continue
        start = -_address(memory) % HUGE_BYTES
        if huge_bytes("self", _address(memory), rounded) >= _MOSTLY_HUGE * min(total, rounded - HUGE_BYTES):
            return memoryview(memory)[start:], f"{described} on huge pages"
        memory.close()
    raise MeasurementError(
        "this kernel gives this process no huge pages (/sys/kernel/mm/transparent_hugepage/enabled and shmem_enabled, "
        "or memory is too fragmented); leave out --buffers huge, or have an administrator allow them"
    )


def _advised(total: int, flags: int) -> mmap.mmap:
    memory = mmap.mmap(-1, total, flags=flags | mmap.MAP_ANONYMOUS)
    _populate(memory, mmap.MADV_HUGEPAGE)
    return memory


def _address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def huge_bytes(process: int | str, address: int = 0, size: int = 1 << 64) -> int:
    """Bytes on huge pages in a range of a process's memory (proc(5), smaps); 0 where the system does not say."""
    try:
        text = Path(f"/proc/{process}/smaps").read_text(errors="replace")
    except OSError:
        return 0
    return sum(huge for low, high, huge in _mappings(text) if low < address + size and high > address)


def _mappings(smaps: str) -> Iterator[tuple[int, int, int]]:
    """Start, end and bytes on huge pages of every mapping."""
    low = high = huge = 0
    for line in smaps.splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            yield low, high, huge
            low, high, huge = int(found[1], 16), int(found[2], 16), 0
        elif found := re.match(r"(?:AnonHugePages|ShmemPmdMapped|FilePmdMapped):\s+(\d+) kB", line):
            huge += int(found[1]) << 10
    yield low, high, huge


def huge_option(options: str) -> str | None:
    """The ``huge=`` of a tmpfs's mount options, which governs the files in it."""
    return next((option for option in options.split(",") if option.startswith("huge=")), None)


def shmem_enabled(sys: Path = Path("/sys")) -> str:
    """The kernel's choice for shared memory without a mount of its own."""
    try:
        text = (sys / "kernel/mm/transparent_hugepage/shmem_enabled").read_text()
    except OSError:
        return "unknown: this kernel has no huge pages for shared memory"
    return text.partition("[")[2].partition("]")[0] or text.strip()
