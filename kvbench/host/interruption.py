"""SIGINT, SIGTERM and SIGHUP as one exception, so that what finished can be saved."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from kvbench.errors import Interrupted


@contextmanager
def interruptible(what_next: Callable[[], str]) -> Iterator[None]:
    """A context in which the first of these signals raises Interrupted; later ones are ignored, so cleaning up ends.

    ``what_next`` is asked at that moment for the second half of the message.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        for wanted in handled:
            signal.signal(wanted, signal.SIG_IGN)
        raise Interrupted(f"stopped by {signal.Signals(number).name}; {what_next()}")

    handled = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    earlier = {number: signal.signal(number, interrupt) for number in handled}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
