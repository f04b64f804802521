"""The simulation of an engine's tiers: requests a second, memory, and whether time grows with the trace.

    python -m benchmarks.simulate [--conversations 2000,4000,8000] [--rounds 3]

Each size is a made trace; the engine has a GPU, a CPU tier and a shared tier behind it on two replicas. Beside it, on
the same references in the same run, libCacheSim's LRU (pip install libcachesim) at the CPU tier's capacity: one cache
that knows no requests, tiers or replicas. Printed: seconds, requests and references per second, the ratio to the peer,
seconds per reference over those of the first size, and the peak memory of the process.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from kvbench.formats.traces import load
from kvbench.formats.traces.head import Options
from kvbench.simulate.plan import Engine, SecondaryTier, TierSet
from kvbench.simulate.run import simulate
from kvbench.traces.make import Recipe, lines
from kvbench.traces.trace import Trace

# Blocks of a GPU, and of a CPU tier that the traces overflow.
_GPU, _CPU = 2_000, 10_000


def made(folder: Path, conversations: int) -> Trace:
    """A trace of so many conversations, blocks of 64 tokens."""
    path = folder / f"{conversations}.jsonl"
    path.write_text("".join(lines(Recipe(conversation_num=conversations, isl_block_size=64))))
    return load(path, Options(64, None)).trace


def best(run: Callable[[], object], rounds: int) -> float:
    """The fewest seconds of processor time over some rounds."""
    found = []
    for _ in range(rounds):
        began = time.process_time()
        run()
        found.append(time.process_time() - began)
    return min(found)


def ours(trace: Trace) -> None:
    """The whole simulation with one configuration."""
    engine = Engine(gpu_bytes=_GPU, block_bytes=1, chunk_bytes=1, replicas=2)
    simulate(trace, engine, [TierSet("both", _CPU, (SecondaryTier("shared", shared=True),))])


def peer(trace: Trace, folder: Path) -> Callable[[], object] | None:
    """libCacheSim's LRU over the same references, None where it is not installed."""
    if not find_spec("libcachesim"):
        return None
    from libcachesim import LRU, ReaderInitParam, TraceReader, TraceType

    record = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])
    rows = np.zeros(trace.references, record)
    rows["time"], rows["id"], rows["size"], rows["next"] = np.arange(trace.references), trace.blocks + 1, 1, -1
    path = folder / "peer.bin"
    rows.tofile(path)

    def run() -> object:
        reader = TraceReader(
            trace=str(path),
            trace_type=TraceType.ORACLE_GENERAL_TRACE,
            reader_init_params=ReaderInitParam(ignore_obj_size=True),
        )
        return LRU(cache_size=_CPU, hashpower=16).process_trace(reader)

    return run


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--conversations", default="2000,4000,8000")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    first = None
    with tempfile.TemporaryDirectory(prefix="kvbench-simulate-") as name:
        for count in map(int, asked.conversations.split(",")):
            trace = made(Path(name), count)
            seconds = best(lambda trace=trace: ours(trace), asked.rounds)  # type: ignore[misc]
            each = seconds / trace.references
            first = first or each
            other = peer(trace, Path(name))
            beside = "" if other is None else f", {seconds / best(other, asked.rounds):.1f} x libCacheSim's LRU"
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"{trace.requests:,} requests, {trace.references:,} references: {seconds:.2f} s, "
                f"{trace.requests / seconds:,.0f} requests/s, {1 / each:,.0f} references/s{beside}, "
                f"{each / first:.2f} x the first size's time for a reference, {memory:,.0f} MiB at most so far"
            )


if __name__ == "__main__":
    main()
