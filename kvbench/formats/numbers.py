"""A number in a foreign file: what is none is refused, what was not recorded is None (the border)."""

from __future__ import annotations

import math
from typing import Any


def number(value: Any, low: float, high: float, beyond: str) -> Any:
    """``value`` unless it is no number from ``low`` to ``high``; NaN and infinity are "not recorded" (None).

    ValueError, with ``beyond`` as its text for a number outside. Lists, null and the like are left to the type.
    """
    if isinstance(value, bool):
        raise ValueError("a truth value stands where a number should")
    if isinstance(value, str):
        raise ValueError("a text stands where a number should")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int | float) and not low <= value <= high:
        raise ValueError(beyond)
    return value
