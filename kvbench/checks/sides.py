"""What the checks share: the directions of a point and their latencies (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.record.results import Direction, LatencyNs, PointResult


def latencies(point: PointResult) -> Iterator[tuple[Direction, LatencyNs]]:
    for _, side in point.sides():
        if side.latency_ns is not None:
            yield side, side.latency_ns


def one_block_each(point: PointResult) -> bool:
    """Whether the data set holds no more blocks than there are jobs."""
    dataset = point.conditions.dataset_bytes
    return bool(dataset and point.io_bytes) and (dataset or 0) <= point.numjobs * point.io_bytes
