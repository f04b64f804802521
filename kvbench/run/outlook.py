"""How far a run is: points that are done, seconds that it can still take, and how well a point is known (pure)."""

from __future__ import annotations

import math
from collections.abc import Iterable

from kvbench.record.results import PointResult
from kvbench.record.rounds import widest_p99
from kvbench.run.measurement import Measurement
from kvbench.units import format_share


class Outlook:
    """What is left of a run; it hears of every round that ended."""

    def __init__(self, measurement: Measurement, known: Iterable[PointResult] = ()) -> None:
        """A run that is resumed where these points were measured before."""
        times = measurement.point_times()
        self._repeats = measurement.repeats
        self._most_s = {name: time.most_s // self._repeats for name, time in times.items()}
        self._left_s = {name: float(time.most_s) for name, time in times.items()}
        self._wanted = {(plan.name, plan.driver): plan.settings for plan in measurement.tiers}
        self._ended: set[str] = set()
        self._width: dict[str, float] = {}
        for point in known:
            # What was interrupted may be measured anew, in part or in whole: then it takes at most what it would.
            if point.status == "ok" and point.id in times:
                self.heard(point, ended=True)

    def heard(self, point: PointResult, *, ended: bool) -> None:
        """A round of a point is over; ``ended`` says whether it was the last one of its repeat."""
        repeat = max((item.repeat for item in point.rounds), default=1)
        more = (self._repeats - repeat) * self._most_s[point.id]
        spent = sum(item.runtime_s for item in point.rounds if item.repeat == repeat)
        self._left_s[point.id] = more + (0.0 if ended else max(0.0, self._most_s[point.id] - spent))
        self._width[point.id] = widest_p99(point)
        if ended and repeat >= self._repeats:
            self._ended.add(point.id)

    @property
    def points(self) -> int:
        """How many points the run has."""
        return len(self._most_s)

    @property
    def points_done(self) -> int:
        """How many of them are done."""
        return len(self._ended)

    @property
    def most_s(self) -> int:
        """Seconds that the whole run measures at most."""
        return sum(self._most_s.values()) * self._repeats

    @property
    def left_s(self) -> float:
        """Seconds that it still measures at most."""
        return sum(self._left_s.values())

    def precision(self, tier: str, driver: str, point_id: str) -> str:
        """How well the p99 of a point is known, and how well it should be; empty where nothing is to be reached."""
        settings = self._wanted[tier, driver]
        if not settings.auto:
            return ""
        width = self._width.get(point_id, math.inf)
        known = "p99 not known yet" if math.isinf(width) else f"p99 within ±{format_share(width)}"
        return f"{known} ({format_share(settings.precision)} wanted)"
