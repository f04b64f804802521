"""The requests of one round: a thread for each job, one request in flight each, every latency and failure recorded."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kvbench.drivers.replay.calls import Buffer
from kvbench.drivers.s3.client import ObjectClient, RequestFailed
from kvbench.drivers.s3.objects import Objects, Shuffled
from kvbench.record.pace import Pace
from kvbench.record.recorder import Recorder

_TICK_S = 0.5
# After so many failures in a row of one job the service is taken for gone; at the end of a round fewer will do.
_MOST_IN_A_ROW = 10
_MOST_AT_THE_END = 3
# A failed request is followed by a pause that doubles, up to this: a service that says "slow down" means it.
_FIRST_PAUSE_S = 0.025
_LONGEST_PAUSE_S = 0.25
# How long requests in flight are waited for after an interruption.
_SETTLE_S = 5.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a round ended: its seconds, why it was given up (None: it was not), and whether requests are under way."""

    seconds: float
    failure: str | None
    unsettled: bool


@dataclass(slots=True)
class Load:
    """A round of requests; ``run`` does it once, ``stop`` ends it early.

    Each job has one of ``places`` for its block, or memory of its own. The last ``storers`` of the jobs only write, as
    much as ``read_percent`` asks for beside what the others read.
    """

    client: ObjectClient
    objects: Objects
    recorders: Sequence[Recorder]
    read_percent: int
    seed: int
    places: Sequence[memoryview | None] = ()
    storers: int = 0
    _failure: str | None = None
    _crash: Exception | None = None
    _began: float = 0.0
    _pace: Pace = field(init=False)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Nobody has read yet."""
        self._pace = Pace(self.read_percent, len(self.recorders), self.storers)

    def run(self, seconds: float, on_tick: Callable[[float], None]) -> Ended:
        """Make requests for ``seconds``; ``on_tick`` gets the seconds so far; after it raises, ``settle``.

        What a job raised beside a failed request is raised here: a round with a job less is no round.
        """
        started = threading.Barrier(len(self.recorders) + 1)
        order = Shuffled(self.objects.reads, self.seed)
        self._threads = [
            threading.Thread(target=self._work, args=(number, order, started), daemon=True)
            for number in range(len(self.recorders))
        ]
        for thread in self._threads:
            thread.start()
        self._began = time.perf_counter()
        try:
            started.wait()
            self._began = time.perf_counter()
            while (left := self._began + seconds - time.perf_counter()) > 0 and not self._stopped.is_set():
                self._stopped.wait(min(_TICK_S, left))
                on_tick(time.perf_counter() - self._began)
        except threading.BrokenBarrierError:
            # A job ended before it began; what it raised follows.
            pass
        finally:
            self._stopped.set()
            self._pace.end()
            started.abort()
        ended = self.settle(None)
        if self._crash is not None:
            raise self._crash
        return ended

    def settle(self, most_s: float | None = _SETTLE_S) -> Ended:
        """Wait for requests in flight, which end by their own timeout; after an interruption not longer than that."""
        deadline = None if most_s is None else time.perf_counter() + most_s
        for thread in self._threads:
            thread.join(None if deadline is None else max(0.0, deadline - time.perf_counter()))
        running = any(thread.is_alive() for thread in self._threads)
        return Ended(time.perf_counter() - self._began, self._failure, running)

    def _work(self, number: int, order: Shuffled, started: threading.Barrier) -> None:
        try:
            self._job(number, order, started)
        except Exception as error:
            self._crash = error
            self._stopped.set()
            started.abort()

    def _job(self, number: int, order: Shuffled, started: threading.Barrier) -> None:
        buffer = Buffer(self.objects.io_bytes, self.places[number] if self.places else None)
        chance = random.Random(f"{self.seed} {number}")
        readers = len(self.recorders) - self.storers
        slots = self.objects.slots_of((number - readers) % len(self.recorders), self.storers or len(self.recorders))
        self._open_connection(buffer)
        try:
            started.wait()
        except threading.BrokenBarrierError:
            return
        began, written, in_a_row = time.perf_counter_ns(), 0, 0
        recorder = self.recorders[number]
        while not self._stopped.is_set():
            reads = self._pace.next_reads(number, chance)
            if reads is None:
                break
            if not reads:
                buffer.renew()
            key = order.next() if reads else slots[written % len(slots)]
            before = time.perf_counter_ns()
            try:
                self._request(key, buffer, reads=reads)
            except RequestFailed as error:
                in_a_row += 1
                recorder.failures.append(str(error))
                if error.fatal or in_a_row >= _MOST_IN_A_ROW:
                    self._give_up(str(error))
                self._stopped.wait(min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**in_a_row))
                continue
            after = time.perf_counter_ns()
            recorder.add("read" if reads else "write", after - before, after - began, self.objects.io_bytes)
            written, in_a_row = written + (not reads), 0
            if reads:
                self._pace.has_read()
        if in_a_row >= _MOST_AT_THE_END:
            self._give_up(recorder.failures[-1])

    def _request(self, key: str, buffer: Buffer, *, reads: bool) -> None:
        if not reads:
            self.client.put(key, buffer.view)
        elif self.client.get(key, buffer.view) != self.objects.io_bytes:
            raise RequestFailed("Broken")

    def _open_connection(self, buffer: Buffer) -> None:
        """One request before the clock starts: an engine keeps its connections, their handshake is no restore."""
        try:
            self.client.get(self.objects.reads[0], buffer.view)
        except RequestFailed:
            # Of a run that only writes nothing is laid out; whatever else it is, the measured requests meet it again.
            return

    def _give_up(self, reason: str) -> None:
        self._failure = self._failure or reason
        self._stopped.set()


def new_content(size: int) -> memoryview:
    """Random bytes for one object of the data set, shared with no other."""
    import numpy as np

    return memoryview(np.random.default_rng().bytes(size))
