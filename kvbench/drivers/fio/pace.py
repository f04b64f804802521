"""The stores of a mix beside its reads: how many jobs of their own, and how many a second keep the share (pure).

An engine's load never waits for a store of its own, so the jobs of a mixed point read only, and others write. fio
cannot let one job follow another without holding both up (its ``flow`` makes all wait for the slowest), so the rate of
the stores is set, and corrected by what the readers did.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kvbench.drivers.settings import JobSettings
from kvbench.record.pace import STORING_THREADS
from kvbench.record.point import Point
from kvbench.record.results import Direction

# Jobs for twice the stores in flight: a slow one holds up its own job only.
_HEADROOM = 2
_SLOWEST_PER_S = 0.01


@dataclass(frozen=True, slots=True)
class Stores:
    """Jobs that only store, and how often all of them together do."""

    jobs: int
    per_s: float

    def bytes_per_s_of_each(self, io_bytes: int) -> int:
        """fio's ``rate`` of each job."""
        return max(1, round(self.per_s * io_bytes / self.jobs))


def has_stores(point: Point, settings: JobSettings) -> bool:
    """Whether a point's stores have jobs of their own.

    Not in the published job, whose jobs read and write in turn, nor in a file for each block, where jobs of two
    sections would share names and wait for each other.
    """
    return point.mix == "mixed" and not settings.published and settings.layout == "large-files"


def stores_beside(
    readers: int, read_percent: int, read: Direction, write: Direction | None, last: Stores | None = None
) -> Stores:
    """The stores that keep the share beside ``readers`` that did ``read``.

    Without ``last`` these jobs wrote as well: as readers only they do N / latency reads a second (Little's law). After
    ``last`` half of the way, in logarithms: more stores make fewer reads, which a whole step would answer with an
    oscillation as soon as a store costs as much as 100 / (100 - read_percent) reads.
    """
    share = (100 - read_percent) / read_percent
    latency_s = read.latency_ns.mean_s if read.latency_ns else None
    if last is None:
        per_s = share * (readers / latency_s if latency_s else read.iops)
    else:
        per_s = math.sqrt(last.per_s * share * read.iops)
    per_s = max(per_s, _SLOWEST_PER_S)
    store_s = (write.latency_ns.mean_s if write is not None and write.latency_ns else None) or 0.0
    return Stores(min(STORING_THREADS, max(1, math.ceil(_HEADROOM * per_s * store_s))), per_s)
