"""What SIGINT, SIGTERM and SIGHUP do: leave at once, unwind, or save what finished."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from kvbench.errors import EXIT_INTERRUPTED, Interrupted


class _Stopped(KeyboardInterrupt):
    """A KeyboardInterrupt that Python does not take for one that nobody caught.

    One that passes through ``exec`` of a text makes Python end itself with SIGINT, whoever catches it (3.11 to 3.14,
    run_eval_code_obj).
    """


_Handler = Callable[[int, FrameType | None], None] | signal.Handlers


def leave_at_once() -> None:
    """From now on a signal ends this process with a sentence: there is nothing to save and nothing to undo."""
    _handle(_leave)


def unwind() -> None:
    """From now on the first signal is a KeyboardInterrupt, and a second one ends this process."""
    _handle(_unwind)


def ignore() -> None:
    """From now on a signal does nothing: all is done, and Python is taking itself apart."""
    _handle(signal.SIG_IGN)


@contextmanager
def interruptible(what_next: Callable[[], str]) -> Iterator[None]:
    """A context in which the first of these signals raises Interrupted; later ones are ignored, so cleaning up ends.

    ``what_next`` is asked at that moment for the second half of the message.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        for wanted in handled:
            signal.signal(wanted, _nothing)
        raise Interrupted(f"stopped by {signal.Signals(number).name}; {what_next()}")

    handled = _signals()
    earlier = {number: signal.signal(number, interrupt) for number in handled}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def _signals() -> tuple[signal.Signals, ...]:
    """What asks this process to stop; who started it under nohup(1) wants it to outlive its terminal."""
    asked = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return asked[:2] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else asked


def _handle(handler: _Handler) -> None:
    for number in _signals():
        signal.signal(number, handler)


def _nothing(number: int, frame: FrameType | None) -> None:
    """Instead of SIG_IGN: Python prints a traceback when that is set while a signal is on its way."""


def _leave(number: int, frame: FrameType | None) -> None:
    with suppress(OSError):
        os.write(2, b"kvbench: interrupted.\n")
    os._exit(EXIT_INTERRUPTED)


def _unwind(number: int, frame: FrameType | None) -> None:
    leave_at_once()
    # Python swallows or rewraps what is raised inside an import, and half a module is nothing to go on with.
    if _is_importing(frame):
        _leave(number, frame)
    raise _Stopped


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
