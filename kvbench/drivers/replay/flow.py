"""How vLLM's file system tier spreads blocks over threads, and a round of it: queues, lookups and the threads.

Both flows have the engine's two queues (v1/kv_offload/tiering/fs/thread_pool.py). What is queued differs: up to 0.26 a
task is one block, so that all threads work for one request, half of them for loads first and half for stores first;
from 0.27 a task is all blocks of one request (or of one step's stores), one after the other. Then a load never waits
for a store while a thread is free, of which the engine has 32: the jobs of a mix load, and other threads store.
One thread more looks blocks up before they are queued, as the engine's lookup thread does.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from time import perf_counter, perf_counter_ns

from kvbench.drivers.replay.blocks import BlockFiles
from kvbench.drivers.replay.calls import BlockCalls, Buffer, CallTimes, CCalls, PythonCalls
from kvbench.drivers.replay.crew import Crew
from kvbench.engines.vllm.releases import Release, find_release
from kvbench.errors import MeasurementError
from kvbench.record.pace import STORING_THREADS
from kvbench.record.recorder import Recorder
from kvbench.record.results import Mix, Way

# Blocks of one request where a request is one task: a thread goes block after block however many there are, and short
# requests keep the mix right within a second.
_REQUEST_BLOCKS = 8
# Threads that remove old blocks between measurements.
_REMOVERS = 8
# A round whose pauses take longer than its measuring is given up, and reported as shorter than asked for.
_LONGEST_WALL, _LONGEST_PAUSE_S = 4.0, 60.0
# Tasks of one kind, and which.
_Queue = tuple[deque[list[str]], Way]
# Tasks that wait or run for each thread: nobody waits for the lookup thread unless lookups are slower than reads.
_TASKS_PER_THREAD = 2


@dataclass(frozen=True, slots=True)
class Flow:
    """One of the engine's ways: its name, its calls, and how many blocks a task has."""

    name: str
    calls: Callable[[], BlockCalls]
    task_blocks: int
    described: str


POOL = Flow(
    "pool", PythonCalls, 1, "a pool of threads shares the blocks of all requests: a block is a task (vLLM 0.24 to 0.26)"
)
REQUESTS = Flow(
    "requests", CCalls, _REQUEST_BLOCKS, "one thread takes a request's blocks one after the other (vLLM 0.27 and later)"
)


@dataclass(slots=True)
class Worker:
    """What one thread has of its own."""

    calls: BlockCalls
    buffer: Buffer
    recorder: Recorder = field(default_factory=Recorder)
    times: CallTimes = field(default_factory=CallTimes)


def release_of(version: str | None) -> Release:
    """The release that is replayed: the newest known unless one was asked for."""
    return find_release(version)


def flow_of(release: Release) -> Flow:
    """The flow of a release."""
    return REQUESTS if release.has("one-thread-per-job") else POOL


def storing_threads(flow: Flow) -> int:
    """Threads that only store beside those that load: none where the flow's threads share the blocks of both."""
    return 0 if flow is POOL else STORING_THREADS


def fill(blocks: BlockFiles, names: Sequence[str], workers: Sequence[Worker], on_tick: Callable[[], None]) -> None:
    """Store blocks the way the engine stores them; MeasurementError when that fails."""

    def store(worker: Worker, path: str) -> None:
        worker.buffer.renew()
        worker.calls.store(path, worker.buffer, worker.times)
        blocks.live.append(path)

    _for_each(names, [partial(store, worker) for worker in workers], on_tick, "laying out the data set failed")


def prepare(blocks: BlockFiles, mix: Mix, workers: Sequence[Worker], on_tick: Callable[[], None]) -> None:
    """Leave as many blocks on the tier as a round of ``mix`` needs; what the data set has left is room to write.

    Freeing a block can cost more than writing it (2 ms for 2.25 MiB on ext4 with discard), so it is never measured.
    """
    kept = blocks.kept(mix)
    random.shuffle(blocks.live)
    surplus = blocks.live[kept:]
    del blocks.live[kept:]
    _for_each(
        surplus, [partial(os.unlink, dir_fd=blocks.directory)] * _REMOVERS, on_tick, "removing block files failed"
    )
    missing = [blocks.new_name() for _ in range(kept - len(blocks.live))]
    fill(blocks, missing, [Worker(worker.calls, worker.buffer) for worker in workers], on_tick)
    if surplus or missing:
        blocks.sync()


def _for_each(
    paths: Sequence[str], hands: Sequence[Callable[[str], None]], on_tick: Callable[[], None], failed: str
) -> None:
    """Give every path to one of the ``hands``, each in a thread; MeasurementError with ``failed`` and why."""
    waiting, crew = deque(paths), Crew()

    def work(hand: Callable[[str], None]) -> None:
        while not crew.stopped:
            try:
                path = waiting.popleft()
            except IndexError:
                return
            hand(path)

    crew.hire([partial(work, hand) for hand in hands])
    crew.go()
    crew.watch(None, on_tick, lambda: None)
    if crew.failures:
        raise MeasurementError(f"{failed}: {crew.failures[0]}")


class InFlight:
    """Loads and stores in flight until the time is up.

    A tier that never evicts would grow for ever. When the room of the data set is used up the clock is stopped, old
    blocks are removed, and the round goes on: freeing blocks is no part of what the engine does.
    """

    def __init__(
        self,
        blocks: BlockFiles,
        flow: Flow,
        workers: Sequence[Worker],
        mix: Mix,
        read_percent: int,
        storers: Sequence[Worker] = (),
    ) -> None:
        """See ``prepare`` for what must be on the tier when it runs.

        With ``storers`` the ``workers`` only load, and these store as much as the mix asks for beside the loads done;
        what they have not begun when as much again is asked for is left out, so that no load waits for them.
        """
        self.blocks, self.flow, self.workers, self.mix, self.storers = blocks, flow, workers, mix, storers
        self.read_share = {"read": 1.0, "write": 0.0, "mixed": read_percent / 100}[mix]
        self.lookups, self.failures = CallTimes(), list[str]()
        self.pauses = 0
        self.seconds = 0.0
        self._calls = flow.calls().below(blocks.directory)
        self._owed = 0.0
        self._owed_stores = 0.0

    def run(self, seconds: float, on_tick: Callable[[], None], on_pause: Callable[[], None]) -> None:
        """Measure for ``seconds``, counted in ``self.seconds``; MeasurementError when the tier hangs.

        ``on_pause`` is called about twice a second while old blocks are removed.
        """
        give_up = perf_counter() + _LONGEST_WALL * seconds + _LONGEST_PAUSE_S
        while perf_counter() < give_up:
            part = _Part(self)
            try:
                part.run(seconds - self.seconds, on_tick)
            finally:
                self.seconds += part.seconds
                self.failures += part.crew.failures
            if self.failures or self.seconds >= seconds:
                return
            self.pauses += 1
            prepare(self.blocks, self.mix, self.workers, on_pause)

    def forget(self, loads: int, stores: int) -> None:
        """These tasks were queued and not begun: the mix is to hold for what was done."""
        self._owed += loads - (loads + stores) * self.read_share

    def stores_for(self, loaded: int, blocks: int) -> Iterator[list[str]]:
        """Names of blocks to store, ``blocks`` for a task, that so many loads more ask for."""
        self._owed_stores += loaded * (1 - self.read_share) / self.read_share
        while self._owed_stores > blocks - 1e-9:
            self._owed_stores -= blocks
            yield [self.blocks.new_name() for _ in range(blocks)]

    def next_task(self, blocks: int) -> tuple[list[str], Way]:
        """Blocks to load, looked up; or names of blocks to store, where the same threads do both."""
        self._owed += self.read_share
        if not self.storers and self._owed < 1 - 1e-9:
            return [self.blocks.new_name() for _ in range(blocks)], "write"
        self._owed -= 1
        paths = [random.choice(self.blocks.live) for _ in range(blocks)]
        for path in paths:
            if not self._calls.lookup(path, self.lookups):
                raise FileNotFoundError("a block of the data set is gone")
        return paths, "read"


class _Part:
    """A part of a round without a pause: the engine's two queues, its lookup thread and its pool."""

    def __init__(self, whole: InFlight) -> None:
        self.whole, self.crew = whole, Crew()
        blocks = whole.blocks
        self._room = blocks.capacity - len(blocks.live)
        self._tasks = _TASKS_PER_THREAD * len(whole.workers)
        spare = self._room if whole.read_share < 1 else blocks.capacity
        self._task_blocks = max(1, min(whole.flow.task_blocks, spare // self._tasks))
        self._loads: deque[list[str]] = deque()
        self._stores: deque[list[str]] = deque()
        # One token for each queued task, so that threads wait without a lock of Python's; False ends a thread.
        self._tokens: SimpleQueue[bool] = SimpleQueue()
        self._store_tokens: SimpleQueue[bool] = SimpleQueue()
        self._done: SimpleQueue[bool] = SimpleQueue()
        self._written: deque[str] = deque()
        self.seconds = 0.0
        self._began_ns = 0

    def run(self, seconds: float, on_tick: Callable[[], None]) -> None:
        """Measure for ``seconds``, or less when the room was used up, counted in ``self.seconds``."""
        began = perf_counter()
        try:
            self.crew.hire([self._feed, *self._jobs()])
            began = perf_counter()
            # Operations are counted in seconds of the whole round, pauses left out.
            self._began_ns = perf_counter_ns() - round(self.whole.seconds * 1e9)
            self.crew.go()
            self.crew.watch(seconds, on_tick, self._wake)
        finally:
            self.seconds = perf_counter() - began
            self.whole.blocks.live += list(self._written)
            self.whole.forget(len(self._loads), len(self._stores))

    def _jobs(self) -> list[Callable[[], None]]:
        loads: _Queue = (self._loads, "read")
        stores: _Queue = (self._stores, "write")
        if self.whole.storers:
            return [
                *(partial(self._work, worker, self._tokens, [loads]) for worker in self.whole.workers),
                *(partial(self._work, worker, self._store_tokens, [stores]) for worker in self.whole.storers),
            ]
        # The engine starts as many threads of both kinds; with an odd number one more serves loads first.
        order = [loads, stores], [stores, loads]
        return [
            partial(self._work, worker, self._tokens, order[number % 2])
            for number, worker in enumerate(self.whole.workers)
        ]

    def _wake(self) -> None:
        for _ in self.whole.workers:
            self._tokens.put(False)
        for _ in self.whole.storers:
            self._store_tokens.put(False)
        self._done.put(False)

    def _feed(self) -> None:
        """The lookup thread: as many tasks as the threads need, then another for each one that is done."""
        waiting = self._tasks
        while not self.crew.stopped:
            paths, way = self.whole.next_task(self._task_blocks)
            if way == "write":
                self._room -= len(paths)
                if self._room < 0:
                    self.crew.end()
                    return
            (self._loads if way == "read" else self._stores).append(paths)
            self._tokens.put(True)
            waiting -= 1
            if waiting < 1 and not (self._done.get() and self._store_beside()):
                return

    def _store_beside(self) -> bool:
        """Queue the stores that a load more asks for; False when the room is used up."""
        if not self.whole.storers:
            return True
        for names in self.whole.stores_for(self._task_blocks, self._task_blocks):
            if len(self._stores) >= _TASKS_PER_THREAD * len(self.whole.storers):
                continue
            self._room -= len(names)
            if self._room < 0:
                self.crew.end()
                return False
            self._stores.append(names)
            self._store_tokens.put(True)
        return True

    def _work(self, worker: Worker, tokens: SimpleQueue[bool], order: Sequence[_Queue]) -> None:
        while tokens.get():
            paths, way = self._next(order)
            for path in paths:
                if self._is_over():
                    return
                if way == "read":
                    waited_ns = worker.calls.load(path, worker.buffer, worker.times)
                else:
                    worker.buffer.renew()
                    waited_ns = worker.calls.store(path, worker.buffer, worker.times)
                    self._written.append(path)
                worker.recorder.add(way, waited_ns, perf_counter_ns() - self._began_ns, worker.buffer.size)
            if way == "read" or not self.whole.storers:
                self._done.put(True)

    def _is_over(self) -> bool:
        return self.crew.stopped

    def _next(self, order: Sequence[_Queue]) -> tuple[list[str], Way]:
        while True:
            for waiting, way in order:
                try:
                    return waiting.popleft(), way
                except IndexError:
                    continue
