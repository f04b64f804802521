"""Whole requests predicted from a measured point, against a simulated tier whose truth is known.

The tier shares one rate among the units in flight, and a few units take longer in themselves. It is measured as kvbench
measures, in a closed loop, and then restores requests: ``kvbench.decide.restore`` must say how long these take.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from kvbench.decide.restore import Around, MeasuredReads, restore_curve
from kvbench.record.histogram import Histogram
from tests.factories import measured, use

BLOCK_TOKENS = 16


@dataclass
class Tier:
    """``rate`` units a second, shared by those in flight; a unit in ``1 / rare`` takes ``extra_s`` more of its own."""

    rate: float
    rare: int
    extra_s: float
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    now: float = 0.0
    _virtual: float = 0.0
    _shared: list[tuple[float, int, float]] = field(default_factory=list)
    _delayed: list[tuple[float, int]] = field(default_factory=list)

    def begin(self, unit: int) -> None:
        """A unit is asked for now."""
        extra = self.extra_s if self.chance.randrange(self.rare) == 0 else 0.0
        heapq.heappush(self._shared, (self._virtual + self.chance.uniform(0.5, 1.5), unit, extra))

    def next_end(self) -> int:
        """Let time pass until a unit is done, and say which."""
        while True:
            ready = self._delayed[0][0] if self._delayed else math.inf
            each = self.rate / len(self._shared) if self._shared else 0.0
            served = self.now + (self._shared[0][0] - self._virtual) / each if each else math.inf
            at = min(ready, served)
            self._virtual += (at - self.now) * each
            self.now = at
            if ready <= served:
                return heapq.heappop(self._delayed)[1]
            _, unit, extra = heapq.heappop(self._shared)
            heapq.heappush(self._delayed, (at + extra, unit))


def closed_loop(tier: Tier, jobs: int, count: int) -> tuple[Histogram, float]:
    """Latencies and rate with ``jobs`` in flight."""
    began = dict.fromkeys(range(jobs), tier.now)
    for job in began:
        tier.begin(job)
    start, seen = tier.now, Counter[int]()
    for _ in range(count):
        job = tier.next_end()
        seen[max(1, round((tier.now - began[job]) * 1e7) * 100)] += 1
        began[job] = tier.now
        tier.begin(job)
    return Histogram.from_counts(seen), count / (tier.now - start)


def restored_s(tier: Tier, workers: int, units: int) -> float:
    """Seconds until all units of a lone request are there."""
    start = tier.now
    for unit in range(min(workers, units)):
        tier.begin(unit)
    for done in range(units):
        tier.next_end()
        if done + workers < units:
            tier.begin(done + workers)
    return tier.now - start


def seen_of(new_tier: Callable[[], Tier], workers: int) -> MeasuredReads:
    """What kvbench would have measured at that load, and alone."""
    loaded, rate = closed_loop(new_tier(), workers, 20_000)
    alone, _ = closed_loop(new_tier(), 1, 5_000)
    found = measured(rate, mean_of(loaded) * 1e3, workers)
    return replace(found, histogram=loaded, alone_s=mean_of(alone), alone=alone)


def mean_of(histogram: Histogram) -> float:
    return sum(ns * count for ns, count in histogram.bins) / histogram.samples / 1e9


@pytest.mark.slow
@pytest.mark.parametrize("units", [32, 128, 512])
@pytest.mark.parametrize(("rare", "extra_s"), [(10**9, 0.0), (200, 0.1), (50, 0.05)])
def test_stragglers_stay_slow_when_they_are_the_last(units: int, rare: int, extra_s: float) -> None:
    workers = 32

    def new_tier() -> Tier:
        return Tier(1000.0, rare, extra_s)

    of = use(parallelism_per_request=workers, threads=workers)
    found = restore_curve(of, seen_of(new_tier, workers), 1, np.array([float(BLOCK_TOKENS * units)]))
    truth = [restored_s(Tier(1000.0, rare, extra_s, random.Random(seed)), workers, units) for seed in range(300)]
    for percent in (50, 99):
        predicted, observed = (float(np.percentile(values, percent)) for values in (found.requests[:, 0], truth))
        assert predicted == pytest.approx(observed, rel=0.15), (percent, predicted / observed)


def cycle_s(requests: int, lookups_s: float, reads: Callable[[], float]) -> float:
    """Mean seconds of a request: one lookup thread serves them first come, first served, then each reads."""
    waiting, free, found = [(reads(), number) for number in range(requests)], 0.0, list[float]()
    heapq.heapify(waiting)
    while len(found) < 4000:
        came, number = heapq.heappop(waiting)
        free = max(came, free) + lookups_s
        ended = free + reads()
        found.append(ended - came)
        heapq.heappush(waiting, (ended, number))
    return float(np.mean(found[800:]))


@pytest.mark.slow
@pytest.mark.parametrize("requests", [2, 4, 16])
@pytest.mark.parametrize("load", [0.2, 0.8, 1.0, 1.2, 3.0])
@pytest.mark.parametrize("units", [4, 64])
def test_requests_queue_for_the_one_lookup_thread(requests: int, load: float, units: int) -> None:
    """From lookups that hardly count to those that are the limit; reads of exponential units that nobody shares."""
    chance, unit_s = random.Random(3), 0.01
    lookups_s = load * units * unit_s / (requests - 1)
    counts = Counter(max(1, round(chance.expovariate(1 / unit_s) * 1e7) * 100) for _ in range(20_000))
    # A rate that limits nobody, and latencies that are the same alone.
    seen = replace(measured(1e9, unit_s * 1e3, 1), histogram=Histogram.from_counts(counts), alone_s=unit_s)
    around = Around(lookup_s_per_unit=lookups_s / units)
    found = restore_curve(
        use(parallelism_per_request=1), seen, requests, np.array([float(BLOCK_TOKENS * units)]), around
    )

    def reads() -> float:
        return sum(chance.expovariate(1 / unit_s) for _ in range(units))

    truth = cycle_s(requests, lookups_s, reads)
    assert float(found.requests.mean()) == pytest.approx(truth, rel=0.1)
    assert float(found.requests.mean()) >= requests * lookups_s * 0.999
