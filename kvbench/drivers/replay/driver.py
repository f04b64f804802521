"""The replay driver: does on a directory what vLLM's file system tier does, measured and judged like every point."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from kvbench.drivers import SERIES_NAME, OnRate, RoundInterrupted, Site
from kvbench.drivers.observation import Measured, Started, nothing, observation
from kvbench.drivers.region import memory_for, require_given
from kvbench.drivers.replay.blocks import BlockFiles
from kvbench.drivers.replay.calls import Buffer, CallTimes
from kvbench.drivers.replay.flow import Flow, InFlight, Worker, fill, flow_of, prepare, release_of, storing_threads
from kvbench.drivers.settings import Buffers
from kvbench.errors import Interrupted, MeasurementError
from kvbench.host import environment
from kvbench.record.histogram import Histogram, bin_of
from kvbench.record.latency import latency_of
from kvbench.record.point import Point
from kvbench.record.recorder import Recorder, series_of, total_bytes
from kvbench.record.results import Calls, Conditions, Observation, write_atomically
from kvbench.tiers.extents import unwritten_bytes
from kvbench.tiers.held import HeldDirectory
from kvbench.tiers.pagecache import cached_fraction, drop_cached
from kvbench.units import format_bandwidth

EVIDENCE_NAME = "replay.json"

_LAYOUT_THREADS = 16


class ReplayProgram:
    """The replay driver as a Program: a part of kvbench."""

    @property
    def version(self) -> None:
        """No version: this driver is part of kvbench."""

    def driver(self, on_rate: OnRate) -> ReplayDriver:
        """A driver without any data yet."""
        return ReplayDriver(on_rate)


class ReplayDriver:
    """A Driver that stores and loads block files with the calls of the engine's release."""

    def __init__(self, on_rate: OnRate, flow: Flow | None = None) -> None:
        """Start without data; ``lay_out`` writes it. The flow is that of the release unless another is given."""
        self._on_rate, self._given = on_rate, flow
        # Block files and their bytes that were never written, by work space and block size.
        self._blocks: dict[tuple[str, int], BlockFiles] = {}
        self._unwritten: dict[tuple[str, int], int | None] = {}

    def check(self, points: Sequence[Point], site: Site, folder: Path, name: str, comments: str) -> None:
        """Write NAME.txt: what will be done, in words. The plan has seen to it that there are enough blocks.

        TierError when huge pages are wanted and there are none.
        """
        require_given(site.settings.buffers)
        release = release_of(site.settings.engine_version)
        lines = [
            f"; replay of the file system tier of vLLM {release.version}: {flow_of(release).described}",
            *(f"{p.id}: {p.mix}, {p.numjobs} threads, {p.io_bytes} bytes" for p in points),
        ]
        (folder / f"{name}.txt").write_text(comments + "\n".join(lines) + "\n")

    def lay_out(self, site: Site, folder: Path) -> None:
        """Write the block files of every size as the engine writes them; MeasurementError when that fails."""
        flow, times = self._flow(site), []
        site.space.require_same()
        for size in site.settings.block_sizes:
            blocks = _blocks(site, size)
            workers, _ = _workers(flow, min(_LAYOUT_THREADS, blocks.capacity), blocks, "own")
            began = time.monotonic()

            def tick(blocks: BlockFiles = blocks, began: float = began) -> None:
                self._on_rate(format_bandwidth(len(blocks.live) * blocks.io_bytes / (time.monotonic() - began)))

            fill(blocks, blocks.first_names(), workers, tick)
            times += [worker.times for worker in workers]
            key = site.space.token, size
            self._blocks[key] = blocks
            blocks.sync()
            self._unwritten[key] = unwritten_bytes(blocks.paths())
        _keep_evidence(folder, site, flow, _calls_of(_histograms(times), times), {"threads": _LAYOUT_THREADS})

    def measure(self, point: Point, site: Site, folder: Path, runtime_s: int) -> Observation:
        """Load and store blocks for ``runtime_s`` seconds with ``numjobs`` threads in flight."""
        blocks = self._blocks.get((site.space.token, point.io_bytes))
        if blocks is None:
            return nothing(point, "the block files were not laid out")
        flow = self._flow(site)
        unwritten = self._unwritten[site.space.token, point.io_bytes]
        try:
            storing = storing_threads(flow) if point.mix == "mixed" else 0
            threads, memory = _workers(flow, point.numjobs + storing, blocks, site.settings.buffers)
            workers, storers = threads[: point.numjobs], threads[point.numjobs :]
            round_ = InFlight(blocks, flow, workers, point.mix, site.settings.rwmixread, storers)
            prepare(blocks, point.mix, workers, self._pause)
            _require_ours(site, blocks)
            measured = _Measuring(point, site, folder, runtime_s, round_, unwritten, memory)
        except MeasurementError as error:
            return nothing(point, str(error))
        except Interrupted as error:
            partial = nothing(point, "stopped before it started", interrupted=True)
            raise RoundInterrupted(str(error), partial) from None
        try:
            round_.run(runtime_s, lambda: self._on_rate(measured.tick()), self._pause)
        except MeasurementError as error:
            return nothing(point, str(error))
        except Interrupted as error:
            raise RoundInterrupted(str(error), measured.observation(interrupted=True)) from None
        return measured.observation()

    def _flow(self, site: Site) -> Flow:
        return self._given or flow_of(release_of(site.settings.engine_version))

    def _pause(self) -> None:
        self._on_rate("making room")


class _Measuring:
    """One round from its start: the counters of then, the ticks, and the observation at the end."""

    def __init__(
        self,
        point: Point,
        site: Site,
        folder: Path,
        runtime_s: int,
        round_: InFlight,
        unwritten: int | None,
        memory: str,
    ) -> None:
        self.point, self.site, self.folder, self.round = point, site, folder, round_
        self.unwritten, self.memory = unwritten, memory
        self.dataset_bytes = (round_.blocks.kept(point.mix) or round_.blocks.capacity) * point.io_bytes
        # Asking about every file would take longer than the round: a sample answers for all.
        self.cache_drop = None if point.mix == "write" else drop_cached(round_.blocks.sample())
        self.started, self.host = Started.now(point, site, runtime_s), environment.HostWatch()
        self._began = time.monotonic()

    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def tick(self) -> str:
        self.host.sample()
        return format_bandwidth(total_bytes(self._recorders()) / max(self.elapsed(), 1e-3))

    def observation(self, *, interrupted: bool = False) -> Observation:
        recorders, failures = self._recorders(), self.round.failures
        seconds = self.round.seconds
        write_atomically(
            self.folder / SERIES_NAME, json.dumps(series_of(recorders, seconds, self.host.by_second())) + "\n"
        )
        times = [self.round.lookups, *(worker.times for worker in self._threads())]
        histograms = _histograms(times)
        metadata = _calls_of(histograms, times)
        more = {"threads": len(recorders), "pauses": self.round.pauses, "failures": list(failures)}
        _keep_evidence(self.folder, self.site, self.round.flow, metadata, more)
        measured = Measured.by_recorders(recorders, seconds)
        failure = failures[0] if failures else None if measured.histograms else "no operation ended"
        measured = replace(measured, metadata=metadata, histograms={**measured.histograms, **histograms})
        return observation(self.point, measured, self._conditions(len(failures)), failure, interrupted=interrupted)

    def _recorders(self) -> list[Recorder]:
        return [worker.recorder for worker in self._threads()]

    def _threads(self) -> list[Worker]:
        return [*self.round.workers, *self.round.storers]

    def _conditions(self, failed: int) -> Conditions:
        return replace(
            self.started.conditions(),
            ioengine=f"calls of vLLM {release_of(self.site.settings.engine_version).version}",
            direct=True,
            iodepth=1,
            dataset_bytes=self.dataset_bytes,
            cached_fraction=cached_fraction([path for path in self.round.blocks.sample() if path.exists()]),
            failed_ios=failed,
            access="random",
            unwritten_bytes=self.unwritten,
            cache_drop=self.cache_drop,
            buffers=self.site.settings.buffers,
            buffer_memory=self.memory,
            storing_jobs=len(self.round.storers) or None,
        )


def _blocks(site: Site, size: int) -> BlockFiles:
    """The block files of a size, in the directory that is held open: none is made anywhere else."""
    held = site.space.held
    return BlockFiles(site.space.place, size, site.settings.blocks_of(size), None if held is None else held.descriptor)


def _require_ours(site: Site, blocks: BlockFiles) -> None:
    """MeasurementError unless the block files of an even sample are what this run stored.

    A block is never written twice (O_EXCL), so this is about what is read; asking about all would warm their metadata.
    """
    if isinstance(site.space.held, HeldDirectory):
        site.space.held.require_ours(blocks.sample(), blocks.io_bytes)


def _workers(flow: Flow, threads: int, blocks: BlockFiles, buffers: Buffers) -> tuple[list[Worker], str]:
    """Threads with a place each for a block, and what that memory is."""
    size, memory = blocks.io_bytes, memory_for(buffers, threads, blocks.io_bytes)
    calls = [flow.calls().below(blocks.directory) for _ in memory.places]
    workers = [Worker(one, Buffer(size, place)) for one, place in zip(calls, memory.places, strict=True)]
    return workers, memory.described


def _histograms(times: Sequence[CallTimes]) -> dict[str, Histogram]:
    """Durations of the calls that move no data, by kind."""
    counts: dict[str, Counter[int]] = {}
    for part in times:
        for kind, durations in part.kinds.items():
            counts.setdefault(kind, Counter()).update(map(bin_of, durations))
    return {kind: Histogram.from_counts(found) for kind, found in counts.items()}


def _calls_of(histograms: dict[str, Histogram], times: Sequence[CallTimes]) -> dict[str, Calls]:
    failed: Counter[str] = Counter()
    for part in times:
        failed.update(part.failed)
    # A kind of which every call failed has no latency.
    found = {kind: Calls(0, failed=count) for kind, count in failed.items()}
    for kind, histogram in histograms.items():
        durations = [part.kinds[kind] for part in times if kind in part.kinds]
        latency = latency_of(
            [histogram],
            mean_ns=sum(map(sum, durations)) / histogram.samples,
            min_ns=min(map(min, durations)),
            max_ns=max(map(max, durations)),
        )
        found[kind] = Calls(histogram.samples, latency, failed[kind])
    return found


def _keep_evidence(
    folder: Path, site: Site, flow: Flow, metadata: Mapping[str, Calls], more: Mapping[str, object]
) -> None:
    said = {
        "engine": f"vLLM {release_of(site.settings.engine_version).version}",
        "flow": flow.described,
        **more,
        "calls": {kind: asdict(calls) for kind, calls in metadata.items()},
    }
    write_atomically(folder / EVIDENCE_NAME, json.dumps(said, indent=1) + "\n")
