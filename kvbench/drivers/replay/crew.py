"""Threads that work until they are told to stop, watched from the main thread, and never waited for without end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from kvbench.errors import MeasurementError

_TICK_S = 0.5
# An operation may end late; beyond this the tier hangs, and a thread in the kernel cannot be ended.
_GRACE_S = 120.0
_GRACE_INTERRUPTED_S = 5.0


class Crew:
    """Threads with one flag: ``stopped`` says that they should end, ``failures`` why they did on their own."""

    def __init__(self) -> None:
        """Nobody works yet."""
        self.stopped = False
        self.failures: list[str] = []
        self._crash: Exception | None = None
        self._ended, self._go = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []
        self._left = 0
        self._lock = threading.Lock()

    def hire(self, jobs: Sequence[Callable[[], None]]) -> None:
        """One thread for each job, waiting for ``go``; the first exception ends all, an OSError is a failure.

        Seen: started beside threads that already read with O_DIRECT, 17 of them took 3 s (Linux 6.18, 2 cores).
        """
        self._left = len(jobs)
        self._threads = [threading.Thread(target=self._work, args=(job,), daemon=True) for job in jobs]
        for thread in self._threads:
            thread.start()

    def go(self) -> None:
        """Let all threads begin."""
        self._go.set()

    def end(self) -> None:
        """Let ``watch`` end before its time."""
        self._ended.set()

    def watch(self, seconds: float | None, on_tick: Callable[[], None], wake: Callable[[], None]) -> None:
        """Wait ``seconds`` (None: until all jobs are done), then end the threads; ``wake`` frees those that wait.

        MeasurementError when they do not end: the tier hangs. An exception in ``on_tick``, or a signal, ends them too.
        What a job raised beside an OSError is raised here: a round with a thread less is no round.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        grace_s = _GRACE_INTERRUPTED_S
        try:
            while not self._ended.is_set():
                left = _TICK_S if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    break
                self._ended.wait(min(_TICK_S, left))
                on_tick()
            grace_s = _GRACE_S
        finally:
            self.stopped = True
            self._go.set()
            wake()
            all_ended = self._join(grace_s)
        if not all_ended:
            raise MeasurementError(f"operations did not end within {_GRACE_S:.0f} s: the tier hangs")
        if self._crash is not None:
            raise self._crash

    def _work(self, job: Callable[[], None]) -> None:
        self._go.wait()
        try:
            job()
        except OSError as error:
            self.failures.append(_reason(error))
            self._ended.set()
        except Exception as error:
            self._crash = error
            self._ended.set()
        finally:
            with self._lock:
                self._left -= 1
                if self._left == 0:
                    self._ended.set()

    def _join(self, grace_s: float) -> bool:
        deadline = time.monotonic() + grace_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)


def _reason(error: OSError) -> str:
    # Block files have random names: the call and the reason say more.
    return error.strerror or str(error)
