"""Two snapshots of a ``/metrics`` page, before and after a run: Prometheus' text format.

A counter that is smaller afterwards was reset: the server was started anew in between, so what it counted since then is
all that is known. Gauges of an idle moment say nothing about the run and are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from kvbench.border import bounded
from kvbench.errors import InputFileError
from kvbench.formats.metrics.record import Metrics, Series, plain_name

_Key = tuple[str, tuple[tuple[str, str], ...]]
# Of a histogram only its sum and count grow as counters do; its buckets are too many to keep.
_COUNTED = ("_total", "_sum", "_count")


def between(before: Path, after: Path) -> Metrics:
    """How much every counter grew from one snapshot to the other; InputFileError for what is no such page."""
    first, last = _counters(before), _counters(after)
    found: dict[str, list[Series]] = {}
    for (name, labels), value in last.items():
        start = first.get((name, labels), 0.0)
        found.setdefault(name, []).append(Series(dict(labels), grew=value - start if value >= start else value))
    return Metrics({name: tuple(series) for name, series in found.items()})


def _counters(path: Path) -> dict[_Key, float]:
    found: dict[_Key, float] = {}
    for name, labels, value in _samples(path):
        if name.endswith(_COUNTED) and math.isfinite(value):
            key = (plain_name(name), tuple(sorted(labels.items())))
            found[key] = found.get(key, 0.0) + value
    if not found:
        raise InputFileError(f"{path} holds no counter; save a server's /metrics page with curl.")
    return found


def _samples(path: Path) -> Iterator[tuple[str, dict[str, str], float]]:
    from prometheus_client.parser import text_string_to_metric_families

    try:
        text = bounded.read_bytes(path, regular=True).decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                yield sample.name, sample.labels, float(sample.value)
    except OSError as error:
        raise InputFileError(f"{path} cannot be read ({error.strerror or error}).") from None
    # The parser raises whatever its string operations do on a line that it does not expect.
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        reason = str(error).splitlines()[0][:100] if str(error) else type(error).__name__
        raise InputFileError(f"{path} is no page of metrics ({reason}); save a server's /metrics with curl.") from None
