"""How often the intervals hold and the verdicts are right, on simulated storage whose truth is known.

    python benchmarks/coverage.py [--sd 0.3] [--tau 5] [--rate 200] [--tail pareto] [--seed 1] [--runs 100] [--json]

A simulated tier serves 16 jobs in a closed loop. Each latency is a base times a random tail (exponential, log-normal or
Pareto) times the state of the tier, whose logarithm is an AR(1) process with standard deviation SD and time constant
TAU seconds; sd 0 makes operations independent. The tier is measured as ``--runtime auto`` does, with the product's own
stop rule, pooling, intervals and decision, its rounds in turn with those of the other points of a run (``--points``; 1
is a run of a single point). The truth is what an endless measurement would give. Two points are measured in each run:

- one without a prefill curve, until its p99 is known to 10 % or cannot be: does its interval hold the true p99?
- one with a curve, until the verdict is settled: do the intervals of the restore time at the target and of the
  crossover hold, and is the verdict right? The true crossover lies at 0.4 to 2.5 times the target, log-uniform.

Without --sd, --tau and --tail a list of processes is simulated and the numbers are over all of them. An interval of
which a side is unknown is not counted as one; ``cannot_say`` is the share of verdicts that were refused,
``wrong_verdicts`` that of all runs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from kvbench.decide.crossover import CONFIDENCE, Crossover, Goal, Versus, decide, request_crossover
from kvbench.decide.decision import Wanted, verdict_is_settled
from kvbench.decide.restore import MeasuredReads, restore_curve
from kvbench.prefill.curve import PrefillCurve
from kvbench.record.histogram import Histogram
from kvbench.record.latency import latency_of
from kvbench.record.results import Direction, Observation, OverTime, PointResult, Round, RunResult, Use
from kvbench.record.rounds import StopRule, next_round_s, pool

Floats = NDArray[np.float64]

JOBS = 16
TARGET = 8192
# A process starts and drops its caches between two rounds (fio 3.33: 0.4 s).
BETWEEN_ROUNDS_S = 0.5
RUNS, RUNS_EACH = 200, 50
_TRUE_OPERATIONS = 2_000_000
_WITHIN_TARGET = 2.5
_SHORTEST, _LONGEST = TARGET // 4, TARGET * 7 // 2
USE = Use("simulated", 1, "bfloat16", "logical", None, io_bytes=1 << 20, block_tokens=32, parallelism_per_request=JOBS)
RULE = StopRule(auto=True, max_s=60)

_TAILS: dict[str, tuple[Callable[[np.random.Generator, int], Floats], float]] = {
    # How to draw, and the mean of what is drawn. Pareto with index 2.5: the variance exists, the skewness does not.
    "exponential": (lambda generator, count: generator.exponential(1.0, count), 1.0),
    "lognormal": (lambda generator, count: np.exp(generator.normal(0.0, 0.3, count)), math.exp(0.3**2 / 2)),
    "pareto": (lambda generator, count: 1 + generator.pareto(2.5, count), 2.5 / 1.5),
}


@dataclass(frozen=True, slots=True)
class Process:
    """What the simulated tier is like."""

    sd: float
    tau_s: float
    tail: str
    rate: float

    @property
    def base_s(self) -> float:
        """The latency that gives ``rate`` operations per second in the median state."""
        return JOBS / self.rate / _TAILS[self.tail][1]

    def __str__(self) -> str:
        """The process in words."""
        state = f"sd {self.sd:g}, tau {self.tau_s:g} s" if self.sd else "independent"
        return f"{self.tail}, {state}"


PROCESSES = [
    (0.0, 1.0, "exponential"),
    (0.0, 1.0, "pareto"),
    *((sd, tau_s, "lognormal") for sd in (0.1, 0.3) for tau_s in (0.1, 1.0, 5.0)),
    (0.2, 2.0, "exponential"),
    (0.3, 5.0, "pareto"),
]


@dataclass(frozen=True, slots=True)
class Answer:
    """What one simulated run got right; None where it stated no interval."""

    p99_holds: bool | None
    restore_holds: bool | None
    crossover_holds: bool | None
    wrong: bool
    refused: bool
    p99_s: float
    verdict_s: float


class Tier:
    """The simulated tier: a state that goes on between the rounds, and the operations of a round."""

    def __init__(self, process: Process, generator: np.random.Generator) -> None:
        """A tier in a state of its stationary distribution."""
        self._process, self._generator = process, generator
        self._state, self._known_s = generator.normal(0.0, process.sd) if process.sd else 0.0, 0.0

    def measure(self, began_s: float, runtime_s: int, mix: str) -> Observation:
        """One round of a point as a driver observes it."""
        process = self._process
        step_s = min(0.05, process.tau_s / 4)
        states = self._states(began_s, round(runtime_s / step_s), step_s)
        # The jobs are always busy: an operation begins when the work before it, in the median state, is done.
        work = np.cumsum(JOBS * step_s * np.exp(-states))
        draw = _TAILS[process.tail][0]
        tails = draw(self._generator, int(work[-1] / process.base_s * 1.5) + 100)
        begun = np.cumsum(tails) * process.base_s
        tails = tails[: int(np.searchsorted(begun, work[-1]))]
        at = np.searchsorted(work, begun[: len(tails)])
        return observed(tails * process.base_s * np.exp(states[at]), began_s, float(runtime_s), mix)

    def _states(self, began_s: float, count: int, step_s: float) -> Floats:
        sd, tau_s = self._process.sd, self._process.tau_s
        kept = math.exp(-(began_s - self._known_s) / tau_s)
        state = kept * self._state + sd * math.sqrt(1 - kept**2) * self._generator.normal()
        kept = math.exp(-step_s / tau_s)
        steps = self._generator.normal(0.0, sd * math.sqrt(1 - kept**2), count)
        states = np.empty(count)
        for place in range(count):
            states[place] = state = kept * state + steps[place]
        self._state, self._known_s = state, began_s + count * step_s
        return states


def observed(latencies_s: Floats, began_s: float, runtime_s: float, mix: str) -> Observation:
    """A round in which those operations ended."""
    histogram = binned(latencies_s)
    ios = histogram.samples
    latency = latency_of(
        [histogram],
        mean_ns=float(latencies_s.mean()) * 1e9,
        min_ns=histogram.bins[0][0],
        max_ns=histogram.bins[-1][0],
    )
    read = Direction(ios, ios * USE.io_bytes, ios / runtime_s, ios * USE.io_bytes / runtime_s, latency)
    point = PointResult(
        id=f"tier-{mix}",
        job="simulated",
        source="",
        tier="simulated",
        driver="fio",
        io_bytes=USE.io_bytes,
        mix="mixed" if mix == "mixed" else "read",
        numjobs=JOBS,
        runtime_s=runtime_s,
        latency_source="lat",
        read=read,
        rounds=(Round(1, runtime_s, began_s=began_s),),
    )
    return Observation(point, {"read": histogram})


def binned(latencies_s: Floats) -> Histogram:
    """The latencies in fio's bins (``histogram.bin_of`` for many at once)."""
    ns = np.maximum(1, np.round(latencies_s * 1e9)).astype(np.int64)
    shift = np.maximum(0, np.frexp(ns.astype(float))[1] - 7)
    middles = np.where(shift > 0, (ns >> shift << shift) + (1 << np.maximum(shift - 1, 0)), ns)
    values, counts = np.unique(middles, return_counts=True)
    return Histogram(tuple(zip(values.tolist(), counts.tolist(), strict=True)))


@lru_cache(maxsize=32)
def truth_of(process: Process) -> MeasuredReads:
    """What an endless measurement of the process gives: operations see fast states as often as they are fast."""
    generator = np.random.default_rng(20261201)
    # With work done at exp(-x), the states that operations meet are the stationary ones tilted by it.
    states = generator.normal(-(process.sd**2), process.sd, _TRUE_OPERATIONS)
    draw, mean = _TAILS[process.tail]
    tails = draw(generator, _TRUE_OPERATIONS)
    # The mean of a heavy tail is known better than two million draws tell it.
    latencies = process.base_s * np.exp(states) * tails * (mean / tails.mean())
    item = observed(latencies, 0.0, float(latencies.sum()) / JOBS, "mixed")
    assert item.point.read is not None
    return MeasuredReads(_certain(item.point), item.point.read, item.histograms["read"])


def _certain(point: PointResult) -> PointResult:
    from dataclasses import replace

    return replace(point, over_time={"read": OverTime(10**6, 0.0)})


@lru_cache(maxsize=1)
def _lengths() -> Floats:
    return np.unique(np.geomspace(_SHORTEST, _LONGEST, 512) // 16 * 16)


@lru_cache(maxsize=32)
def true_restore(process: Process) -> Floats:
    """True seconds to restore each of the lengths."""
    return restore_curve(USE, truth_of(process), 1, _lengths()).seconds


def simulate(process: Process, points: int, seed: tuple[int, ...]) -> Answer:
    """Both points of one run."""
    generator = np.random.default_rng(seed)
    p99_holds, p99_s = _p99_point(process, points, generator)
    restored = float(np.interp(TARGET, _lengths(), true_restore(process)))
    crossing = TARGET * math.exp(generator.uniform(-1, 1) * math.log(_WITHIN_TARGET))
    curve = curve_through(crossing, float(np.interp(crossing, _lengths(), true_restore(process))))
    crossing = _true_crossing(process, curve)
    pooled, verdict_s = measured(process, points, generator, "mixed", _settled(curve))
    answer = _decided(pooled, curve)
    assert answer.restore is not None
    at = int(np.searchsorted(answer.restore.tokens, TARGET))
    low, high = np.quantile(answer.restore.draws[:, at], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    wrong = answer.verdict == ("not viable" if crossing <= TARGET else "viable")
    return Answer(
        p99_holds=p99_holds,
        restore_holds=bool(low <= restored <= high),
        crossover_holds=_crossing_held(answer, crossing),
        wrong=wrong,
        refused=answer.verdict == "cannot say",
        p99_s=p99_s,
        verdict_s=verdict_s,
    )


def measured(
    process: Process,
    points: int,
    generator: np.random.Generator,
    mix: str,
    decided: Callable[[Observation], bool | None] | None,
) -> tuple[Observation, float]:
    """One point measured as ``--runtime auto`` measures it among ``points``, and the seconds of its rounds."""
    tier, rounds, clock_s = Tier(process, generator), list[Observation](), 0.0
    while (runtime_s := next_round_s(RULE, rounds, decided)) is not None:
        rounds.append(tier.measure(clock_s, runtime_s, mix))
        clock_s += points * (runtime_s + BETWEEN_ROUNDS_S)
    return pool(rounds), sum(item.point.runtime_s or 0.0 for item in rounds)


def curve_through(tokens: float, seconds: float) -> PrefillCurve:
    """A known prefill curve that takes ``seconds`` for ``tokens``; attention makes it steeper than any restore."""
    c = seconds / tokens**2
    draws = np.array([[0.0, 0.0, c]])
    return PrefillCurve(0.0, 0.0, c, _SHORTEST, _LONGEST, 10, None, "simulated", draws)


def _settled(curve: PrefillCurve) -> Callable[[Observation], bool | None]:
    wanted = Wanted(curve, None, Goal(TARGET))
    return lambda item: verdict_is_settled(item, Path(), RunResult("", uses=(USE,)), wanted)


def _decided(pooled: Observation, curve: PrefillCurve) -> Crossover:
    assert pooled.point.read is not None
    at = MeasuredReads(pooled.point, pooled.point.read, pooled.histograms["read"])
    return decide(USE, "simulated", 1, at, None, curve, Goal(TARGET))


def _true_crossing(process: Process, curve: PrefillCurve) -> float:
    found = request_crossover(Versus(restore_curve(USE, truth_of(process), 1, _lengths()), curve, 1))
    return float(found.tokens or 0)


def _p99_point(process: Process, points: int, generator: np.random.Generator) -> tuple[bool | None, float]:
    pooled, seconds = measured(process, points, generator, "read", None)
    assert pooled.point.read is not None
    latency = pooled.point.read.latency_ns
    true = truth_of(process).read.latency_ns
    assert latency is not None
    assert true is not None
    if latency.p99_low is None or latency.p99_high is None:
        return None, seconds
    return latency.p99_low <= (true.p99 or 0) <= latency.p99_high, seconds


def _crossing_held(answer: Crossover, crossing: float) -> bool | None:
    request = answer.request
    if request.kind == "unknown" or (request.low is None and request.high is None):
        return None
    if request.low is None:
        return False
    return request.low <= crossing and (request.high is None or crossing <= request.high)


def summary(answers: Sequence[Answer]) -> dict[str, float | None]:
    """The JSON contract: shares over all runs, and the mean seconds of a point."""
    return {
        "p99_coverage": _share([item.p99_holds for item in answers]),
        "restore_coverage": _share([item.restore_holds for item in answers]),
        "crossover_coverage": _share([item.crossover_holds for item in answers]),
        "wrong_verdicts": _share([item.wrong for item in answers]),
        "cannot_say": _share([item.refused for item in answers]),
        "seconds_per_point": round(fmean((item.p99_s + item.verdict_s) / 2 for item in answers), 2),
    }


def _share(found: Sequence[bool | None]) -> float | None:
    stated = [item for item in found if item is not None]
    return round(fmean(stated), 4) if stated else None


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def _rate(text: str) -> float:
    value = _positive(text)
    # Below, a round of 3 s may hold no operation at all.
    if value < 10:
        raise argparse.ArgumentTypeError(f"{text} is below 10")
    return value


def _not_negative(text: str) -> float:
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return value


def _chosen() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sd", type=_not_negative, help="standard deviation of the logarithm of the state")
    parser.add_argument("--tau", type=_positive, metavar="SECONDS", help="time constant of the state")
    parser.add_argument(
        "--rate",
        type=_rate,
        default=200.0,
        metavar="OPS",
        help="operations per second, 10 at least",
    )
    parser.add_argument("--tail", choices=sorted(_TAILS), help="distribution of latencies in one state")
    parser.add_argument("--points", type=_count, default=6, help="points that are visited in turn (default 6)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--runs",
        type=_count,
        help=f"simulated runs of each process (default {RUNS}; {RUNS_EACH} where several are simulated)",
    )
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _processes(chosen: argparse.Namespace) -> list[Process]:
    if chosen.sd is None and chosen.tau is None and chosen.tail is None:
        return [Process(*item, chosen.rate) for item in PROCESSES]
    sd = 0.2 if chosen.sd is None else chosen.sd
    return [Process(sd, chosen.tau or 2.0, chosen.tail or "lognormal", chosen.rate)]


def main() -> None:
    """Simulate and print."""
    chosen = _chosen()
    processes = _processes(chosen)
    runs = chosen.runs or (RUNS if len(processes) == 1 else RUNS_EACH)
    found: dict[Process, list[Answer]] = {}
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        for process in processes:
            seeds = [(abs(chosen.seed), run) for run in range(runs)]
            found[process] = list(workers.map(partial(simulate, process, chosen.points), seeds, chunksize=8))
    every = [answer for answers in found.values() for answer in answers]
    if chosen.json:
        parts = [{"process": str(process), **summary(answers)} for process, answers in found.items()]
        print(json.dumps({**summary(every), "processes": parts}))
        return
    heads = ["p99", "restore", "crossover", "wrong", "cannot say", "s / point"]
    print(f"{'process':32}" + "".join(f"{head:>11}" for head in heads))
    for name, answers in [*((str(process), answers) for process, answers in found.items()), ("all", every)]:
        values = summary(answers).values()
        print(f"{name:32}" + "".join(f"{'-' if value is None else format(value, '.3f'):>11}" for value in values))


if __name__ == "__main__":
    main()
