"""One mutated input through the real program, and what is wrong with how it ended."""

from __future__ import annotations

import io
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from unittest.mock import patch

import typer

from kvbench import cli
from kvbench.border.escaping import sentence
from kvbench.errors import KvbenchError
from tests.fuzz.borders import Border, arguments

# Seconds of processor time: other programs of the machine do not count. Drawing a page takes two.
LONGEST_S = 5.0
# What waits for something takes no processor time.
_LONGEST_WAIT_S = 120.0
MOST_MIB = 1024
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
        before_mib, started, code = peak_mib(), time.process_time(), None
        try:
            with _alarm(), redirect_stdout(out), redirect_stderr(err):
                code = _code(border, argv)
        except Hang:
            pass
        seconds = time.process_time() - started
    fault = _fault(code, out.getvalue(), err.getvalue(), argv[0])
    if fault is None and before_mib < MOST_MIB < peak_mib():
        fault = f"{peak_mib():,.0f} MiB of memory, {before_mib:,.0f} before"
    return Trial(border.name, code, seconds, fault)


def peak_mib() -> float:
    """The most memory that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _code(border: Border, argv: list[str]) -> int:
    """The program's exit code, or of what stands for it the one that its refusal would have."""
    if border.reads is None:
        with patch.object(cli, "_app_for", _app_for):
            return cli.main(argv)
    try:
        border.reads(Path(argv[0]))
    except KvbenchError as error:
        print(sentence(f"kvbench: {error}"), file=sys.stderr)
        return error.exit_code
    except Exception:
        traceback.print_exc()
        return 70
    return 0


def _app_for(arguments: Sequence[str]) -> object:
    return _built(arguments[0])


@cache
def _built(command: str) -> object:
    """The application with one command, built once: that takes as long as reading a small file."""
    return typer.main.get_command(cli.build_app([command]))


def _fault(code: int | None, out: str, err: str, command: str) -> str | None:
    if code is None:
        return f"no end within {LONGEST_S:.0f} s of processor time, or {_LONGEST_WAIT_S:.0f} s of waiting"
    if "Traceback" in err or code not in ((0, 1, 2, 3) if command == "gate" else (0, 2, 3)):
        return f"exit code {code}: {err.strip()[-1500:]}"
    if any(char in out + err for char in _ACTING):
        return f"a control character reached the terminal: {(out + err)[:300]!r}"
    longest = max(map(len, err.splitlines()), default=0)
    if longest > _LONGEST_LINE:
        return f"a message of {longest} characters"
    # What is wrong with an engine's settings, or with a comparison, is the answer of the command, not a refusal.
    answered = command in ("settings", "compare") and out.strip()
    if code == 2 and not answered and not err.strip().rpartition("\n")[2].startswith("kvbench: "):
        return f"exit code 2 without a sentence: {err[-300:]!r}"
    return None


@contextmanager
def _alarm() -> Iterator[None]:
    def ring(signum: int, frame: object) -> None:
        raise Hang

    timers = (
        (signal.ITIMER_PROF, signal.SIGPROF, LONGEST_S),
        (signal.ITIMER_REAL, signal.SIGALRM, _LONGEST_WAIT_S),
    )
    before = [signal.signal(number, ring) for _, number, _ in timers]
    for timer, _, seconds in timers:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for (timer, number, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)
