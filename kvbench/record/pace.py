"""Whose turn it is to read and whose to store: a mix in which no reader waits for a store of its own."""

from __future__ import annotations

import random
import threading
from fractions import Fraction

# vLLM's n_write_threads (v1/kv_offload/tiering/fs/manager.py, 0.24.0 to 0.33.0).
STORING_THREADS = 16
# Stores that may be asked for and not begun, for each thread that stores.
_WAITING_EACH = 2


class Pace:
    """A mix over ``jobs`` threads, of which the last ``storers`` only store, as much as the others' reads ask for.

    Without storers each thread does both by chance. Stores that a slow tier leaves undone are forgotten: reads never
    wait for them, and the mix is off.
    """

    def __init__(self, read_percent: int, jobs: int, storers: int = 0) -> None:
        """Nothing is asked for yet."""
        self._percent, self._readers, self.storers = read_percent, jobs - storers, storers
        self._each = Fraction(100 - read_percent, max(1, read_percent))
        self._asked, self._given = Fraction(0), 0
        self._changed = threading.Condition()
        self._ended = False

    def next_reads(self, job: int, chance: random.Random) -> bool | None:
        """Whether the next operation of a job is a read; None when there will be none, which may be after a wait."""
        if not self.storers:
            return chance.random() * 100 < self._percent
        if job < self._readers:
            return True
        return False if self._may_store() else None

    def has_read(self) -> None:
        """A read more was done."""
        if not self.storers:
            return
        with self._changed:
            most = self._given + _WAITING_EACH * self.storers
            self._asked = min(self._asked + self._each, Fraction(most))
            self._changed.notify(max(0, int(self._asked) - self._given))

    def end(self) -> None:
        """Let everybody who waits go."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _may_store(self) -> bool:
        """Wait until a store is asked for; False when there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._given + 1 <= self._asked)
            self._given += 1
            return not self._ended
