"""What makes the I/O: a driver lays the data out and measures one round of one point, and knows no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kvbench.drivers.fio.job import JobSettings
from kvbench.errors import Interrupted
from kvbench.plan import Point
from kvbench.results import Observation
from kvbench.tiers.directory import Workspace
from kvbench.tiers.target import Tier


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
    """The seam between planning and I/O; fio is one implementation."""

    def check(self, points: Sequence[Point], site: Site, job_file: Path) -> None:
        """Write the whole plan as ``job_file`` and raise ToolError when it could not run."""

    def lay_out(self, site: Site, folder: Path) -> None:
        """Write the data set in full; MeasurementError when that fails. Evidence goes into ``folder``."""

    def measure(self, point: Point, site: Site, folder: Path, runtime_s: int) -> Observation:
        """One round of a point. A failure is a point with status failed and its reason, never an exception.

        RoundInterrupted when the user stops it.
        """
