"""Two snapshots of a ``/metrics`` page, before and after a run: Prometheus' text format.

A counter that is smaller afterwards was reset: the server was started anew in between, so what it counted since then is
all that is known. Gauges of an idle moment say nothing about the run and are left out; what only describes is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kvbench.border import bounded
from kvbench.errors import InputFileError
from kvbench.formats.metrics.record import Metrics, Series, describes, is_counter, plain_name

_Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class _Page:
    """The counters of one page, and the labels of what describes something."""

    counters: Mapping[_Key, float]
    described: tuple[tuple[str, Mapping[str, str]], ...]


@dataclass(frozen=True, slots=True)
class _Line:
    name: str
    labels: dict[str, str]
    value: float
    counted: bool


def between(before: Path, after: Path) -> Metrics:
    """How much every counter grew from one snapshot to the other; InputFileError for what is no such page."""
    first, last = _page(before), _page(after)
    found: dict[str, list[Series]] = {}
    for (name, labels), value in last.counters.items():
        start = first.counters.get((name, labels), 0.0)
        found.setdefault(name, []).append(Series(dict(labels), grew=value - start if value >= start else value))
    for name, described in last.described:
        found.setdefault(name, []).append(Series(described))
    return Metrics({name: tuple(series) for name, series in found.items()})


def _page(path: Path) -> _Page:
    counters: dict[_Key, float] = {}
    described = []
    for line in _lines(path):
        if line.counted and math.isfinite(line.value):
            key = (plain_name(line.name), tuple(sorted(line.labels.items())))
            counters[key] = counters.get(key, 0.0) + line.value
        elif describes(line.name):
            described.append((line.name, line.labels))
    if not counters:
        raise InputFileError(f"{path} holds no counter; save a server's /metrics page with curl.")
    return _Page(counters, tuple(described))


def _lines(path: Path) -> Iterator[_Line]:
    from prometheus_client.parser import text_string_to_metric_families

    try:
        text = bounded.read_bytes(path, regular=True).decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                # Ceph's counters say so by their type alone.
                counted = is_counter(sample.name) or (sample.name == family.name and family.type == "counter")
                yield _Line(sample.name, sample.labels, float(sample.value), counted)
    except OSError as error:
        raise InputFileError(f"{path} cannot be read ({error.strerror or error}).") from None
    # The parser raises whatever its string operations do on a line that it does not expect.
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        reason = str(error).splitlines()[0][:100] if str(error) else type(error).__name__
        raise InputFileError(f"{path} is no page of metrics ({reason}); save a server's /metrics with curl.") from None
