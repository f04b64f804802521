"""For each point: prepare, run, judge, save. What finished is on disk before the next point starts."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Protocol

from kvbench import environment, results
from kvbench.checks import judge
from kvbench.drivers.fio import job as fio_job
from kvbench.drivers.fio import run as fio_run
from kvbench.drivers.fio.point import asked, direction_of, failed_ios, failure_of, histograms_of, latency_source_of
from kvbench.errors import InputFileError, Interrupted, MeasurementError, TierError, ToolError
from kvbench.formats import fio as fio_format
from kvbench.formats.fio import FioJob
from kvbench.measurement import Measurement, TierPlan
from kvbench.plan import Point, slug
from kvbench.results import Conditions, PointResult, RunResult
from kvbench.tiers import directory
from kvbench.tiers.directory import DirectoryTier, Workspace
from kvbench.tiers.guard import TOKEN_VARIABLE
from kvbench.tiers.mounts import DeviceCounters, device_counters
from kvbench.tiers.pagecache import cached_fraction
from kvbench.units import format_bytes

POINTS_FOLDER = "points"

# fio may end late by one stalled operation; beyond this the tier hangs.
_POINT_GRACE_S = 120.0
# Laying out is only given up below this rate: slower than any tier that could hold KV blocks.
_SLOWEST_LAYOUT_BYTES_PER_S = 2 << 20


class Progress(Protocol):
    """What a run tells the person who waits; the default says nothing."""

    def laying_out(self, tier: str, dataset_bytes: int) -> None:
        """The data set of a tier is being written."""

    def measuring(self, number: int, total: int, point: Point) -> None:
        """A point starts."""

    def rate(self, text: str) -> None:
        """fio's current rates."""

    def measured(self, point: PointResult) -> None:
        """A point ended and is saved."""


class Silent:
    """A Progress that says nothing."""

    def laying_out(self, tier: str, dataset_bytes: int) -> None: ...
    def measuring(self, number: int, total: int, point: Point) -> None: ...
    def rate(self, text: str) -> None: ...
    def measured(self, point: PointResult) -> None: ...


@dataclass(frozen=True, slots=True)
class _Before:
    """Counters read when a point starts."""

    cpu: environment.CpuTimes | None
    device: DeviceCounters | None


def run(
    measurement: Measurement, result: RunResult, run_dir: Path, fio: fio_run.Fio, progress: Progress | None = None
) -> RunResult:
    """The run with every point of ``measurement`` that ``result`` does not hold as ok yet; saved after each point.

    Raises TierError before anything is measured when a tier cannot be used, and Interrupted on SIGINT, SIGTERM or
    SIGHUP after the point at hand is stopped and saved. A point that fails is saved with its reason; the run goes on.
    """
    progress = progress or Silent()
    with _interruptible():
        tiers = {plan.name: directory.inspect(plan.name, plan.target) for plan in measurement.tiers}
        result = replace(result, tiers={name: tier.facts() for name, tier in tiers.items()})
        _require_aio_slots(measurement)
        session = _Session(measurement, run_dir, fio, progress, result)
        pending = [plan for plan in measurement.tiers if session.todo(plan)]
        for plan in pending:
            session.prepare(plan, tiers[plan.name])
        for plan in pending:
            session.measure(plan, tiers[plan.name])
    return session.result


class _Session:
    """The state of one run: the growing result. Everything else is passed along."""

    def __init__(
        self, measurement: Measurement, run_dir: Path, fio: fio_run.Fio, progress: Progress, result: RunResult
    ) -> None:
        self.measurement, self.run_dir, self.fio, self.progress = measurement, run_dir, fio, progress
        self.result = result
        self.total = len(measurement.points)

    def todo(self, plan: TierPlan) -> list[Point]:
        """The points of a tier that are not finished."""
        finished = {point.id for point in self.result.points if point.status == "ok"}
        return [point for point in self.measurement.points if point.tier == plan.name and point.id not in finished]

    def prepare(self, plan: TierPlan, tier: DirectoryTier) -> None:
        """Check rights, space, O_DIRECT and the job files of a tier before any tier is measured."""
        directory.require_space(tier, plan.settings.dataset_bytes)
        sizes = sorted({point.io_bytes for point in self.todo(plan)})
        with directory.workspace(tier) as space:
            directory.require_direct_io(tier, space, sizes)
            job_file = self.run_dir / f"{slug(plan.name)}.fio"
            job_file.write_text(fio_job.render_points(self.todo(plan), space.path, plan.settings))
            fio_run.check_job(self.fio, job_file)

    def measure(self, plan: TierPlan, tier: DirectoryTier) -> None:
        """Lay the data out and measure the tier's points; a layout that fails skips them with the reason."""
        try:
            with directory.workspace(tier) as space:
                self.progress.laying_out(plan.name, plan.settings.dataset_bytes)
                self._lay_out(plan, space)
                for point in self.todo(plan):
                    self.progress.measuring(self._number(point), self.total, point)
                    self._measure_point(point, plan, tier, space)
        except (MeasurementError, TierError) as error:
            for point in self.todo(plan):
                if self.result.point(point.id) is None:
                    self._keep(_unmeasured(point, "skipped", str(error)))

    def _lay_out(self, plan: TierPlan, space: Workspace) -> None:
        settings = plan.settings
        job_file = self._folder(f"{slug(plan.name)}-layout") / "job.fio"
        job_file.write_text(fio_job.render_layout(space.path, settings))
        fio_run.check_job(self.fio, job_file)
        timeout_s = 60 + settings.dataset_bytes / _SLOWEST_LAYOUT_BYTES_PER_S
        finished = self._fio(job_file, space, timeout_s)
        _, failure = _only_job(finished, fio_job.LAYOUT_JOB)
        if failure is not None:
            raise MeasurementError(f"laying out the data set failed: {failure}")
        _require_complete(space, settings)

    def _measure_point(self, point: Point, plan: TierPlan, tier: DirectoryTier, space: Workspace) -> None:
        folder = self._folder(point.id)
        job_file = folder / "job.fio"
        job_file.write_text(fio_job.render_points([point], space.path, plan.settings))
        numbers = tier.mount.device_numbers if tier.mount else ""
        before = _Before(environment.cpu_times(), device_counters(numbers))
        try:
            fio_run.check_job(self.fio, job_file)
            finished = self._fio(job_file, space, plan.settings.runtime_s + _POINT_GRACE_S)
        except Interrupted:
            output = folder / "fio.json"
            text = output.read_text(errors="replace") if output.exists() else ""
            partial = fio_run.Finished(-signal.SIGTERM, text, "", timed_out=False)
            self._keep(self._point_result(point, plan, tier, space, before, partial, interrupted=True))
            raise
        except ToolError as error:
            self._keep(_unmeasured(point, "failed", str(error)))
            return
        self._keep(self._point_result(point, plan, tier, space, before, finished))

    def _point_result(
        self,
        point: Point,
        plan: TierPlan,
        tier: DirectoryTier,
        space: Workspace,
        before: _Before,
        finished: fio_run.Finished,
        *,
        interrupted: bool = False,
    ) -> PointResult:
        job, failure = _only_job(finished, point.id)
        if job is None:
            reason = "interrupted before fio had a result" if interrupted else failure
            return _unmeasured(point, "interrupted" if interrupted else "failed", reason or "no result")
        histograms = histograms_of(job)
        name = f"{POINTS_FOLDER}/{point.id}/histogram.json"
        if histograms:
            results.save_histograms(self.run_dir, name, histograms)
        measured = PointResult(
            id=point.id,
            job=job.name,
            source=f"{POINTS_FOLDER}/{point.id}/fio.json",
            tier=point.tier,
            driver=point.driver,
            io_bytes=point.io_bytes,
            mix=point.mix,
            numjobs=point.numjobs,
            runtime_s=job.runtime_s,
            latency_source=latency_source_of(job),
            status="interrupted" if interrupted else "failed" if failure else "ok",
            reason="stopped before its time" if interrupted else failure,
            histogram=name if histograms else None,
            read=direction_of(job.read),
            write=direction_of(job.write),
            conditions=self._conditions(point, plan, tier, space, before, job),
        )
        return judge(measured)

    def _conditions(
        self, point: Point, plan: TierPlan, tier: DirectoryTier, space: Workspace, before: _Before, job: FioJob
    ) -> Conditions:
        device = _since(before.device, device_counters(tier.mount.device_numbers) if tier.mount else None)
        files = [space.path / name for name in fio_job.data_file_names(plan.settings.files)]
        return Conditions(
            ioengine=job.options.get("ioengine"),
            direct=job.options.get("direct") == "1",
            iodepth=asked(job.options, "iodepth"),
            rwmixread=plan.settings.rwmixread if point.mix == "mixed" else None,
            requested_runtime_s=float(plan.settings.runtime_s),
            dataset_bytes=read_bytes_at_most(plan, point),
            memory_bytes=environment.memory_bytes(),
            filesystem=tier.mount.filesystem if tier.mount else None,
            cached_fraction=cached_fraction(files),
            device_read_bytes=device.read_bytes if device else None,
            device_written_bytes=device.written_bytes if device else None,
            failed_ios=failed_ios(job),
            load_1m=environment.load_1m(),
            cpu_steal_percent=environment.steal_percent(before.cpu, environment.cpu_times()),
        )

    def _fio(self, job_file: Path, space: Workspace, timeout_s: float) -> fio_run.Finished:
        return fio_run.run_job(
            self.fio,
            job_file,
            timeout_s=timeout_s,
            environment={TOKEN_VARIABLE: space.token},
            on_rate=self.progress.rate,
        )

    def _keep(self, point: PointResult) -> None:
        self.result = self.result.with_point(point)
        results.save(self.result, self.run_dir)
        self.progress.measured(point)

    def _folder(self, name: str) -> Path:
        folder = self.run_dir / POINTS_FOLDER / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _number(self, point: Point) -> int:
        return self.measurement.points.index(point) + 1


def read_bytes_at_most(plan: TierPlan, point: Point) -> int:
    """Distinct bytes that a point can touch: whole blocks of the files that its jobs use."""
    settings = plan.settings
    files = min(point.numjobs, settings.files) if settings.published else settings.files
    return settings.file_bytes // point.io_bytes * point.io_bytes * files


def _only_job(finished: fio_run.Finished, name: str) -> tuple[FioJob | None, str | None]:
    try:
        output = fio_format.parse(finished.output, "fio's output")
    except InputFileError as error:
        return None, _why_no_output(finished, error)
    job = next((job for job in output.jobs if job.name == name), None)
    if job is None:
        return None, f"fio's output holds no job {name!r}"
    if finished.timed_out:
        return job, "fio did not end in time and was stopped: the tier hangs"
    said = (output.preamble + "\n" + finished.errors).splitlines()
    if failure := failure_of(job, said):
        return job, failure
    if output.interrupted:
        return job, "fio was stopped by a signal"
    if finished.code != 0:
        return job, f"fio ended with exit code {finished.code}"
    return job, None


def _why_no_output(finished: fio_run.Finished, error: InputFileError) -> str:
    if finished.timed_out:
        return "fio did not end in time and was stopped: the tier hangs"
    if finished.code < 0:
        return f"fio was killed by {signal.Signals(-finished.code).name}"
    # With --output fio's own complaints go to stderr or stand in the file instead of JSON (fio 3.33).
    said = " ".join((finished.errors or finished.output.partition("{")[0]).split())
    return f"fio ended with exit code {finished.code}: {said[:300]}" if said else str(error)


def _require_complete(space: Workspace, settings: fio_job.JobSettings) -> None:
    # fio can report success after a short write phase (FUSE, axboe/fio#253): trust the files, not the report.
    wanted = settings.file_bytes
    for name in fio_job.data_file_names(settings.files):
        path = space.path / name
        size = path.stat().st_size if path.exists() else 0
        if size < wanted:
            raise MeasurementError(
                f"laying out the data set failed: {name} has {format_bytes(size)} of {format_bytes(wanted)}"
            )


def _unmeasured(point: Point, status: results.Status, reason: str) -> PointResult:
    return PointResult(
        id=point.id,
        job=point.id,
        source=f"{POINTS_FOLDER}/{point.id}/fio.json",
        tier=point.tier,
        driver=point.driver,
        io_bytes=point.io_bytes,
        mix=point.mix,
        numjobs=point.numjobs,
        status=status,
        reason=reason,
    )


def _since(before: DeviceCounters | None, after: DeviceCounters | None) -> DeviceCounters | None:
    if before is None or after is None:
        return None
    return DeviceCounters(after.read_bytes - before.read_bytes, after.written_bytes - before.written_bytes)


def _require_aio_slots(measurement: Measurement) -> None:
    # Each fio job sets up a libaio context of iodepth events (axboe/fio#539, #1961).
    needed = max((point.numjobs for point in measurement.points), default=0)
    free = environment.aio_slots_free()
    if free is not None and needed > free:
        raise TierError(
            f"{needed} jobs need {needed} libaio slots and this host has {free} left (fs.aio-max-nr); "
            "use fewer --numjobs or have an administrator raise fs.aio-max-nr."
        )


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP become one Interrupted; later ones are ignored so that cleaning up can finish."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        for wanted in handled:
            signal.signal(wanted, signal.SIG_IGN)
        raise Interrupted(f"stopped by {signal.Signals(number).name}; what finished is saved, continue with --resume.")

    handled = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    earlier = {number: signal.signal(number, interrupt) for number in handled}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
