"""strace's view of a tier: which thread made which call for which block file, whoever made it.

Calls are named by what they do, whether a path is whole or relative to a descriptor: ``openat(AT_FDCWD, "/tier/a.bin"``
of the engine and ``openat(7, "a.bin"`` of the replay are both "open".
"""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.lab.processes import wait_until
from tests.lab.state import LabError

CALLS = (
    "access,faccessat,faccessat2,open,openat,read,readv,pread64,preadv,write,writev,pwrite64,close,rename,renameat,"
    "renameat2,stat,newfstatat,statx,mkdir,mkdirat,unlink,unlinkat,fsync,fdatasync"
)
_NAMES = {
    "faccessat": "access", "faccessat2": "access", "openat": "open", "renameat": "rename", "renameat2": "rename",
    "newfstatat": "stat", "statx": "stat", "mkdirat": "mkdir", "unlinkat": "unlink",
}  # fmt: skip
_LINE = re.compile(r"(?P<thread>\d+) +(?P<call>\w+)\((?P<rest>.*)")
_RESUMED = re.compile(r"(?P<thread>\d+) +<\.\.\. \w+ resumed>(?P<rest>.*)")
_UNFINISHED = " <unfinished ...>"
_BLOCK = re.compile(r"(?P<block>[0-9a-f]{3}/[0-9a-f]{2}_g\d+/[0-9a-f]{64}\.bin)(?P<temporary>_\d+\.tmp)?$")
_FOLDER = re.compile(r"(?P<outer>[0-9a-f]{3})(?P<inner>/[0-9a-f]{2}_g\d+)?$")
_FLAGS = re.compile(r"O_[A-Z|_]+")


@dataclass(frozen=True)
class Call:
    """One call for a block: what it is, on the block's file, its temporary file or a folder, and what came of it."""

    thread: int
    what: str
    on: str
    details: str
    block: str

    @property
    def words(self) -> str:
        """Everything but who made it and for which block."""
        return " ".join(filter(None, (self.what, self.on, self.details)))


@contextmanager
def attached(processes: Sequence[int], trace: Path) -> Iterator[None]:
    """strace on these processes and all their threads for as long as the context lasts; LabError where it may not."""
    pids = [word for process in processes for word in ("-p", str(process))]
    command = ["strace", "-f", "-s", "300", "-e", f"trace={CALLS}", "-o", str(trace), *pids]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        if not wait_until(lambda: all(map(_is_traced, processes)) or tracer.poll() is not None, 60):
            raise LabError("strace did not attach")
        if tracer.poll() is not None:
            assert tracer.stderr is not None
            raise LabError(f"strace may not attach here: {tracer.stderr.read().strip()[-200:]}")
        yield
    finally:
        tracer.terminate()
        tracer.communicate()


def _is_traced(process: int) -> bool:
    threads = list(Path(f"/proc/{process}/task").iterdir())
    return all("TracerPid:\t0\n" not in (thread / "status").read_text() for thread in threads)


def calls(trace: Path) -> list[Call]:
    """Calls that belong to a block, in order of their end; those on folders belong to the block of the next call."""
    found: list[Call] = []
    waiting: defaultdict[int, list[Call]] = defaultdict(list)
    opened: dict[str, tuple[str, str]] = {}
    for thread, name, rest in _lines(trace):
        call = _call(thread, name, rest, opened)
        if call is None:
            continue
        if not call.block:
            waiting[thread].append(call)
            continue
        found += [Call(item.thread, item.what, item.on, item.details, call.block) for item in waiting.pop(thread, [])]
        found.append(call)
    return found


def by_block(made: Sequence[Call], *, only: Sequence[str] = ()) -> dict[str, list[Call]]:
    """Calls of each block, those alone that are in ``only`` if given."""
    found: defaultdict[str, list[Call]] = defaultdict(list)
    for call in made:
        if not only or call.what in only:
            found[call.block].append(call)
    return dict(found)


def _lines(trace: Path) -> Iterator[tuple[int, str, str]]:
    """Thread, call and the rest of each call, with those put together that another thread interrupted."""
    halves: dict[int, tuple[str, str]] = {}
    for line in trace.read_text(errors="replace").splitlines():
        if resumed := _RESUMED.match(line):
            name, rest = halves.pop(int(resumed["thread"]), ("", ""))
            if name:
                yield int(resumed["thread"]), name, rest + resumed["rest"]
        elif match := _LINE.match(line):
            thread, name, rest = int(match["thread"]), match["call"], match["rest"]
            if rest.endswith(_UNFINISHED):
                halves[thread] = (name, rest.removesuffix(_UNFINISHED))
            else:
                yield thread, name, rest


def _call(thread: int, name: str, rest: str, opened: dict[str, tuple[str, str]]) -> Call | None:
    what, result = _NAMES.get(name, name), rest.rpartition(" = ")[2]
    if what in ("read", "readv", "pread64", "preadv", "write", "writev", "pwrite64", "close", "fsync", "fdatasync"):
        descriptor = re.split(r"[,)]", rest, maxsplit=1)[0]
        known = opened.pop(descriptor, None) if what == "close" else opened.get(descriptor)
        return None if known is None else Call(thread, what, known[1], "" if what == "close" else result, known[0])
    path = (re.findall(r'"([^"]*)"', rest) or [""])[-1]
    failed = re.search(r"= -1 (E\w+)", rest)
    outcome = failed[1] if failed else ""
    if block := _BLOCK.search(path):
        on = "temporary" if block["temporary"] else "block"
        if what == "open":
            outcome = " ".join(filter(None, ("|".join(_FLAGS.findall(rest)), outcome)))
            if not failed:
                opened[result.split()[0]] = (block["block"], on)
        return Call(thread, what, on, outcome, block["block"])
    if what in ("stat", "mkdir") and (folder := _FOLDER.search(path)):
        return Call(thread, what, "folder" if folder["inner"] else "parent", outcome, "")
    return None
