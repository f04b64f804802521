"""The guard: a small process that cleans up after a kvbench that was killed.

A Python ``finally`` does not run after SIGKILL. The guard reads from a pipe whose other end only kvbench holds; when
the pipe closes, for whatever reason, the guard ends every process that carries the run's token in its environment (fio)
and removes the run's marked directory, as ``removal`` allows; on its standard output it says what stayed and why. It
imports nothing but the standard library and is started as ``python -I -S guard.py PACKAGES TOKEN [DIRECTORY OWNER]``,
where PACKAGES is the folder that holds this package.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

TOKEN_VARIABLE = "KVBENCH_RUN_TOKEN"

_GRACE_S = 10.0


class Guard:
    """Watches over one directory until ``release`` or the death of this process, then removes it."""

    def __init__(self, token: str, directory: Path | None, owner: int | None = None) -> None:
        """Start the guard process; it survives signals meant for kvbench because it has its own session.

        ``owner`` is the user whose the file system says the directory is: on some it is not this one.
        """
        packages = Path(__file__).resolve().parents[__name__.count(".")]
        place = [] if directory is None else [str(directory), str(os.geteuid() if owner is None else owner)]
        self._command = [sys.executable, "-I", "-S", __file__, str(packages), token, *place]
        self._process = self._start()
        self.hangs = False

    def release(self) -> str | None:
        """Close the pipe and wait until the guard has ended what is left and removed the directory.

        Why something stayed, None when nothing did. A guard that somebody killed is started again, once.
        """
        left, code = self._end()
        if code not in (0, None):
            self._process = self._start()
            left, code = self._end()
        return left if code in (0, None) else f"its guard process ended with {code}"

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    def _end(self) -> tuple[str | None, int | None]:
        try:
            said, _ = self._process.communicate(timeout=_GRACE_S * 3)
        except subprocess.TimeoutExpired:
            # A hung mount: the guard keeps trying on its own; kvbench must still end.
            self.hangs = True
            return f"process {self._process.pid} is still at it, because the tier does not answer", None
        return said.decode(errors="replace") or None, self._process.returncode


def processes_with(token: str) -> list[int]:
    """Ids of the processes that inherited the run's token, this one excluded."""
    wanted = os.fsencode(f"{TOKEN_VARIABLE}={token}")
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


def _main(token: str, directory: str | None = None, owner: str = "") -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end_processes(token)
    left = None if directory is None else _left_of(Path(directory), int(owner))
    # Nobody reads it when kvbench was killed.
    with suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), (left or "").encode())


def _left_of(directory: Path, owner: int) -> str | None:
    from kvbench.tiers import removal

    if not os.path.lexists(directory):
        return "somebody moved it, removed it or unmounted the tier"
    # The guard is there because the run has ended.
    kept = removal.remove(directory, removal.Rule(frozenset({owner}), alive=lambda marker: None))
    return kept.why if kept else None


if __name__ == "__main__":
    sys.path.append(sys.argv[1])
    _main(*sys.argv[2:])
