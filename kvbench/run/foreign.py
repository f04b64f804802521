"""A run directory that somebody else may have made: what must hold before anything in it is run or written."""

from __future__ import annotations

import fcntl
import os
import shlex
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kvbench.border.escaping import escaped
from kvbench.errors import UsageError

LOCK_NAME = ".kvbench.lock"

Commands = Mapping[str, tuple[str, ...]]


def require_repeated(run_dir: Path, saved: Commands, repeated: Commands) -> None:
    """UsageError, with the options to add, unless the user repeats every command that a resumed run would run."""
    if saved == repeated:
        return
    if saved:
        wanted = " ".join(f"{option} {shlex.quote(shlex.join(words))}" for option, words in saved.items())
        raise UsageError(
            f"{escaped(str(run_dir))} was started with commands, and whoever made it may have written them; they run "
            f"only when you repeat them. If that is what you want to run here, resume with exactly {escaped(wanted)}"
        )
    raise UsageError(f"{run_dir} was started without {', '.join(repeated)}; leave that out to resume it.")


def require_own_files(run_dir: Path) -> None:
    """UsageError when writing into the run directory could change something outside of it: a link of either kind."""
    for folder, folders, files in os.walk(run_dir):
        for name in (*folders, *files):
            path = Path(folder, name)
            why = _why_foreign(path)
            if why is not None:
                shown = escaped(str(path.relative_to(run_dir)))
                raise UsageError(
                    f"{escaped(str(run_dir))} holds '{shown[:200]}', {why}, and a run writes only into its own files; "
                    "resume a copy (cp -r --no-preserve=links -L) if you trust it, or start a new run."
                )


def _why_foreign(path: Path) -> str | None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(found.st_mode):
        return "a link"
    if stat.S_ISREG(found.st_mode):
        return "a file with a second name" if found.st_nlink > 1 else None
    return None if stat.S_ISDIR(found.st_mode) else "neither a file nor a directory"


@contextmanager
def locked(run_dir: Path) -> Iterator[str | None]:
    """The run directory for this process alone; yields why that cannot be made sure here, or None.

    The lock belongs to an open file, so the kernel lifts it when the process ends, however it ends. UsageError when
    another process holds it.
    """
    try:
        descriptor = os.open(run_dir / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UsageError(
            f"the run directory {run_dir} cannot be written ({error.strerror}); name another -o."
        ) from None
    try:
        yield _lock(descriptor, run_dir)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, run_dir: Path) -> str | None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(
            f"another kvbench{_holder(descriptor)} is at work in {run_dir}; wait until it ends, or name another -o."
        ) from None
    except OSError as error:
        # Lustre without -o flock, some FUSE programs and NFS without its lock service.
        return (
            f"{run_dir} lies on a file system without locks ({error.strerror}), so nothing keeps a second kvbench "
            "out of it: see to it that none is started there."
        )
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return None


def _holder(descriptor: int) -> str:
    text = os.pread(descriptor, 20, 0)
    return f" (process {int(text)})" if text.isdigit() else ""
