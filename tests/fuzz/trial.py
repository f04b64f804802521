"""One mutated input through the real program, and what is wrong with how it ended."""

from __future__ import annotations

import io
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from kvbench.cli import main
from tests.fuzz.borders import Border, arguments

# Seconds of processor time: other programs of the machine do not count. Drawing a page takes two.
LONGEST_S = 10.0
_LONGEST_LINE = 620
_ACTING = ("\x1b", "\u202e", "\udc80", "\x00")


class Hang(BaseException):
    """The program did not end in time."""


@dataclass(frozen=True, slots=True)
class Trial:
    """How one input ended: the exit code, how long it took, and the fault or None."""

    border: str
    code: int | None
    seconds: float
    fault: str | None


def tried(border: Border, random: Random) -> Trial:
    """The program's answer to one mutated input, judged."""
    with TemporaryDirectory(prefix="kvbench-fuzz-") as name:
        argv = arguments(border, Path(name), random)
        out, err = io.StringIO(), io.StringIO()
        started, code = time.process_time(), None
        try:
            with _alarm(), redirect_stdout(out), redirect_stderr(err):
                code = main(argv)
        except Hang:
            pass
        seconds = time.process_time() - started
    return Trial(border.name, code, seconds, _fault(code, out.getvalue(), err.getvalue(), argv[0]))


def _fault(code: int | None, out: str, err: str, command: str) -> str | None:
    if code is None:
        return f"no end within {LONGEST_S:.0f} s of processor time"
    if "Traceback" in err or code not in ((0, 1, 2, 3) if command == "gate" else (0, 2, 3)):
        return f"exit code {code}: {err.strip()[-1500:]}"
    if any(char in out + err for char in _ACTING):
        return f"a control character reached the terminal: {(out + err)[:300]!r}"
    longest = max(map(len, err.splitlines()), default=0)
    if longest > _LONGEST_LINE:
        return f"a message of {longest} characters"
    # What is wrong with an engine's settings is the answer of the command, not a refusal.
    answered = command == "settings" and out.strip()
    if code == 2 and not answered and not err.strip().rpartition("\n")[2].startswith("kvbench: "):
        return f"exit code 2 without a sentence: {err[-300:]!r}"
    return None


@contextmanager
def _alarm() -> Iterator[None]:
    def ring(signum: int, frame: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, LONGEST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
