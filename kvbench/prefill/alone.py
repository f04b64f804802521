"""Which requests of a serving run had the server for themselves: only their TTFT is the time of a prefill (pure)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from kvbench.formats.serving.record import ServedRequest, ServingRun

Load = Literal["alone", "shared", "unknown"]

# With fewer requests in flight than this on average (Little's law), hardly one meets another.
_FEW_IN_FLIGHT = 0.1
# Two requests that touch for less than this share of the TTFT did not delay each other: clocks are not exact.
_TOUCH = 0.01


def loads(run: ServingRun) -> tuple[Load, ...]:
    """The load of each of the run's requests, or of the one average of a run that has no requests."""
    whole = _load(run)
    if whole != "alone" and (timed := _from_times(run.requests)) is not None:
        return timed
    return (whole,) * max(1, len(run.requests))


def _load(run: ServingRun) -> Load:
    """What the client's settings and the averages say of all requests at once."""
    only_one = len(run.requests) == 1 or (not run.requests and run.summary.completed == 1)
    if run.concurrency == 1 or only_one:
        return "alone"
    if run.concurrency is not None or run.request_rate == math.inf:
        return "shared"
    in_flight = _mean_in_flight(run)
    if in_flight is not None:
        return "alone" if in_flight <= _FEW_IN_FLIGHT else "shared"
    return "unknown"


def _mean_in_flight(run: ServingRun) -> float | None:
    """Little's law: arrivals per second times seconds in the system."""
    rate, e2e_s = run.summary.requests_per_s or run.request_rate, run.summary.e2e_mean_s
    times = [request.e2e_s for request in run.requests if request.e2e_s]
    if e2e_s is None and times:
        e2e_s = float(np.mean(times))
    return None if rate is None or e2e_s is None else rate * e2e_s


def _from_times(requests: Sequence[ServedRequest]) -> tuple[Load, ...] | None:
    """Whether another request was in the server between a request's start and its first token; None without times."""
    if not requests or any(request.start_s is None or (request.ok and not request.e2e_s) for request in requests):
        return None
    starts = np.array([request.start_s for request in requests], dtype=float)
    ends = starts + np.array([request.e2e_s or request.ttft_s or 0.0 for request in requests])
    waits = np.array([request.ttft_s or request.e2e_s or 0.0 for request in requests])
    order = np.argsort(starts, kind="stable")
    before = np.concatenate([[-np.inf], np.maximum.accumulate(ends[order])[:-1]])
    after = np.concatenate([starts[order][1:], [np.inf]])
    begun, waited = starts[order], waits[order]
    shared = (before > begun + _TOUCH * waited) | (after < begun + (1 - _TOUCH) * waited)
    found = np.empty(len(requests), dtype=bool)
    found[order] = shared
    return tuple("shared" if one else "alone" for one in found)
