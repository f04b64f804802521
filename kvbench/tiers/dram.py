"""What copying blocks within this host's memory costs: the floor below every tier that goes through it.

Not the engine's own copy to the GPU: numpy copies whole blocks between random places of a pool that no processor cache
holds and a block of each thread's own, as a connector does between the CPU tier and its staging buffer. numpy releases
the interpreter's lock while it copies, so the threads run at the same time.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvbench.record.pace import Pace
from kvbench.record.recorder import Recorder

if TYPE_CHECKING:
    import numpy as np

    Pool = np.ndarray[tuple[int], np.dtype[np.uint8]]

# Larger than the caches of any processor, small enough for a pod.
POOL_BYTES = 512 << 20

_NODES = Path("/sys/devices/system/node")
_STATUS = Path("/proc/self/status")
_TICK_S = 0.5


def new_pool(size: int) -> Pool:
    """A buffer of ``size`` bytes, every page touched: untouched ones are all the same page of zeros."""
    import numpy as np

    pool = np.empty(size, dtype=np.uint8)
    pool.fill(1)
    return pool


def copy_blocks(
    pool: Pool,
    block_bytes: int,
    recorders: Sequence[Recorder],
    seconds: float,
    *,
    read_percent: int = 100,
    storers: int = 0,
    on_tick: Callable[[], None] = lambda: None,
) -> float:
    """Copy blocks for ``seconds``, one thread for each of ``recorders``; the seconds that it took.

    A read copies from a random place of the pool to the thread's own block, a write back. The last ``storers`` threads
    only write, as much as ``read_percent`` asks for beside what the others read. An exception in ``on_tick``
    ends the threads and propagates.
    """
    started, stop = threading.Barrier(len(recorders) + 1), threading.Event()
    pace = Pace(read_percent, len(recorders), storers)
    running = [
        threading.Thread(target=_copy, args=(pool, block_bytes, job, pace, recorder, started, stop), daemon=True)
        for job, recorder in enumerate(recorders)
    ]
    for thread in running:
        thread.start()
    began = time.perf_counter()
    started.wait()
    try:
        while (left := began + seconds - time.perf_counter()) > 0:
            time.sleep(min(_TICK_S, left))
            on_tick()
    finally:
        stop.set()
        pace.end()
        for thread in running:
            thread.join()
    return time.perf_counter() - began


def numa_nodes(nodes: Path = _NODES) -> dict[int, str]:
    """NUMA nodes of this host with their processors, as the kernel lists them; empty where it does not."""
    found = {}
    for node in nodes.glob("node[0-9]*"):
        try:
            found[int(node.name.removeprefix("node"))] = (node / "cpulist").read_text().strip()
        except (OSError, ValueError):
            continue
    return dict(sorted(found.items()))


def numa_placement(status: Path = _STATUS) -> str:
    """From which NUMA nodes this process may take memory and processors (proc(5), Mems_allowed_list)."""
    try:
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        return f"memory of node {lines['Mems_allowed_list'].strip()}, CPU {lines['Cpus_allowed_list'].strip()}"
    except (OSError, KeyError, ValueError):
        return "unknown: the system does not say"


def _copy(
    pool: Pool,
    block_bytes: int,
    job: int,
    pace: Pace,
    recorder: Recorder,
    started: threading.Barrier,
    stop: threading.Event,
) -> None:
    import numpy as np

    own = np.ones(block_bytes, dtype=np.uint8)
    chance = random.Random(job)
    blocks = len(pool) // block_bytes
    started.wait()
    began = time.perf_counter_ns()
    while (reads := pace.next_reads(job, chance)) is not None:
        at = chance.randrange(blocks) * block_bytes
        place = pool[at : at + block_bytes]
        before = time.perf_counter_ns()
        if reads:
            np.copyto(own, place)
        else:
            np.copyto(place, own)
        after = time.perf_counter_ns()
        recorder.add("read" if reads else "write", after - before, after - began, block_bytes)
        if reads:
            pace.has_read()
        if stop.is_set():
            return
