"""The neutral record of metrics during one run: how much each counter grew, and what each gauge showed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# Of a histogram only its sum and count grow as counters do; its buckets are too many to keep.
_COUNTED = ("_total", "_sum", "_count")
# Ceph's counters have no suffix: DF_POOL in the mgr's prometheus module, and the OSDs' operations of clients.
_CEPH_COUNTED = re.compile(r"ceph_(pool_(rd|wr)(_bytes)?|osd_op(_r|_w|_rw)?(_in_bytes|_out_bytes)?)")
_DESCRIBING = ("_info", "_metadata")


@dataclass(frozen=True, slots=True)
class Window:
    """The time of a run, in seconds of Unix time."""

    start_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class Series:
    """One series: how much its counter ``grew``, or the ``mean`` and ``highest`` of its gauge; None for the other.

    A series that only describes something (``..._info``) has its labels alone.
    """

    labels: Mapping[str, str]
    grew: float | None = None
    mean: float | None = None
    highest: float | None = None


@dataclass(frozen=True, slots=True)
class Metrics:
    """The series of one run by the name of their metric, without Prometheus' ``_total``.

    ``watched_s`` is the time that gauges and counters were read over, None where the source does not say it.
    """

    series: Mapping[str, tuple[Series, ...]]
    watched_s: float | None = None

    def grew(self, *names: str, **labels: str) -> float | None:
        """The growth over all series of the first name that has any, None when none has."""
        for name in names:
            found = [one.grew for one in self._of(name, labels) if one.grew is not None]
            if found:
                return sum(found)
        return None

    def grew_by(self, name: str, label: str) -> dict[str, float]:
        """The growth of a counter by the values of one of its labels."""
        found: dict[str, float] = {}
        for one in self.series.get(name, ()):
            if one.grew is not None and label in one.labels:
                found[one.labels[label]] = found.get(one.labels[label], 0.0) + one.grew
        return found

    def described(self, name: str) -> list[Mapping[str, str]]:
        """The labels of every series of a metric."""
        return [one.labels for one in self.series.get(name, ())]

    def mean(self, *names: str) -> float | None:
        """The mean over the series of the first name that has any: each engine or GPU counts alike."""
        for name in names:
            found = [one.mean for one in self._of(name, {}) if one.mean is not None]
            if found:
                return sum(found) / len(found)
        return None

    def highest(self, *names: str) -> float | None:
        """The highest value of any series of the first name that has any."""
        for name in names:
            found = [one.highest for one in self._of(name, {}) if one.highest is not None]
            if found:
                return max(found)
        return None

    def _of(self, name: str, labels: Mapping[str, str]) -> Iterable[Series]:
        return (one for one in self.series.get(name, ()) if labels.items() <= one.labels.items())


def joined(parts: Iterable[Metrics]) -> Metrics:
    """Several records of one run as one; a name that two of them have is taken from the first."""
    found: dict[str, tuple[Series, ...]] = {}
    for part in parts:
        for name, series in part.series.items():
            found.setdefault(name, series)
    return Metrics(found)


def plain_name(name: str) -> str:
    """The name of a metric as every source of it is compared: a counter's ``_total`` is left out."""
    return name.removesuffix("_total")


def is_counter(name: str) -> bool:
    """Whether a metric of this name grows, as far as names tell."""
    return name.endswith(_COUNTED) or _CEPH_COUNTED.fullmatch(name) is not None


def describes(name: str) -> bool:
    """Whether all that a metric of this name says is in its labels."""
    return name.endswith(_DESCRIBING)
