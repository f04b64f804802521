"""The s3 driver: objects laid out, proven to exist, and requested by as many threads as a point has jobs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kvbench.drivers import SERIES_NAME, OnRate, RoundInterrupted, Site
from kvbench.drivers.observation import Measured, Started, nothing, observation
from kvbench.drivers.region import memory_for, require_given
from kvbench.drivers.s3.client import TIMEOUT_S, ObjectClient, require_installed
from kvbench.drivers.s3.layout import EVIDENCE_NAME, lay_out, require_objects
from kvbench.drivers.s3.load import Ended, Load
from kvbench.drivers.s3.objects import Objects, objects_for
from kvbench.drivers.s3.site import bucket_of, require_no_order
from kvbench.errors import Interrupted, MeasurementError, TierError
from kvbench.host import environment
from kvbench.record.pace import STORING_THREADS
from kvbench.record.point import Point
from kvbench.record.recorder import Recorder, series_of, total_bytes
from kvbench.record.results import Observation, write_atomically
from kvbench.units import format_bandwidth


@dataclass(frozen=True, slots=True)
class S3Program:
    """The S3 client as a Program."""

    version: str

    @classmethod
    def find(cls) -> S3Program:
        """The installed client; ToolError with what to install."""
        return cls(require_installed())

    def driver(self, on_rate: OnRate) -> S3Driver:
        """A driver with no objects yet."""
        return S3Driver(self.version, on_rate)


@dataclass(slots=True)
class _Laid:
    """The data set of one work space: its client and the objects by block size."""

    client: ObjectClient
    objects: dict[int, Objects]
    rounds: int = 0


@dataclass(slots=True)
class _Round:
    """What a round needs to become an observation."""

    started: Started
    folder: Path
    objects: Objects
    recorders: Sequence[Recorder]
    memory: str
    storing_jobs: int | None
    host: environment.HostWatch = field(default_factory=environment.HostWatch)


class S3Driver:
    """A Driver that makes whole-object requests; ``on_rate`` gets its rate about twice a second."""

    def __init__(self, version: str, on_rate: OnRate) -> None:
        """Start without objects; ``lay_out`` writes them."""
        self._version, self._on_rate = version, on_rate
        # By tier: whether any of its points reads, so that a run that only writes lays nothing out.
        self._reads: dict[str, bool] = {}
        self._laid: dict[str, _Laid] = {}

    def check(self, points: Sequence[Point], site: Site, folder: Path, name: str, comments: str) -> None:
        """TierError when the tier is no bucket or has no credentials; writes down which objects there will be."""
        tier, _ = bucket_of(site)
        require_no_order(site)
        require_given(site.settings.buffers)
        ObjectClient(tier)
        self._reads[tier.name] = any(point.mix != "write" for point in points)
        lines = []
        for size in site.settings.block_sizes:
            count = site.settings.blocks_of(size)
            lines.append(f"{count - count // 4} objects of {size} bytes to read, {count // 4} to write in turn\n")
        write_atomically(folder / f"{name}.txt", comments + "".join(lines))

    def lay_out(self, site: Site, folder: Path) -> None:
        """Write the objects that are to be read, every one with content of its own, and prove them."""
        tier, space = bucket_of(site)
        sizes = site.settings.block_sizes
        laid = _Laid(
            ObjectClient(tier), {size: objects_for(space.prefix, size, site.settings.blocks_of(size)) for size in sizes}
        )
        if self._reads.get(tier.name, True):
            lay_out(laid.client, space, list(laid.objects.values()), folder, self._on_rate)
        self._laid[space.token] = laid

    def measure(self, point: Point, site: Site, folder: Path, runtime_s: int) -> Observation:
        """Make requests for ``runtime_s`` seconds, after every object that is read was listed with its size."""
        _, space = bucket_of(site)
        laid = self._laid[space.token]
        objects = laid.objects[point.io_bytes]
        try:
            if point.mix != "write":
                require_objects(space, objects)
            storers = min(STORING_THREADS, len(objects.slots)) if point.mix == "mixed" else 0
            memory = memory_for(site.settings.buffers, point.numjobs + storers, point.io_bytes)
        except (MeasurementError, TierError) as error:
            return nothing(point, str(error))
        except Interrupted as error:
            partial = nothing(point, "stopped before its first request", interrupted=True)
            raise RoundInterrupted(str(error), partial) from None
        space.keys.update(objects.slots)
        laid.rounds += 1
        recorders = [Recorder() for _ in range(point.numjobs + storers)]
        share = site.settings.read_percent(point.mix)
        load = Load(laid.client, objects, recorders, share, laid.rounds, memory.places, storers)
        this = _Round(
            Started.now(point, site, runtime_s), folder, objects, recorders, memory.described, storers or None
        )
        try:
            ended = load.run(runtime_s, lambda seconds: self._tick(this, seconds))
        except Interrupted as error:
            ended = load.settle()
            if ended.unsettled:
                space.unsettled.append(point.id)
            raise RoundInterrupted(str(error), self._observation(this, ended, interrupted=True)) from None
        return self._observation(this, ended)

    def _tick(self, this: _Round, seconds: float) -> None:
        this.host.sample()
        self._on_rate(format_bandwidth(total_bytes(this.recorders) / seconds))

    def _observation(self, this: _Round, ended: Ended, *, interrupted: bool = False) -> Observation:
        self._keep_evidence(this, ended)
        point, measured = this.started.point, Measured.by_recorders(this.recorders, ended.seconds)
        conditions = replace(
            this.started.conditions(),
            ioengine=f"obstore {self._version}",
            dataset_bytes=len(this.objects.slots if point.mix == "write" else this.objects.reads) * point.io_bytes,
            failed_ios=sum(len(recorder.failures) for recorder in this.recorders),
            access="random",
            objects_written=True if measured.read else None,
            buffers=this.started.site.settings.buffers,
            buffer_memory=this.memory,
            storing_jobs=this.storing_jobs,
        )
        failure = ended.failure or (None if measured.read or measured.write else "no request succeeded")
        return observation(point, measured, conditions, failure, interrupted=interrupted)

    def _keep_evidence(self, this: _Round, ended: Ended) -> None:
        failures = Counter(text for recorder in this.recorders for text in recorder.failures)
        evidence = {
            "client": f"obstore {self._version}",
            "objects_to_read": len(this.objects.reads),
            "objects_to_write": len(this.objects.slots),
            "requests_in_flight": len(this.recorders),
            "timeout_s": TIMEOUT_S,
            "retries": 0,
            "failed_requests": dict(failures),
            "given_up": ended.failure,
        }
        write_atomically(this.folder / EVIDENCE_NAME, json.dumps(evidence, indent=1) + "\n")
        series = series_of(this.recorders, ended.seconds, this.host.by_second())
        write_atomically(this.folder / SERIES_NAME, json.dumps(series) + "\n")
