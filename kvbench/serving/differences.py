"""How much better one configuration serves than another at the same load, and whether that is more than noise (pure).

Several runs of both are the sample where there are any: what changes from run to run is in their spread. Within one run
requests that follow each other resemble each other, so its windows of time are drawn, and not its requests (a block
bootstrap; Künsch 1989).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kvbench.record.comparison import ratio_interval
from kvbench.serving.arm import ArmRun, ClientLoad

Metric = Literal["requests_per_s", "ttft_mean", "ttft_p95", "e2e_mean"]
Outcome = Literal["better", "worse", "within noise", "one run only"]

_WINDOWS, _FEWEST_WINDOWS, _DRAWS, _SEED = 10, 5, 1000, 20
_P95 = 95

_Windows = list[NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Measure:
    """A number of a run by which configurations are compared, and how it follows from windows of requests."""

    metric: Metric
    of: Callable[[ArmRun], float | None]
    pooled: Callable[[_Windows], float]
    values: Callable[[ArmRun], list[float | None]]
    more_is_better: bool = False


def _mean(windows: _Windows) -> float:
    return float(np.concatenate(windows).mean())


def _p95(windows: _Windows) -> float:
    return float(np.percentile(np.concatenate(windows), _P95))


def _rate(windows: _Windows) -> float:
    # Windows are equally long, so requests for each of them are a rate; its unit cancels in the ratio below.
    return float(np.mean([len(window) for window in windows]))


def _ttft(run: ArmRun) -> list[float | None]:
    return [one.ttft_s for one in run.requests]


def _e2e(run: ArmRun) -> list[float | None]:
    return [one.e2e_s for one in run.requests]


MEASURES: tuple[Measure, ...] = (
    Measure("requests_per_s", lambda run: run.requests_per_s, _rate, _e2e, more_is_better=True),
    Measure("ttft_mean", lambda run: run.ttft_s.mean, _mean, _ttft),
    Measure("ttft_p95", lambda run: run.ttft_s.p95, _p95, _ttft),
    Measure("e2e_mean", lambda run: run.e2e_s.mean, _mean, _e2e),
)


@dataclass(frozen=True, slots=True)
class Speedup:
    """One number of a configuration over that of the control at one load, with its 95 % interval where one is known."""

    configuration: str
    control: str
    load: ClientLoad
    metric: Metric
    ratio: float
    low: float | None
    high: float | None
    outcome: Outcome


def speedups(
    name: str, arms: Sequence[ArmRun], control_name: str, controls: Sequence[ArmRun], load: ClientLoad
) -> list[Speedup]:
    """Every measure that both configurations have at a load."""
    found = []
    for measure in MEASURES:
        ours = [value for run in arms if (value := measure.of(run))]
        theirs = [value for run in controls if (value := measure.of(run))]
        if not ours or not theirs:
            continue
        ratio = float(np.mean(ours) / np.mean(theirs))
        interval = ratio_interval(theirs, ours) or _within(measure, arms, controls, ratio)
        low, high = interval or (None, None)
        found.append(
            Speedup(name, control_name, load, measure.metric, ratio, low, high, _outcome(measure, interval)),
        )
    return found


def _outcome(measure: Measure, interval: tuple[float, float] | None) -> Outcome:
    if interval is None:
        return "one run only"
    low, high = interval
    if low <= 1 <= high:
        return "within noise"
    return "better" if (low > 1) == measure.more_is_better else "worse"


def _within(
    measure: Measure, arms: Sequence[ArmRun], controls: Sequence[ArmRun], ratio: float
) -> tuple[float, float] | None:
    """The interval from the windows of one run each, None where a side has too few; it holds the ratio itself."""
    ours, theirs = _windows(measure, arms[0]), _windows(measure, controls[0])
    if ours is None or theirs is None:
        return None
    random = np.random.default_rng(_SEED)
    own, other = (np.array([measure.pooled(_drawn(side, random)) for _ in range(_DRAWS)]) for side in (ours, theirs))
    # Windows of the two runs differ in length where one took longer: each side is taken relative to itself.
    ratios = (own / measure.pooled(ours)) / (other / measure.pooled(theirs)) * ratio
    low, high = np.percentile(ratios, [2.5, 97.5])
    return float(min(low, ratio)), float(max(high, ratio))


def _drawn(windows: _Windows, random: np.random.Generator) -> _Windows:
    while True:
        drawn = [windows[at] for at in random.integers(len(windows), size=len(windows))]
        if any(len(window) for window in drawn):
            return drawn


def _windows(measure: Measure, run: ArmRun) -> _Windows | None:
    """The values of a run by windows of equal time in which their requests began; None with too few of either."""
    known = [
        (one.start_s, value)
        for one, value in zip(run.requests, measure.values(run), strict=True)
        if one.start_s is not None and value is not None
    ]
    if not known:
        return None
    starts, values = np.array(known).T
    first, last = float(starts.min()), float(starts.max())
    if last <= first:
        return None
    at = np.minimum(((starts - first) / (last - first) * _WINDOWS).astype(int), _WINDOWS - 1)
    found = [values[at == index] for index in range(_WINDOWS)]
    return found if sum(1 for window in found if len(window)) >= _FEWEST_WINDOWS else None
