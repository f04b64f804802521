"""The guard: a small process that cleans up after a kvbench that was killed.

A Python ``finally`` does not run after SIGKILL. The guard reads from a pipe whose other end only kvbench holds; when
the pipe closes, for whatever reason, the guard ends every process that carries the run's token in its environment (fio)
and removes the run's marked directory. It imports nothing but the standard library and is started as
``python -I guard.py TOKEN DIRECTORY``.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

TOKEN_VARIABLE = "KVBENCH_RUN_TOKEN"
MARKER_NAME = ".kvbench-owner.json"

_GRACE_S = 10.0


class Guard:
    """Watches over one directory until ``release`` or the death of this process, then removes it."""

    def __init__(self, token: str, directory: Path) -> None:
        """Start the guard process; it survives signals meant for kvbench because it has its own session."""
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__, token, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    def release(self) -> None:
        """Close the pipe and wait until the guard has ended what is left and removed the directory."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_GRACE_S * 3)
        except subprocess.TimeoutExpired:
            # A hung mount: the guard keeps trying on its own; kvbench must still end.
            return


def processes_with(token: str) -> list[int]:
    """Ids of the processes that inherited the run's token, this one excluded."""
    wanted = f"{TOKEN_VARIABLE}={token}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        if entry.name == str(os.getpid()):
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in variables:
            found.append(int(entry.name))
    return found


def end_processes(token: str) -> None:
    """SIGTERM, then SIGKILL, to every process of the run; waits until they are gone."""
    deadline = time.monotonic() + _GRACE_S
    send = signal.SIGTERM
    while remaining := processes_with(token):
        for process in remaining:
            try:
                os.kill(process, send)
            except ProcessLookupError:
                continue
        time.sleep(0.1)
        if time.monotonic() > deadline:
            send, deadline = signal.SIGKILL, time.monotonic() + 3600


def remove_marked(directory: Path) -> None:
    """Remove a directory that carries kvbench's marker; one without it is left alone."""
    if (directory / MARKER_NAME).is_file() and not directory.is_symlink():
        shutil.rmtree(directory, ignore_errors=True)


def _main(token: str, directory: Path) -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end_processes(token)
    remove_marked(directory)


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]))
