"""Which requests of a serving run had the server for themselves: only their TTFT is the time of a prefill (pure)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from kvbench.formats.serving.record import ServedRequest, ServingRun

Occupancy = Literal["alone", "shared", "unknown"]

# With fewer requests in flight than this on average (Little's law), hardly one meets another.
_FEW_IN_FLIGHT = 0.1
# A client that sends one request after the other has one in flight, and clocks are not exact; above this some waited.
_ONE_IN_FLIGHT = 1.2
# Two requests that touch for less than this share of the TTFT did not delay each other: clocks are not exact.
_TOUCH = 0.01


def occupancies(run: ServingRun) -> tuple[Occupancy, ...]:
    """Who else each of the run's requests met, or the one average of a run that has no requests."""
    whole = _occupancy(run)
    if whole != "alone" and (timed := _from_times(run.requests)) is not None:
        return timed
    return (whole,) * max(1, len(run.requests))


def _occupancy(run: ServingRun) -> Occupancy:
    """What the client's settings and the averages say of all requests at once."""
    only_one = len(run.requests) == 1 or (not run.requests and run.summary.completed == 1)
    if run.concurrency == 1 or only_one:
        return "alone"
    if run.concurrency is not None or run.request_rate == math.inf or too_many_in_flight(run) is not None:
        return "shared"
    whole = _whole_in_flight(run)
    if whole is not None and whole <= _FEW_IN_FLIGHT:
        return "alone"
    # Arrivals at a rate meet each other; of a client without one nobody knows that it did not wait for each answer.
    return "shared" if whole is not None and run.request_rate is not None else "unknown"


def too_many_in_flight(run: ServingRun) -> float | None:
    """The requests in the server on average, where they are more than one client without another would have there."""
    most = max(_in_flight(run), default=0.0)
    return most if most > _ONE_IN_FLIGHT else None


def _in_flight(run: ServingRun) -> Iterator[float]:
    """Every estimate of the requests in the server on average, lower bounds included."""
    summary = run.summary
    if summary.in_flight is not None:
        yield summary.in_flight
    if (whole := _whole_in_flight(run)) is not None:
        yield whole
    rate, ttft_s = _rate(run), _mean([request.ttft_s for request in run.requests]) or summary.ttft_mean_s
    if rate is not None and ttft_s is not None:
        after_first = max(0.0, (summary.output_tokens_mean or 1.0) - 1) * (summary.per_token_s or 0.0)
        yield rate * (ttft_s + after_first)


def _whole_in_flight(run: ServingRun) -> float | None:
    """Little's law: arrivals per second times seconds in the system."""
    rate = _rate(run)
    e2e_s = run.summary.e2e_mean_s or _mean([request.e2e_s for request in run.requests])
    return None if rate is None or e2e_s is None else rate * e2e_s


def _rate(run: ServingRun) -> float | None:
    """Requests per second: those that were answered or else sent, or what the run's duration makes of their number."""
    summary = run.summary
    if summary.requests_per_s:
        return summary.requests_per_s
    if run.request_rate is not None and math.isfinite(run.request_rate):
        return run.request_rate
    return summary.completed / summary.duration_s if summary.completed and summary.duration_s else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value]
    return float(np.mean(known)) if known else None


def _from_times(requests: Sequence[ServedRequest]) -> tuple[Occupancy, ...] | None:
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
