"""Things that happened to the tier while it was measured (pure)."""

from __future__ import annotations

from kvbench.record.results import PointResult, PointWarning


def disturbed(point: PointResult) -> PointWarning | None:
    """A standstill or a change of state inside a point is in its tail and in its mean rate."""
    if not point.events:
        return None
    first, count = point.events[0], len(point.events)
    more = f"{count} events, the first" if count > 1 else "an event"
    return PointWarning(
        "events",
        f"{more} in second {first.second}: {first.text}",
        "see 'What happened during the runs'; for the steady state measure again while nothing happens",
        {"events": count, "first_second": first.second},
    )


def other_runs(point: PointResult) -> PointWarning | None:
    """Two runs on one tier share its bandwidth and its caches: both measure each other."""
    count = point.conditions.other_runs
    if not count:
        return None
    who = "another kvbench was" if count == 1 else f"{count} other runs of kvbench were"
    return PointWarning(
        "other-runs",
        f"{who} at work on this tier while the point was measured",
        "measure again when nobody else does",
        {"other_runs": count},
    )
