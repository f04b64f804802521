"""fio job files as text, from points and settings (pure).

Sizes are plain byte integers: fio reads ``1MiB`` as 1,000,000 and ``1M`` as 1,048,576 unless told otherwise
(axboe/fio#1618), so a suffix is never written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from kvbench.drivers.fio.pace import Stores
from kvbench.drivers.fio.series import log_options
from kvbench.drivers.settings import Buffers, JobSettings
from kvbench.errors import TierError, UsageError
from kvbench.record.point import Point
from kvbench.units import is_one_line

LAYOUT_JOB = "layout"
LAYOUT_BYTES = 1 << 20

# Incompressible data at rest, and nothing of it left in a cache of the file system.
_WRITTEN: dict[str, object] = {"refill_buffers": 1, "end_fsync": 1}

# The study's own data set: 225 MiB for each job (natoscott/benchmarks storage-offload-eval, fio 3.40 job options).
PUBLISHED_FILE_BYTES = 225 << 20

# The memory of each job. mmapshared is what the engine's region is, shared memory of 4 KiB pages, where malloc would be
# huge pages wherever transparent_hugepage is "always". A file in /dev/shm for all jobs is none of fio's choices: each
# job frees its name again, and fio 3.33 crashes. In requests for each read the choices could not be told apart
# (docs/buffers.md).
_MEMORY: dict[Buffers, dict[str, object]] = {
    "engine": {"mem": "mmapshared"},
    "own": {},
    # With huge pages of malloc's, see ``run_environment``.
    "huge": {"mem": "malloc", "iomem_align": 2 << 20},
}
MEMORY_IN_WORDS: dict[Buffers, str] = {
    "engine": "anonymous shared memory of each job (fio's mem=mmapshared)",
    "own": "fio's own choice (malloc)",
    "huge": "malloc on huge pages (glibc.malloc.hugetlb=1)",
}

# fio 3.33 drops a job whose ``filename`` is longer than 4096 characters; 256 names of ours are 3,000.
MAX_SHARED_FILES = 256

# fio ends a value at '#' or ';' and expands '$' (fio 3.33 and 3.42), so such a path would silently be another.
_UNSAFE_IN_PATH = "#;$\"'\\`"

_JOB_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


def render_points(
    points: Sequence[Point],
    place: Path | str,
    settings: JobSettings,
    *,
    laid_out: bool = False,
    stores: Stores | None = None,
) -> str:
    """The job file that measures ``points`` in a directory or on a device, one fio group each.

    With ``laid_out`` the files are there, and fio must not make one that has gone: it would measure unmarked data. The
    jobs of a mixed point read and write in turn, unless ``stores`` have jobs of their own.
    """
    sections = [text for point in points for text in _sections(point, settings, stores)]
    options = _global_options(place, settings) | ({"allow_file_create": 0} if laid_out else {})
    needed = [f"; run it with {name}={value}\n" for name, value in run_environment(settings).items()]
    return "".join(needed) + "\n".join([section("global", options), *sections])


def render_layout(place: Path | str, settings: JobSettings) -> str:
    """The job file that writes every data file, or the ranges of a device, in full.

    A real write, not ``create_only``: fio's own layout only calls fallocate, and reads of unwritten extents then ran at
    17 GB/s (fio 3.33 on ext4). ``refill_buffers`` makes the data at rest incompressible.
    """
    if settings.layout == "file-per-block":
        return "\n".join(_block_layout(place, settings, size) for size in settings.block_sizes)
    options = {
        **_written(place, settings),
        "bs": LAYOUT_BYTES,
        "size": settings.file_bytes,
        "numjobs": settings.files,
        **_own_range(settings),
        **_WRITTEN,
    }
    return section(LAYOUT_JOB, options)


def run_environment(settings: JobSettings) -> dict[str, str]:
    """Variables that fio needs beside its job file: glibc 2.35 and later asks for huge pages when told to."""
    return {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"} if settings.buffers == "huge" else {}


def layout_jobs(settings: JobSettings) -> list[str]:
    """Names of the jobs of ``render_layout``."""
    if settings.layout == "file-per-block":
        return [f"{LAYOUT_JOB}-{size}" for size in settings.block_sizes]
    return [LAYOUT_JOB]


def data_files(settings: JobSettings) -> dict[str, int]:
    """Names of the data files, as fio's ``filename_format`` makes them, and their bytes."""
    if settings.layout == "file-per-block":
        sizes = settings.block_sizes
        return {
            f"b{size}.{job}.{number}": size
            for size in sizes
            for job in range(settings.files)
            for number in range(settings.blocks_of(size))
        }
    return dict.fromkeys(data_file_names(settings.files), settings.file_bytes)


def data_file_names(files: int) -> list[str]:
    """Names of large data files, as fio's ``filename_format=kvbench.$jobnum`` makes them."""
    return [f"kvbench.{number}" for number in range(files)]


def fio_path(path: Path | str) -> str:
    """``path`` as fio's ``directory`` takes it; TierError where fio's syntax cannot express it."""
    text = str(path)
    if any(character in text for character in _UNSAFE_IN_PATH) or not is_one_line(text) or text != text.strip():
        raise TierError(
            f"fio cannot express the path {text!r} (it holds one of # ; $ ' \" \\ `, a control character or a blank at "
            "its end); bind-mount or link the directory under a plain name."
        )
    return text.replace(":", "\\:")


def _place(place: Path | str, settings: JobSettings) -> dict[str, object]:
    if settings.device is None:
        return {"directory": fio_path(place)}
    # fio makes a regular file in /dev of a name that is not there, and measures memory (fio 3.33).
    return {"filename": fio_path(place), "allow_file_create": 0}


def _own_range(settings: JobSettings) -> dict[str, object]:
    if settings.device is None:
        return {"filename_format": "kvbench.$jobnum"}
    return {"offset_increment": settings.file_bytes}


def _written(place: Path | str, settings: JobSettings) -> dict[str, object]:
    """A real write of incompressible data."""
    return {
        **_place(place, settings),
        "direct": 1,
        "ioengine": "libaio",
        "iodepth": 1,
        "thread": 1,
        "group_reporting": 1,
        "rw": "write",
    }


def _block_layout(place: Path | str, settings: JobSettings, size: int) -> str:
    options = {
        **_written(place, settings),
        "bs": size,
        **_block_files(settings, size),
        "numjobs": settings.files,
        **_WRITTEN,
        "stonewall": None,
    }
    return section(f"{LAYOUT_JOB}-{size}", options)


def _block_files(settings: JobSettings, size: int) -> dict[str, object]:
    """A file for each block, and files of its own for each job.

    A random job never ends a file and so never closes it: the order of files is random, each is read as a whole
    (fio 3.33 under strace: one openat, one read and one close for each block). Jobs that share names wait for each
    other: 8 jobs on the same 64 files had one operation in flight (fio 3.33, with threads and without).
    """
    blocks = settings.blocks_of(size)
    return {
        "filename_format": f"b{size}.$jobnum.$filenum",
        "nrfiles": blocks,
        "filesize": size,
        "size": blocks * size,
        "openfiles": 1,
        "file_service_type": "random",
    }


def _global_options(place: Path | str, settings: JobSettings) -> dict[str, object]:
    options: dict[str, object] = {
        **_place(place, settings),
        "direct": 1,
        "ioengine": "libaio",
        "iodepth": 1,
        "runtime": settings.runtime_s,
        "time_based": 1,
        "group_reporting": 1,
        # Without it fio's JSON has completion latency only, which misses the time inside io_submit: on a FUSE mount
        # that reads 10 us instead of 100 ms (fio 3.33 on ceph-fuse).
        "lat_percentiles": 1,
    }
    if settings.published:
        return options
    return options | {
        # Threads die with fio; forked jobs outlive a SIGKILL of their parent (fio 3.33).
        "thread": 1,
        **_MEMORY[settings.buffers],
        # With fio's fixed seed every point would read the same offsets in the same order: a gift to a server cache.
        "randrepeat": 0,
        "scramble_buffers": 1,
        **log_options(),
    }


def _sections(point: Point, settings: JobSettings, stores: Stores | None) -> list[str]:
    """The section of a point; with ``stores`` one that reads and one that stores, in one group: fio then reports them
    as one job under the first one's name (group_reporting, fio 3.33)."""
    if point.mix != "mixed" or stores is None:
        return [section(point.id, _point_options(point, settings))]
    paced = {"numjobs": stores.jobs, "rate": stores.bytes_per_s_of_each(point.io_bytes)}
    return [
        section(point.id, {"rw": "randread", **_roaming(point, settings, _own_group(point))}),
        section(f"{point.id}-stores", {"rw": "randwrite", **_roaming(point, settings, paced)}),
    ]


def _own_group(point: Point) -> dict[str, object]:
    return {"numjobs": point.numjobs, "stonewall": None}


def _roaming(point: Point, settings: JobSettings, jobs: Mapping[str, object]) -> dict[str, object]:
    """Jobs that roam over all files, so that every number of them covers the whole data set."""
    size = _blocks_per_file(point, settings) * point.io_bytes * settings.files
    shared: dict[str, object] = {"bs": point.io_bytes, "size": size, **jobs}
    if settings.device is not None:
        return shared
    return shared | {"file_service_type": "random", "filename": ":".join(data_file_names(settings.files))}


def _blocks_per_file(point: Point, settings: JobSettings) -> int:
    if settings.file_bytes < point.io_bytes:
        raise UsageError(
            f"the data set gives each file {settings.file_bytes} bytes, less than one block of {point.io_bytes}; "
            f"use --dataset {point.io_bytes * settings.files} or more, or fewer --numjobs."
        )
    return settings.file_bytes // point.io_bytes


def _point_options(point: Point, settings: JobSettings) -> dict[str, object]:
    options: dict[str, object] = {"rw": _rw(point, settings)}
    if point.mix == "mixed":
        options["rwmixread"] = settings.rwmixread
    if settings.layout == "file-per-block":
        files = _block_files(settings, point.io_bytes)
        return options | {"bs": point.io_bytes, **files, "numjobs": point.numjobs, "stonewall": None}
    if not (settings.published or point.numjobs == settings.files):
        return options | _roaming(point, settings, _own_group(point))
    size = _blocks_per_file(point, settings) * point.io_bytes
    return options | {"bs": point.io_bytes, "size": size} | _own_group(point) | _own_range(settings)


def _rw(point: Point, settings: JobSettings) -> str:
    if settings.layout == "file-per-block":
        return "rw" if point.mix == "mixed" else point.mix
    if point.mix == "mixed":
        return "randrw"
    sequential = settings.access == "sequential" or settings.published
    return point.mix if sequential else f"rand{point.mix}"


def section(name: str, options: Mapping[str, object]) -> str:
    """One section of a job file; UsageError for a name or a value that fio would read as something else."""
    if not _JOB_NAME.fullmatch(name) or not all(is_one_line(str(value)) for value in options.values()):
        raise UsageError(f"the job {name!r} cannot be written into a fio job file; name tiers with letters and digits.")
    lines = [key if value is None else f"{key}={value}" for key, value in options.items()]
    return "\n".join([f"[{name}]", *lines, ""])
