"""The memory driver: copies of whole blocks in this host's memory, judged and kept like every other point."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kvbench.drivers import SERIES_NAME, OnRate, RoundInterrupted, Site
from kvbench.drivers.observation import Measured, Started, nothing, observation
from kvbench.errors import Interrupted, TierError
from kvbench.host import environment
from kvbench.record.pace import STORING_THREADS
from kvbench.record.point import Point
from kvbench.record.recorder import Recorder, series_of, total_bytes
from kvbench.record.results import Observation, write_atomically
from kvbench.tiers.dram import copy_blocks, new_pool
from kvbench.units import format_bandwidth, format_bytes

if TYPE_CHECKING:
    from kvbench.tiers.dram import Pool


class MemoryProgram:
    """The memory driver as a Program: a part of kvbench."""

    @property
    def version(self) -> None:
        """No version: this driver is part of kvbench."""

    def driver(self, on_rate: OnRate) -> MemoryDriver:
        """A driver with an empty pool."""
        return MemoryDriver(on_rate)


class MemoryDriver:
    """A Driver that copies blocks between a pool of the data set's size and a block of each thread's own."""

    def __init__(self, on_rate: OnRate) -> None:
        """Start without a pool; ``lay_out`` makes it."""
        self._on_rate = on_rate
        self._pool: Pool | None = None

    def check(self, points: Sequence[Point], site: Site, folder: Path, name: str, comments: str) -> None:
        """TierError when the pool holds not even one block."""
        largest = max((point.io_bytes for point in points), default=0)
        if site.settings.dataset_bytes < largest:
            raise TierError(
                f"a buffer of {format_bytes(site.settings.dataset_bytes)} holds no block of {format_bytes(largest)}; "
                "use a larger --dataset."
            )

    def lay_out(self, site: Site, folder: Path) -> None:
        """Take the memory and touch every page of it."""
        self._pool = new_pool(site.settings.dataset_bytes)

    def measure(self, point: Point, site: Site, folder: Path, runtime_s: int) -> Observation:
        """Copy blocks for ``runtime_s`` seconds."""
        if self._pool is None:
            return nothing(point, "the memory was not laid out")
        share = site.settings.read_percent(point.mix)
        storers = min(STORING_THREADS, point.numjobs) if point.mix == "mixed" else 0
        recorders = [Recorder() for _ in range(point.numjobs + storers)]
        started, host, began = Started.now(point, site, runtime_s), environment.HostWatch(), time.monotonic()

        def tick() -> None:
            host.sample()
            self._on_rate(format_bandwidth(total_bytes(recorders) / (time.monotonic() - began)))

        try:
            seconds = copy_blocks(
                self._pool, point.io_bytes, recorders, runtime_s, read_percent=share, storers=storers, on_tick=tick
            )
        except Interrupted as error:
            partial = _observation(started, recorders, storers, time.monotonic() - began, interrupted=True)
            raise RoundInterrupted(str(error), partial) from None
        series = series_of(recorders, seconds, host.by_second())
        write_atomically(folder / SERIES_NAME, json.dumps(series) + "\n")
        return _observation(started, recorders, storers, seconds)


def _observation(
    started: Started, recorders: Sequence[Recorder], storers: int, seconds: float, *, interrupted: bool = False
) -> Observation:
    # No dataset_bytes: a pool that fits memory and is read again and again is what this tier is.
    conditions = replace(
        started.conditions(), ioengine="numpy copy", failed_ios=0, access="random", storing_jobs=storers or None
    )
    measured = Measured.by_recorders(recorders, seconds)
    return observation(started.point, measured, conditions, interrupted=interrupted)
