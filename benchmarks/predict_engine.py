"""Does a hit take as long as kvbench says, and does it win where kvbench says so? Held against real engines.

    python -m benchmarks.predict_engine DIRECTORY... [--engine llama|vllm] [--concurrent 1,4,16] [--lengths 12]
        [--repeats 20] [--between 256,4k] [--stores 2MB] [--seconds 4] [--wall]

llama: llama.cpp (xllamacpp) whose slots are saved to files of a directory and restored from them. vllm: vLLM on a CPU
with its fs tier there (``make engine-up`` installs it). While a thread stores blocks at ``--stores``, it
 1. measures what kvbench measures: block files read by the replay's code at every load, six times, and prompts computed
    alone between the lengths of ``--between``; what a hit costs besides, from hits of one length in the middle;
 2. predicts with kvbench.decide hits and misses of ``--lengths`` lengths around the crossover (all of ``--between``
    where there is none);
 3. asks for so many prompts at once that are all saved, and for as many that are not, ``--repeats`` times, in turns.

Prints for each length and number at once predicted : observed of both, in brackets where the 95 % interval does not
hold the observed median, and the verdict for that length with the observed one; then how many ratios are within 15 %,
how many intervals held, and how many verdicts were wrong. Of llama.cpp alone the time of its computing is that of its
threads on a processor: others on the machine lengthen only the wall clock. ``--wall`` takes that in all cases.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import threading
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest

from benchmarks.predict_restore import Files, Sample, in_directory
from kvbench.decide.crossover import Crossover, Goal, Verdict, Versus, decide
from kvbench.decide.recompute import computed_s, queued
from kvbench.decide.restore import Around, MeasuredReads, restore_curve
from kvbench.drivers import unmeasured
from kvbench.drivers.replay.calls import Buffer, CallTimes
from kvbench.drivers.replay.flow import REQUESTS
from kvbench.prefill.curve import PrefillCurve, fit
from kvbench.prefill.samples import Sample as Ttft
from kvbench.prefill.samples import Samples
from kvbench.record.point import Point
from kvbench.record.recorder import direction_of, histograms_of
from kvbench.record.results import OverTime, Use
from kvbench.record.stats import log_error
from kvbench.units import format_bandwidth, parse_size, parse_tokens
from tests.lab import engine, llm
from tests.lab.processes import wait_until
from tests.lab.state import LlmServer

AIM = 0.15
_TURNS = 6
# llama.cpp's n_batch, and vLLM's max_num_batched_tokens where there is no large GPU.
STEP_TOKENS = 2048
_COMPUTED_LENGTHS = 6
_STORED_FILES = 16
LEVELS = (0.025, 0.975)
# The crossover may lie anywhere within this factor of a length that is tried.
_AROUND = 2.5

Prompt = list[int]


class Subject(ABC):
    """A real engine with a tier, and the use that kvbench has for it."""

    use: Use

    @abstractmethod
    def save(self, prompts: Sequence[Prompt]) -> None:
        """Compute prompts and leave them on the tier."""

    @abstractmethod
    def hits(self, prompts: Sequence[Prompt]) -> list[float]:
        """Seconds of each of saved prompts, asked for at once."""

    @abstractmethod
    def misses(self, prompts: Sequence[Prompt]) -> list[float]:
        """Seconds of each when nothing of them is saved, asked for at once."""


class Llama(Subject):
    """llama.cpp: one thread restores slots and computes, one after the other; a file holds the whole prompt."""

    # A file has 16 bytes more for each token; block files are of whole sectors. 50 us to compute one.
    SHAPE = llm.Shape(width=64, kv_heads=4, head_size=128, feed_forward=64, context_tokens=8192)
    BYTES_PER_TOKEN, BLOCK_TOKENS = 4096, 16

    def __init__(self, server: LlmServer, tier: Path, *, wall: bool) -> None:
        """A server that runs; see ``serving``."""
        self._server, self._tier, self._wall = server, tier, wall
        self.use = Use(
            "llama.cpp", 1, "float16", "slots", None, self.BYTES_PER_TOKEN * self.BLOCK_TOKENS, self.BLOCK_TOKENS,
            parallelism_per_request=1, threads=1,
        )  # fmt: skip

    @classmethod
    @contextmanager
    def serving(cls, folder: Path, most: int, *, wall: bool) -> Iterator[Subject]:
        """A server as long as the context lasts, whose slots are saved in ``folder``."""
        with tempfile.TemporaryDirectory(prefix="kvbench-llama-") as place:
            shape = replace(cls.SHAPE, slots=most, saves_in=str(folder))
            with llm.serving(Path(place), shape=shape) as server:
                yield cls(server, folder, wall=wall)

    def save(self, prompts: Sequence[Prompt]) -> None:
        """A file for each."""
        for prompt in prompts:
            self._complete(0, prompt, cached=False)
            self._slot(0, "save", prompt)
            with self._file(prompt).open("rb") as file:
                os.fsync(file.fileno())

    def hits(self, prompts: Sequence[Prompt]) -> list[float]:
        """Restore the slots and ask; nothing of the files is in memory."""
        for prompt in prompts:
            with self._file(prompt).open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return at_once(self._hit, prompts)

    def misses(self, prompts: Sequence[Prompt]) -> list[float]:
        """Compute all of them."""
        return at_once(self._miss, prompts)

    def _hit(self, slot: int, prompt: Prompt, *, alone: bool) -> float:
        began = time.perf_counter()
        self._slot(slot, "restore", prompt)
        restored_s = time.perf_counter() - began
        clock = self._clock(alone)
        began = clock()
        computed = self._complete(slot, prompt, cached=True)
        if computed > self.use.block_tokens:
            raise SystemExit(f"{len(prompt)} tokens were restored, and {computed} of them computed all the same")
        return restored_s + clock() - began

    def _miss(self, slot: int, prompt: Prompt, *, alone: bool) -> float:
        clock = self._clock(alone)
        began = clock()
        self._complete(slot, prompt, cached=False)
        return clock() - began

    def _clock(self, alone: bool) -> Callable[[], float]:
        """Of several at once each waits for others' computing, which no thread's time tells."""
        return self._busy_s if alone and not self._wall else time.perf_counter

    def _busy_s(self) -> float:
        """Seconds that the server's threads have had a processor for (Documentation/scheduler/sched-stats.rst)."""
        threads = Path(f"/proc/{self._server.pid}/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9

    def _complete(self, slot: int, prompt: Prompt, *, cached: bool) -> int:
        """The tokens that it computed."""
        body = {"prompt": prompt, "n_predict": 1, "cache_prompt": cached, "id_slot": slot}
        return int(self._post("/completion", body)["timings"]["prompt_n"])

    def _slot(self, slot: int, action: str, prompt: Prompt) -> None:
        self._post(f"/slots/{slot}?action={action}", {"filename": self._file(prompt).name})

    def _file(self, prompt: Prompt) -> Path:
        return self._tier / f"{len(prompt)}-{prompt[0]}"

    def _post(self, path: str, body: object) -> Any:
        data = json.dumps(body).encode()
        request = urllib.request.Request(self._server.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.load(answer)


class Vllm(Subject):
    """vLLM on a CPU: one thread for a request reads its files, one looks up."""

    MODEL = "much-kv"
    BYTES_PER_TOKEN = 16384

    def __init__(self, served: engine.Engine) -> None:
        """An engine that runs; see ``serving``."""
        self._served, self._fresh = served, random.Random(1)
        self.use = Use(
            "vllm", 1, "bfloat16", "vllm-fs", engine.RELEASE, self.BYTES_PER_TOKEN * engine.BLOCK_TOKENS,
            engine.BLOCK_TOKENS, parallelism_per_request=1, threads=16,
        )  # fmt: skip

    @classmethod
    @contextmanager
    def serving(cls, folder: Path, most: int, longest: int) -> Iterator[Subject]:
        """An engine as long as the context lasts, with its tier in ``folder``."""
        room = 2 * most * longest * cls.BYTES_PER_TOKEN
        with engine.serving(engine.Wish("fs", cls.MODEL, folder, cpu_bytes=room)) as served:
            yield cls(served)

    def save(self, prompts: Sequence[Prompt]) -> None:
        """Its own stores."""
        there = len(self._served.files())
        for prompt in prompts:
            self._served.ask(prompt)
        self._wait_for(there + sum(map(self._blocks, prompts)))

    def hits(self, prompts: Sequence[Prompt]) -> list[float]:
        """With both of its caches empty."""
        self._served.forget()
        before = self._read_bytes()
        found = at_once(self._ask, prompts)
        wanted = sum(map(self._blocks, prompts)) * self.use.io_bytes
        if (read := self._read_bytes() - before) != wanted:
            raise SystemExit(f"the engine read {read:.0f} bytes from the tier, not {wanted}")
        return found

    def misses(self, prompts: Sequence[Prompt]) -> list[float]:
        """Prompts of the same lengths that nobody asked for before; what they store is removed."""
        self._served.forget()
        kept = set(self._served.files())
        fresh = [[self._fresh.randrange(10, 2000) for _ in one] for one in prompts]
        found = at_once(self._ask, fresh)
        self._wait_for(len(kept) + sum(map(self._blocks, fresh)))
        for file in set(self._served.files()) - kept:
            file.unlink()
        return found

    def _wait_for(self, files: int) -> None:
        if not wait_until(lambda: len(self._served.files()) >= files, 60):
            raise SystemExit(f"the engine stored {len(self._served.files())} files, not {files}")

    def _ask(self, _: int, prompt: Prompt, *, alone: bool) -> float:
        return self._served.ask(prompt)

    def _blocks(self, prompt: Prompt) -> int:
        return len(prompt) // self.use.block_tokens

    def _read_bytes(self) -> float:
        return self._served.total("vllm:kv_offload_tiering_read_bytes_total", 'tier="1:fs"')


def at_once(ask: Callable[..., float], prompts: Sequence[Prompt]) -> list[float]:
    """What ``ask`` says of each prompt, all asked in the same moment."""
    with ThreadPoolExecutor(len(prompts)) as pool:
        asked = [pool.submit(ask, slot, one, alone=len(prompts) == 1) for slot, one in enumerate(prompts)]
        return [each.result() for each in asked]


def prompt_of(tokens: int, number: int) -> Prompt:
    """A prompt that no other one begins like, of that length or another."""
    return [10 + number, 10 + tokens % 280] + [10 + (at * (number + 1)) % 290 for at in range(tokens - 2)]


@dataclass
class Measured:
    """What kvbench would know: reads by the number in flight, and how their rate changed from turn to turn."""

    reads: dict[int, Sample] = field(default_factory=dict)
    rates: dict[int, list[float]] = field(default_factory=dict)
    computed: list[Ttft] = field(default_factory=list)
    hits: list[float] = field(default_factory=list)

    def reads_at(self, use: Use, jobs: int) -> MeasuredReads:
        """The point at so many jobs."""
        sample, alone = self.reads[jobs], self.reads[1]
        read = direction_of(sample.recorders, "read", sample.seconds)
        assert read is not None
        error = log_error(self.rates[jobs])
        over_time = {} if error is None else {"read": OverTime(len(self.rates[jobs]), error)}
        point = unmeasured(Point("measured", "t", "replay", use.io_bytes, "read", jobs), "ok", None)
        return MeasuredReads(
            replace(point, read=read, over_time=over_time),
            read,
            histograms_of(sample.recorders)["read"],
            alone.mean_s,
            alone=histograms_of(alone.recorders)["read"],
        )


@contextmanager
def storing(folder: Path, io_bytes: int, bytes_per_s: float) -> Iterator[None]:
    """A thread that stores blocks as the engine does, at this rate, over and over in as many files."""
    ended, calls, buffer = threading.Event(), REQUESTS.calls(), Buffer(io_bytes)

    def store() -> None:
        began, done = time.monotonic(), 0
        while not ended.wait(max(0.0, began + done * io_bytes / bytes_per_s - time.monotonic())):
            path = folder / f"stored-{done % _STORED_FILES}.bin"
            path.unlink(missing_ok=True)
            calls.store(str(path), buffer, CallTimes())
            done += 1

    thread = threading.Thread(target=store)
    if bytes_per_s:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if bytes_per_s:
            thread.join()


def measure(subject: Subject, store: Files, counts: Sequence[int], ends: tuple[int, int], seconds: float) -> Measured:
    """Reads, prompts alone and hits of the middle length, in turns, so that all see the same machine."""
    found, use = Measured(), subject.use
    # One more than whole blocks: an engine computes the last token of a prompt in any case.
    lengths = [whole(use, length) + 1 for length in np.geomspace(*ends, _COMPUTED_LENGTHS).tolist()]
    middle = [prompt_of(lengths[_COMPUTED_LENGTHS // 2], 200)]
    subject.save(middle)
    subject.hits(middle)
    for _ in range(_TURNS):
        for jobs in sorted({1, *(use.in_flight(count) for count in counts)}):
            sample = found.reads.setdefault(jobs, Sample())
            before_s, before = sample.seconds, len(sample.recorders)
            store.measure(jobs, seconds, sample)
            ios = sum(recorder.sides["read"].ios for recorder in sample.recorders[before:])
            found.rates.setdefault(jobs, []).append(ios / (sample.seconds - before_s))
        for number, length in enumerate(lengths):
            found.computed.append(Ttft(length, subject.misses([prompt_of(length, 220 + number)])[0]))
        found.hits += subject.hits(middle)
    return found


def whole(use: Use, tokens: float) -> int:
    """The nearest number of tokens in whole blocks."""
    return max(1, round(tokens / use.block_tokens)) * use.block_tokens


@dataclass(frozen=True)
class Predictor:
    """kvbench's answers on what was measured."""

    use: Use
    measured: Measured
    curve: PrefillCurve
    overhead_s: float

    def decided(self, count: int, tokens: int) -> Crossover:
        """The decision for one target length."""
        reads = self.measured.reads_at(self.use, self.use.in_flight(count))
        return decide(self.use, "t", count, reads, None, self.curve, Goal(tokens), self._around(count))

    def hit_s(self, count: int, tokens: int) -> tuple[float, float, float]:
        """A whole hit with its interval."""
        reads = self.measured.reads_at(self.use, self.use.in_flight(count))
        restore = restore_curve(self.use, reads, count, np.array([float(tokens)]), self._around(count))
        beside_s = float(Versus(restore, self.curve, count).beside_s[0])
        low, high = np.quantile(restore.draws[:, 0], LEVELS)
        return float(restore.seconds[0]) + beside_s, float(low) + beside_s, float(high) + beside_s

    def miss_s(self, count: int, tokens: int) -> tuple[float, float, float]:
        """A whole miss with its interval."""
        times = float(queued(self.curve, float(tokens), count)[0])
        drawn = self.curve.drawn_seconds(np.array([float(tokens)]))[:, 0]
        constant = self.curve.draws[:, 0] if len(self.curve.draws) else self.curve.a_s
        low, high = np.quantile(constant + (drawn - constant) * times, LEVELS)
        return float(computed_s(self.curve, float(tokens), count)[0]), float(low), float(high)

    def _around(self, count: int) -> Around:
        lookups = self.measured.reads[1 if count == 1 else self.use.in_flight(count)]
        return Around(lookups.lookup_s if self.use.connector == "vllm-fs" else None, hit_overhead_s=self.overhead_s)


def predictor_of(use: Use, measured: Measured) -> Predictor:
    """With what a hit costs beside its reads: the median of those of the middle length less what is predicted."""
    curve = replace(
        fit(Samples(tuple(measured.computed), None, "measured here", any_speed=True)), step_tokens=STEP_TOKENS
    )
    bare = Predictor(use, measured, curve, 0.0)
    middle = sorted({row.prompt_tokens for row in measured.computed})[_COMPUTED_LENGTHS // 2]
    return replace(bare, overhead_s=max(0.0, statistics.median(measured.hits) - bare.hit_s(1, middle)[0]))


@dataclass
class Cell:
    """One length with so many at once: mean seconds of the prompts of each repeat."""

    count: int
    tokens: int
    hit_s: list[float] = field(default_factory=list)
    miss_s: list[float] = field(default_factory=list)

    @property
    def observed(self) -> Verdict:
        """Whether hits or misses were quicker by their medians."""
        return "viable" if statistics.median(self.hit_s) <= statistics.median(self.miss_s) else "not viable"

    @property
    def is_sure(self) -> bool:
        """Whether a sign test of the repeats says so with 95 %; six of them can."""
        won = sum(hit < miss for hit, miss in zip(self.hit_s, self.miss_s, strict=True))
        return bool(binomtest(won, len(self.hit_s)).pvalue <= 1 - (LEVELS[1] - LEVELS[0]))


def lengths_around(predictor: Predictor, count: int, ends: tuple[int, int], number: int) -> list[int]:
    """Lengths around the predicted crossover, one token more than whole blocks."""
    crossing = predictor.decided(count, ends[1]).request.tokens
    low, high = ends if crossing is None else (max(ends[0], crossing / _AROUND), min(ends[1], crossing * _AROUND))
    return sorted({whole(predictor.use, length) + 1 for length in np.geomspace(low, high, number).tolist()})


def observe(subject: Subject, cells: Sequence[Cell], repeats: int) -> None:
    """Hits and misses of every cell, so often, in an order of their own each time."""
    longest = {
        tokens: max(cell.count for cell in cells if cell.tokens == tokens) for tokens in {c.tokens for c in cells}
    }
    prompts = {tokens: [prompt_of(tokens, number) for number in range(most)] for tokens, most in longest.items()}
    for saved in prompts.values():
        subject.save(saved)
    chance = random.Random(1)
    for _ in range(repeats):
        for cell in chance.sample(cells, len(cells)):
            asked = prompts[cell.tokens][: cell.count]
            cell.hit_s.append(statistics.fmean(subject.hits(asked)))
            cell.miss_s.append(statistics.fmean(subject.misses(asked)))


@dataclass
class Score:
    """How the predictions did, over all cells."""

    ratios: list[float] = field(default_factory=list)
    held: list[bool] = field(default_factory=list)
    verdicts: list[tuple[Verdict, Verdict]] = field(default_factory=list)

    def side(self, predicted: tuple[float, float, float], observed: Sequence[float]) -> str:
        """Predicted : observed of one side, marked where the interval does not hold it."""
        middle, low, high = predicted
        seen = statistics.median(observed)
        self.ratios.append(middle / seen)
        self.held.append(low <= seen <= high)
        return f"{1e3 * middle:8.1f} {1e3 * seen:8.1f} {middle / seen:5.2f}{' ' if self.held[-1] else '!'}"

    def show(self) -> None:
        """The line at the end."""
        near = statistics.fmean(abs(ratio - 1) <= AIM for ratio in self.ratios)
        said = [pair for pair in self.verdicts if pair[0] != "cannot say"]
        wrong = sum(given != seen for given, seen in said)
        middle, held = statistics.median(self.ratios), statistics.fmean(self.held)
        print(
            f"ratios {min(self.ratios):.2f} to {max(self.ratios):.2f}, median {middle:.2f}; "
            f"within {AIM:.0%}: {near:.2f}; intervals that held: {held:.2f} of {len(self.held)}; "
            f"wrong verdicts: {wrong} of {len(said)} given, {len(self.verdicts) - len(said)} 'cannot say'"
        )


def report(predictor: Predictor, cells: Sequence[Cell]) -> None:
    """The table and the score of every number at once."""
    curve = predictor.curve
    print(
        f"T(L) = {1e3 * curve.a_s:.1f} ms + {1e6 * curve.b_s_per_token:.1f} us L + "
        f"{1e9 * curve.c_s_per_token2:.2f} ns L^2; a hit costs {1e3 * predictor.overhead_s:.1f} ms besides"
    )
    for count in sorted({cell.count for cell in cells}):
        reads = predictor.measured.reads_at(predictor.use, predictor.use.in_flight(count))
        print(f"\n{count} at once, reads of {format_bandwidth(reads.read.bytes_per_s)}; ms, ! = outside the interval")
        side = f"{'observed':>8} {'ratio':>5} "
        print(f"{'tokens':>7} {'hit':>8} {side} {'miss':>8} {side} verdict, observed")
        score = Score()
        for cell in (cell for cell in cells if cell.count == count):
            verdict = predictor.decided(count, cell.tokens).verdict
            score.verdicts.append((verdict, cell.observed))
            hit = score.side(predictor.hit_s(count, cell.tokens), cell.hit_s)
            miss = score.side(predictor.miss_s(count, cell.tokens), cell.miss_s)
            print(f"{cell.tokens:7} {hit} {miss} {verdict}, {cell.observed}{'' if cell.is_sure else ' (not sure)'}")
        score.show()


def main() -> None:
    """Predict, observe and print, directory by directory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", nargs="+", type=Path)
    parser.add_argument("--engine", choices=("llama", "vllm"), default="llama")
    parser.add_argument("--concurrent", default="1,4,16")
    parser.add_argument("--lengths", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--between", default="256,4k", help="the shortest and the longest prompt that is computed")
    parser.add_argument("--stores", default="2MB", help="stored each second beside everything; 0B for nothing")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measured round")
    parser.add_argument("--dataset", default="512MiB")
    parser.add_argument("--wall", action="store_true", help="the wall clock also for what llama.cpp computes alone")
    chosen = parser.parse_args()
    for directory in chosen.directories:
        print(f"{chosen.engine} on {directory}")
        with tempfile.TemporaryDirectory(prefix="kvbench-predict-", dir=directory) as place:
            held(Path(place), chosen)


def held(place: Path, chosen: argparse.Namespace) -> None:
    """One directory."""
    counts = [int(text) for text in chosen.concurrent.split(",")]
    shortest, longest = (parse_tokens(text) for text in chosen.between.split(","))
    folders = [place / name for name in ("slots", "blocks", "stores")]
    for folder in folders:
        folder.mkdir()
    slots, blocks, stores = folders
    serving = (
        Llama.serving(slots, max(counts), wall=chosen.wall)
        if chosen.engine == "llama"
        else Vllm.serving(slots, max(counts), longest)
    )
    with serving as subject:
        io_bytes = subject.use.io_bytes
        with (
            in_directory(str(blocks), io_bytes, parse_size(chosen.dataset)) as ways,
            storing(stores, io_bytes, parse_size(chosen.stores)),
        ):
            way = ways[-1]
            assert isinstance(way, Files)
            measured = measure(subject, way, counts, (shortest, longest), chosen.seconds)
            predictor = predictor_of(subject.use, measured)
            cells = [
                Cell(count, tokens)
                for count in counts
                for tokens in lengths_around(predictor, count, (shortest, longest), chosen.lengths)
            ]
            observe(subject, cells, chosen.repeats)
    report(predictor, cells)


if __name__ == "__main__":
    main()
