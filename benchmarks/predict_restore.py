"""Does a restore take as long as kvbench says? Predicts requests from measured points, then really restores them.

    python benchmarks/predict_restore.py TIER... [--io-bytes 1179648] [--tokens 1k,8k,64k] [--concurrent 1,4,16]
        [--seconds 4] [--requests 12] [--dataset 2GiB]

A tier is a directory or s3://bucket/prefix (endpoint and keys from the AWS variables). In directories both of vLLM's
ways are tried (0.24: a pool of 32 threads shares the blocks of all requests; 0.27 and later: one thread for a
request), in a bucket that of its obj tier (4 io_threads share them; its lookups are not timed and so left out).
For each: measures reads at the load in question with the driver's own code, predicts with kvbench.decide.restore, then
restores requests in a closed loop, 1, 4 and 16 at a time, from the look-up of all blocks to the last byte of the last.
Measuring and restoring take turns, so that a host that drifts drifts for both. Prints predicted : observed medians.
"""

from __future__ import annotations

import argparse
import queue
import random
import statistics
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kvbench.decide.restore import Around, MeasuredReads, restore_curve
from kvbench.drivers import unmeasured
from kvbench.drivers.replay.blocks import BlockFiles
from kvbench.drivers.replay.calls import Buffer, CallTimes
from kvbench.drivers.replay.flow import POOL, REQUESTS, Flow, InFlight, Worker, fill
from kvbench.drivers.s3.client import ObjectClient
from kvbench.drivers.s3.layout import write_objects
from kvbench.drivers.s3.load import Load
from kvbench.drivers.s3.objects import Objects, objects_for
from kvbench.record.point import Point
from kvbench.record.recorder import Recorder, direction_of, histograms_of
from kvbench.record.results import Use
from kvbench.tiers import bucket, directory
from kvbench.units import parse_size, parse_tokens

BLOCK_TOKENS = 16
LAYOUT_THREADS = 16
_AIM = 0.15


@dataclass(slots=True)
class Sample:
    """What rounds at one load recorded; the lookups are empty where nobody times them."""

    recorders: list[Recorder] = field(default_factory=list)
    lookups_ns: list[int] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def mean_s(self) -> float:
        """Mean latency of a read."""
        sides = [recorder.sides["read"] for recorder in self.recorders]
        return sum(side.total_ns for side in sides) / sum(side.ios for side in sides) / 1e9

    @property
    def lookup_s(self) -> float | None:
        """Mean time of a lookup."""
        return statistics.fmean(self.lookups_ns) / 1e9 if self.lookups_ns else None


@dataclass(frozen=True)
class Store(ABC):
    """Blocks on a tier, read the way one engine does it: ``threads`` in all, ``parallel`` of them for a request."""

    name: str
    threads: int
    parallel: int
    io_bytes: int
    blocks: Sequence[str]

    @abstractmethod
    def measure(self, jobs: int, seconds: float, into: Sample) -> None:
        """Read with so many in flight, recorded in ``into``."""

    @abstractmethod
    def reader(self) -> Callable[[str], object]:
        """Reads one block; for one thread."""

    @abstractmethod
    def look_up(self, blocks: Sequence[str]) -> None:
        """Make sure that all are there, as the engine does before it reads."""


@dataclass(frozen=True)
class Files(Store):
    """Block files in a directory, through the replay driver's calls."""

    laid: BlockFiles
    flow: Flow

    def measure(self, jobs: int, seconds: float, into: Sample) -> None:
        """A round of the replay driver."""
        workers = [Worker(self.flow.calls(), Buffer(self.io_bytes)) for _ in range(jobs)]
        round_ = InFlight(self.laid, self.flow, workers, "read", 100)
        round_.run(seconds, lambda: None, lambda: None)
        into.recorders += [worker.recorder for worker in workers]
        into.lookups_ns += round_.lookups.kinds["lookup"]
        into.seconds += round_.seconds

    def reader(self) -> Callable[[str], object]:
        """Open, read once, close."""
        calls, buffer, times = self.flow.calls(), Buffer(self.io_bytes), CallTimes()
        return lambda path: calls.load(path, buffer, times)

    def look_up(self, blocks: Sequence[str]) -> None:
        """A check of existence for each."""
        calls, times = self.flow.calls(), CallTimes()
        assert all(calls.lookup(path, times) for path in blocks)


@dataclass(frozen=True)
class Bucket(Store):
    """Objects in a bucket, through the s3 driver's client."""

    client: ObjectClient
    objects: Objects

    def measure(self, jobs: int, seconds: float, into: Sample) -> None:
        """A round of the s3 driver."""
        recorders = [Recorder() for _ in range(jobs)]
        ended = Load(self.client, self.objects, recorders, 100, seed=len(into.recorders)).run(seconds, lambda _: None)
        if ended.failure:
            raise SystemExit(f"{self.name}: {ended.failure}")
        into.recorders += recorders
        into.seconds += ended.seconds

    def reader(self) -> Callable[[str], object]:
        """A GET request to its last byte."""
        return self.client.get

    def look_up(self, blocks: Sequence[str]) -> None:
        """Not timed by the driver, so not done here either."""


@dataclass(slots=True)
class Case:
    """A number of concurrent requests of one length: what was seen."""

    concurrent: int
    tokens: int
    observed_s: list[float] = field(default_factory=list)


def main() -> None:
    """Measure, predict, restore and print, tier by tier."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tiers", nargs="+")
    parser.add_argument("--io-bytes", type=int, default=1_179_648)
    parser.add_argument("--tokens", default="1k,8k,64k")
    parser.add_argument("--concurrent", default="1,4,16")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measured round")
    parser.add_argument("--requests", type=int, default=12, help="restored for each case")
    parser.add_argument("--dataset", default="2GiB")
    chosen = parser.parse_args()
    lengths = [parse_tokens(text) for text in chosen.tokens.split(",")]
    counts = [int(text) for text in chosen.concurrent.split(",")]
    print(f"{'tier':24} {'way':9} {'at once':>7} {'tokens':>7} {'predicted':>10} {'observed':>10} {'ratio':>6}  off")
    for tier in chosen.tiers:
        open_tier = in_bucket if tier.startswith(bucket.SCHEME) else in_directory
        with open_tier(tier, chosen.io_bytes, parse_size(chosen.dataset)) as stores:
            # A server's cache that fills while the first case is measured would make it the slowest.
            stores[-1].measure(LAYOUT_THREADS, 4 * chosen.seconds, Sample())
            for store in stores:
                for count in counts:
                    cases = [Case(count, tokens) for tokens in lengths]
                    loaded, alone = take_turns(store, cases, chosen.seconds, chosen.requests)
                    for case in cases:
                        show(tier, store, case, predicted_s(store, case, loaded, alone))


@contextmanager
def in_directory(path: str, io_bytes: int, dataset_bytes: int) -> Iterator[list[Store]]:
    """Both of vLLM's ways over one set of block files."""
    with directory.workspace(directory.inspect("predict", path)) as space:
        laid = BlockFiles(space.path, io_bytes, dataset_bytes // io_bytes)
        writers = [Worker(REQUESTS.calls(), Buffer(io_bytes)) for _ in range(LAYOUT_THREADS)]
        fill(laid, laid.first_names(), writers, lambda: None)
        laid.sync()
        yield [
            Files("pool", 32, 32, io_bytes, laid.live, laid, POOL),
            Files("requests", 32, 1, io_bytes, laid.live, laid, REQUESTS),
        ]


@contextmanager
def in_bucket(url: str, io_bytes: int, dataset_bytes: int) -> Iterator[list[Store]]:
    """The way of vLLM's obj tier."""
    tier = bucket.inspect("predict", url)
    with tempfile.TemporaryDirectory() as folder, tier.workspace(Path(folder)) as space:
        assert isinstance(space, bucket.BucketSpace)
        client, objects = ObjectClient(tier), objects_for(space.prefix, io_bytes, dataset_bytes // io_bytes)
        write_objects(client, space, [objects], lambda _: None)
        yield [Bucket("io_threads", 4, 4, io_bytes, objects.reads, client, objects)]


def take_turns(store: Store, cases: Sequence[Case], seconds: float, requests: int) -> tuple[Sample, Sample]:
    """Measure, restore a third of the requests, measure, ...; the reads at the load of the cases, and of one job."""
    loaded, alone = Sample(), Sample()
    jobs = use_of(store).in_flight(cases[0].concurrent)
    for turn in range(4):
        store.measure(jobs, seconds, loaded)
        store.measure(1, 1.0, alone)
        for case in cases if turn < 3 else []:
            case.observed_s += restored(store, case, max(1, requests // 3))
    return loaded, alone


def use_of(store: Store) -> Use:
    """A model of one unit for 16 tokens, on that store's engine."""
    return Use(
        "benchmark", 1, "bfloat16", store.name, None, store.io_bytes, BLOCK_TOKENS,
        parallelism_per_request=store.parallel, threads=store.threads,
    )  # fmt: skip


def predicted_s(store: Store, case: Case, loaded: Sample, alone: Sample) -> float:
    """What kvbench says of the case."""
    read = direction_of(loaded.recorders, "read", loaded.seconds)
    assert read is not None
    point = unmeasured(Point("predicted", "t", "replay", store.io_bytes, "read", 1), "ok", None)
    at = MeasuredReads(
        point, read, histograms_of(loaded.recorders)["read"], alone.mean_s, alone=histograms_of(alone.recorders)["read"]
    )
    # A request looks its blocks up before it reads any, so one that is alone finds an idle tier.
    around = Around(lookup_s_per_unit=(alone if case.concurrent == 1 else loaded).lookup_s)
    curve = restore_curve(use_of(store), at, case.concurrent, np.array([float(case.tokens)]), around)
    return float(curve.seconds[0])


def restored(store: Store, case: Case, requests: int) -> list[float]:
    """Seconds of ``requests`` restores, ``concurrent`` clients each asking for the next when the last one is there."""
    engine = Engine(store)
    units = use_of(store).units(case.tokens)
    found: list[float] = []

    def client(number: int) -> None:
        chance = random.Random(number)
        # The first request of a client starts with all others at once, which a server in use does not: it is left out.
        for turn in range(requests + (case.concurrent > 1)):
            began = time.perf_counter()
            engine.restore([chance.choice(store.blocks) for _ in range(units)])
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

    def __init__(self, store: Store) -> None:
        """Start them."""
        self._store, self._lookup = store, threading.Lock()
        self._tasks: queue.SimpleQueue[tuple[Sequence[str], Callable[[], None]] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(store.threads)]
        for thread in self._threads:
            thread.start()

    def restore(self, blocks: Sequence[str]) -> None:
        """Look all blocks up, read them all; returns when the last one is there."""
        with self._lookup:
            self._store.look_up(blocks)
        size = len(blocks) if self._store.parallel == 1 else 1
        tasks = [blocks[at : at + size] for at in range(0, len(blocks), size)]
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
        read = self._store.reader()
        while (task := self._tasks.get()) is not None:
            for block in task[0]:
                read(block)
            task[1]()


def show(tier: str, store: Store, case: Case, predicted: float) -> None:
    """A line of the table."""
    observed = statistics.median(case.observed_s)
    ratio = predicted / observed
    far = "" if abs(ratio - 1) <= _AIM else f"  more than {_AIM:.0%} off"
    times = f"{predicted:9.3f}s {observed:9.3f}s {ratio:6.2f}"
    print(f"{tier[-24:]:24} {store.name:9} {case.concurrent:7} {case.tokens:7} {times}{far}", flush=True)


if __name__ == "__main__":
    main()
