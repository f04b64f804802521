"""Several entries of one fio job (processes, servers) as one (pure): counts added, histograms merged exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvbench.formats.fio.read import FioDirection, FioJob, FioLatency
from kvbench.record.histogram import merge


def merged(entries: Sequence[FioJob], total: FioJob | None = None) -> FioJob:
    """The entries as one job; ``total`` is fio's own sum over servers, used for percentiles where bins are missing."""
    if len(entries) == 1:
        return entries[0]
    return replace(
        entries[0],
        error=next((entry.error for entry in entries if entry.error), 0),
        problem=next((entry.problem for entry in entries if entry.problem), None),
        runtime_s=max(entry.runtime_s for entry in entries),
        job_runtime_s=_sum([entry.job_runtime_s for entry in entries]),
        read=_direction([entry.read for entry in entries], total.read if total else None),
        write=_direction([entry.write for entry in entries], total.write if total else None),
    )


def _direction(sides: Sequence[FioDirection | None], total: FioDirection | None) -> FioDirection | None:
    present = [side for side in sides if side is not None]
    if not present:
        return None
    return FioDirection(
        ios=sum(side.ios for side in present),
        bytes=sum(side.bytes for side in present),
        iops=sum(side.iops for side in present),
        bytes_per_s=sum(side.bytes_per_s for side in present),
        runtime_s=max(side.runtime_s for side in present),
        latency=_latency([side.latency for side in present], total.latency if total else None),
    )


def _latency(parts: Sequence[FioLatency | None], total: FioLatency | None) -> FioLatency | None:
    present = [part for part in parts if part is not None]
    if not present or len(present) != len(parts):
        return None
    histograms = [part.histogram for part in present if part.histogram is not None]
    complete = len(histograms) == len(present)
    # Percentiles of several processes cannot be averaged: without every histogram there is no merged percentile, unless
    # fio merged them itself ("All clients" since 3.39).
    return FioLatency(
        source=present[0].source,
        samples=sum(part.samples for part in present),
        mean_ns=_mean([(part.mean_ns, part.samples) for part in present]),
        min_ns=min((part.min_ns for part in present if part.min_ns is not None), default=None),
        max_ns=max((part.max_ns for part in present if part.max_ns is not None), default=None),
        histogram=merge(histograms) if complete else None,
        percentiles_ns=total.percentiles_ns if total is not None and not complete else {},
        submission_ns=_mean([(part.submission_ns, part.samples) for part in present]),
    )


def _mean(parts: Sequence[tuple[float | None, int]]) -> float | None:
    known = [(mean, samples) for mean, samples in parts if mean is not None]
    total = sum(samples for _, samples in known)
    return sum(mean * samples for mean, samples in known) / total if total and len(known) == len(parts) else None


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
