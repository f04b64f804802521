"""Things that happened to the tier while it was measured (pure)."""

from __future__ import annotations

from kvbench.record.results import Caveat, PointResult


def disturbed(point: PointResult) -> Caveat | None:
    """A standstill or a change of state inside a point is in its tail and in its mean rate."""
    if not point.events:
        return None
    first, count = point.events[0], len(point.events)
    more = f"{count} events, the first" if count > 1 else "an event"
    return Caveat(
        "events",
        f"{more} in second {first.second}: {first.text}",
        "see 'What happened during the runs'; for the steady state measure again while nothing happens",
        {"events": count, "first_second": first.second},
    )
