"""A command that touches a tier runs in a child of the process that was started, which can leave it behind.

A call on a tier that hangs never returns, and no signal ends the process that made it. The process that the user
started makes none: it hands signals on, waits, and when a call of the child has not returned for a minute it
says which process still hangs and where, and ends. The child is killed, and is gone as soon as the tier answers.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import stat
import time
from contextlib import suppress
from types import FrameType

from kvbench.errors import EXIT_CRASH, EXIT_INTERRUPTED, EXIT_MEASUREMENT, EXIT_OUTPUT, EXIT_READER_GONE
from kvbench.host.stuck import LongCalls, Waiting, longest_call_s

# After Ctrl-C the child saves and cleans up; what takes longer is said, and what hangs is left.
_SAID_AFTER_S = 0.5
_LONGEST_CALL_AFTER_SIGNAL_S = 5.0
_POLL_S = 0.2
# Looking takes processor time from what is measured: seldom, unless somebody waits for it.
_LOOK_EVERY_S = 1.0
_PR_SET_PDEATHSIG = 1
_PIECE = 1 << 16


def leave_to_a_child(places: str) -> None:
    """Return in a child only: the process that was started waits for it here, and ends with its exit code.

    ``places`` names what the child works on, for the sentence about one that is left behind.
    """
    relays = [_Relay(number) for number in (1, 2) if _is_pipe(number)]
    parent = os.getpid()
    child = os.fork()
    if child:
        for relay in relays:
            relay.only_read()
        os._exit(_Supervisor(child, places, relays).wait())
    _die_with(parent)
    for relay in relays:
        relay.enter()


def _is_pipe(number: int) -> bool:
    """Whether somebody waits for the descriptor's end: a child that is left behind must not hold it open."""
    try:
        mode = os.fstat(number).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, so that killing the one that was started ends both."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(EXIT_CRASH)
    # A group of its own: a signal to the one that was started, also from a terminal, reaches this one once.
    os.setpgid(0, 0)


class _Relay:
    """One standard stream of the child, handed on by the process that was started."""

    def __init__(self, number: int) -> None:
        """A pipe to take the place of the descriptor ``number`` in the child."""
        self.number, self.broken = number, 0
        self.reading, self._writing = os.pipe()

    def enter(self) -> None:
        """In the child: the descriptor is this pipe."""
        os.dup2(self._writing, self.number)
        os.close(self._writing)
        os.close(self.reading)

    def only_read(self) -> None:
        """In the parent: only the child writes."""
        os.close(self._writing)
        os.set_blocking(self.reading, False)

    def hand_on(self) -> bool:
        """Write what came to the real descriptor; False where nothing more will: at its end, or when nobody reads."""
        try:
            piece = os.read(self.reading, _PIECE)
        except OSError:
            return False
        left = memoryview(piece)
        try:
            while left:
                left = left[os.write(self.number, left) :]
        except OSError as error:
            # The child learns of it by its own pipe.
            self.broken = EXIT_READER_GONE if isinstance(error, BrokenPipeError) else EXIT_OUTPUT
            os.close(self.reading)
            return False
        return bool(piece)


class _Supervisor:
    def __init__(self, child: int, places: str, relays: list[_Relay]) -> None:
        self.child, self.places, self.relays = child, places, relays
        self.signalled: tuple[signal.Signals, float] | None = None
        self.said = False
        self.calls, self.longest_s = LongCalls(child), longest_call_s()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._hand_on)

    def _hand_on(self, number: int, frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            if number == signal.SIGTSTP:
                os.kill(self.child, signal.SIGSTOP)
                os.kill(os.getpid(), signal.SIGSTOP)
                os.kill(self.child, signal.SIGCONT)
                return
            self.signalled = self.signalled or (signal.Signals(number), time.monotonic())
            os.kill(self.child, number)

    def wait(self) -> int:
        """The child's exit code, or 3 (130 after a signal) when it hangs."""
        poll = select.poll()
        with suppress(OSError, AttributeError):
            poll.register(os.pidfd_open(self.child), select.POLLIN)
        for relay in self.relays:
            poll.register(relay.reading, select.POLLIN)
        looked = time.monotonic()
        while True:
            for descriptor, _ in poll.poll(_POLL_S * 1000):
                self._hand_output_on(descriptor, poll)
            found, status = os.waitpid(self.child, os.WNOHANG)
            if found:
                return self._ended(os.waitstatus_to_exitcode(status))
            if time.monotonic() - looked >= self._look_every_s():
                looked = time.monotonic()
                hung = self._hung()
                if hung is not None:
                    return self._leave(*hung)

    def _look_every_s(self) -> float:
        return _POLL_S if self.signalled else min(_LOOK_EVERY_S, self.longest_s / 5)

    def _hand_output_on(self, descriptor: int, poll: select.poll) -> None:
        for relay in self.relays:
            if relay.reading == descriptor and not relay.hand_on():
                poll.unregister(descriptor)

    def _ended(self, code: int) -> int:
        for relay in self.relays:
            while not relay.broken and relay.hand_on():
                continue
        broken = next((relay.broken for relay in self.relays if relay.broken), 0)
        if code < 0:
            return 128 - code
        return broken if broken and code in (0, EXIT_MEASUREMENT) else code

    def _hung(self) -> tuple[Waiting, float] | None:
        """A call of the child that has not returned for too long, and for how many seconds.

        After a signal also one of what the child has started (fio, its guard) and waits for.
        """
        found = self.calls.oldest(with_children=self.signalled is not None)
        if self.signalled is None:
            return found if found is not None and found[1] >= self.longest_s else None
        number, at = self.signalled
        asked_s = time.monotonic() - at
        if asked_s >= _SAID_AFTER_S and not self.said:
            self.said = True
            place = None if found is None or found[1] < _SAID_AFTER_S / 2 else found[0].place or self.places
            doing = f"waiting for a call on {place} to return" if place else "saving what finished, and cleaning up"
            self._say(f"{number.name}: {doing}.")
        longest_s = min(self.longest_s, _LONGEST_CALL_AFTER_SIGNAL_S)
        return found if found is not None and min(found[1], asked_s) >= longest_s else None

    def _leave(self, hung: Waiting, waited_s: float) -> int:
        with suppress(ProcessLookupError):
            os.kill(self.child, signal.SIGKILL)
        self._say(
            f"a call on {hung.place or self.places} has not returned for {waited_s:.0f} s: the tier hangs. What "
            f"finished is saved; process {hung.process} stays until the tier answers, then 'kvbench clean' removes "
            "what is left on it."
        )
        return EXIT_INTERRUPTED if self.signalled else EXIT_MEASUREMENT

    def _say(self, text: str) -> None:
        with suppress(OSError):
            os.write(2, f"kvbench: {text}\n".encode(errors="backslashreplace"))
