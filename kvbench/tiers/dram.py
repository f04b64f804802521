"""What copying blocks within this host's memory costs: the floor below every tier that goes through it.

Not a storage measurement and not the engine's own copy to the GPU: numpy copies whole blocks between random places of a
buffer that no processor cache holds and a block of each thread's own, as a connector does between the CPU tier and its
staging buffer. numpy releases the interpreter's lock while it copies, so the threads run at the same time.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvbench.histogram import Histogram

if TYPE_CHECKING:
    import numpy as np

# Larger than the caches of any processor, small enough for a pod.
BUFFER_BYTES = 512 << 20

_NODES = Path("/sys/devices/system/node")


@dataclass(frozen=True, slots=True)
class CopyCost:
    """One measurement: operations, bytes per second of all threads together, and latency in ns."""

    block_bytes: int
    threads: int
    copies: int
    bytes_per_s: float
    p50_ns: int
    p99_ns: int


def measure_copies(block_bytes: int, threads: int, seconds: float, *, buffer_bytes: int = BUFFER_BYTES) -> CopyCost:
    """Copy blocks with ``threads`` threads for ``seconds`` and say what one copy took."""
    import numpy as np

    blocks = max(1, buffer_bytes // block_bytes)
    source = np.empty(blocks * block_bytes, dtype=np.uint8)
    # Touch every page: untouched ones are all the same page of zeros.
    source.fill(1)
    samples: list[list[int]] = [[] for _ in range(threads)]
    started = threading.Barrier(threads + 1)
    stop = threading.Event()
    workers = [
        threading.Thread(target=_copy, args=(source, block_bytes, seed, samples[seed], started, stop), daemon=True)
        for seed in range(threads)
    ]
    for worker in workers:
        worker.start()
    started.wait()
    began = time.perf_counter()
    time.sleep(seconds)
    stop.set()
    for worker in workers:
        worker.join()
    elapsed = time.perf_counter() - began
    counts: dict[int, int] = {}
    for latency_ns in (sample for own in samples for sample in own):
        counts[latency_ns] = counts.get(latency_ns, 0) + 1
    histogram = Histogram.from_counts(counts)
    rate = histogram.samples * block_bytes / elapsed
    return CopyCost(block_bytes, threads, histogram.samples, rate, histogram.percentile(50), histogram.percentile(99))


def numa_nodes(nodes: Path = _NODES) -> dict[int, str]:
    """NUMA nodes of this host with their processors, as the kernel lists them; empty where it does not."""
    found = {}
    for node in nodes.glob("node[0-9]*"):
        try:
            found[int(node.name.removeprefix("node"))] = (node / "cpulist").read_text().strip()
        except (OSError, ValueError):
            continue
    return dict(sorted(found.items()))


def _copy(
    source: np.ndarray[tuple[int], np.dtype[np.uint8]],
    block_bytes: int,
    seed: int,
    samples: list[int],
    started: threading.Barrier,
    stop: threading.Event,
) -> None:
    import numpy as np

    own = np.ones(block_bytes, dtype=np.uint8)
    order = np.random.default_rng(seed).permutation(len(source) // block_bytes).tolist()
    started.wait()
    turn = 0
    while not samples or not stop.is_set():
        at = order[turn % len(order)] * block_bytes
        before = time.perf_counter_ns()
        np.copyto(own, source[at : at + block_bytes])
        samples.append(time.perf_counter_ns() - before)
        turn += 1
