"""A file system that passes everything through to a directory, and whose calls of one kind never return on demand.

``python -m tests.hanging_fs ROOT MOUNT CONTROL``: while the file CONTROL names a call, every such call on MOUNT waits.
With a phase behind it (``stat reading``) only once a run has come to that: its own calls tell. CONTROL.hung names what
waited. A third word is what happens instead of waiting for ever: the name of an error, or so many seconds. A phase of
"-" is every one.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from pathlib import Path
from typing import Any

import mfusepy

_LOOK_S = 0.02
# Smaller ones are those of markers.
_DATA_BYTES = 1 << 16


class HangingFs(mfusepy.Operations):  # type: ignore[misc]
    """Every call is that of the directory below, after it was let through."""

    use_ns = True

    def __init__(self, root: Path, control: Path) -> None:
        """Pass through to ``root``, as ``control`` allows."""
        self.root, self.control, self.phase = root, control, ""
        self.hung = control.with_suffix(".hung")

    def _below(self, path: str) -> Path:
        return self.root / path.removeprefix("/")

    def _let_through(self, call: str, path: str) -> Path:
        said = False
        while (words := self.control.read_text().split()) and words[0] == call:
            if len(words) > 1 and words[1] not in ("-", self.phase):
                break
            if not said:
                said = True
                with self.hung.open("a") as file:
                    file.write(f"{call} {path}\n")
            if len(words) > 2:
                self._misbehave(words[2])
                break
            time.sleep(_LOOK_S)
        return self._below(path)

    def _misbehave(self, how: str) -> None:
        if how.isalpha():
            raise mfusepy.FuseOSError(getattr(errno, how))
        time.sleep(float(how))

    def _enter(self, phase: str, after: str, path: str, size: int = _DATA_BYTES) -> None:
        """Another phase begins with the first call of this kind on data; doctor's probe is none."""
        if self.phase == after and size >= _DATA_BYTES and not path.endswith("/probe"):
            self.phase = phase

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        below = self._let_through("stat", path)
        try:
            found = below.lstat()
        except OSError as error:
            raise mfusepy.FuseOSError(error.errno or errno.EIO) from None
        names = ("st_mode", "st_nlink", "st_size", "st_uid", "st_gid", "st_blocks")
        times = {f"st_{kind}time": getattr(found, f"st_{kind}time_ns") for kind in "acm"}
        return {name: getattr(found, name) for name in names} | times

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *(item.name for item in self._below(path).iterdir())]

    def opendir(self, path: str) -> int:
        self._let_through("open", path)
        return 0

    def open(self, path: str, flags: int) -> int:
        return os.open(self._let_through("open", path), flags & ~os.O_DIRECT)

    def create(self, path: str, mode: int, fi: object = None) -> int:
        return os.open(self._let_through("open", path), os.O_RDWR | os.O_CREAT, mode)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        self._enter("reading", "layout", path, size)
        self._let_through("read", path)
        return os.pread(fh, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        self._enter("layout", "", path, len(data))
        self._let_through("write", path)
        return os.pwrite(fh, data, offset)

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        self._let_through("fsync", path)
        os.fsync(fh)
        return 0

    def release(self, path: str, fh: int) -> int:
        os.close(fh)
        return 0

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        os.truncate(self._below(path), length)
        return 0

    def rename(self, old: str, new: str) -> int:
        self._let_through("rename", old).rename(self._below(new))
        return 0

    def unlink(self, path: str) -> int:
        self._enter("removal", "reading", path)
        self._let_through("unlink", path).unlink()
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        self._below(path).mkdir(mode)
        return 0

    def rmdir(self, path: str) -> int:
        self._below(path).rmdir()
        return 0

    def chmod(self, path: str, mode: int) -> int:
        self._below(path).chmod(mode)
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        if times is not None:
            os.utime(self._below(path), ns=times)
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        found = os.statvfs(self.root)
        names = (
            "f_bsize",
            "f_frsize",
            "f_blocks",
            "f_bfree",
            "f_bavail",
            "f_files",
            "f_ffree",
            "f_favail",
            "f_namemax",
        )
        return {name: getattr(found, name) for name in names}


if __name__ == "__main__":
    root, mount, control = map(Path, sys.argv[1:4])
    mfusepy.FUSE(
        HangingFs(root, control), str(mount), foreground=True, nothreads=False, attr_timeout=0, entry_timeout=0
    )
