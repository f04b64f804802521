"""The whole exact curve against simulators that run once for each capacity, on one trace in one run.

    python benchmarks/curves.py [TRACE] [--references 1000000,10000000] [--sample 5%] [--rounds 3]

Without TRACE one is made. Prints seconds and references per second for loading and for the curve, the peak memory of a
process that does both, libCacheSim at four capacities (pip install libcachesim), kvcache-simulator at as many budgets
(pip install kvcache-simulator; its own loading included, it measures the second half of a trace only), the error of a
sample, and how time grows with the number of references.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import numpy as np

from kvbench.formats.traces import load
from kvbench.formats.traces.head import Options
from kvbench.traces.curve import Curve, head_first, reuse_curve
from kvbench.traces.make import Recipe, requests
from kvbench.traces.sample import sampled_curve
from kvbench.traces.trace import Trace

T = TypeVar("T")
# It needs minutes beyond.
_MOST_FOR_SIMULATOR = 2_000_000
_SHARES = (0.05, 0.2, 0.5, 0.9)
_CHILD = (
    "import resource, sys; from pathlib import Path; from kvbench.formats.traces import load;"
    "from kvbench.formats.traces.head import Options; from kvbench.traces.curve import reuse_curve;"
    "reuse_curve(load(Path(sys.argv[1]), Options()).trace);"
    "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", nargs="?", type=Path)
    parser.add_argument("--references", default="1000000,10000000")
    parser.add_argument("--sample", type=float, default=5.0, help="percent")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = [chosen.trace] if chosen.trace else [made(Path(folder), int(n)) for n in chosen.references.split(",")]
        for path in paths:
            compare(path, Path(folder), chosen.rounds, chosen.sample / 100)


def made(folder: Path, references: int) -> Path:
    """A trace of about so many references, blocks of 64 tokens."""
    path = folder / f"{references}.jsonl"
    recipe = Recipe(conversation_num=1 << 24, isl_block_size=64, request_rate=20)
    total = 0
    with path.open("w") as file:
        for request in requests(recipe):
            total += len(request["hash_ids"])  # type: ignore[arg-type]
            file.write(json.dumps(request) + "\n")
            if total >= references:
                break
    return path


def timed(work: Callable[[], T], rounds: int) -> tuple[float, T]:
    """The shortest of several runs in CPU seconds, which other programs disturb least, and what it returned."""
    best, found = float("inf"), None
    for _ in range(rounds):
        start = time.process_time()
        found = work()
        best = min(best, time.process_time() - start)
    assert found is not None
    return best, found


def compare(path: Path, folder: Path, rounds: int, sample: float) -> None:
    """One trace: ours, theirs, memory, sample."""
    loading, loaded = timed(lambda: load(path, Options()), rounds)
    trace = loaded.trace
    print(f"{path.name}: {trace.requests:,} requests, {trace.references:,} references, {trace.unique_blocks:,} blocks")
    row("loading", loading, trace)
    ours, (curve, _) = timed(lambda: reuse_curve(trace), rounds)
    row("whole curve", ours, trace)
    flat = head_first(trace)
    plain, (plain_curve, _) = timed(lambda: reuse_curve(flat), rounds)
    row("whole curve, head first", plain, trace)
    sizes = [size for share in _SHARES if (size := plain_curve.capacity_for(share)) is not None]
    if find_spec("libcachesim"):
        theirs, hits = timed(lambda: libcachesim(trace, sizes, folder), rounds)
        row(f"libCacheSim, {len(sizes)} capacities", theirs, trace)
        same = hits == [plain_curve.at(size).blocks for size in sizes]
        print(f"  {'same hits as head first':34} {same}; libCacheSim / whole curve: {theirs / ours:.1f}")
    if find_spec("kvcache_sim") and trace.references <= _MOST_FOR_SIMULATOR:
        kvcache_simulator(path, trace, ours + loading)
    peak = subprocess.run([sys.executable, "-c", _CHILD, path], capture_output=True, text=True, check=True).stdout
    print(f"  {'peak memory, loading and curve':34} {int(peak) / 1024:.0f} MiB")
    sampled(trace, curve, sample, rounds)


def row(name: str, seconds: float, trace: Trace) -> None:
    """One line of the table."""
    print(f"  {name:34} {seconds:8.3f} s {trace.references / seconds / 1e6:8.2f} M references/s")


def libcachesim(trace: Trace, sizes: list[int], folder: Path) -> list[int]:
    """Hits of libCacheSim's LRU, run once for each capacity on a binary trace that is already on disk."""
    import libcachesim as library

    file = folder / f"{trace.references}.bin"
    if not file.exists():
        record = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])
        written = np.zeros(trace.references, record)
        written["id"], written["size"], written["next"] = trace.blocks.astype(np.uint64) + 1, 1, -1
        written.tofile(file)
    kind, init = library.TraceType.ORACLE_GENERAL_TRACE, library.ReaderInitParam(ignore_obj_size=True)
    hits = []
    for size in sizes:
        reader = library.TraceReader(trace=str(file), trace_type=kind, reader_init_params=init)
        ratio, _ = library.LRU(cache_size=size, hashpower=16).process_trace(reader)
        hits.append(round((1 - ratio) * trace.references))
    return hits


def kvcache_simulator(path: Path, trace: Trace, ours: float) -> None:
    """The program as a user runs it: it reads the trace itself, and compiles its C++ core on the first run."""
    command = [
        *(sys.executable, "-m", "kvcache_sim", "run", "--trace", str(path), "--model", "qwen3-8b", "--policies", "lru"),
        *("--budgets-gib", "64,256,1024,4096", "--block-size", str(trace.block_tokens), "--format", "json"),
        "--no-progress",
    ]
    for run in ("first", "second"):
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - start
        if done.returncode:
            print(f"  kvcache-simulator failed: {done.stderr.strip().splitlines()[-1:]}")
            return
        row(f"kvcache-simulator, {run} run, 4 sizes", seconds, trace)
    print(f"  {'kvcache-simulator / loading + curve':34} {seconds / ours:.1f} (wall clock to CPU seconds)")


def sampled(trace: Trace, curve: Curve, rate: float, rounds: int) -> None:
    """What a sample costs and how far it is off."""
    seconds, found = timed(lambda: sampled_curve(trace, rate), rounds)
    row(f"sample of {rate:.1%} with its interval", seconds, trace)
    for share in _SHARES:
        size = curve.capacity_for(share) or 0
        exact, near = curve.at(size).rate, found.curve.at(size).rate
        low, high = found.interval(size)
        print(f"    at {size:>10,} blocks: exact {exact:.4f}, sample {near:.4f} ({low:.4f} to {high:.4f})")


if __name__ == "__main__":
    main()
