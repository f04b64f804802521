"""The fio driver: one fio process for the layout and for every round of a point, and its output as an observation."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kvbench.drivers import OnRate, RoundInterrupted, Site
from kvbench.drivers.fio import data, outcome
from kvbench.drivers.fio import job as fio_job
from kvbench.drivers.fio import run as fio_run
from kvbench.drivers.fio.pace import Stores, has_stores, stores_beside
from kvbench.drivers.observation import Measured, Started, nothing, observation
from kvbench.drivers.region import huge_bytes, require_given
from kvbench.drivers.settings import JobSettings
from kvbench.errors import Interrupted, MeasurementError, TierError, ToolError
from kvbench.formats.fio.options import access_of
from kvbench.formats.fio.point import asked, failed_ios
from kvbench.formats.fio.read import FioJob
from kvbench.host import environment
from kvbench.record.pace import STORING_THREADS
from kvbench.record.point import Point
from kvbench.record.results import Conditions, Observation
from kvbench.tiers.guard import TOKEN_VARIABLE, processes_with
from kvbench.units import format_bytes

# fio may end late by one stalled operation; beyond this the tier hangs.
_POINT_GRACE_S = 120.0
# Laying out is only given up below this rate: slower than any tier that could hold KV blocks.
_SLOWEST_LAYOUT_BYTES_PER_S = 2 << 20
# Before the first round of a mixed point: the jobs read and write in turn, then beside stores at a first guess.
_TRIALS, _TRIAL_S = 2, 1


@dataclass(frozen=True, slots=True)
class _Round:
    """A round that has begun, where its evidence goes, and the state of the data by then."""

    started: Started
    folder: Path
    cache_drop: str | None
    unwritten_bytes: int | None
    stores: Stores | None


@dataclass(frozen=True, slots=True)
class FioProgram:
    """fio as a Program."""

    fio: fio_run.Fio

    @classmethod
    def find(cls) -> FioProgram:
        """The fio on PATH; ToolError when it cannot be used."""
        return cls(fio_run.find_fio())

    @property
    def version(self) -> str:
        """fio's own version text."""
        return self.fio.version

    def driver(self, on_rate: OnRate) -> FioDriver:
        """A driver that runs this fio."""
        return FioDriver(self.fio, on_rate)


class FioDriver:
    """A Driver that runs fio; ``on_rate`` gets fio's current rates about twice a second."""

    def __init__(self, fio: fio_run.Fio, on_rate: OnRate) -> None:
        """Drive this fio program."""
        self._fio, self._on_rate = fio, on_rate
        # Bytes never written, by the token of the work space whose data was laid out.
        self._unwritten: dict[str, int | None] = {}
        # The stores of mixed points, by work space and point, as the last round of each has it.
        self._stores: dict[tuple[str, str], Stores] = {}
        self._host = environment.HostWatch()
        self._huge: _HugePages | None = None

    def check(self, points: Sequence[Point], site: Site, folder: Path, name: str, comments: str) -> None:
        """Let fio parse the job file of all points, and look for the libaio slots that they need."""
        _require_aio_slots(points)
        require_given(site.settings.buffers)
        job_file = folder / f"{name}.fio"
        job_file.write_text(comments + fio_job.render_points(points, data.place_of(site), site.settings))
        fio_run.check_job(self._fio, job_file)

    def lay_out(self, site: Site, folder: Path) -> None:
        """Write the data in full with a write job and look at it afterwards; a read-only device is only looked at."""
        if data.is_read_only(site, writes=True):
            self._unwritten[site.space.token] = data.unwritten(site)
            return
        job_file = folder / "job.fio"
        data.require_room(site)
        job_file.write_text(data.place_comment(site) + fio_job.render_layout(data.held_place_of(site), site.settings))
        fio_run.check_job(self._fio, job_file)
        timeout_s = 60 + site.settings.dataset_bytes / _SLOWEST_LAYOUT_BYTES_PER_S
        finished = self._run(job_file, site, timeout_s, writes=True)
        for name in fio_job.layout_jobs(site.settings):
            job, failure = outcome.only_job(finished, name)
            if failure is not None:
                raise MeasurementError(f"laying out the data set failed: {failure}")
        data.require_complete(site, job)
        self._unwritten[site.space.token] = data.unwritten(site)

    def measure(self, point: Point, site: Site, folder: Path, runtime_s: int) -> Observation:
        """One fio run of ``runtime_s`` seconds, judged, with its evidence in ``folder``."""
        output = folder / fio_run.OUTPUT_NAME
        output.unlink(missing_ok=True)
        self._huge = None
        try:
            stores = self._stores_of(point, site, folder) if has_stores(point, site.settings) else None
        except Interrupted as error:
            partial = nothing(point, "stopped before its stores had a pace", interrupted=True)
            raise RoundInterrupted(str(error), partial) from None
        except (MeasurementError, ToolError) as error:
            return nothing(point, str(error))
        output.unlink(missing_ok=True)
        dropped = None if point.mix == "write" else data.of(site).drop_cached()
        unwritten = self._unwritten.get(site.space.token)
        this = _Round(Started.now(point, site, runtime_s), folder, dropped, unwritten, stores)
        self._host = environment.HostWatch()
        self._huge = _HugePages(site.space.token) if site.settings.buffers == "huge" else None
        try:
            finished = self._run_point(point, site, folder, runtime_s, stores)
        except Interrupted as error:
            text = output.read_text(errors="replace") if output.exists() else ""
            cut = fio_run.Finished(-signal.SIGTERM, text, "", timed_out=False)
            seen = self._observation(this, cut, interrupted=True)
            raise RoundInterrupted(str(error), seen) from None
        except ToolError as error:
            return nothing(point, str(error))
        return self._observation(this, finished)

    def _run_point(
        self, point: Point, site: Site, folder: Path, runtime_s: int, stores: Stores | None
    ) -> fio_run.Finished:
        """One fio run of a point, with its job file in ``folder``."""
        settings = replace(site.settings, runtime_s=runtime_s)
        job_file = folder / "job.fio"
        job = fio_job.render_points([point], data.held_place_of(site), settings, laid_out=True, stores=stores)
        job_file.write_text(data.place_comment(site) + job)
        fio_run.check_job(self._fio, job_file)
        return self._run(job_file, site, runtime_s + _POINT_GRACE_S, writes=point.mix != "read")

    def _stores_of(self, point: Point, site: Site, folder: Path) -> Stores:
        """The stores of a mixed point: those that its last round asked for, or two trials; MeasurementError when one
        of them fails."""
        key = site.space.token, point.id
        trial = replace(point, id=f"{point.id}-pace")
        for _ in range(0 if key in self._stores else _TRIALS):
            finished = self._run_point(trial, site, folder, _TRIAL_S, self._stores.get(key))
            outcome.drop_series(folder)
            job, failure = outcome.only_job(finished, trial.id)
            if job is None or failure is not None:
                raise MeasurementError(failure or "finding the pace of the stores gave no result")
            self._correct_stores(key, point, site, job)
        return self._stores[key]

    def _correct_stores(self, key: tuple[str, str], point: Point, site: Site, job: FioJob) -> None:
        measured, percent = Measured.by_fio(job), site.settings.rwmixread
        if measured.read is not None:
            last = self._stores.get(key)
            self._stores[key] = stores_beside(point.numjobs, percent, measured.read, measured.write, last)

    def _rate(self, text: str) -> None:
        self._host.sample()
        if self._huge is not None:
            self._huge.look()
        self._on_rate(text)

    def _run(self, job_file: Path, site: Site, timeout_s: float, *, writes: bool) -> fio_run.Finished:
        variables = {TOKEN_VARIABLE: site.space.token, **fio_job.run_environment(site.settings)}
        return fio_run.run_job(
            self._fio,
            job_file,
            timeout_s=timeout_s,
            environment=variables,
            on_rate=self._rate,
            read_only=data.is_read_only(site, writes=writes),
            inherited=site.space.inherited,
        )

    def _observation(self, this: _Round, finished: fio_run.Finished, *, interrupted: bool = False) -> Observation:
        point = this.started.point
        job, failure = outcome.only_job(finished, point.id)
        if job is None:
            reason = "interrupted before fio had a result" if interrupted else failure or "no result"
            return nothing(point, reason, interrupted=interrupted)
        if self._huge is not None and not interrupted:
            failure = failure or self._huge.failure(point.numjobs * point.io_bytes)
        outcome.keep_series(this.folder, self._host.by_second())
        if this.stores is not None:
            self._correct_stores((this.started.site.space.token, point.id), point, this.started.site, job)
        return observation(point, Measured.by_fio(job), _conditions(this, job), failure, interrupted=interrupted)


class _HugePages:
    """Whether fio's memory lies on huge pages, looked at while it runs: a tunable that nobody obeys is no error."""

    def __init__(self, token: str) -> None:
        self._token, self._most = token, 0

    def look(self) -> None:
        """Look at the processes of this run, fio and what it started."""
        if not self._most:
            self._most = sum(map(huge_bytes, processes_with(self._token)))

    def failure(self, wanted: int) -> str | None:
        """Why the round does not show huge pages, or None; the ends of buffers may lie on small ones."""
        if self._most >= wanted / 2:
            return None
        return (
            f"fio got {format_bytes(self._most)} of {format_bytes(wanted)} on huge pages (it needs glibc 2.35 or later "
            "and transparent_hugepage other than never); leave out --buffers huge, or use --driver replay"
        )


def distinct_bytes(settings: JobSettings, point: Point) -> int:
    """Distinct bytes that a point can touch: whole blocks of the files that its jobs use."""
    if settings.layout == "file-per-block":
        return settings.blocks_of(point.io_bytes) * point.io_bytes * point.numjobs
    files = min(point.numjobs, settings.files) if settings.published else settings.files
    return settings.file_bytes // point.io_bytes * point.io_bytes * files


def _require_aio_slots(points: Sequence[Point]) -> None:
    # Each fio job sets up a libaio context of iodepth events (axboe/fio#539, #1961).
    needed = max((point.numjobs + (STORING_THREADS if point.mix == "mixed" else 0) for point in points), default=0)
    free = environment.aio_slots_free()
    if free is not None and needed > free:
        raise TierError(
            f"{needed} jobs need {needed} libaio slots and this host has {free} left (fs.aio-max-nr); "
            "use fewer --numjobs or have an administrator raise fs.aio-max-nr."
        )


def _conditions(this: _Round, job: FioJob) -> Conditions:
    site = this.started.site
    return replace(
        this.started.conditions(),
        ioengine=job.options.get("ioengine"),
        direct=job.options.get("direct") == "1",
        iodepth=asked(job.options, "iodepth"),
        dataset_bytes=distinct_bytes(site.settings, this.started.point),
        cached_fraction=data.of(site).cached_fraction(),
        failed_ios=failed_ios(job),
        access=access_of(job.options),
        unwritten_bytes=this.unwritten_bytes,
        cache_drop=this.cache_drop,
        storing_jobs=None if this.stores is None else this.stores.jobs,
        buffers=site.settings.buffers,
        buffer_memory=fio_job.MEMORY_IN_WORDS[site.settings.buffers],
    )
