"""fio's own spellings of sizes and times in job options, as bytes and seconds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kvbench.record.results import Access

_SIZE = re.compile(r"(\d+)([kmgtp]?)(i?)(b?)", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_TIME = re.compile(r"(\d+)(us|ms|s|m|h|d|)", re.IGNORECASE)
_SECONDS = {"us": 1e-6, "ms": 1e-3, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


# Engines that go through the kernel's files, whose page cache direct=1 bypasses (fio 3.42, engines/). Every other one
# has none on this host, or cannot be known: object stores and remote file systems in user space (rados, rbd, http, nfs,
# gfapi, dfs, ime_*, libhdfs, libiscsi, nbd), raw commands and user-space drivers (sg, io_uring_cmd, libzbc, libblkio,
# xnvme, spdk), memory and GPUs (dev-dax, libpmem, pmemblk, rdma, libcufile), null, and plug-ins (external:).
_PAGE_CACHE = frozenset(
    {
        "sync", "psync", "vsync", "pvsync", "pvsync2", "libaio", "io_uring", "posixaio", "mmap", "splice",
        "solarisaio", "windowsaio", "guasi", "syslet-rw", "e4defrag", "falloc", "ftruncate",
    }
)  # fmt: skip
# Memory mappings are the page cache, whatever ``direct`` says (engines/mmap.c).
MAPPED = "mmap"
_DEFAULT_BYTES = "4096"
# Which of ``bs=read,write,trim`` a direction takes.
_PLACE = {"read": 0, "write": 1}
# Options that keep operations from following each other at once.
_PACING = ("rate", "rate_iops", "rate_min", "rate_iops_min", "thinktime", "latency_target", "flow")
# What the name of an object of the http engine is made of, besides its offset.
_OBJECT_NAME = ("filename", "filename_format", "bs", "blocksize", "http_mode")


def size_bytes(text: str | None, kb_base: int = 1024) -> int | None:
    """Bytes of a fio size option such as ``2304k``, or None when it is absent or not one plain size.

    fio's default kb_base=1024 reads ``1M``, ``1MB`` and ``1Mi`` as 2^20 but ``1MiB`` as 10^6, and kb_base=1000 the
    other way round (axboe/fio#1618, seen with fio 3.33).
    """
    match = _SIZE.fullmatch(text.strip()) if text else None
    if match is None:
        return None
    number, letter, i, b = match.groups()
    inverted = bool(i and b)
    base = kb_base if not inverted else (1000 if kb_base == 1024 else 1024)
    return int(number) * int(base ** _POWER[letter.lower()])


def duration_s(text: str | None) -> float | None:
    """Seconds of a fio time option such as ``60``, ``1m`` or ``500ms``, or None when it is absent or something else."""
    match = _TIME.fullmatch(text.strip()) if text else None
    return int(match.group(1)) * _SECONDS[match.group(2).lower()] if match else None


def is_set(options: Mapping[str, str], name: str) -> bool:
    """Whether a boolean option is on: fio writes it as an empty value or ``1``."""
    return name in options and options[name].strip().lower() not in ("0", "false", "no")


def number(options: Mapping[str, str], name: str, default: int) -> int | None:
    """A whole-number option, ``default`` when it is absent, None when it is something else."""
    text = options.get(name, str(default))
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def kb_base(options: Mapping[str, str]) -> int:
    """What a ``k`` is in the job's sizes: 1024 unless it says otherwise."""
    return 1000 if options.get("kb_base") in ("1000", "1k") else 1024


def io_bytes_of(options: Mapping[str, str], side: str | None = None) -> int | None:
    """Bytes per operation that the job asked for, of one direction or of all, or None when it is not one size."""
    sizes = {_one_size(options, name) for name in ((side,) if side else ("read", "write"))}
    return sizes.pop() if len(sizes) == 1 else None


def _one_size(options: Mapping[str, str], side: str) -> int | None:
    base = kb_base(options)
    if split := options.get("bssplit"):
        # bssplit=4k/50:8k/50,2m/100 is for reads, then for writes and trims.
        sizes = {size_bytes(part.partition("/")[0], base) for part in _of_side(split, side).split(":")}
    elif between := options.get("bsrange", options.get("blocksize_range")):
        sizes = {size_bytes(part, base) for part in re.split("[-:]", _of_side(between, side))}
    else:
        text = options.get("bs", options.get("blocksize"))
        if text is None:
            return None
        # bs_is_seq_rand makes it the size of sequential and of random operations instead.
        parts = text.split(",") if is_set(options, "bs_is_seq_rand") else [_of_side(text, side)]
        sizes = {size_bytes(part, base) for part in parts}
    return sizes.pop() if len(sizes) == 1 else None


def _of_side(text: str, side: str) -> str:
    """The part of ``read,write,trim`` for one direction: empty is fio's default, one left out repeats the last one."""
    parts = text.split(",")
    return parts[min(_PLACE[side], len(parts) - 1)].strip() or _DEFAULT_BYTES


def block_size_text(options: Mapping[str, str]) -> str | None:
    """How the job spelled its block size, as ``name=value``, or None when it did not."""
    names = ("bssplit", "bsrange", "blocksize_range", "bs", "blocksize")
    return next((f"{name}={options[name]}" for name in names if name in options), None)


def in_flight_at_start(options: Mapping[str, str], jobs: int) -> int:
    """Operations of the ramp that can end in the run: fio 3.33 counts their bytes and latencies, not the operations."""
    has_ramp = bool(duration_s(options.get("ramp_time")))
    return jobs * (number(options, "iodepth", 1) or 1) if has_ramp else 0


def direct_of(options: Mapping[str, str]) -> bool | None:
    """Whether the page cache was bypassed; None for engines that have none. ``buffered`` is the opposite spelling."""
    engine = options.get("ioengine", "psync")
    if engine not in _PAGE_CACHE:
        return None
    if engine == MAPPED:
        return False
    if "buffered" in options:
        return not is_set(options, "buffered")
    return is_set(options, "direct")


def paced_by(options: Mapping[str, str]) -> str | None:
    """The option that made fio go slower than it could, as ``name=value``, or None."""
    for name in _PACING:
        if options.get(name, "0") not in ("", "0"):
            return f"{name}={options[name]}"
    return None


def access_of(options: Mapping[str, str]) -> Access | None:
    """Whether neighbouring blocks were read or written in a row; None when the job does not say."""
    kind = options.get("rw", options.get("readwrite", "")).split(":")[0].lower()
    if kind.startswith("rand"):
        return "random"
    # rw=read over many files in random order is one whole file after the other: random for blocks of one file each.
    over_files = (number(options, "nrfiles", 1) or 1) > 1 or ":" in options.get("filename", "")
    if over_files and not options.get("file_service_type", "roundrobin").startswith(("roundrobin", "sequential")):
        return "random"
    return "sequential" if kind in ("read", "write", "rw", "readwrite") else None


def dataset_bytes(options: Mapping[str, str], jobs: int) -> int | None:
    """Distinct bytes that ``jobs`` jobs touch on one host, or None when the sizes are not plain.

    ``size`` is of each job. Jobs share it under one ``filename`` or a ``filename_format`` without ``$jobnum``, unless
    ``offset_increment`` moves each along (axboe/fio#1693, #2002).
    """
    size = size_of_job(options)
    if size is None:
        return None
    pattern = options.get("filename_format", "$jobname.$jobnum.$filenum")
    if "filename" not in options and "$jobnum" in pattern:
        return size * jobs
    if "offset_increment" not in options:
        return size
    step = size_bytes(options["offset_increment"], kb_base(options))
    return None if step is None else min(size, step) * (jobs - 1) + size if step else size


def reads_were_written(options: Mapping[str, str], writers: Iterable[tuple[Mapping[str, str], int]]) -> bool | None:
    """Whether one of the writers (options, operations) put every object that an S3 job with ``options`` reads.

    None when the job reads no objects. fio's http engine counts a GET that is answered 404 as a full read
    (engines/http.c up to 3.42), so nothing else proves that they exist. Their names hold file name, offset and size.
    """
    if options.get("ioengine") != "http":
        return None
    jobs = number(options, "numjobs", 1) or 1
    total, block = dataset_bytes(options, jobs), io_bytes_of(options, "read")
    objects = -(-total // block) if total and block else None
    return any(
        objects is not None
        and operations >= objects
        and all(options.get(name) == other.get(name) for name in _OBJECT_NAME)
        and (number(other, "numjobs", 1) or 1) >= jobs
        and (size_of_job(other) or 0) >= (size_of_job(options) or 0)
        for other, operations in writers
    )


def size_of_job(options: Mapping[str, str]) -> int | None:
    """Distinct bytes of one job, or None when they are not plain (a share of a device, none at all)."""
    base = kb_base(options)
    if "size" in options:
        return size_bytes(options["size"], base)
    each = size_bytes(options.get("filesize"), base)
    return None if each is None else each * (number(options, "nrfiles", 1) or 1)
