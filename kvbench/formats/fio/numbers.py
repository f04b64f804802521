"""One direction of a fio job in base units, whatever the version, or the reason why its numbers cannot be used (pure).

Units by version (fio's stat.c): ``io_bytes`` is KiB before 2.21 and bytes since; latencies are microseconds under
``clat`` before 3.0 and nanoseconds under ``clat_ns`` since; ``bw`` is always KiB/s, ``bw_bytes`` came with 3.2,
``total_ios`` after 2.1, ``N`` with 3.19.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

from kvbench.formats.fio.schema import Latency, Side
from kvbench.record.histogram import Histogram, nearest_rank
from kvbench.record.results import LatencySource
from kvbench.record.stats import FIO_LAST_BIN_NS

_KIB = 1024
_MS_PER_S = 1000
# fio derives the rates from the same counts and runtime that it prints; 2 % leaves room for integer IOPS of 2.x.
_TOLERANCE = 0.02
_ALMOST = 1 - 1e-6
# fio 2.x and json+: ``bins`` is numbered by bucket and says how (stat.c plat_idx_to_val).
_BUCKET_BITS = "FIO_IO_U_PLAT_BITS"
_DEFAULT_BITS = 6
# Digits of the largest latency in ns that 64 bits hold.
_LONGEST_BIN = 20


@dataclass(frozen=True, slots=True)
class FioLatency:
    """Latency of one direction as fio gave it: ``histogram`` with json+, else only fio's own ``percentiles_ns``.

    ``submission_ns`` is the mean time that completion latency leaves out; None when fio did not say. ``dropped`` holds
    percentiles that the rest contradicts, with the reason.
    """

    source: LatencySource
    samples: int
    mean_ns: float | None
    min_ns: int | None
    max_ns: int | None
    histogram: Histogram | None
    percentiles_ns: dict[float, int]
    submission_ns: float | None = None
    dropped: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True, slots=True)
class FioDirection:
    """What one direction of one job did."""

    ios: int
    bytes: int
    iops: float
    bytes_per_s: float
    runtime_s: float
    latency: FioLatency | None


class Contradiction(Exception):
    """fio's numbers of one direction contradict each other, so none of them can be trusted."""


def version_of(text: str) -> tuple[int, int] | None:
    """``fio-3.40-22-gabc`` as ``(3, 40)``, or None."""
    match = re.search(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def direction(side: Side | None, version: tuple[int, int] | None) -> FioDirection | None:
    """What a direction did, None when it did nothing; Contradiction when its numbers cannot all be true.

    No I/O is zeros before fio 3.19, and an empty latency without percentiles since; both mean "no data".
    """
    if side is None or _is_idle(side):
        return None
    moved = _bytes(side, version)
    runtime_s = _runtime_s(side, moved)
    iops = side.iops if side.iops is not None else (side.total_ios or 0) / runtime_s
    ios = side.total_ios if side.total_ios is not None else _ios(moved, iops, runtime_s)
    bytes_per_s = side.bw_bytes if side.bw_bytes is not None else _from_kib(side.bw, moved, runtime_s)
    found = FioDirection(ios, moved, iops, bytes_per_s, runtime_s, _latency(side, ios))
    _require_agreement(found, side)
    return found


def _is_idle(side: Side) -> bool:
    return not any((side.total_ios, side.io_bytes, side.iops, side.bw_bytes, side.bw))


def _bytes(side: Side, version: tuple[int, int] | None) -> int:
    if side.io_bytes is None:
        raise Contradiction("io_bytes is missing")
    if side.bw_bytes is not None or (version is not None and version >= (2, 99)):
        return side.io_bytes
    # A development version between two releases may count either way: the rate, always KiB/s, tells.
    if side.bw and side.runtime:
        expected = side.bw * _KIB * side.runtime / _MS_PER_S
        return side.io_bytes * _KIB if side.io_bytes < expected / 32 else side.io_bytes
    return side.io_bytes * _KIB if version is not None and version < (2, 21) else side.io_bytes


def _runtime_s(side: Side, moved: int) -> float:
    if side.runtime:
        return side.runtime / _MS_PER_S
    if side.iops and side.total_ios:
        return side.total_ios / side.iops
    if side.bw_bytes:
        return moved / side.bw_bytes
    raise Contradiction("the runtime is 0 or missing, so that there is no rate")


def _ios(moved: int, iops: float, runtime_s: float) -> int:
    """Operations where fio 2.1 does not count them: the roundest block size that its whole-number IOPS allow."""
    low, high = moved / ((iops + 1) * runtime_s), moved / (max(iops, 1e-9) * runtime_s)
    for power in range(30, 8, -1):
        block = int(high * (1 + 1e-3)) >> power << power
        if block and block >= low and moved % block == 0:
            return moved // block
    return round(iops * runtime_s)


def _from_kib(bw: float | None, moved: int, runtime_s: float) -> float:
    return moved / runtime_s if bw is None else bw * _KIB


def _require_agreement(found: FioDirection, side: Side) -> None:
    if found.ios == 0 or found.bytes == 0:
        raise Contradiction(f"{found.ios:,} operations moved {found.bytes:,} bytes")
    expected = found.iops * found.runtime_s
    if abs(expected - found.ios) > found.ios * _TOLERANCE + found.runtime_s + 1:
        raise Contradiction(f"iops x runtime is {expected:,.0f} operations and total_ios {found.ios:,}")
    moved = found.bytes_per_s * found.runtime_s
    if abs(moved - found.bytes) > found.bytes * _TOLERANCE + _KIB * (found.runtime_s + 1):
        raise Contradiction(f"bandwidth x runtime is {moved:,.0f} bytes and io_bytes {found.bytes:,}")
    if side.bw is not None and abs(side.bw * _KIB - found.bytes_per_s) > found.bytes_per_s * _TOLERANCE + 2 * _KIB:
        raise Contradiction(f"bw is {side.bw:,.0f} KiB/s and bw_bytes {found.bytes_per_s:,.0f} bytes/s")


def _latency(side: Side, ios: int) -> FioLatency | None:
    # fio gives lat a mean but no percentiles unless lat_percentiles=1; percentiles are what decides.
    lat, clat = side.lat_ns or side.lat, side.clat_ns or side.clat
    nanoseconds = any((side.lat_ns, side.clat_ns))
    candidates: tuple[tuple[LatencySource, Latency | None], ...] = (("lat", lat), ("clat", clat))
    for source, values in candidates:
        if values is None or not (values.percentile or values.bins):
            continue
        if values.samples == 0 or not any([*values.percentile.values(), *values.bins.values()]):
            continue
        left_out = _submission(side, lat, clat) if source == "clat" else 0.0
        return _checked(_scaled(source, values, ios, 1 if nanoseconds else 1000, left_out))
    return None


def _submission(side: Side, lat: Latency | None, clat: Latency | None) -> float | None:
    """Mean time between issuing and completion latency's start, in the file's own unit; 0 for synchronous engines."""
    if lat is not None and clat is not None and lat.mean and clat.mean:
        return max(0.0, lat.mean - clat.mean)
    slat = side.slat_ns or side.slat
    # Of slat alone only "no sample" is believed: with disable_lat=1 its mean is hours (fio 3.33).
    return 0.0 if slat is not None and slat.samples == 0 else None


def _scaled(source: LatencySource, values: Latency, ios: int, factor: int, submission: float | None) -> FioLatency:
    bins = _bins(values.bins)
    histogram = Histogram.from_counts(bins if factor == 1 else {key * factor: n for key, n in bins.items()})
    # Before 3.19 there is no N: the bins count, else every operation is taken to have one.
    samples = values.samples if values.samples is not None else histogram.samples or ios
    return FioLatency(
        source=source,
        samples=samples,
        mean_ns=None if values.mean is None else values.mean * factor,
        min_ns=None if values.min is None else round(values.min * factor),
        max_ns=None if values.max is None else round(values.max * factor),
        histogram=histogram if histogram.bins else None,
        percentiles_ns={percent: round(value * factor) for percent, value in sorted(values.percentile.items())},
        submission_ns=None if submission is None else submission * factor,
    )


def _bins(bins: dict[str, int]) -> dict[int, int]:
    """Counts by latency; old json+ numbers its buckets instead of naming their latency."""
    if _are_latencies(bins):
        return {int(key): count for key, count in bins.items()}
    counts = {key: count for key, count in bins.items() if not key.startswith("FIO_")}
    if counts and not _are_latencies(counts):
        raise Contradiction("a histogram bin has a name that is no latency")
    if _BUCKET_BITS not in bins:
        return {int(key): count for key, count in counts.items()}
    bits = bins[_BUCKET_BITS]
    if not 1 <= bits <= 16:
        raise Contradiction(f"{_BUCKET_BITS} is {bits}")
    return {_bucket_value(int(key), bits): count for key, count in counts.items() if count}


def _are_latencies(names: Collection[str]) -> bool:
    joined = "".join(names)
    return joined.isascii() and joined.isdecimal() and "" not in names and max(map(len, names)) <= _LONGEST_BIN


def _bucket_value(index: int, bits: int = _DEFAULT_BITS) -> int:
    """The middle of a bucket of fio's histogram (stat.c plat_idx_to_val)."""
    size = 1 << bits
    if index < 2 * size:
        return index
    error_bits = (index >> bits) - 1
    if error_bits > 58:
        raise Contradiction(f"the histogram has a bin number {index}")
    return (1 << (error_bits + bits)) + ((2 * (index % size) + 1) << error_bits >> 1)


def _checked(latency: FioLatency) -> FioLatency:
    """The latency without a percentile that alone contradicts the rest; Contradiction when more than that does."""
    low, mean, high = latency.min_ns, latency.mean_ns, latency.max_ns
    if mean is not None and (
        (low is not None and mean < low * _ALMOST) or (high is not None and mean * _ALMOST > high)
    ):
        smallest, largest = ("unknown" if bound is None else f"{bound:,}" for bound in (low, high))
        raise Contradiction(
            f"the mean latency of {mean:,.0f} ns lies outside the smallest and the largest ({smallest} to {largest} ns)"
        )
    if latency.histogram is not None and latency.histogram.samples != latency.samples:
        counted = latency.histogram.samples
        raise Contradiction(f"the histogram holds {counted:,} operations and fio counted {latency.samples:,}")
    wrong = {
        percent: why for percent, value in latency.percentiles_ns.items() if (why := _wrong(latency, percent, value))
    }
    wrong = wrong or _not_rising(latency.percentiles_ns)
    if len(wrong) > 1:
        raise Contradiction("; ".join(list(wrong.values())[:2]))
    kept = {percent: value for percent, value in latency.percentiles_ns.items() if percent not in wrong}
    return replace(latency, percentiles_ns=kept, dropped=tuple(wrong.items()))


def _wrong(latency: FioLatency, percent: float, value: int) -> str | None:
    """Why one percentile cannot be true, or None."""
    # A percentile is the middle of a bin, up to 0.8 % off (axboe/fio#1984); the last bin holds everything slower.
    above = latency.max_ns is not None and value > latency.max_ns * (1 + _TOLERANCE) + 1000
    below = latency.min_ns is not None and value < latency.min_ns * (1 - _TOLERANCE) - 1000
    if above or (below and value < FIO_LAST_BIN_NS * (1 - _TOLERANCE)):
        limits = f"{_shown(latency.min_ns)} to {_shown(latency.max_ns)}"
        return f"p{percent:g} of {value:,} ns lies outside the smallest and the largest latency ({limits})"
    if latency.histogram is None:
        return None
    counted = _counted(latency.histogram, percent)
    if any(abs(one - value) <= value * _TOLERANCE + 1000 for one in counted):
        return None
    return f"p{percent:g} of {value:,} ns is not that of the histogram, {counted[0]:,} ns"


def _counted(histogram: Histogram, percent: float) -> list[int]:
    """The percentile as the histogram has it, and as fio's floating point may: 99.9 % of 2,000 is above 1,998 there."""
    rank = nearest_rank(histogram.samples, percent)
    exact = Fraction(str(percent)) * histogram.samples / 100 == rank
    return [histogram.at_rank(one) for one in ((rank, min(rank + 1, histogram.samples)) if exact else (rank,))]


def _not_rising(known: dict[float, int]) -> dict[float, str]:
    """The percentiles without any one of which the others would rise, or what falls when no one alone is to blame."""
    values = list(known.items())
    falls = [(before, after) for before, after in pairwise(values) if after[1] < before[1]]
    if not falls:
        return {}
    why = {percent: f"p{percent:g} of {value:,} ns does not rise with the others" for percent, value in values}
    alone = [at for at in range(len(values)) if _rises([value for _, value in values[:at] + values[at + 1 :]])]
    # Of two neighbours in the wrong order either may be the wrong one.
    blamed = [values[at][0] for at in alone] or [percent for percent, _ in falls[0]]
    return {percent: why[percent] for percent in blamed}


def _rises(values: list[int]) -> bool:
    return values == sorted(values)


def _shown(latency_ns: int | None) -> str:
    return "?" if latency_ns is None else f"{latency_ns:,} ns"
