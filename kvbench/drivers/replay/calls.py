"""The system calls of vLLM's file system tier for one block, timed; one class for each way that vLLM makes them.

Seen with strace on vLLM 0.24.0 (Python: v1/kv_offload/tiering/fs/io.py) and 0.33.0 (C: fs_io_C), ext4, Linux 6.18:

    call     0.24                                              0.27 and later
    lookup   stat(dest)                                        access(dest)
    store    stat(dest), stat(hhh), mkdir(hh_g0) = EEXIST,     access(dest), stat(hh_g0),
             stat(hh_g0), openat(tmp, O_WRONLY|O_CREAT|        openat(tmp, the same), write, close, rename
             O_EXCL|O_TRUNC|O_DIRECT, 0644), write, close,
             rename
    load     openat(O_RDONLY|O_DIRECT), readv, close           openat(O_RDONLY|O_DIRECT), read, close

0.24 adds O_CLOEXEC, as Python always does. A directory that is not there yet costs a stat of each parent and mkdir.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import stat
from abc import ABC, abstractmethod
from array import array
from collections import defaultdict
from contextlib import suppress
from time import perf_counter_ns
from typing import Protocol, Self

# What a path is relative to unless told otherwise: the working directory (fcntl.h).
AT_FDCWD = -100

_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_TRUNC | os.O_DIRECT
_BLOCK = os.O_RDONLY | os.O_DIRECT
_MODE = 0o644
# Any odd number: a word to which it is added again and again takes 2^64 different values.
_ODD = 0x9E3779B97F4A7C15


class Buffer:
    """Page-aligned memory for one block, as O_DIRECT wants; every page is touched."""

    def __init__(self, size: int, place: memoryview | None = None) -> None:
        """Random content, so that a store of it is incompressible; in ``place``, or in memory of its own."""
        import numpy as np

        self.size = size
        self.view = memoryview(mmap.mmap(-1, size)) if place is None else place
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.view))
        self.view[:] = np.random.default_rng().bytes(size)
        self._pages = np.frombuffer(self.view, dtype=np.uint64, count=size // 8)[:: mmap.PAGESIZE // 8]
        self._step = np.uint64(_ODD)

    def renew(self) -> None:
        """Make every 4 KiB page one that no other block holds, or a deduplicating tier would store it once."""
        self._pages += self._step


class CallTimes:
    """Durations in ns of the calls that move no data, by kind, and how many failed; only one thread adds to it."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.kinds: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))
        self.failed: defaultdict[str, int] = defaultdict(int)

    def add(self, kind: str, duration_ns: int) -> None:
        """Count one call."""
        self.kinds[kind].append(duration_ns)


class BlockCalls(Protocol):
    """How an engine looks up, stores and loads one block. Each returns the ns that the engine waits for.

    OSError when a call fails or moves fewer bytes than the block has.
    """

    def below(self, directory: int) -> Self:
        """The same calls for paths relative to this descriptor: nobody can rename it while blocks are stored."""

    def lookup(self, path: str, times: CallTimes) -> bool:
        """Whether the block is on the tier."""

    def store(self, path: str, buffer: Buffer, times: CallTimes) -> int:
        """Write a block that is not there yet: from the check to the rename."""

    def load(self, path: str, buffer: Buffer, times: CallTimes) -> int:
        """Read a block: from open to close."""


class _Calls(ABC):
    """What both ways do alike: their order, and which parts are timed."""

    def __init__(self) -> None:
        """A suffix of its own for temporary files, as each of the engine's threads has one."""
        self._suffix = f"_{random.getrandbits(63)}.tmp"
        self._at = AT_FDCWD

    def below(self, directory: int) -> Self:
        """These calls, from now on relative to a descriptor."""
        self._at = directory
        return self

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether a file is there."""

    @abstractmethod
    def make_directory(self, directory: str) -> None:
        """See to it that a directory is there."""

    @abstractmethod
    def create(self, path: str) -> int:
        """The descriptor of a new file."""

    @abstractmethod
    def open(self, path: str) -> int:
        """The descriptor of a block, for reading."""

    @abstractmethod
    def read(self, descriptor: int, buffer: Buffer) -> int:
        """Fill the buffer with one call; how many bytes came."""

    def lookup(self, path: str, times: CallTimes) -> bool:
        """Whether the block is on the tier."""
        began = perf_counter_ns()
        found = self.exists(path)
        times.add("lookup", perf_counter_ns() - began)
        return found

    def store(self, path: str, buffer: Buffer, times: CallTimes) -> int:
        """Check, see to the directory, write a temporary file, rename it."""
        began = perf_counter_ns()
        found = self.exists(path)
        checked = perf_counter_ns()
        if found:
            raise FileExistsError(f"{path} is already there")
        temporary = path + self._suffix
        call = "directories"
        try:
            self.make_directory(path.rpartition("/")[0])
            ready = perf_counter_ns()
            call = "create"
            descriptor = self.create(temporary)
        except OSError:
            times.failed[call] += 1
            raise
        opened = perf_counter_ns()
        times.add("check", checked - began)
        times.add("directories", ready - checked)
        times.add("create", opened - ready)
        return _fill_and_rename(descriptor, temporary, path, buffer, times, self._at) - began

    def load(self, path: str, buffer: Buffer, times: CallTimes) -> int:
        """Open, one read, close."""
        began = perf_counter_ns()
        try:
            descriptor = self.open(path)
        except OSError:
            times.failed["open"] += 1
            raise
        opened = perf_counter_ns()
        try:
            got = self.read(descriptor, buffer)
            read = perf_counter_ns()
        finally:
            os.close(descriptor)
        ended = perf_counter_ns()
        times.add("open", opened - began)
        times.add("close", ended - read)
        if got < buffer.size:
            raise OSError(f"short read: {got} of {buffer.size} bytes")
        return ended - began


class PythonCalls(_Calls):
    """0.24 to 0.26: Python's os module."""

    def exists(self, path: str) -> bool:
        """os.path.exists: stat."""
        return _exists(path, self._at)

    def make_directory(self, directory: str) -> None:
        """mkdir whether it is there or not."""
        _make_directories(directory, self._at)

    def create(self, path: str) -> int:
        """A new file."""
        return os.open(path, _NEW, _MODE, dir_fd=self._at)

    def open(self, path: str) -> int:
        """A block."""
        return os.open(path, _BLOCK, dir_fd=self._at)

    def read(self, descriptor: int, buffer: Buffer) -> int:
        """readv(2), vectored."""
        return os.readv(descriptor, [buffer.view])


class CCalls(_Calls):
    """0.27 and later: the C library, called without Python's O_CLOEXEC and with read instead of readv."""

    def __init__(self) -> None:
        """The C library of this process; every call through it releases Python's lock."""
        super().__init__()
        libc = ctypes.CDLL(None, use_errno=True)
        self._open, self._read = libc.openat, libc.read
        self._open.restype = ctypes.c_int
        self._read.restype = ctypes.c_ssize_t
        self._read.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]

    def exists(self, path: str) -> bool:
        """access(2)."""
        return os.access(path, os.F_OK, dir_fd=self._at)

    def make_directory(self, directory: str) -> None:
        """stat, and mkdir where it is not there."""
        try:
            os.stat(directory, dir_fd=self._at)
        except FileNotFoundError:
            _make_directories(directory, self._at)

    def create(self, path: str) -> int:
        """A new file."""
        return _checked(self._open(self._at, os.fsencode(path), _NEW, _MODE), path)

    def open(self, path: str) -> int:
        """A block."""
        return _checked(self._open(self._at, os.fsencode(path), _BLOCK, _MODE), path)

    def read(self, descriptor: int, buffer: Buffer) -> int:
        """read(2)."""
        return _checked(self._read(descriptor, buffer.address, buffer.size))


def _checked(result: int, path: str | None = None) -> int:
    """What a call of the C library returned; OSError where it failed."""
    if result < 0:
        problem = ctypes.get_errno()
        raise OSError(problem, os.strerror(problem), path)
    return result


def _exists(path: str, at: int) -> bool:
    """What os.path.exists says, with the same call."""
    try:
        os.stat(path, dir_fd=at)
    except OSError:
        return False
    return True


def _make_directories(directory: str, at: int) -> None:
    """What os.makedirs with exist_ok does, with the same calls, but no directory above the descriptor."""
    parent = directory.rpartition("/")[0]
    if parent and not _exists(parent, at):
        _make_directories(parent, at)
    try:
        os.mkdir(directory, dir_fd=at)
    except OSError:
        if not _is_directory(directory, at):
            raise


def _is_directory(path: str, at: int) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path, dir_fd=at).st_mode)
    except OSError:
        return False


def _fill_and_rename(descriptor: int, temporary: str, path: str, buffer: Buffer, times: CallTimes, at: int) -> int:
    """Write, close, rename, and the clock after it; a temporary file that could not be filled is removed."""
    call = "write"
    try:
        try:
            written = os.write(descriptor, buffer.view)
            if written < buffer.size:
                raise OSError(f"short write: {written} of {buffer.size} bytes")
            full = perf_counter_ns()
            call = "close"
        finally:
            os.close(descriptor)
        closed = perf_counter_ns()
        call = "rename"
        os.rename(temporary, path, src_dir_fd=at, dst_dir_fd=at)
    except OSError:
        if call != "write":
            times.failed[call] += 1
        with suppress(OSError):
            os.unlink(temporary, dir_fd=at)
        raise
    ended = perf_counter_ns()
    times.add("close", closed - full)
    times.add("rename", ended - closed)
    return ended
