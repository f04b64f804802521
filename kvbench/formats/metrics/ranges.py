"""A range export of Prometheus (``/api/v1/query_range``), and what AIPerf keeps of the server's metrics.

Source: prometheus.io/docs/prometheus/latest/querying/api, "matrix" results: ``values`` are pairs of seconds and a text.
AIPerf 0.13: ``metrics{NAME: {type, series: [{labels, stats}]}}``, a counter's ``stats.total`` is its growth in the
measured phase and a gauge has ``avg`` and ``max``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from kvbench.border import bounded
from kvbench.errors import InputFileError
from kvbench.formats.metrics.record import Metrics, Series, plain_name

_COUNTED = ("_total", "_sum", "_count")


def read(path: Path) -> Metrics:
    """The metrics of a JSON export; InputFileError for a file that is none."""
    try:
        document = bounded.json_of(bounded.read_bytes(path, regular=True))
    except (OSError, ValueError) as error:
        raise InputFileError(f"{path} cannot be read ({error}); export the metrics again.") from None
    series = list(_series_of(document))
    if not series:
        raise InputFileError(f"{path} holds no series; export /api/v1/query_range of Prometheus as JSON.")
    found: dict[str, list[Series]] = {}
    for name, one in series:
        found.setdefault(plain_name(name), []).append(one)
    return Metrics({name: tuple(items) for name, items in found.items()})


def is_export(document: Any) -> bool:
    """Whether a document holds metrics in one of these forms."""
    return next(iter(_series_of(document)), None) is not None


def _series_of(document: Any) -> Iterator[tuple[str, Series]]:
    if not isinstance(document, dict):
        return
    data = document.get("data")
    if isinstance(data, dict) and isinstance(data.get("result"), list):
        yield from _matrix(data["result"])
    if isinstance(document.get("metrics"), dict):
        yield from _aiperf(document["metrics"])


def _matrix(result: Iterable[Any]) -> Iterator[tuple[str, Series]]:
    for one in result:
        if not isinstance(one, dict) or not isinstance(one.get("metric"), dict):
            continue
        labels = {str(key): str(value) for key, value in one["metric"].items()}
        name = labels.pop("__name__", "")
        values = [value for pair in _list(one.get("values")) if (value := _second(pair)) is not None]
        if name and values:
            yield name, _counter(labels, values) if name.endswith(_COUNTED) else _gauge(labels, values)


def _aiperf(metrics: Mapping[str, Any]) -> Iterator[tuple[str, Series]]:
    for name, metric in metrics.items():
        for one in _list(metric.get("series")) if isinstance(metric, dict) else []:
            stats = one.get("stats") if isinstance(one, dict) else None
            if not isinstance(stats, dict):
                continue
            given = one.get("labels")
            labels = {str(key): str(value) for key, value in given.items()} if isinstance(given, dict) else {}
            total, mean, highest = (_number(stats.get(key)) for key in ("total", "avg", "max"))
            if total is not None:
                yield name, Series(labels, grew=total)
            elif mean is not None:
                yield name, Series(labels, mean=mean, highest=highest)


def _counter(labels: dict[str, str], values: list[float]) -> Series:
    """Its growth, over resets of the server too, as Prometheus' own ``increase`` counts them."""
    return Series(labels, grew=sum(late - early if late >= early else late for early, late in pairwise(values)))


def _gauge(labels: dict[str, str], values: list[float]) -> Series:
    return Series(labels, mean=sum(values) / len(values), highest=max(values))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _second(pair: Any) -> float | None:
    return _number(pair[1]) if isinstance(pair, list) and len(pair) == 2 else None


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and not isinstance(value, bool) else None
