"""Does a restore take as long as kvbench says? Predicts requests from measured points, then really restores them.

    python benchmarks/predict_restore.py DIRECTORY... [--io-bytes 1179648] [--tokens 1k,8k,64k] [--concurrent 1,4]
        [--seconds 4] [--requests 12] [--dataset 2GiB]

For each directory and both of vLLM's flows (0.24: one request's blocks over a pool of 32 threads; 0.27 and later: one
thread for a request): measures reads with the replay at the load in question, predicts with kvbench.restore, then
restores requests in a closed loop, 1 and 4 at a time, from the look-up of all blocks to the last byte of the last one.
Measuring and restoring take turns, so that a host that drifts drifts for both. Prints predicted : observed medians.
"""

from __future__ import annotations

import argparse
import queue
import random
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from kvbench.drivers import unmeasured
from kvbench.drivers.replay.blocks import Blocks
from kvbench.drivers.replay.calls import Buffer, CallTimes
from kvbench.drivers.replay.flow import POOL, REQUESTS, Flow, Round, Worker, fill
from kvbench.plan import Point
from kvbench.recorder import direction_of, histograms_of
from kvbench.restore import Around, Measured, restore_curve
from kvbench.results import Use
from kvbench.tiers.directory import inspect, workspace
from kvbench.units import parse_size, parse_tokens

POOL_THREADS = 32
BLOCK_TOKENS = 16
LAYOUT_THREADS = 16
_AIM = 0.15


@dataclass(slots=True)
class Case:
    """One flow, number of concurrent requests and length: what was seen and what was said."""

    flow: Flow
    concurrent: int
    tokens: int
    observed_s: list[float] = field(default_factory=list)
    workers: list[list[Worker]] = field(default_factory=list)
    seconds: float = 0.0
    lookups: list[CallTimes] = field(default_factory=list)
    alone_s: list[float] = field(default_factory=list)

    @property
    def use(self) -> Use:
        """The deployment that this flow belongs to."""
        return use_of(self.flow)


IO_BYTES = 1_179_648


def use_of(flow: Flow) -> Use:
    """A model of one unit for 16 tokens on that flow."""
    parallel = POOL_THREADS if flow is POOL else 1
    return Use(
        "benchmark", 1, "bfloat16", "vllm-fs", None, IO_BYTES, BLOCK_TOKENS,
        parallelism_per_request=parallel, threads=POOL_THREADS,
    )  # fmt: skip


def main() -> None:
    """Measure, predict, restore and print, directory by directory."""
    global IO_BYTES
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", nargs="+")
    parser.add_argument("--io-bytes", type=int, default=IO_BYTES)
    parser.add_argument("--tokens", default="1k,8k,64k")
    parser.add_argument("--concurrent", default="1,4")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measured round")
    parser.add_argument("--requests", type=int, default=12, help="restored for each case")
    parser.add_argument("--dataset", default="2GiB")
    chosen = parser.parse_args()
    IO_BYTES = chosen.io_bytes
    lengths = [parse_tokens(text) for text in chosen.tokens.split(",")]
    counts = [int(text) for text in chosen.concurrent.split(",")]
    print(
        f"{'directory':28} {'flow':9} {'at once':>7} {'tokens':>7} {'predicted':>10} {'observed':>10} {'ratio':>6}  off"
    )
    for directory in chosen.directories:
        with workspace(inspect("predict", directory)) as space:
            blocks = Blocks(space.path, IO_BYTES, parse_size(chosen.dataset) // IO_BYTES)
            layers = [Worker(REQUESTS.calls(), Buffer(IO_BYTES)) for _ in range(LAYOUT_THREADS)]
            fill(blocks, blocks.first_names(), layers, lambda: None)
            blocks.sync()
            # A server's cache that fills while the first case is measured would make it the slowest.
            warm = [Worker(REQUESTS.calls(), Buffer(IO_BYTES)) for _ in range(LAYOUT_THREADS)]
            Round(blocks, REQUESTS, warm, "read", 100).run(4 * chosen.seconds, lambda: None, lambda: None)
            for flow in (POOL, REQUESTS):
                for count in counts:
                    cases = [Case(flow, count, tokens) for tokens in lengths]
                    _take_turns(cases, blocks, chosen.seconds, chosen.requests)
                    for case in cases:
                        _print(directory, case, cases[0])


def _take_turns(cases: Sequence[Case], blocks: Blocks, seconds: float, requests: int) -> None:
    """Measure, restore a third of the requests, measure, ...; all cases share the measured rounds of their load."""
    first = cases[0]
    for _ in range(3):
        _measure(first, blocks, seconds)
        for case in cases:
            case.observed_s += _restored(case, blocks, max(1, requests // 3))
    _measure(first, blocks, seconds)


def _measure(case: Case, blocks: Blocks, seconds: float) -> None:
    """One round of reads at the load of the case."""
    jobs = case.use.in_flight(case.concurrent)
    workers = [Worker(case.flow.calls(), Buffer(IO_BYTES)) for _ in range(jobs)]
    round_ = Round(blocks, case.flow, workers, "read", 100)
    round_.run(seconds, lambda: None, lambda: None)
    case.workers.append(workers)
    case.seconds += round_.seconds
    case.lookups.append(round_.lookups)
    (worker,) = alone = [Worker(case.flow.calls(), Buffer(IO_BYTES))]
    Round(blocks, case.flow, alone, "read", 100).run(1.0, lambda: None, lambda: None)
    side = worker.recorder.sides["read"]
    case.alone_s.append(side.total_ns / side.ios / 1e9)


def _predicted_s(case: Case, measured_by: Case) -> float:
    recorders = [worker.recorder for workers in measured_by.workers for worker in workers]
    read = direction_of(recorders, "read", measured_by.seconds)
    assert read is not None
    lookups = [ns for times in measured_by.lookups for ns in times.kinds["lookup"]]
    point = unmeasured(Point("predicted", "t", "replay", IO_BYTES, "read", 1), "ok", None)
    alone_s = statistics.fmean(measured_by.alone_s)
    at = Measured(point, read, histograms_of(recorders)["read"], alone_s)
    around = Around(lookup_s_per_unit=statistics.fmean(lookups) / 1e9)
    return float(restore_curve(case.use, at, case.concurrent, np.array([float(case.tokens)]), around).seconds[0])


def _restored(case: Case, blocks: Blocks, requests: int) -> list[float]:
    """Seconds of ``requests`` restores, ``concurrent`` clients each asking for the next when the last one is there."""
    engine = Engine(case.flow)
    units = case.use.units(case.tokens)
    found: list[float] = []

    def client(number: int) -> None:
        chance = random.Random(number)
        # The first request of a client starts with all others at once, which a server in use does not: it is left out.
        for turn in range(requests + (case.concurrent > 1)):
            began = time.perf_counter()
            engine.restore([chance.choice(blocks.live) for _ in range(units)])
            if turn or case.concurrent == 1:
                found.append(time.perf_counter() - began)

    clients = [threading.Thread(target=client, args=(number,)) for number in range(case.concurrent)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    engine.close()
    return found


class Engine:
    """The threads of the connector, and the one that looks blocks up."""

    def __init__(self, flow: Flow) -> None:
        """Start them."""
        self.flow = flow
        self._tasks: queue.SimpleQueue[tuple[Sequence[str], Callable[[], None]] | None] = queue.SimpleQueue()
        self._lookup, self._calls, self._times = threading.Lock(), flow.calls(), CallTimes()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(POOL_THREADS)]
        for thread in self._threads:
            thread.start()

    def restore(self, paths: Sequence[str]) -> None:
        """Look all blocks up, read them all; returns when the last one is there."""
        with self._lookup:
            assert all(self._calls.lookup(path, self._times) for path in paths)
        size = 1 if self.flow is POOL else len(paths)
        tasks = [paths[at : at + size] for at in range(0, len(paths), size)]
        left, lock, ended = len(tasks), threading.Lock(), threading.Event()

        def done() -> None:
            nonlocal left
            with lock:
                left -= 1
                if left == 0:
                    ended.set()

        for task in tasks:
            self._tasks.put((task, done))
        ended.wait()

    def close(self) -> None:
        """End the threads."""
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        calls, buffer, times = self.flow.calls(), Buffer(IO_BYTES), CallTimes()
        while (task := self._tasks.get()) is not None:
            for path in task[0]:
                calls.load(path, buffer, times)
            task[1]()


def _print(directory: str, case: Case, measured_by: Case) -> None:
    predicted, observed = _predicted_s(case, measured_by), statistics.median(case.observed_s)
    ratio = predicted / observed
    far = "" if abs(ratio - 1) <= _AIM else f"  more than {_AIM:.0%} off"
    times = f"{predicted:9.3f}s {observed:9.3f}s {ratio:6.2f}"
    print(f"{directory[-24:]:24} {case.flow.name:9} {case.concurrent:7} {case.tokens:7} {times}{far}", flush=True)


if __name__ == "__main__":
    main()
