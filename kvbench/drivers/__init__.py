"""What makes the I/O: a driver lays the data out and measures one round of one point, and knows no model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kvbench.drivers.settings import JobSettings
from kvbench.errors import Interrupted
from kvbench.record.point import Point
from kvbench.record.results import Observation, PointResult, Status
from kvbench.tiers.directory import Workspace
from kvbench.tiers.tier import Tier

SERIES_NAME = "series.json"

OnRate = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Site:
    """Where a driver works: the tier, this run's sub-directory on it, and how it is to be measured."""

    tier: Tier
    space: Workspace
    settings: JobSettings


class RoundInterrupted(Interrupted):
    """The user stopped a round; ``partial`` is what it had measured by then."""

    def __init__(self, message: str, partial: Observation) -> None:
        """The message of the interruption, with the round's observation."""
        super().__init__(message)
        self.partial = partial


class Driver(Protocol):
    """The seam between planning and I/O."""

    def check(self, points: Sequence[Point], site: Site, folder: Path, name: str, comments: str) -> None:
        """Raise ToolError or TierError when the plan could not run here, before any tier is measured.

        What the driver can say about its plan for people it writes into ``folder`` as NAME.*, ``comments`` first.
        """

    def lay_out(self, site: Site, folder: Path) -> None:
        """Write the data set in full; MeasurementError when that fails. Evidence goes into ``folder``."""

    def measure(self, point: Point, site: Site, folder: Path, runtime_s: int) -> Observation:
        """One round of a point. A failure is a point with status failed and its reason, never an exception.

        RoundInterrupted when the user stops it.
        """


class Program(Protocol):
    """A driver before it is used: found on this host, and not yet given a place to report its rates to."""

    @property
    def version(self) -> str | None:
        """The program's version for the result file, or None when it is a part of kvbench."""

    def driver(self, on_rate: OnRate) -> Driver:
        """The driver; ``on_rate`` gets its current rates about twice a second."""


def unmeasured(point: Point, status: Status, reason: str | None) -> PointResult:
    """A point without any numbers, and why."""
    return PointResult(
        id=point.id,
        job=point.id,
        source=f"points/{point.id}",
        tier=point.tier,
        driver=point.driver,
        io_bytes=point.io_bytes,
        mix=point.mix,
        numjobs=point.numjobs,
        status=status,
        reason=reason,
    )
