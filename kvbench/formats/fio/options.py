"""fio's own spellings of sizes and times in job options, as bytes and seconds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kvbench.record.results import Access

_SIZE = re.compile(r"(\d+)([kmgtp]?)(i?)(b?)", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_TIME = re.compile(r"(\d+)(us|ms|s|m|h|d|)", re.IGNORECASE)
_SECONDS = {"us": 1e-6, "ms": 1e-3, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


# Engines without a page cache on this host: object stores, raw protocols, and the null engine.
_NO_PAGE_CACHE = frozenset(
    {"http", "null", "rados", "rbd", "nbd", "net", "rdma", "libcufile", "nfs", "io_uring_cmd", "sg"}
)
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


def io_bytes_of(options: Mapping[str, str]) -> int | None:
    """Bytes per operation that the job asked for (fio's default is 4096), or None when it is not one size."""
    text = options.get("bs", options.get("blocksize"))
    if text is None:
        return None
    # bs=4k,4k,4k is one size for reads, writes and trims.
    sizes = {size_bytes(part, kb_base(options)) for part in text.split(",")}
    return sizes.pop() if len(sizes) == 1 else None


def direct_of(options: Mapping[str, str]) -> bool | None:
    """Whether the page cache was bypassed; None for engines that have none. ``buffered`` is the opposite spelling."""
    if options.get("ioengine") in _NO_PAGE_CACHE:
        return None
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
    size = _size_of_job(options)
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
    total, block = dataset_bytes(options, jobs), io_bytes_of(options)
    objects = -(-total // block) if total and block else None
    return any(
        objects is not None
        and operations >= objects
        and all(options.get(name) == other.get(name) for name in _OBJECT_NAME)
        and (number(other, "numjobs", 1) or 1) >= jobs
        and (_size_of_job(other) or 0) >= (_size_of_job(options) or 0)
        for other, operations in writers
    )


def _size_of_job(options: Mapping[str, str]) -> int | None:
    base = kb_base(options)
    if "size" in options:
        return size_bytes(options["size"], base)
    each = size_bytes(options.get("filesize"), base)
    return None if each is None else each * (number(options, "nrfiles", 1) or 1)
