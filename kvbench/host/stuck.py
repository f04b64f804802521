"""Which threads of a process wait in the kernel for a file: calls on a tier that does not answer never return.

Neither a signal nor SIGKILL ends such a wait (a FUSE request that its server has taken, NFS and CephFS mounted hard),
so that a process can only be left behind. Linux shows the call of each thread in /proc/PID/task/TID/syscall.
"""

from __future__ import annotations

import os
import platform
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# Longer than any call on a file that a tier is measured with. The variable is for who knows his tier better.
LONGEST_CALL_S = 60.0
LONGEST_CALL_VARIABLE = "KVBENCH_LONGEST_CALL_S"

# Numbers of the system calls that wait for a file system (Linux: asm-generic/unistd.h, arch/x86/entry syscall_64.tbl).
# Those of the first set take a descriptor as their first argument, those of the second a directory's, or AT_FDCWD;
# those of the third say nothing of a file: names from the working directory, and queues (io_submit, io_uring_enter).
# fmt: off
_X86 = (
    frozenset({
        0, 1, 3, 5, 17, 18, 19, 20, 72, 73, 74, 75, 77, 78, 138, 187, 190, 193, 196, 199, 217, 221, 277, 285,
        295, 296, 306, 326, 327, 328,
    }),
    frozenset({
        257, 258, 259, 260, 262, 263, 264, 265, 266, 269, 280, 316, 332, 437, 439,
    }),
    frozenset({
        2, 4, 6, 21, 26, 59, 76, 80, 82, 83, 84, 85, 86, 87, 88, 89, 90, 92, 132, 137, 162, 188, 191, 194, 208,
        209, 333, 426,
    }),
)
_ARM = (
    frozenset({
        7, 10, 13, 16, 25, 32, 44, 46, 47, 50, 52, 55, 57, 61, 63, 64, 65, 66, 67, 68, 69, 70, 80, 82, 83, 84,
        213, 223, 267, 285, 286, 287,
    }),
    frozenset({
        33, 34, 35, 36, 37, 38, 48, 53, 54, 56, 78, 79, 88, 276, 291, 437, 439,
    }),
    frozenset({
        2, 4, 5, 8, 11, 43, 45, 49, 81, 221, 227, 292, 426,
    }),
)
# fmt: on
_NONE: tuple[frozenset[int], ...] = (frozenset(), frozenset(), frozenset())
_CALLS = {"x86_64": _X86, "aarch64": _ARM}

# Whoever reads or writes these waits for somebody else by design.
_NO_FILE = ("/dev/pts/", "/dev/tty", "/dev/null", "/dev/console", "/proc/")


@dataclass(frozen=True, slots=True)
class Waiting:
    """One call that a thread is in: equal to a later one only if it is the same; ``place`` where it is known."""

    process: int
    thread: int
    call: str
    switches: int
    place: str | None


class LongCalls:
    """Watches the calls on files of a process, asked again and again."""

    def __init__(self, pid: int) -> None:
        """Nothing is known before the first look."""
        self._pid = pid
        self._since: dict[Waiting, float] = {}

    def oldest(self, *, with_children: bool = False) -> tuple[Waiting, float] | None:
        """The call that was there at every look for longest, and for how many seconds; None where no thread waits."""
        now = time.monotonic()
        looked_at = family(self._pid) if with_children else [self._pid]
        found = frozenset[Waiting]().union(*map(waiting_for_files, looked_at))
        self._since = {call: self._since.get(call, now) for call in found}
        call = min(self._since, key=lambda call: self._since[call], default=None)
        return None if call is None else (call, now - self._since[call])

    def hangs(self) -> bool:
        """Whether a call has not returned for as long as none should take."""
        oldest = self.oldest()
        return oldest is not None and oldest[1] >= longest_call_s()


def longest_call_s() -> float:
    """Seconds after which a call on a tier counts as one that never returns."""
    try:
        return float(os.environ[LONGEST_CALL_VARIABLE])
    except (KeyError, ValueError):
        return LONGEST_CALL_S


def family(pid: int) -> list[int]:
    """The process and all that it started and that still live, as far as their parents live."""
    found = [pid]
    for process in found:
        with suppress(OSError, ValueError):
            for task in Path(f"/proc/{process}/task").iterdir():
                found += map(int, _text(task / "children").split())
    return found


def waiting_for_files(pid: int) -> frozenset[Waiting]:
    """The calls on files in which threads of the process are now; none where the kernel does not tell."""
    found: set[Waiting] = set()
    process = Path(f"/proc/{pid}")
    with suppress(OSError):
        for task in (process / "task").iterdir():
            with suppress(OSError, ValueError):
                waiting = _of_thread(process, task)
                found |= set() if waiting is None else {waiting}
    return frozenset(found)


def _of_thread(process: Path, task: Path) -> Waiting | None:
    state = _text(task / "stat").rpartition(")")[2].split()[0]
    if state in "tT":
        return None
    try:
        call = _text(task / "syscall").strip()
    except PermissionError:
        # A hardened kernel shows the state only.
        call = "-1"
    number, *arguments = call.split()
    if number == "running":
        return None
    # -1: in no call, so in a fault of a mapped file.
    is_file, place = (False, None) if number == "-1" else _file_of(process, int(number), arguments)
    # A wait that no signal ends is one for a device or a server, whatever the call.
    if not is_file and state != "D":
        return None
    return Waiting(int(process.name), int(task.name), call, _switches(task), place)


def _file_of(process: Path, number: int, arguments: list[str]) -> tuple[bool, str | None]:
    """Whether the call is one on a file, and where that is known, on which."""
    on_descriptor, on_path, other = _CALLS.get(platform.machine(), _NONE)
    if number in other:
        return True, None
    if number not in on_descriptor and number not in on_path:
        return False, None
    place = _link(process, int(arguments[0], 16))
    if number in on_path or place is None:
        return True, place
    return place.startswith("/") and not place.startswith(_NO_FILE), place


def _switches(task: Path) -> int:
    """How often the thread gave up its processor: a thread that still waits has not done so again."""
    lines = _text(task / "status").splitlines()
    return sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)


def _link(process: Path, descriptor: int) -> str | None:
    """What a descriptor leads to; None for one that is closing, or for the working directory."""
    with suppress(OSError):
        return str((process / "fd" / str(descriptor)).readlink())
    return None


def _text(path: Path) -> str:
    return path.read_text(encoding="ascii", errors="replace")
