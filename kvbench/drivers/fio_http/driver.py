"""fio's http engine on a bucket: the objects laid out under the names that it asks for, and proven around every round.

The engine takes a missing object (404) for a full read, has no timeout, and gives its keys away in fio's JSON (fio 3.33
and 3.42). So the objects are listed before and after a round that reads, fio is stopped when it does not end in time,
and its output stays in memory until the keys are out of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kvbench.drivers import OnRate, RoundInterrupted, Site
from kvbench.drivers.fio import outcome
from kvbench.drivers.fio import run as fio_run
from kvbench.drivers.fio_http import job as http_job
from kvbench.drivers.fio_http.private import EXAMPLE, Keys, cleaned
from kvbench.drivers.observation import Measured, Started, nothing, observation
from kvbench.drivers.s3 import client as s3_client
from kvbench.drivers.s3.layout import lay_out, require_objects
from kvbench.drivers.s3.objects import Objects
from kvbench.drivers.s3.site import bucket_of, require_no_order
from kvbench.errors import Interrupted, MeasurementError, TierError, ToolError
from kvbench.formats.fio.point import asked, failed_ios
from kvbench.formats.fio.read import FioJob
from kvbench.host import environment
from kvbench.record.point import Point
from kvbench.record.results import Conditions, Observation, write_atomically
from kvbench.tiers.guard import TOKEN_VARIABLE
from kvbench.tiers.s3_requests import credentials

_TOKEN_OPTION = "http_s3_security_token"
_STATUS = re.compile(r"DDIR_\w+ failed with (HTTP status code \d+)")


@dataclass(frozen=True, slots=True)
class _Round:
    started: Started
    folder: Path
    objects: Objects


@dataclass(frozen=True, slots=True)
class FioHttpProgram:
    """fio as a Program that measures objects."""

    fio: fio_run.Fio

    @classmethod
    def find(cls) -> FioHttpProgram:
        """The fio on PATH; ToolError when it cannot be used."""
        return cls(fio_run.find_fio())

    @property
    def version(self) -> str:
        """fio's own version text."""
        return self.fio.version

    def driver(self, on_rate: OnRate) -> HttpDriver:
        """A driver that runs this fio."""
        return HttpDriver(self.fio, on_rate)


class HttpDriver:
    """A Driver that runs fio's http engine on a bucket; ``on_rate`` gets fio's current rates."""

    def __init__(self, fio: fio_run.Fio, on_rate: OnRate) -> None:
        """Drive this fio program."""
        self._fio, self._on_rate = fio, on_rate
        self._host = environment.HostWatch()
        # By tier: whether any of its points reads, so that a run that only writes lays nothing out.
        self._reads: dict[str, bool] = {}

    def check(self, points: Sequence[Point], site: Site, folder: Path, name: str, comments: str) -> None:
        """TierError or ToolError when this fio cannot ask for our objects; writes its job file of all points."""
        tier, space = bucket_of(site)
        require_no_order(site)
        if site.settings.buffers == "huge":
            raise TierError("fio's http engine has buffers of its own; leave out --buffers huge, or --driver fio.")
        options = fio_run.engine_options(self._fio, "http")
        if "http_host" not in options:
            raise ToolError("this fio has no http engine; leave out --driver fio.")
        keys = _keys()
        if keys.token and _TOKEN_OPTION not in options:
            raise ToolError("this fio's http engine knows no session token (3.41 does); leave out --driver fio.")
        http_job.require_expressible(tier, space.prefix, site.settings)
        self._reads[tier.name] = any(point.mix != "write" for point in points)
        job_file = folder / f"{name}.fio"
        self._write_job(job_file, points, site, keys, comments)
        fio_run.check_job(self._fio, job_file, EXAMPLE.environment())

    def lay_out(self, site: Site, folder: Path) -> None:
        """Write the objects under fio's names, every one with content of its own, and prove them."""
        tier, space = bucket_of(site)
        if self._reads.get(tier.name, True):
            sets = [_objects(site, size) for size in site.settings.block_sizes]
            lay_out(s3_client.ObjectClient(tier), space, sets, folder, self._on_rate)

    def measure(self, point: Point, site: Site, folder: Path, runtime_s: int) -> Observation:
        """One fio run of ``runtime_s`` seconds; its objects were there with their size before it and after it."""
        _, space = bucket_of(site)
        objects = _objects(site, point.io_bytes)
        try:
            keys = _keys()
            if point.mix != "write":
                require_objects(space, objects)
            space.keys.update(objects.slots if point.mix == "write" else ())
            this = _Round(Started.now(point, site, runtime_s), folder, objects)
            finished = self._run(this, keys)
            if point.mix != "write":
                require_objects(space, objects)
        except RoundInterrupted:
            raise
        except Interrupted as error:
            partial = nothing(point, "stopped before or after its requests", interrupted=True)
            raise RoundInterrupted(str(error), partial) from None
        except (MeasurementError, TierError, ToolError) as error:
            return nothing(point, str(error))
        return self._observation(this, finished)

    def _run(self, this: _Round, keys: Keys) -> fio_run.Finished:
        started, job_file = this.started, this.folder / "job.fio"
        token, settings = started.site.space.token, replace(started.site.settings, runtime_s=started.runtime_s)
        self._write_job(job_file, [started.point], replace(started.site, settings=settings), keys, "")
        (this.folder / fio_run.OUTPUT_NAME).unlink(missing_ok=True)
        self._host = environment.HostWatch()
        try:
            finished = fio_run.run_job(
                self._fio,
                job_file,
                timeout_s=started.runtime_s + s3_client.TIMEOUT_S,
                environment={**keys.environment(), TOKEN_VARIABLE: token},
                on_rate=self._rate,
                private=True,
            )
        except fio_run.JobInterrupted as error:
            partial = _kept(error.partial, this.folder, keys)
            raise RoundInterrupted(str(error), self._observation(this, partial, interrupted=True)) from None
        return _kept(finished, this.folder, keys)

    def _rate(self, text: str) -> None:
        self._host.sample()
        self._on_rate(text)

    def _write_job(self, file: Path, points: Sequence[Point], site: Site, keys: Keys, comments: str) -> None:
        tier, space = bucket_of(site)
        text = http_job.render(points, tier, space.prefix, site.settings, session_token=keys.token is not None)
        write_atomically(file, keys.require_absent(comments + text))

    def _observation(self, this: _Round, finished: fio_run.Finished, *, interrupted: bool = False) -> Observation:
        point = this.started.point
        job, failure = outcome.only_job(finished, point.id)
        outcome.keep_series(this.folder, self._host.by_second())
        if failure and (status := _STATUS.search(finished.output + finished.errors)):
            failure = f"{failure}; the service answered with {status[1]}"
        if job is None:
            reason = "interrupted before fio had a result" if interrupted else failure or "no result"
            return nothing(point, reason, interrupted=interrupted)
        conditions = _conditions(this, job)
        return observation(point, Measured.by_fio(job), conditions, failure, interrupted=interrupted)


def _conditions(this: _Round, job: FioJob) -> Conditions:
    point = this.started.point
    return replace(
        this.started.conditions(),
        ioengine="http",
        iodepth=asked(job.options, "iodepth"),
        dataset_bytes=http_job.share_of(point, this.objects) * point.numjobs * point.io_bytes,
        failed_ios=failed_ios(job),
        access="random",
        objects_written=True if job.read is not None else None,
    )


def _kept(finished: fio_run.Finished, folder: Path, keys: Keys) -> fio_run.Finished:
    """Write down what fio printed, without the keys, and return it so."""
    clean = cleaned(finished, keys)
    write_atomically(folder / fio_run.OUTPUT_NAME, clean.output)
    write_atomically(folder / "fio.err", clean.errors)
    return clean


def _keys() -> Keys:
    found = credentials()
    if found is None:
        raise TierError(
            "there are no S3 credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write ~/.aws/credentials."
        )
    return Keys.of(found())


def _objects(site: Site, io_bytes: int) -> Objects:
    _, space = bucket_of(site)
    return http_job.objects_of(space.prefix, io_bytes, site.settings.blocks_of(io_bytes))
