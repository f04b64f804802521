"""How many requests the device below a tier saw for each operation (pure).

A direct read is split where the pages behind its buffer are not contiguous and the device's segments run out, so the
same command can be one request or several (docs/buffers.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from kvbench.record.results import PointResult, Way

# More or less than this share of our bytes, and somebody else used the device, or a cache answered.
_OURS = (0.95, 1.05)


def requests_each(point: PointResult, way: Way) -> float | None:
    """Device requests for each operation of one direction; None where nothing counts them, or not only ours."""
    seen, side = point.conditions, point.read if way == "read" else point.write
    if side is None:
        return None
    if way == "read":
        return split(side.ios, side.bytes, seen.device_read_bytes, seen.device_read_requests)
    return split(side.ios, side.bytes, seen.device_written_bytes, seen.device_write_requests)


def split(ios: int, own_bytes: int, moved: int | None, requests: int | None) -> float | None:
    """Requests for each operation, from the bytes and requests that the device counted; None unless they are ours."""
    if not ios or not own_bytes or moved is None or not requests:
        return None
    low, high = _OURS
    return requests / ios if low <= moved / own_bytes <= high else None


def apart(values: Sequence[float]) -> float:
    """The largest above the smallest, as a ratio; 1 for fewer than two."""
    return max(values) / min(values) if len(values) > 1 else 1.0
