"""Does the engine read its tier as fast as kvbench says? Both on the same files, in turns, in one run.

    python -m benchmarks.engine DIRECTORY... [--blocks 8] [--concurrent 1,4,16] [--rounds 8]

Needs the engine's environment (make engine-up installs it). Serves the lab's model with much KV on every DIRECTORY,
writes prompts of so many files each, and restores them again and again: every time after both caches of the engine were
emptied, with a pause before. Engine: the rise of vllm:kv_offload_tiering_read_time_total for each file.
The others read the same files of as many prompts at once, look them all up first, one thread for a prompt:

    burst, engine's memory   as the engine: with pauses, into the very pages of its CPU tier
    burst, other region      the same into a region that was made the same way, of other pages
    burst, own buffer        the replay's own memory: one page-aligned buffer for each thread, again and again
    loop, engine's memory    as the first, but for a second without pauses, which is what the replay driver measures
    burst, other files       as the first, on files of another set each time: nothing below O_DIRECT has them at hand
    fio                      psync, a file after the other, its time for each operation (no open, no close)

Prints the geometric mean of a file's time, the block device's requests for each file (a read is cut where its memory is
not contiguous; those of everybody on the machine), and lane : engine with the 95 % interval over rounds (Welch on
logarithms).
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import secrets
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kvbench.drivers.replay.calls import Buffer, CallTimes, CCalls
from kvbench.record.comparison import ratio_interval
from tests.lab import engine
from tests.lab.engine import BLOCK_TOKENS, Engine, Wish
from tests.lab.processes import wait_until

MODEL = "much-kv"
FILE_BYTES = BLOCK_TOKENS * 16384
PAUSE_S, LOOP_S = 0.5, 1.0
_LOOKUP = "vllm:kv_offload_tiering_lookup_async_delay_seconds"
_METRICS = (
    "vllm:kv_offload_tiering_read_time_total", "vllm:kv_offload_tiering_read_bytes_total",
    f"{_LOOKUP}_sum", f"{_LOOKUP}_count",
)  # fmt: skip
_FS = 'tier="1:fs"'


class Row(Buffer):
    """A row of a region in place of memory of its own."""

    def __init__(self, address: int) -> None:
        """What a read needs to know of it."""
        self.address, self.size = address, FILE_BYTES


class Region:
    """Rows of a populated file in /dev/shm that is mapped shared, as the engine's CPU tier is."""

    def __init__(self, path: Path) -> None:
        """The rows of a file that is there."""
        import numpy as np

        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        first = int(np.frombuffer(self._memory, dtype=np.uint8).ctypes.data)
        self.rows = [Row(first + at * FILE_BYTES) for at in range(len(self._memory) // FILE_BYTES)]
        self._next = 0

    @classmethod
    def another(cls, rows: int) -> Region:
        """One that is made as SharedOffloadRegion makes the engine's, of other pages."""
        path = Path(f"/dev/shm/kvbench-benchmark-{secrets.token_hex(4)}")
        try:
            path.touch(mode=0o600, exist_ok=False)
            os.truncate(path, rows * FILE_BYTES)
            made = cls(path)
        finally:
            path.unlink(missing_ok=True)
        # MADV_POPULATE_WRITE (23, Linux 5.14).
        made._memory.madvise(23)
        return made

    def take(self, threads: int, each: int) -> list[Sequence[Buffer]]:
        """Rows for so many threads, others each time until all were used: which the engine takes is not known."""
        found: list[Sequence[Buffer]] = []
        for _ in range(threads):
            found.append([self.rows[(self._next + step) % len(self.rows)] for step in range(each)])
            self._next += each
        return found


@dataclass
class Lane:
    """Seconds for a file and what the device was asked for it, one value for each round."""

    seconds: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)


def main() -> None:
    """Measure every directory and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", nargs="+", type=Path)
    parser.add_argument("--blocks", type=int, default=8, help="files of a prompt")
    parser.add_argument("--concurrent", default="1,4,16")
    parser.add_argument("--rounds", type=int, default=8)
    chosen = parser.parse_args()
    counts = [int(text) for text in chosen.concurrent.split(",")]
    for directory in chosen.directories:
        with tempfile.TemporaryDirectory(prefix="kvbench-engine-", dir=directory) as tier:
            measure(Path(tier), chosen.blocks, counts, chosen.rounds)


def measure(tier: Path, blocks: int, counts: Sequence[int], rounds: int) -> None:
    """The table of one directory."""
    most = max(counts)
    wish = Wish("fs", MODEL, tier, cpu_bytes=most * blocks * FILE_BYTES)
    with engine.serving(wish) as served:
        prompts = [prompt(number, blocks) for number in range(most)]
        for each in prompts:
            served.ask(each)
        wait_until(lambda: len(served.files()) == most * blocks, 60)
        files = served.files()
        others = [copy for number in range(3) for copy in copied(files, tier / f"other-{number}")]
        print(f"\n{tier.parent}: {len(files)} files of {FILE_BYTES} bytes, {blocks} a prompt")
        regions = [Region(engine.memory_files(served.engine_id)[0]), Region.another(most * blocks)]
        for count in counts:
            restores = Restores(served, prompts[:count])
            lanes = lanes_of(restores, files[: count * blocks], others, regions)
            show(count, take_turns(lanes, rounds, Device(tier)))
            waited, looked = statistics.median(restores.waited_s), statistics.median(restores.lookup_s)
            print(f"a whole hit took {1e3 * waited:.0f} ms, a block's lookup {1e3 * looked:.1f} ms to its answer")


def prompt(number: int, blocks: int) -> list[int]:
    """Tokens that no other prompt begins with, a few more than whole blocks."""
    return [10 + number] * 2 + [3 + at % 500 for at in range(blocks * BLOCK_TOKENS + 5)]


def copied(files: Sequence[Path], folder: Path) -> list[Path]:
    """The same sizes under other names, on the device."""
    folder.mkdir()
    for at in range(len(files)):
        with (folder / f"{at}.bin").open("wb") as file:
            file.write(os.urandom(FILE_BYTES))
            os.fsync(file.fileno())
    return sorted(folder.iterdir())


def lanes_of(
    restores: Restores, files: Sequence[Path], others: Sequence[Path], regions: Sequence[Region]
) -> dict[str, Callable[[], float]]:
    """Every lane: a call measures one round and says seconds for each file."""
    threads = len(restores.prompts)
    per = len(files) // threads
    mine = [files[at : at + per] for at in range(0, len(files), per)]
    its, another = regions
    own: list[Sequence[Buffer]] = [[Buffer(FILE_BYTES)] * per for _ in range(threads)]
    fresh = rotated(others, threads, per)
    return {
        "engine": restores.once,
        "burst, engine's memory": lambda: burst(mine, its.take(threads, per)),
        "burst, other region": lambda: burst(mine, another.take(threads, per)),
        "burst, own buffer": lambda: burst(mine, own),
        "loop, engine's memory": lambda: loop(mine, its.take(threads, per)),
        "burst, other files": lambda: burst(next(fresh), its.take(threads, per)),
        "fio": lambda: fio(mine),
    }


def rotated(files: Sequence[Path], threads: int, per: int) -> Iterator[list[Sequence[Path]]]:
    """Files for a burst, others each time until all were used."""
    at = 0
    while True:
        part = [files[(at + step) % len(files)] for step in range(threads * per)]
        at += threads * per
        yield [part[start : start + per] for start in range(0, len(part), per)]


class Device:
    """What the block device below a directory has read; a network's file system has none."""

    def __init__(self, folder: Path) -> None:
        """Find it."""
        number = folder.stat().st_dev
        self._stat = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/stat")

    def reads(self) -> tuple[int, int]:
        """Requests and bytes so far, of everybody (Documentation/block/stat.rst)."""
        if not self._stat.exists():
            return 0, 0
        fields = self._stat.read_text().split()
        return int(fields[0]), int(fields[2]) * 512


def take_turns(lanes: dict[str, Callable[[], float]], rounds: int, device: Device) -> dict[str, Lane]:
    """So many rounds of every lane, in turns, forwards and backwards, a pause before each."""
    found = {name: Lane() for name in lanes}
    for number in range(rounds + 1):
        for name in list(lanes)[:: -1 if number % 2 else 1]:
            time.sleep(PAUSE_S)
            before = device.reads()
            seconds = lanes[name]()
            requests, moved = (now - old for now, old in zip(device.reads(), before, strict=True))
            # The first round is the first time for everything.
            if number:
                found[name].seconds.append(seconds)
                found[name].requests.append(requests / max(moved / FILE_BYTES, 1))
    return found


@dataclass
class Restores:
    """The engine's side: what it says of its reads and lookups, and what its users wait."""

    served: Engine
    prompts: Sequence[Sequence[int]]
    waited_s: list[float] = field(default_factory=list)
    lookup_s: list[float] = field(default_factory=list)

    def once(self) -> float:
        """Ask all prompts at once; seconds that the engine's threads read for each file."""
        self.served.forget()
        before = self._totals()
        at_once([partial(self._ask, one) for one in self.prompts])
        seconds, moved, looked_s, looked = (now - old for now, old in zip(self._totals(), before, strict=True))
        wanted = sum(len(one) // BLOCK_TOKENS for one in self.prompts) * FILE_BYTES
        if moved != wanted:
            raise SystemExit(f"the engine read {moved:.0f} bytes from the tier, not {wanted}")
        self.lookup_s.append(looked_s / max(looked, 1))
        return seconds / (moved / FILE_BYTES)

    def _ask(self, one: Sequence[int]) -> None:
        self.waited_s.append(self.served.ask(one))

    def _totals(self) -> list[float]:
        return [self.served.total(name, _FS) for name in _METRICS]


def burst(files: Sequence[Sequence[Path]], memory: Sequence[Sequence[Buffer]]) -> float:
    """Read every thread's files once; seconds for each file."""
    spent = [0.0] * len(files)
    calls = CCalls()

    def read(number: int) -> None:
        times, pairs = CallTimes(), zip(files[number], memory[number], strict=True)
        spent[number] = sum(calls.load(str(file), row, times) for file, row in pairs)

    lookups = CallTimes()
    assert all(calls.lookup(str(file), lookups) for part in files for file in part)
    at_once([partial(read, number) for number in range(len(files))])
    return sum(spent) / 1e9 / sum(map(len, files))


def loop(files: Sequence[Sequence[Path]], memory: Sequence[Sequence[Buffer]]) -> float:
    """Bursts without a pause for a second; seconds for each file."""
    found, until = [], time.monotonic() + LOOP_S
    while time.monotonic() < until:
        found.append(burst(files, memory))
    return statistics.fmean(found)


def fio(files: Sequence[Sequence[Path]]) -> float:
    """One job for each prompt, every file of it once; fio's mean completion latency."""
    command = ["fio", "--output-format=json", "--ioengine=psync", "--direct=1", "--rw=read", f"--bs={FILE_BYTES}"]
    command += ["--thread", "--openfiles=1", "--file_service_type=sequential", "--group_reporting"]
    for number, part in enumerate(files):
        command += [f"--name=prompt{number}", "--filename=" + ":".join(map(str, part))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)["jobs"][0]["read"]["lat_ns"]["mean"]) / 1e9


def at_once(acts: Sequence[Callable[[], object]]) -> None:
    """Do all of them, each in a thread."""
    threads = [threading.Thread(target=act) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def show(count: int, lanes: dict[str, Lane]) -> None:
    """A table for one number of requests."""
    print(f"{count} at once{'':16} {'ms a file':>10} {'requests':>8} {'lane : engine':>22}")
    reference = lanes["engine"].seconds
    for name, lane in lanes.items():
        ratio = statistics.geometric_mean(lane.seconds) / statistics.geometric_mean(reference)
        between = ratio_interval(reference, lane.seconds)
        interval = "" if between is None else f" ({between[0]:.2f} to {between[1]:.2f})"
        text = "" if name == "engine" else f"{ratio:.2f}{interval}"
        mean_ms, requests = 1e3 * statistics.geometric_mean(lane.seconds), statistics.median(lane.requests)
        print(f"{name:25} {mean_ms:10.3f} {requests:8.2f} {text:>22}", flush=True)


if __name__ == "__main__":
    main()
