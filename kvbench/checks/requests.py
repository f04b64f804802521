"""Did the device see the same requests for the same operations (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kvbench.record.requests import apart, requests_each
from kvbench.record.results import PointResult, PointWarning, RunResult, Value, Way

# A read that became 1.0 and one that became 1.25 requests differ by a tenth or two in time where a device is busy.
_DIFFER = 1.25
_HINT = "which pages a process gets is luck: measure more rounds, or compare --buffers huge, where luck has no part"


def by_round(point: PointResult) -> PointWarning | None:
    """A 2.25 MiB read became 1.07 to 3.6 requests, and 900 to 2,070 MiB/s, by the pages of its buffer (virtio)."""
    for way in ("read", "write"):
        found = [item.side(way).requests_each for item in point.rounds]
        each = [value for value in found if value]
        if apart(each) > _DIFFER:
            low, high = min(each), max(each)
            return PointWarning(
                "requests-by-round",
                f"one {way} was {low:.2f} device requests in one round and {high:.2f} in another: their times differ "
                "by more than the tier",
                _HINT,
                {"direction": way, "lowest": round(low, 3), "highest": round(high, 3), "rounds": len(each)},
            )
    return None


def by_lane(run: RunResult) -> RunResult:
    """The run with a warning on every point whose operations were split otherwise on another tier or by another driver.

    It needs several points, so it is no check of one; asked again, it replaces what it said before.
    """
    points = tuple(_told(point, run.points) for point in run.points)
    return replace(run, points=points)


def _told(point: PointResult, points: Sequence[PointResult]) -> PointResult:
    kept = tuple(warning for warning in point.warnings if warning.code != "requests-by-tier")
    warning = next(_lane_warnings(point, points), None)
    return replace(point, warnings=kept if warning is None else (*kept, warning))


def _lane_warnings(point: PointResult, points: Sequence[PointResult]) -> Iterator[PointWarning]:
    for way in ("read", "write"):
        own = requests_each(point, way)
        if own is None:
            continue
        for other in points:
            each = requests_each(other, way) if _is_other_lane(point, other) else None
            if each is not None and apart([own, each]) > _DIFFER:
                yield _lane_warning(way, own, each, other)


def _lane_warning(way: Way, own: float, each: float, other: PointResult) -> PointWarning:
    values: dict[str, Value] = {"direction": way, "requests": round(own, 3), "other_requests": round(each, 3)}
    return PointWarning(
        "requests-by-tier",
        f"one {way} was {own:.2f} device requests here and {each:.2f} on {other.tier} ({other.driver}): what differs "
        "may be the memory or the device's limits, not its speed",
        "look at max_segments and max_sectors_kb of both (kvbench doctor), and compare with --buffers huge",
        {**values, "other_point": other.id},
    )


def _is_other_lane(one: PointResult, other: PointResult) -> bool:
    alike = (one.io_bytes, one.mix, one.numjobs) == (other.io_bytes, other.mix, other.numjobs)
    return alike and other.status == "ok" == one.status and (one.tier, one.driver) != (other.tier, other.driver)
