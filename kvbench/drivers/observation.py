"""What a round came to, as an observation: one function for every driver, so that none of them forgets a field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kvbench.checks import judge
from kvbench.drivers import Site, surroundings, unmeasured
from kvbench.formats.fio import point as fio_point
from kvbench.formats.fio.read import FioJob
from kvbench.record import recorder
from kvbench.record.histogram import Histogram
from kvbench.record.point import Point
from kvbench.record.recorder import Recorder
from kvbench.record.results import Calls, Conditions, Direction, LatencySource, Observation, Status


@dataclass(frozen=True, slots=True)
class Started:
    """A round that has begun: its point, where, for how many seconds, and the counters of then."""

    point: Point
    site: Site
    runtime_s: int
    before: surroundings.Before

    @classmethod
    def now(cls, point: Point, site: Site, runtime_s: int) -> Started:
        """A round that begins now."""
        return cls(point, site, runtime_s, surroundings.before_round(site.tier))

    def conditions(self) -> Conditions:
        """What was asked for and what the host and the tier tell about the round, which ends now."""
        return replace(
            surroundings.conditions_since(self.before, self.site.tier),
            rwmixread=self.site.settings.rwmixread if self.point.mix == "mixed" else None,
            requested_runtime_s=float(self.runtime_s),
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """The numbers of a round: rates and latencies by direction, histograms, and calls that move no data by kind."""

    runtime_s: float | None
    read: Direction | None
    write: Direction | None
    histograms: Mapping[str, Histogram]
    latency_source: LatencySource | None
    metadata: dict[str, Calls] = field(default_factory=dict)

    @classmethod
    def by_recorders(cls, recorders: Sequence[Recorder], seconds: float) -> Measured:
        """What the threads of a driver recorded in so many seconds."""
        read, write = (recorder.direction_of(recorders, way, seconds) for way in ("read", "write"))
        return cls(seconds, read, write, recorder.histograms_of(recorders), "lat")

    @classmethod
    def by_fio(cls, job: FioJob) -> Measured:
        """What fio says of its job."""
        read, write = fio_point.direction_of(job.read), fio_point.direction_of(job.write)
        return cls(job.runtime_s, read, write, fio_point.histograms_of(job), fio_point.latency_source_of(job))


def observation(
    point: Point, measured: Measured, conditions: Conditions, failure: str | None = None, *, interrupted: bool = False
) -> Observation:
    """The judged point of a round with its histograms: failed with a ``failure``, or interrupted, which counts more."""
    status: Status = "interrupted" if interrupted else "failed" if failure else "ok"
    found = replace(
        unmeasured(point, status, "stopped before its time" if interrupted else failure),
        runtime_s=measured.runtime_s,
        latency_source=measured.latency_source,
        read=measured.read,
        write=measured.write,
        metadata=measured.metadata,
        conditions=conditions,
    )
    return Observation(judge(found), dict(measured.histograms))


def nothing(point: Point, failure: str, *, interrupted: bool = False) -> Observation:
    """The observation of a round without any numbers, and why it has none."""
    return Observation(unmeasured(point, "interrupted" if interrupted else "failed", failure), {})
