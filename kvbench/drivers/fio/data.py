"""The data that fio measures: files below the work space, or a range of a block device; laid out, cached, dropped."""

from __future__ import annotations

from pathlib import Path

from kvbench.drivers import Site
from kvbench.drivers.fio import job as fio_job
from kvbench.errors import MeasurementError
from kvbench.formats.fio.read import FioJob
from kvbench.tiers import device_tier
from kvbench.tiers.device_tier import DeviceTier
from kvbench.tiers.extents import unwritten_bytes
from kvbench.tiers.pagecache import cached_fraction, drop_cached
from kvbench.units import format_bytes

# fio never lays out as many large files.
_MOST_ASKED = 256


def place_of(site: Site) -> Path:
    """What the job files name: the work space, or the device itself."""
    return site.tier.path if isinstance(site.tier, DeviceTier) else site.space.path


def is_read_only(site: Site, *, writes: bool) -> bool:
    """Whether fio must refuse to write: on a device, always but for jobs that write where the user allowed it."""
    if not isinstance(site.tier, DeviceTier):
        return False
    return not (writes and site.tier.writable and site.settings.device == "write")


def require_complete(site: Site, job: FioJob | None) -> None:
    """MeasurementError unless the whole data set was written."""
    # fio can report success after a short write phase (FUSE, axboe/fio#253): trust the files, not the report.
    if isinstance(site.tier, DeviceTier):
        _require_written(site, 0 if job is None or job.write is None else job.write.bytes)
        return
    for name, wanted in fio_job.data_files(site.settings).items():
        path = site.space.path / name
        size = path.stat().st_size if path.exists() else 0
        if size < wanted:
            raise MeasurementError(
                f"laying out the data set failed: {path.name} has {format_bytes(size)} of {format_bytes(wanted)}"
            )


def unwritten(site: Site) -> int | None:
    """Bytes of the data set that were never written, as far as can be seen, or None."""
    if isinstance(site.tier, DeviceTier):
        if not is_read_only(site, writes=True):
            return 0
        return device_tier.unwritten_estimate(site.tier, site.settings.dataset_bytes)
    return unwritten_bytes(_files(site))


def drop(site: Site) -> str:
    """Drop the data's pages from the page cache and say how it went."""
    if isinstance(site.tier, DeviceTier):
        return device_tier.drop_cached(site.tier, site.settings.dataset_bytes)
    return drop_cached(_sample(site))


def cached(site: Site) -> float | None:
    """Share of the data in the page cache, or None."""
    if isinstance(site.tier, DeviceTier):
        return device_tier.cached_fraction(site.tier, site.settings.dataset_bytes)
    return cached_fraction(_sample(site))


def _files(site: Site) -> list[Path]:
    return [site.space.path / name for name in fio_job.data_files(site.settings)]


def _sample(site: Site) -> list[Path]:
    """All data files, or an even sample: of thousands of block files, asking each would take longer than a round."""
    files = _files(site)
    return files[:: max(1, len(files) // _MOST_ASKED)]


def _require_written(site: Site, written: int) -> None:
    # Jobs that start beyond the end of a device do nothing and report success (fio 3.33).
    wanted = site.settings.dataset_bytes
    if written < wanted:
        raise MeasurementError(
            f"laying out the data set failed: {format_bytes(written)} of {format_bytes(wanted)} were written"
        )
