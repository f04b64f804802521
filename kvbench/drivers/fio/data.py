"""The data that fio measures: files below the work space, or a range of a block device; laid out, cached, dropped."""

from __future__ import annotations

from pathlib import Path

from kvbench.drivers import Site
from kvbench.drivers.fio import job as fio_job
from kvbench.errors import MeasurementError
from kvbench.formats.fio.read import FioJob
from kvbench.tiers.data import Data
from kvbench.tiers.held import HeldDirectory
from kvbench.units import format_bytes


def place_of(site: Site) -> Path:
    """What people are told that is measured: the work space, or the device itself."""
    return site.space.shown


def held_place_of(site: Site) -> str:
    """What the job files name when fio runs: the same through a descriptor, which no rename can lead elsewhere."""
    # fio takes a directory by lstat, which would see a link of /proc here (fio 3.33).
    return f"{site.space.place}/." if site.tier.device_use is None else str(site.space.place)


def place_comment(site: Site) -> str:
    """A line for the job file that says what the descriptor leads to."""
    return f"; {held_place_of(site)} is {str(place_of(site))!r}, which kvbench held open\n"


def require_room(site: Site) -> None:
    """MeasurementError unless the data can be laid out: the tier is what it was, and no file of that name is there."""
    site.space.require_same()
    if isinstance(site.space.held, HeldDirectory):
        site.space.held.require_absent(fio_job.data_files(site.settings))


def is_read_only(site: Site, *, writes: bool) -> bool:
    """Whether fio must refuse to write: on a device, always but for jobs that write where the user allowed it."""
    if site.tier.device_use is None:
        return False
    return not (writes and site.tier.device_use == "write" and site.settings.device == "write")


def require_complete(site: Site, job: FioJob | None) -> None:
    """MeasurementError unless the whole data set was written; from now on its files are looked at before each round."""
    # fio can report success after a short write phase (FUSE, axboe/fio#253): trust the files, not the report.
    if site.tier.device_use is not None:
        _require_written(site, 0 if job is None or job.write is None else job.write.bytes)
        return
    if isinstance(site.space.held, HeldDirectory):
        try:
            site.space.held.keep(fio_job.data_files(site.settings))
        except MeasurementError as error:
            raise MeasurementError(f"laying out the data set failed: {error}") from None


def of(site: Site) -> Data:
    """The data set where it lies."""
    return site.space.data(fio_job.data_files(site.settings), site.settings.dataset_bytes)


def unwritten(site: Site) -> int | None:
    """Bytes of the data set that were never written, as far as can be seen, or None; none where fio wrote a device."""
    if site.tier.device_use is not None and not is_read_only(site, writes=True):
        return 0
    return of(site).unwritten_bytes()


def _require_written(site: Site, written: int) -> None:
    # Jobs that start beyond the end of a device do nothing and report success (fio 3.33).
    wanted = site.settings.dataset_bytes
    if written < wanted:
        raise MeasurementError(
            f"laying out the data set failed: {format_bytes(written)} of {format_bytes(wanted)} were written"
        )
