"""A range export of Prometheus (``/api/v1/query_range``), and what AIPerf keeps of the server's metrics.

Source: prometheus.io/docs/prometheus/latest/querying/api, "matrix" results: ``values`` are pairs of seconds and a text.
AIPerf 0.13: ``metrics{NAME: {type, series: [{labels, stats}]}}``, a counter's ``stats.total`` is its growth in the
measured phase and a gauge has ``avg`` and ``max``.

An export usually covers more than one run. Where the time of the run is known, counters are taken at its ends by linear
interpolation between two samples, and gauges inside of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from kvbench.border import bounded
from kvbench.errors import InputFileError
from kvbench.formats.metrics.record import Metrics, Series, Window, describes, is_counter, plain_name

_Sample = tuple[float, float]
# An hour is scraped every minute at least; and of a long run a twentieth changes nothing.
_SPARE_S, _SPARE_SHARE = 60.0, 0.05
# The end of the year 9999: what lies beyond is no time of day.
_LAST_S = 253402300799.0


@dataclass(frozen=True, slots=True)
class _Sampled:
    name: str
    labels: dict[str, str]
    samples: list[_Sample]


def read(path: Path, window: Window | None = None) -> Metrics:
    """The metrics of a JSON export during a run; InputFileError for a file that is none, or is of another time."""
    try:
        document = bounded.json_of(bounded.read_bytes(path, regular=True))
    except (OSError, ValueError) as error:
        raise InputFileError(f"{path} cannot be read ({error}); export the metrics again.") from None
    sampled = list(_matrix(document))
    series = [*_series(sampled, window), *_aiperf(document)]
    if not sampled and not series:
        raise InputFileError(f"{path} holds no series; export /api/v1/query_range of Prometheus as JSON.")
    if not series:
        when = "" if window is None else f" ({_words(window)})"
        raise InputFileError(f"{path} holds nothing of the time of its run{when}; export that time.")
    found: dict[str, list[Series]] = {}
    for name, one in series:
        found.setdefault(plain_name(name), []).append(one)
    covered = _covered(sampled)
    if window is not None and covered is not None:
        _require_all_of(window, covered, path)
    watched = None if covered is None else (window or covered).seconds
    return Metrics({name: tuple(items) for name, items in found.items()}, watched)


def _covered(sampled: Sequence[_Sampled]) -> Window | None:
    times = [at for one in sampled for at, _ in one.samples]
    return Window(min(times), max(times)) if times else None


def _require_all_of(window: Window, covered: Window, path: Path) -> None:
    """InputFileError where the export begins after the run did, or ends before it, by more than a few samples."""
    spare = max(_SPARE_S, _SPARE_SHARE * window.seconds)
    if covered.start_s > window.start_s + spare or covered.end_s < window.end_s - spare:
        raise InputFileError(
            f"{path} covers {_words(covered)} and not all of its run ({_words(window)}); export all of that time."
        )


def _words(window: Window) -> str:
    start, end = (
        datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for at in (window.start_s, window.end_s)
    )
    return f"{start} to {end}"


def _matrix(document: Any) -> Iterator[_Sampled]:
    data = document.get("data") if isinstance(document, dict) else None
    for one in _list(data.get("result")) if isinstance(data, dict) else []:
        if not isinstance(one, dict) or not isinstance(one.get("metric"), dict):
            continue
        labels = {str(key): str(value) for key, value in one["metric"].items()}
        name = labels.pop("__name__", "")
        samples = [sample for pair in _list(one.get("values")) if (sample := _sample(pair)) is not None]
        if name and samples:
            yield _Sampled(name, labels, samples)


def _series(sampled: Iterable[_Sampled], window: Window | None) -> Iterator[tuple[str, Series]]:
    for one in sampled:
        counted = is_counter(one.name)
        kept = one.samples if window is None else _cut(one.samples, window, counted=counted)
        if kept:
            values = [value for _, value in kept]
            shown = Series(one.labels) if describes(one.name) else None
            yield one.name, shown or (_counter if counted else _gauge)(one.labels, values)


def _cut(samples: Sequence[_Sample], window: Window, *, counted: bool) -> list[_Sample]:
    inside = [(at, value) for at, value in samples if window.start_s <= at <= window.end_s]
    return [*_at(samples, window.start_s), *inside, *_at(samples, window.end_s)] if counted else inside


def _at(samples: Sequence[_Sample], when_s: float) -> list[_Sample]:
    """What a counter had reached between two samples; nothing outside of them, and nothing over a reset."""
    for (early_s, early), (late_s, late) in pairwise(samples):
        if early_s < when_s < late_s and early <= late:
            return [(when_s, early + (late - early) * (when_s - early_s) / (late_s - early_s))]
    return []


def _aiperf(document: Any) -> Iterator[tuple[str, Series]]:
    metrics = document.get("metrics") if isinstance(document, dict) else None
    for name, metric in metrics.items() if isinstance(metrics, dict) else ():
        for one in _list(metric.get("series")) if isinstance(metric, dict) else []:
            stats = one.get("stats") if isinstance(one, dict) else None
            if not isinstance(stats, dict):
                continue
            given = one.get("labels")
            labels = {str(key): str(value) for key, value in given.items()} if isinstance(given, dict) else {}
            total, mean, highest = _count(stats.get("total")), _number(stats.get("avg")), _number(stats.get("max"))
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


def _sample(pair: Any) -> _Sample | None:
    at, value = (_number(one) for one in pair) if isinstance(pair, list) and len(pair) == 2 else (None, None)
    return None if at is None or value is None or not 0 <= at <= _LAST_S else (at, value)


def _count(value: Any) -> float | None:
    """A growth as AIPerf writes one: a number that is not negative, and no text."""
    number = _number(value) if isinstance(value, int | float) else None
    return number if number is not None and number >= 0 else None


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and not isinstance(value, bool) else None
