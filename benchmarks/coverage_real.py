"""How many intervals hold on a real tier: the same point measured over and over, each time against all other times.

    python benchmarks/coverage_real.py DIRECTORY [--measurements 16] [--in-turn 6] [--jobs 4] [--dataset 1GiB] [--json]

Measures reads of one block size on DIRECTORY (16 times by default) as ``--runtime auto`` measures one point of a run,
with the product's own driver, stop rule and intervals; ``--in-turn`` of them take their rounds in turn, like the points
of a run. The interval of each p99, and of each rate, is then held against what all the other measurements together
give. For comparison the same is done as if the operations of every single round were independent.
Prints the shares and the seconds of one measurement against a section of 60 s.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from kvbench.drivers import Site
from kvbench.drivers.fio.driver import FioDriver, FioProgram
from kvbench.record.histogram import Histogram, merge
from kvbench.record.point import Point, point_id
from kvbench.record.results import Observation, Round
from kvbench.record.rounds import next_round_s, pool
from kvbench.record.stats import percentile_interval_ns, t_quantile
from kvbench.run.measurement import LONGEST_RUNTIME_S, Method, plan_tier
from kvbench.tiers import kinds
from kvbench.units import parse_size

_PERCENT = 99.0
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement: its rounds, pooled, and the seconds that it took with everything around its rounds."""

    rounds: tuple[Observation, ...]
    pooled: Observation
    wall_s: float

    @property
    def histogram(self) -> Histogram:
        """All latencies."""
        return self.pooled.histograms["read"]

    @property
    def rate(self) -> float:
        """Operations per second."""
        read = self.pooled.point.read
        return 0.0 if read is None else read.iops

    def p99_interval(self) -> tuple[int | None, int | None]:
        """The interval that a result shows."""
        read = self.pooled.point.read
        latency = None if read is None else read.latency_ns
        return (None, None) if latency is None else (latency.p99_low, latency.p99_high)

    def rate_interval(self) -> tuple[float, float] | None:
        """The interval of the rate that a restore time has."""
        known = self.pooled.point.over_time.get("read")
        if known is None:
            return None
        reach = t_quantile((1 + _CONFIDENCE) / 2, known.batches - 1) * known.relative_error
        return self.rate * math.exp(-reach), self.rate * math.exp(reach)


def measure(site: Site, driver: FioDriver, point: Point, count: int, in_turn: int, folder: Path) -> list[Measured]:
    """``count`` measurements of a point, ``in_turn`` of them side by side."""
    found: list[Measured] = []
    while len(found) < count:
        group = min(in_turn, count - len(found))
        found += _side_by_side(site, driver, point, group, folder)
        print(f"{len(found)} of {count} measurements", file=sys.stderr, flush=True)
    return found


def _side_by_side(site: Site, driver: FioDriver, point: Point, count: int, folder: Path) -> list[Measured]:
    rounds: list[list[Observation]] = [[] for _ in range(count)]
    wall_s = [0.0] * count
    waiting = list(range(count))
    while waiting:
        for place in list(waiting):
            runtime_s = next_round_s(site.settings.stop_rule, rounds[place])
            if runtime_s is None:
                waiting.remove(place)
                continue
            began_s = time.time()
            item = driver.measure(point, site, folder, runtime_s)
            if item.point.status != "ok":
                raise SystemExit(f"a round failed: {item.point.reason}")
            wall_s[place] += time.time() - began_s
            own = Round(1, item.point.runtime_s or 0.0, began_s=began_s)
            rounds[place].append(replace(item, point=replace(item.point, rounds=(own,))))
    return [Measured(tuple(items), pool(items), spent_s) for items, spent_s in zip(rounds, wall_s, strict=True)]


def holding(found: Sequence[Measured], holds: Callable[[Measured, Sequence[Measured]], bool]) -> int:
    """How many of the measurements hold what all the others together say."""
    return sum(holds(one, [other for other in found if other is not one]) for one in found)


def p99_holds(one: Measured, others: Sequence[Measured]) -> bool:
    """Whether the interval of a p99 holds the p99 of the other measurements."""
    return _within(one.p99_interval(), merge([other.histogram for other in others]).percentile(_PERCENT))


def rate_holds(one: Measured, others: Sequence[Measured]) -> bool:
    """Whether the interval of a rate holds the mean rate of the other measurements."""
    interval, mean = one.rate_interval(), fmean(other.rate for other in others)
    return interval is not None and interval[0] <= mean <= interval[1]


def single_rounds_holding(found: Sequence[Measured]) -> tuple[int, int]:
    """How many single rounds hold the p99 of all other rounds if operations were independent, and of how many."""
    rounds = [item.histograms["read"] for one in found for item in one.rounds]
    held = 0
    for place, histogram in enumerate(rounds):
        rest = merge([other for number, other in enumerate(rounds) if number != place])
        held += _within(percentile_interval_ns(histogram, _PERCENT), rest.percentile(_PERCENT))
    return held, len(rounds)


def _within(interval: tuple[int | None, int | None], value: float) -> bool:
    low, high = interval
    return low is not None and high is not None and low <= value <= high


def _chosen() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--measurements", type=int, default=16)
    parser.add_argument("--in-turn", type=int, default=6)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--block", default="1152KiB")
    parser.add_argument("--dataset", default="1GiB")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _measured(chosen: argparse.Namespace) -> list[Measured]:
    io_bytes = parse_size(chosen.block)
    tier = kinds.inspect("real", str(chosen.directory), ())
    method = Method((chosen.jobs,), (io_bytes,), dataset_bytes=parse_size(chosen.dataset))
    settings = plan_tier(tier, str(chosen.directory), "fio", method).settings
    point = Point(point_id("real", io_bytes, "read", chosen.jobs), "real", "fio", io_bytes, "read", chosen.jobs)
    driver = FioProgram.find().driver(lambda text: None)
    with tempfile.TemporaryDirectory() as folder, tier.workspace(Path(folder)) as space:
        site = Site(tier, space, settings)
        driver.lay_out(site, Path(folder))
        return measure(site, driver, point, chosen.measurements, chosen.in_turn, Path(folder))


def main() -> None:
    """Measure and print."""
    chosen = _chosen()
    found = _measured(chosen)
    single, rounds = single_rounds_holding(found)
    result = {
        "measurements": len(found),
        "p99_held": holding(found, p99_holds),
        "rate_held": holding(found, rate_holds),
        "single_rounds": rounds,
        "single_rounds_held": single,
        "seconds_per_measurement": round(fmean(one.wall_s for one in found), 1),
        "of_a_section": round(fmean(one.wall_s for one in found) / LONGEST_RUNTIME_S, 3),
        "p99_ms": [[None if end is None else end / 1e6 for end in one.p99_interval()] for one in found],
    }
    if chosen.json:
        print(json.dumps(result))
        return
    print(f"p99 intervals that hold the p99 of the others: {result['p99_held']} of {len(found)}")
    print(f"rate intervals that hold the rate of the others: {result['rate_held']} of {len(found)}")
    print(f"single rounds, as if operations were independent: {single} of {rounds}")
    print(
        f"a measurement took {result['seconds_per_measurement']} s, {result['of_a_section']:.0%} of a section of 60 s"
    )


if __name__ == "__main__":
    main()
