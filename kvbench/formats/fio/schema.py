"""fio's JSON as fio spells it: lenient about what is missing, strict about what is no number (the border).

A field that is present and odd (a truth value, a negative count, a number no counter can hold) is refused rather than
turned into a plausible number.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainValidator

from kvbench.border.foreign import Foreign
from kvbench.formats.numbers import number

_LARGEST = 1 << 63


def _number(value: Any) -> Any:
    return number(value, 0, _LARGEST - 1, "no counter of fio's can have this value")


def _error(value: Any) -> Any:
    # fio 3.33 reports -1 as 4294967295, others may keep the sign; both mean "failed, without an errno".
    return value % (1 << 32) if isinstance(value, int) and not isinstance(value, bool) else _number(value)


def _name(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("a name should be text")
    return value


def _percentiles(value: Any) -> Any:
    """A mapping without its items that are not recorded; fio 2.1 ends its list with ``"0.00": 0``."""
    if not isinstance(value, dict):
        return value
    return {key: item for key, item in value.items() if _is_percent(key) and _number(item) is not None}


def _bins(value: Any) -> dict[str, int]:
    """Counts by bin; a bin that is no whole number is refused."""
    if not isinstance(value, dict):
        raise ValueError("something else stands where a histogram should")
    counts = value.values()
    if counts and (set(map(type, counts)) != {int} or min(counts) < 0 or max(counts) >= _LARGEST):
        for count in counts:
            if type(_number(count)) is not int:
                raise ValueError("something else stands where a count should")
    return value


def _is_percent(text: str) -> bool:
    try:
        percent = float(text)
    except ValueError:
        raise ValueError(f"{text[:20]!r} is no percentile") from None
    return 0 < percent <= 100


def _sections(value: Any) -> Any:
    """``global options`` is an object, or a list with one of them for every server (fio 3.39 and later)."""
    return [value] if isinstance(value, dict) else value


Number = Annotated[float | None, BeforeValidator(_number)]
Count = Annotated[int | None, BeforeValidator(_number)]
Name = Annotated[str, BeforeValidator(_name)]
Error = Annotated[int, BeforeValidator(_error)]
Percentiles = Annotated[dict[float, float], BeforeValidator(_percentiles)]
# Bins are the bulk of a file: a validator for each of them took most of the time of an import.
Bins = Annotated[dict[str, int], PlainValidator(_bins)]


class Latency(Foreign):
    """One latency object; without samples it is empty or all zeros, depending on the version."""

    min: Number = None
    max: Number = None
    mean: Number = None
    samples: Count = Field(None, alias="N")
    percentile: Percentiles = Field(default_factory=dict)
    bins: Bins = Field(default_factory=dict)


class Side(Foreign):
    """One direction; keys with ``_ns`` are nanoseconds (fio 3.0 and later), those without are microseconds."""

    io_bytes: Count = None
    total_ios: Count = None
    iops: Number = None
    bw_bytes: Number = None
    bw: Number = None
    runtime: Number = None
    lat_ns: Latency | None = None
    clat_ns: Latency | None = None
    slat_ns: Latency | None = None
    lat: Latency | None = None
    clat: Latency | None = None
    slat: Latency | None = None


class Beside(Foreign):
    """Operations that move no data of the job: ``sync`` (fio 3.2 and later) and ``trim``."""

    total_ios: Count = None
    lat_ns: Latency | None = None
    clat_ns: Latency | None = None


class Entry(Foreign):
    """One entry of ``jobs`` or ``client_stats``."""

    jobname: Name
    groupid: Annotated[int, BeforeValidator(_number)] = 0
    error: Error = 0
    job_runtime: Number = None
    options: dict[str, Any] | None = Field(None, alias="job options")
    iodepth_level: dict[str, Number] = Field(default_factory=dict)
    hostname: str | None = None
    port: int | str | None = None
    read: Side | None = None
    write: Side | None = None
    mixed: Side | None = None
    trim: Beside | None = None
    sync: Beside | None = None


class Disk(Foreign):
    """One device of ``disk_util``; sectors since fio 3.36."""

    name: str = ""
    read_ios: Count = None
    read_merges: Count = None
    read_sectors: Count = None
    write_ios: Count = None
    in_queue: Count = None
    aggr_read_ios: Count = None


class Document(Foreign):
    """One document of fio's; its entries are read one by one (Entry)."""

    version: Name = Field(alias="fio version")
    options: Annotated[list[dict[str, Any]], BeforeValidator(_sections)] = Field([], alias="global options")
    jobs: list[Any] | None = None
    client_stats: list[Any] | None = None
    disk_util: list[Disk] = Field(default_factory=list)
