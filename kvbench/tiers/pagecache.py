"""Whether O_DIRECT works on a file system, and how much of a file sits in the page cache."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from pathlib import Path


def direct_write_error(path: Path, size: int) -> int | None:
    """None when ``size`` bytes can be written and read with O_DIRECT at ``path``, else the errno; removes the file."""
    buffer = mmap.mmap(-1, size)  # anonymous memory is page-aligned, as O_DIRECT wants
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_DIRECT, 0o600)
        try:
            written = os.write(descriptor, buffer)
            read = os.preadv(descriptor, [buffer], 0)
            return None if written == read == size else errno.EIO
        finally:
            os.close(descriptor)
    except OSError as error:
        return error.errno
    finally:
        buffer.close()
        path.unlink(missing_ok=True)


def drop_cached(paths: list[Path]) -> str:
    """Drop this host's cached pages of our own files (fsync, then POSIX_FADV_DONTNEED) and say how it went.

    /proc/sys/vm/drop_caches is never written: it empties the caches of everybody on the host, and of kvbench's files it
    drops no page more. Caches of a storage server need --before-read.
    """
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
        except OSError as error:
            return f"failed: {error.strerror}"
    left = cached_fraction(paths)
    if left is None:
        return "asked for (fadvise); the outcome cannot be seen here"
    return "dropped" if left == 0 else f"failed: {left:.0%} of the pages stayed"


def cached_fraction(paths: list[Path]) -> float | None:
    """Share (0..1) of the files' pages that are in the page cache, or None when the system does not say."""
    total = resident = 0
    for path in paths:
        try:
            pages = _resident_pages(path)
        except OSError:
            return None
        if pages is None:
            return None
        resident += pages[0]
        total += pages[1]
    return resident / total if total else None


def _resident_pages(path: Path) -> tuple[int, int] | None:
    # mincore(2); since Linux 5.2 it answers only for files that the caller may write, which ours are.
    size = path.stat().st_size
    if size == 0:
        return 0, 0
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    count = -(-size // mmap.PAGESIZE)
    vector = ctypes.create_string_buffer(count)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    finally:
        os.close(descriptor)
    if address in (None, ctypes.c_void_p(-1).value):
        return None
    try:
        if libc.mincore(address, size, vector) != 0:
            return None
    finally:
        libc.munmap(address, size)
    return sum(byte & 1 for byte in vector.raw[:count]), count
