"""Starting and stopping the lab's own processes, and nobody else's.

A pid file alone proves nothing: the number may belong to another program by now. A process counts as the lab's when its
executable is one that the lab starts and its command line names the lab's directory.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.lab.state import LabError

_PROGRAMS = ("ceph-", "radosgw", "python")


def run(command: Sequence[str | Path], *, timeout_s: float = 120, log: Path | None = None) -> str:
    """Standard output of a command; LabError with its last words when it fails. ``log`` collects what it prints.

    Without ``log`` the output is read through a pipe, which a daemon that stays behind would keep open for ever.
    """
    arguments = [str(item) for item in command]
    try:
        if log is None:
            done = subprocess.run(arguments, capture_output=True, text=True, timeout=timeout_s, check=False)
            code, answer, said = done.returncode, done.stdout, done.stderr + done.stdout
        else:
            with log.open("ab") as file:
                code = subprocess.call(arguments, stdin=subprocess.DEVNULL, stdout=file, stderr=file, timeout=timeout_s)
            answer, said = "", log.read_text(errors="replace")
    except subprocess.TimeoutExpired:
        raise LabError(f"{arguments[0]} did not end within {timeout_s:.0f} s") from None
    if code != 0:
        raise LabError(f"{' '.join(arguments[:3])} failed ({code}): {said.strip()[-400:]}")
    return answer


def executable(process: int) -> str | None:
    """Path of the program that a process runs; None when it is gone or a zombie."""
    try:
        return str(Path(f"/proc/{process}/exe").readlink())
    except OSError:
        return None


def pid_of(pid_file: Path) -> int | None:
    """The process of a pid file, or None unless it runs and is the lab's (the lab's directory holds the file)."""
    try:
        process = int(pid_file.read_text())
        words = Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace")
    except (OSError, ValueError):
        return None
    program = executable(process)
    if program is None or not Path(program).name.startswith(_PROGRAMS):
        return None
    return process if str(_root_of(pid_file)) in words else None


def stop(pid_files: Sequence[Path], *, grace_s: float, signals: bool = True) -> None:
    """End these processes: SIGTERM (unless ``signals`` is off), SIGKILL for those still there after ``grace_s``."""
    processes = [process for file in pid_files if (process := pid_of(file)) is not None]
    for process in processes:
        # A paused daemon takes no SIGTERM.
        _send(process, signal.SIGCONT)
        if signals:
            _send(process, signal.SIGTERM)
    wait_until(lambda: not any(map(executable, processes)), grace_s)
    left = [process for process in processes if executable(process)]
    for process in left:
        _send(process, signal.SIGKILL)
    wait_until(lambda: not any(map(executable, left)), 10)


def wait_until(condition: Callable[[], object], seconds: float, pause_s: float = 0.1) -> bool:
    """Whether the condition came true within ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_s)
    return True


def mounted_below(root: Path) -> list[Path]:
    """Mount points below ``root``, the deepest first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [Path(line.split()[4].replace("\\040", " ")) for line in lines]
    return sorted((point for point in points if point.is_relative_to(root)), key=lambda point: -len(point.parts))


def unmount(point: Path) -> None:
    """Unmount, lazily when the file system behind it does not answer."""
    try:
        run(["umount", point], timeout_s=20)
    except LabError:
        run(["umount", "-l", point], timeout_s=20)


def _send(process: int, number: signal.Signals) -> None:
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return


def _root_of(pid_file: Path) -> Path:
    # ROOT/run/NAME.pid
    return pid_file.resolve().parent.parent
