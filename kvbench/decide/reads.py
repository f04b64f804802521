"""What a run measured of reading from one tier, found by size and load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from kvbench.checks import voiding
from kvbench.decide.interpolation import between_jobs, between_sizes
from kvbench.decide.restore import MeasuredReads
from kvbench.record import results
from kvbench.record.histogram import Histogram
from kvbench.record.results import LatencyNs, PointResult, RunResult

MixChoice = Literal["auto", "mixed", "read"]

# Where several drivers measured a point: what does the connector's own calls comes first.
_BEST_DRIVERS = ("replay", "s3", "memory", "fio")

# Bytes of one I/O, and jobs.
_Load = tuple[int, int]


@dataclass(frozen=True)
class Reads:
    """The reads that a run measured on one tier, found by size and load; sorted once for all that ask.

    ``fresh`` holds histograms by point that are not in the run directory yet.
    """

    run_dir: Path
    run: RunResult
    tier: str
    mix: MixChoice
    fresh: Mapping[str, Mapping[str, Histogram]] = field(default_factory=dict)

    def at(self, io_bytes: int, jobs: int) -> MeasuredReads | None:
        """The read side of the mixed point (steady state) at that load, else of the pure read point.

        What was not measured is interpolated between two neighbours (first in jobs, then in size) and marked.
        """
        for best in self._by_mix:
            sizes = _neighbours([load for load in best if load[0] == io_bytes], 1, jobs)
            at_load = _neighbours([load for load in best if load[1] == jobs], 0, io_bytes)
            if (io_bytes, jobs) in best:
                return self._measured(best, (io_bytes, jobs))
            found = between_jobs([self._measured(best, load) for load in sizes], jobs) or between_sizes(
                [self._measured(best, load) for load in at_load], io_bytes
            )
            if found is not None:
                return found
        return None

    def rates(self, io_bytes: int) -> dict[int, float]:
        """Read bytes per second by number of jobs, of the mix that decides."""
        for best in self._by_mix:
            rates = {
                jobs: point.read.bytes_per_s for (size, jobs), point in best.items() if size == io_bytes and point.read
            }
            if rates:
                return rates
        return {}

    def read_and_written(self, io_bytes: int) -> tuple[tuple[float, float], ...]:
        """Bytes per second read and written at the same time at that size, in every mix and load that counts."""
        return tuple(
            (point.read.bytes_per_s if point.read else 0.0, point.write.bytes_per_s if point.write else 0.0)
            for point in self.run.points
            if (point.tier, point.io_bytes, point.status) == (self.tier, io_bytes, "ok") and not voiding(point)
        )

    def lookup_s(self, io_bytes: int, jobs: int) -> float | None:
        """Mean seconds of one lookup beside about ``jobs`` operations: of the loads that timed one the nearest.

        The nearest in size first: a lookup reads no data, so that a size that was not measured has one too.
        """
        for best in self._by_mix:
            timed = {load: seconds for load, point in best.items() if (seconds := _lookup_s(point)) is not None}
            if timed:
                return timed[min(timed, key=lambda load: (abs(load[0] - io_bytes), abs(load[1] - jobs)))]
        return None

    @cached_property
    def _by_mix(self) -> list[dict[_Load, PointResult]]:
        """The usable reads of each mix that counts, the one that decides first: one point for each size and load, that
        of the driver nearest to the connector."""
        found = []
        for mix in ("mixed", "read") if self.mix == "auto" else (self.mix,):
            best: dict[_Load, PointResult] = {}
            for point in sorted(self.run.points, key=_preference):
                if (point.tier, point.mix, point.status) == (self.tier, mix, "ok") and read_latency(point) is not None:
                    best.setdefault((point.io_bytes, point.numjobs), point)
            found.append(best)
        return found

    def _measured(self, best: Mapping[_Load, PointResult], load: _Load) -> MeasuredReads:
        point, alone = best[load], best.get((load[0], 1))
        assert point.read is not None
        latency = None if alone is None else read_latency(alone)
        alone_s = None if latency is None else latency.mean_s
        beside_none = None if alone is None else self._histogram(alone)
        return MeasuredReads(point, point.read, self._histogram(point), alone_s, alone=beside_none)

    def _histogram(self, point: PointResult) -> Histogram | None:
        if point.id in self.fresh:
            return self.fresh[point.id].get("read")
        return results.load_histogram(self.run_dir, point, "read")


def _neighbours(loads: Sequence[_Load], which: int, wanted: int) -> list[_Load]:
    """The nearest load on either side of ``wanted`` in that part: of all others no histogram need be read."""
    below = max((load for load in loads if load[which] < wanted), key=lambda load: load[which], default=None)
    above = min((load for load in loads if load[which] > wanted), key=lambda load: load[which], default=None)
    return [load for load in (below, above) if load is not None]


def read_latency(point: PointResult) -> LatencyNs | None:
    """The latency of a point's reads, None when it read nothing."""
    return point.read.latency_ns if point.read is not None and point.read.iops > 0 else None


def _lookup_s(point: PointResult) -> float | None:
    """Mean seconds of a point's lookups, None where nobody timed them."""
    lookup = point.metadata.get("lookup")
    latency = None if lookup is None else lookup.latency_ns
    return None if latency is None else latency.mean_s or None


def _preference(point: PointResult) -> int:
    return _BEST_DRIVERS.index(point.driver) if point.driver in _BEST_DRIVERS else len(_BEST_DRIVERS)
