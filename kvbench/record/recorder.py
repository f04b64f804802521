"""What a driver of our own records: latencies in fio's bins and one-second rates, a recorder for each thread."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvbench.record.histogram import Histogram, bin_of
from kvbench.record.latency import latency_of
from kvbench.record.results import WAYS, Direction, Way

_SECOND_NS = 10**9


@dataclass(slots=True)
class _Side:
    """One direction of one thread."""

    ios: int = 0
    bytes: int = 0
    total_ns: int = 0
    min_ns: int = 0
    max_ns: int = 0
    # By second: operations, bytes and total latency; and operations by bin.
    seconds: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0, 0]))
    bins: defaultdict[int, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))


class Recorder:
    """The operations of one thread; only that thread adds to it."""

    def __init__(self) -> None:
        """Start without any operation."""
        self.sides: dict[Way, _Side] = {"read": _Side(), "write": _Side()}
        self.failures: list[str] = []

    def add(self, way: Way, latency_ns: int, ended_ns: int, size: int) -> None:
        """Count one operation of ``size`` bytes that ended ``ended_ns`` after the start of the round."""
        side = self.sides[way]
        side.min_ns = latency_ns if side.ios == 0 else min(side.min_ns, latency_ns)
        side.max_ns = max(side.max_ns, latency_ns)
        side.ios += 1
        side.bytes += size
        side.total_ns += latency_ns
        number = ended_ns // _SECOND_NS + 1
        side.bins[number][bin_of(latency_ns)] += 1
        second = side.seconds[number]
        second[0] += 1
        second[1] += size
        second[2] += latency_ns


def total_bytes(recorders: Iterable[Recorder]) -> int:
    """Bytes moved so far by all threads, for a progress display; may be read while they run."""
    return sum(side.bytes for recorder in recorders for side in recorder.sides.values())


def histograms_of(recorders: Sequence[Recorder]) -> dict[str, Histogram]:
    """Latencies by direction over all threads; a direction without operations is left out."""
    found: dict[str, Histogram] = {}
    for way in WAYS:
        counts: Counter[int] = Counter()
        for recorder in recorders:
            for bins in recorder.sides[way].bins.values():
                counts.update(bins)
        if counts:
            found[way] = Histogram.from_counts(counts)
    return found


def direction_of(recorders: Sequence[Recorder], way: Way, seconds: float) -> Direction | None:
    """One direction over all threads, rates over ``seconds``; None when it did nothing."""
    sides = [recorder.sides[way] for recorder in recorders if recorder.sides[way].ios]
    ios, moved = sum(side.ios for side in sides), sum(side.bytes for side in sides)
    if not ios:
        return None
    return Direction(
        ios=ios,
        bytes=moved,
        iops=ios / seconds,
        bytes_per_s=moved / seconds,
        latency_ns=latency_of(
            [histograms_of(recorders)[way]],
            mean_ns=sum(side.total_ns for side in sides) / ios,
            min_ns=min(side.min_ns for side in sides),
            max_ns=max(side.max_ns for side in sides),
        ),
    )


def _bins_of(recorders: Sequence[Recorder], way: Way, second: int) -> dict[str, int]:
    counts: Counter[int] = Counter()
    for recorder in recorders:
        counts.update(recorder.sides[way].bins.get(second, {}))
    return {str(latency_ns): count for latency_ns, count in sorted(counts.items())}


def series_of(
    recorders: Sequence[Recorder], seconds: float, host: Mapping[int, Mapping[str, float]]
) -> list[dict[str, Any]]:
    """The whole seconds of a round, in the form that fio's series has; one in which nothing ended shows zeros.

    ``bins`` beside the mean are the second's latencies, which fio does not log.
    """
    found = []
    for second in range(1, int(seconds) + 1):
        entry: dict[str, Any] = {"second": second}
        for way in WAYS:
            if not any(recorder.sides[way].ios for recorder in recorders):
                continue
            parts = [recorder.sides[way].seconds.get(second, [0, 0, 0]) for recorder in recorders]
            ios, moved, total_ns = (sum(column) for column in zip(*parts, strict=True))
            entry[way] = {"bytes_per_s": moved, "iops": ios}
            if ios:
                entry[way]["mean_latency_ns"] = round(total_ns / ios)
                entry[way]["bins"] = _bins_of(recorders, way, second)
        found.append({**entry, "host": dict(host.get(second, {}))})
    return found
