"""Small experiments that say what a file system or this process may do; each leaves nothing behind."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import secrets
import subprocess
import sys
from pathlib import Path

from kvbench.tiers.pagecache import cached_fraction, direct_write_error
from kvbench.tiers.removal import WORK_PREFIX

# A size that no sector size divides.
UNALIGNED = 1000
_ALIGNMENTS = (512, 4096, 65536)
_PROBE_BYTES = 4 << 20

# Its only argument is a directory that is not there yet; how it fails does not matter.
_WRITE_AND_REMOVE = """\
import contextlib, os, sys
folder = sys.argv[1]
os.mkdir(folder, 0o700)
held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
try:
    with open(os.path.join(folder, "probe"), "xb") as file:
        file.write(bytes(4096))
        file.flush()
        os.fsync(file.fileno())
finally:
    with contextlib.suppress(FileNotFoundError):
        os.unlink("probe", dir_fd=held)
    os.rmdir(folder)
"""

# Children of hung mounts: Python complains of a running child that nobody holds.
_LEFT_ALONE: list[subprocess.Popen[bytes]] = []

# include/uapi/asm-generic/unistd.h: the same number on every architecture that has io_uring.
_IO_URING_SETUP = 425
_PARAMETERS_BYTES = 120


def answers(path: Path, seconds: float = 10.0) -> bool:
    """Whether the file system behind ``path`` answers at all: a directory and a file are made, synced and removed.

    A child asks, because a hung mount keeps the asker in uninterruptible sleep. One that hangs is left alone: when the
    mount comes back it removes what it made. Less than a write proves nothing: with its metadata server or all its OSDs
    stopped, CephFS still answers statfs (ceph-fuse 16.2).
    """
    folder = path.absolute() / f"{WORK_PREFIX}{secrets.token_hex(8)}"
    child = subprocess.Popen(
        [sys.executable, "-I", "-c", _WRITE_AND_REMOVE, str(folder)],
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        _LEFT_ALONE.append(child)
        return False
    return True


def smallest_direct_size(folder: Path) -> int | None:
    """The first of 1000 (no rule at all), 512, 4096 and 65536 bytes that O_DIRECT takes; None when it is refused."""
    for size in (UNALIGNED, *_ALIGNMENTS):
        if direct_write_error(folder / "probe-alignment", size) is None:
            return size
    return None


def direct_io_leaves_pages(folder: Path) -> float | None:
    """Share of a file's pages in the page cache after O_DIRECT writes and reads: 0 where O_DIRECT bypasses it."""
    path = folder / "probe-cache"
    buffer = mmap.mmap(-1, _PROBE_BYTES)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_DIRECT, 0o600)
        try:
            os.write(descriptor, buffer)
            os.preadv(descriptor, [buffer], 0)
        finally:
            os.close(descriptor)
        return cached_fraction([path])
    except OSError:
        return None
    finally:
        buffer.close()
        path.unlink(missing_ok=True)


def io_uring_error() -> int | None:
    """None when this process may set up an io_uring, else the errno: EPERM from seccomp or the sysctl, ENOSYS."""
    libc = ctypes.CDLL(None, use_errno=True)
    parameters = ctypes.create_string_buffer(_PARAMETERS_BYTES)
    descriptor = libc.syscall(ctypes.c_long(_IO_URING_SETUP), ctypes.c_uint(1), parameters)
    if descriptor < 0:
        return ctypes.get_errno() or errno.EPERM
    os.close(descriptor)
    return None
