"""Which of several documents in one file are the same run of fio's (pure).

With --status-interval fio writes the counts so far again and again (axboe/fio#672): a later document of one run has the
jobs and options of the earlier one and counts that only grow. A file that was appended to holds other runs as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

# ``elapsed`` is in whole seconds, rounded up.
_START_TOLERANCE_S = 3.0
_GROWING = ("io_bytes", "total_ios", "runtime")
_LATENCIES = ("lat_ns", "clat_ns", "lat", "clat")


@dataclass(frozen=True, slots=True)
class Run:
    """The last document of a run, and how many runs of the same jobs stand before it."""

    document: dict[str, Any]
    earlier: int


def runs_of(documents: Sequence[dict[str, Any]]) -> list[Run]:
    """The documents by the jobs that they name, each as the last one and the number of earlier runs of those jobs."""
    groups: list[list[dict[str, Any]]] = []
    for document in documents:
        names = _job_names(document)
        same = next((group for group in groups if _job_names(group[-1]) <= names), None)
        if same is None:
            groups.append([document])
        else:
            same.append(document)
    return [
        Run(group[-1], sum(1 for before, after in pairwise(group) if not _goes_on(before, after))) for group in groups
    ]


def _job_names(document: dict[str, Any]) -> frozenset[str]:
    return frozenset(str(entry.get("jobname")) for entry in _entries(document))


def _entries(document: dict[str, Any]) -> list[dict[str, Any]]:
    entries = document.get("jobs") or document.get("client_stats") or []
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _goes_on(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether ``after`` can be the same run some time later."""
    if before.get("global options") != after.get("global options"):
        return False
    started, again = _started_s(before), _started_s(after)
    if started is not None and again is not None and abs(again - started) > _START_TOLERANCE_S:
        return False
    later = {_identity(entry, index): entry for index, entry in enumerate(_entries(after))}
    pairs = [(entry, later.get(_identity(entry, index))) for index, entry in enumerate(_entries(before))]
    return all(other is not None and _grows(entry, other) for entry, other in pairs)


def _identity(entry: dict[str, Any], index: int) -> tuple[str, ...]:
    # Servers answer in the order of their arrival; entries of one name keep the order of the job file.
    host = entry.get("hostname")
    return (
        str(entry.get("jobname")),
        str(entry.get("groupid")),
        str(index if host is None else (host, entry.get("port"))),
    )


def _grows(before: dict[str, Any], after: dict[str, Any]) -> bool:
    if before.get("job options") != after.get("job options"):
        return False
    return all(_side_grows(side, after.get(name)) for name, side in before.items() if _is_side(name, side))


def _is_side(name: str, side: object) -> bool:
    return name in ("read", "write", "mixed", "trim") and isinstance(side, dict)


def _side_grows(before: dict[str, Any], after: object) -> bool:
    if not isinstance(after, dict):
        return False
    if any(_number(after, key) < _number(before, key) for key in _GROWING):
        return False
    if _number(after, "total_ios") > _number(before, "total_ios"):
        return True
    # Nothing was added: then neither is there any other latency.
    return all(_mean(after, key) == _mean(before, key) for key in _LATENCIES)


def _number(side: dict[str, Any], key: str) -> float:
    value = side.get(key)
    return value if isinstance(value, int | float) else 0.0


def _mean(side: dict[str, Any], key: str) -> object:
    latency = side.get(key)
    return latency.get("mean") if isinstance(latency, dict) else None


def _started_s(document: dict[str, Any]) -> float | None:
    """When the run began by its own clock: the time of the document less the longest time elapsed."""
    at = document.get("timestamp")
    elapsed = list(_elapsed_s(document))
    return at - max(elapsed) if isinstance(at, int | float) and elapsed else None


def _elapsed_s(document: dict[str, Any]) -> Iterator[float]:
    for entry in _entries(document):
        if isinstance(value := entry.get("elapsed"), int | float):
            yield value
