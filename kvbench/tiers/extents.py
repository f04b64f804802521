"""Bytes of files that were never written: holes, and extents that are allocated but unwritten (fallocate).

Reads of them are answered by the file system without touching the device: 17 GB/s on a disk that does 0.5 (fio 3.33,
ext4, create_only=1).
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

# linux/fs.h and linux/fiemap.h: _IOWR('f', 11, struct fiemap), 32 bytes of head and 56 per extent.
_FS_IOC_FIEMAP = 0xC020660B
_HEAD = struct.Struct("=QQLLLL")
_EXTENT = struct.Struct("=QQQQQLLLL")
_SYNC, _LAST, _UNWRITTEN = 0x1, 0x1, 0x800
_BATCH = 128


def unwritten_bytes(paths: list[Path]) -> int | None:
    """Bytes in holes and unwritten extents of the files, or None when the file system tells neither.

    A file system without holes of its own (most network ones) reports none: then 0 says only that none was seen.
    """
    total = 0
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:
            return None
        try:
            holes = _holes(descriptor)
            total += holes + sum(_unwritten_extents(descriptor))
        except OSError:
            return None
        finally:
            os.close(descriptor)
    return total


def _holes(descriptor: int) -> int:
    """Bytes in holes (lseek(2), SEEK_DATA and SEEK_HOLE)."""
    size = os.fstat(descriptor).st_size
    position = holes = 0
    while position < size:
        try:
            data = os.lseek(descriptor, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                return holes + size - position
            raise
        holes += data - position
        position = os.lseek(descriptor, data, os.SEEK_HOLE)
    return holes


def _unwritten_extents(descriptor: int) -> Iterator[int]:
    """Sizes of the extents that are allocated and unwritten; nothing where FIEMAP is not supported.

    ext4 answers SEEK_DATA inside an unwritten extent as a hole, XFS too: those are counted once, in ``_holes``.
    """
    size = os.fstat(descriptor).st_size
    position = 0
    while position < size:
        request = bytearray(_HEAD.size + _BATCH * _EXTENT.size)
        _HEAD.pack_into(request, 0, position, size - position, _SYNC, 0, _BATCH, 0)
        try:
            fcntl.ioctl(descriptor, _FS_IOC_FIEMAP, request)
        except OSError:
            return
        count = _HEAD.unpack_from(request)[3]
        if count == 0:
            return
        for number in range(count):
            logical, _, length, _, _, flags, *_ = _EXTENT.unpack_from(request, _HEAD.size + number * _EXTENT.size)
            position = logical + length
            if flags & _UNWRITTEN and not _is_hole(descriptor, logical):
                yield min(length, size - logical)
            if flags & _LAST:
                return


def _is_hole(descriptor: int, position: int) -> bool:
    try:
        return os.lseek(descriptor, position, os.SEEK_DATA) != position
    except OSError:
        return True
