"""The user's command beside every round (``--watch``): what it prints is the storage's state, a change is an event."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from kvbench.record.results import Event
from kvbench.run.before_read import without_secrets
from kvbench.tiers.guard import TOKEN_VARIABLE

TIMEOUT_S = 10.0
_PERIOD_S = 1.0
_JOIN_S = 5.0
_MOST_READ_BYTES = 1 << 16
_SHOWN_CHARACTERS = 100
_MOST_CHANGES = 20
# The drivers report their rates every half second, the first time half a second after they started.
_FIRST_REPORT_S = 0.5
# What changes without a change of state: "(since 5s)", and the number of Ceph's newest map (`ceph osd stat`, 16.2).
_VOLATILE = re.compile(r"\s*\([^()]*\)|;?\s*epoch: e?\d+")


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one run of the command said, and when it ended."""

    at: float
    text: str


class Watch:
    """One command, run about once a second beside one round; without a command nothing is watched."""

    def __init__(self, command: tuple[str, ...], token: str, timeout_s: float = TIMEOUT_S) -> None:
        """Watch with ``command``; its processes carry the run's ``token``, so that none outlives a killed run."""
        self._command, self._timeout_s = command, timeout_s
        self._environment = {**os.environ, TOKEN_VARIABLE: token}
        self._began = time.monotonic()
        self._heard: float | None = None
        self._states: list[_Seen] = []
        self._failures: list[_Seen] = []
        self._runs = 0
        self._over = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None

    def heard(self) -> None:
        """The driver has reported a rate, so its operations run: second 1 of the round began just before."""
        if self._heard is None:
            self._heard = time.monotonic()

    @contextmanager
    def beside(self, folder: Path) -> Iterator[None]:
        """Watch while the body runs; whatever the command does, the body takes no harm."""
        self._began = time.monotonic()
        if not self._command:
            yield
            return
        thread = threading.Thread(target=self._watch, args=(folder,), name="kvbench-watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._kill()
            # One that hangs in the kernel is left to the guard of the run.
            thread.join(_JOIN_S)

    def events(self) -> list[Event]:
        """Every change of state by second of the round, and how often the command failed, said once."""
        changes = [
            Event(self._second(after), f"{_short(before.text)} -> {_short(after.text)}")
            for before, after in pairwise(tuple(self._states))
            if before.text != after.text
        ]
        found, rest = changes[:_MOST_CHANGES], changes[_MOST_CHANGES:]
        if rest:
            found.append(Event(rest[0].second, f"{len(rest)} more changes of state"))
        if self._failures:
            first = self._failures[0]
            text = f"--watch {first.text} ({len(self._failures)} of {self._runs} times)"
            found.append(Event(self._second(first), text))
        return sorted(found, key=lambda event: event.second)

    def _second(self, seen: _Seen) -> int:
        began = self._began if self._heard is None else max(self._began, self._heard - _FIRST_REPORT_S)
        return max(1, int(seen.at - began) + 1)

    def _watch(self, folder: Path) -> None:
        while not self._over.is_set():
            started = time.monotonic()
            self._ask(folder)
            took = time.monotonic() - started
            # It runs on the host that measures: at most half of the time is the command's.
            self._over.wait(max(_PERIOD_S - took, took))

    def _ask(self, folder: Path) -> None:
        name = shlex.quote(self._command[0])
        self._runs += 1
        try:
            code, text = self._run(folder, name)
        except OSError as error:
            self._fail(f"{name} cannot be started ({error.strerror})")
            return
        if code is None:
            return
        if self._over.is_set() and code != 0:
            self._runs -= 1
        elif code != 0:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            self._fail(f"{name} {how}")
        else:
            self._states.append(_Seen(time.monotonic(), state_of(without_secrets(text))))

    def _run(self, folder: Path, name: str) -> tuple[int | None, str]:
        """Exit code and the beginning of what it printed; None after it was stopped for taking too long."""
        late = threading.Event()

        def give_up() -> None:
            late.set()
            # Counted here: a command that hangs in the kernel does not end when it is killed.
            self._fail(f"{name} did not end within {self._timeout_s:.0f} s")
            self._kill()

        child = subprocess.Popen(
            self._command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment,
            start_new_session=True,
        )
        self._child = child
        if self._over.is_set():
            self._kill()
        timer = threading.Timer(self._timeout_s, give_up)
        timer.daemon = True
        timer.start()
        try:
            assert child.stdout is not None
            with child.stdout as pipe:
                printed = pipe.read(_MOST_READ_BYTES)
            code = child.wait()
        finally:
            timer.cancel()
            self._child = None
        return (None if late.is_set() else code), printed.decode(errors="replace")

    def _fail(self, why: str) -> None:
        self._failures.append(_Seen(time.monotonic(), why))

    def _kill(self) -> None:
        child = self._child
        if child is not None and child.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


def state_of(text: str) -> str:
    """What is compared and shown: the text on one line, without what stands in brackets and without Ceph's epoch."""
    return " ".join(_VOLATILE.sub("", text).split())


def _short(text: str) -> str:
    if not text:
        return "nothing"
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
