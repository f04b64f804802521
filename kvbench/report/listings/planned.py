"""The points that a run would measure (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from kvbench.record.point import Point
from kvbench.report.columns import Column, narrow, words
from kvbench.report.sheet import Sheet
from kvbench.units import format_bytes, format_count

COLUMNS: tuple[Column[Point], ...] = (
    words("point", "point", lambda point: point.id, falls=1),
    words("tier", "tier", lambda point: point.tier),
    words("io_bytes", "I/O", lambda point: format_bytes(point.io_bytes), right=True),
    words("mix", "mix", lambda point: point.mix),
    words("jobs", "jobs", lambda point: format_count(point.numjobs), right=True),
)


def planned(points: Iterable[Point]) -> Sheet:
    """One row for each point."""
    return narrow("", COLUMNS, points)
