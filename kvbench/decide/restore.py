"""How long a tier takes to give back the KV of a prompt: every unit of it, as the connector reads them (pure).

T_restore = lookups + the tier's reads + the copy to the GPU. The reads are list-scheduled over what one request has in
flight, with latencies drawn from the measured histogram, and never faster than the measured rate shared by the requests
that restore at once. Lookups come first (one thread, vLLM 0.24 kv_offload/tiering/async_lookup.py) and the copy to the
GPU last (a promotion is complete before the load starts, vLLM RFC #51439), so the three add up. A request that looks
blocks up or copies reads nothing meanwhile, which leaves the tier to the others (``reads_s``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kvbench.record.batches import known_over_time
from kvbench.record.histogram import Histogram
from kvbench.record.results import Direction, OverTime, PointResult, Use
from kvbench.record.stats import t_quantile

Floats = NDArray[np.float64]

_REPLICATES = 400
# Beyond it a makespan grows by mean / workers for each unit to within a fraction of a percent.
_SIMULATED_UNITS = 4096
_SEED = 20260102

# A single section does not say how much a tier changes from minute to minute. Identical rounds strayed by up to 1.2 on
# a noisy virtual machine, and beyond 1.5 they are called a drift (checks/speed.py).
USUAL_VARIATION = 1.5


@dataclass(frozen=True, slots=True)
class Measured:
    """The read side of one point: what restoring from a tier costs at that load.

    ``alone_s`` is the mean latency with one operation in flight, None where nobody measured it. ``bounds`` are the
    quickest and the slowest that a load can be which nobody measured.
    """

    point: PointResult
    read: Direction
    histogram: Histogram | None
    alone_s: float | None = None
    bounds: tuple[Measured, Measured] | None = None


@dataclass(frozen=True, slots=True)
class Around:
    """What a restore costs beside the tier's reads; a part that is None is not known and left out.

    ``lookup_s_per_unit``: the check whether a unit exists. ``gpu_copy_bytes_per_s``: from host memory into all GPUs of
    the server together. ``hit_overhead_s``: what the engine needs for a hit of any length, like more scheduler steps.
    """

    lookup_s_per_unit: float | None = None
    gpu_copy_bytes_per_s: int | None = None
    hit_overhead_s: float | None = None


NOTHING_AROUND = Around()


@dataclass(frozen=True)
class RestoreCurve:
    """Seconds to restore ``tokens`` (rising): the middle, and one row of ``requests`` for each simulated request.

    ``restored`` of the tokens come back, those of whole blocks; the others are computed in any case.
    ``draws`` are the requests as slow or quick as the tier may be in the long run, from what is known about it.
    ``around_s`` is the part that is not the tier's and ``loaded_s`` what the reads take while all the others read too,
    both of shape (len(tokens),); ``alone_share`` is the part of ``loaded_s`` that they take while nobody else does.
    """

    tokens: Floats
    restored: Floats
    seconds: Floats
    draws: Floats
    around_s: Floats
    loaded_s: Floats
    alone_share: float
    requests: Floats


def restore_curve(
    use: Use, measured: Measured, concurrent: int, tokens: Floats, around: Around = NOTHING_AROUND
) -> RestoreCurve:
    """Seconds to restore each of ``tokens`` while ``concurrent`` requests restore at once.

    Every replicate first resamples the histogram, so that few samples widen the band, and is then as much quicker or
    slower as the tier's rate is uncertain over time (``long_run_factors``). Without a histogram the mean latency stands
    for every unit. A load within bounds has the draws of both.
    """
    restored = np.array([use.restored_tokens(int(length)) for length in tokens], dtype=float)
    units, workers = units_of(use, tokens), use.parallelism_per_request
    around_s = _around_s(units * use.io_bytes, units, concurrent, around)
    alone_share = _alone_share(use, measured, concurrent)
    shared_s = units / (measured.read.iops / concurrent)
    if measured.histogram is None:
        waves = np.ceil(units / workers)
        loaded = np.maximum(shared_s, waves * (_mean_s(measured) or 0))[np.newaxis, :]
    else:
        # While others restore, they fill what the end of a request leaves free.
        alone_s = measured.alone_s if concurrent == 1 else None
        scheduled, relative_mean = _simulate(measured.histogram, workers, units.astype(int), alone_s)
        # In a closed loop the rate moves with 1 / mean latency: a replicate with slower units also has less bandwidth.
        loaded = np.maximum(scheduled, relative_mean[:, np.newaxis] * shared_s)
    requests = reads_s(loaded, alone_share, around_s) + around_s
    factors = long_run_factors(known_over_time(measured.point, "read"))[:, np.newaxis]
    draws = reads_s(loaded * factors, alone_share, around_s) + around_s
    if measured.bounds is not None:
        draws = _interleaved([restore_curve(use, bound, concurrent, tokens, around).draws for bound in measured.bounds])
    middle_s = np.median(loaded, axis=0)
    return RestoreCurve(tokens, restored, np.median(requests, axis=0), draws, around_s, middle_s, alone_share, requests)


def long_run_factors(known: OverTime | None) -> Floats:
    """How much slower than measured the tier may be in the long run, shape (replicates,), in an order of their own.

    Quantiles of Student's t with the standard error that the batches of time show. Without batches, of a normal
    distribution with 95 % within USUAL_VARIATION.
    """
    probabilities = (np.arange(_REPLICATES) + 0.5) / _REPLICATES
    if known is None:
        error, freedom = math.log(USUAL_VARIATION) / t_quantile(0.975, math.inf), math.inf
    else:
        error, freedom = known.relative_error, known.batches - 1
    logs = error * np.array([t_quantile(probability, freedom) for probability in probabilities.tolist()])
    factors: Floats = np.exp(np.random.default_rng(_SEED + 1).permutation(logs))
    return factors


def _interleaved(draws: Sequence[Floats]) -> Floats:
    """The draws of both bounds in turn, so that any number of them holds as many of one as of the other."""
    return np.stack(draws, axis=1).reshape(-1, draws[0].shape[1])


def reads_s(loaded_s: Floats, alone_share: float, around_s: Floats) -> Floats:
    """Seconds that the reads of a request take among others who spend ``around_s`` of each request without reading.

    ``loaded_s`` if all others read all the time, ``alone_share`` of it if none did. In between in proportion to those
    who do, T / (T + around) of the others as an arriving request sees them (arrival theorem: Reiser and Lavenberg,
    JACM 27 (1980) 313): T = alone + (loaded - alone) T / (T + around), a quadratic equation.
    """
    half = (loaded_s - around_s) / 2
    found: Floats = half + np.sqrt(half**2 + alone_share * loaded_s * around_s)
    return found


def restore_tokens_per_s(
    use: Use, measured: Measured, concurrent: int, around: Around = NOTHING_AROUND
) -> float | None:
    """Tokens that one of ``concurrent`` requests gets back per second on a long prompt: the prefill speed to beat.

    None where a restore stops growing with the prompt, because every layer has a window.
    """
    if use.units_per_block == 0:
        return None
    one = np.ones(1)
    # On a long prompt what a hit costs at any length no longer counts.
    beside = _around_s(one * use.io_bytes, one, concurrent, replace(around, hit_overhead_s=None))
    workers = use.in_flight(concurrent) / concurrent
    loaded = one * max(concurrent / measured.read.iops, (_mean_s(measured) or 0) / workers)
    per_unit = float((reads_s(loaded, _alone_share(use, measured, concurrent), beside) + beside)[0])
    return use.block_tokens / (use.units_per_block * per_unit)


def units_of(use: Use, tokens: Floats) -> Floats:
    """Units that a restore of each number of tokens reads."""
    return np.array([use.units(int(length)) for length in tokens], dtype=float)


def _mean_s(measured: Measured) -> float | None:
    """Mean latency of a unit under load."""
    return measured.read.latency_ns.mean_s if measured.read.latency_ns else None


def _alone_share(use: Use, measured: Measured, concurrent: int) -> float:
    """What the reads of a request take while nobody else reads, relative to all ``concurrent`` reading: 1 / concurrent
    where they share the rate or the threads, 1 where a unit takes as long alone, or nobody knows."""
    mean_s = _mean_s(measured)
    quicker = 1.0 if measured.alone_s is None or not mean_s else min(1.0, measured.alone_s / mean_s)
    of_the_threads = use.in_flight(concurrent) / (concurrent * use.parallelism_per_request)
    return max(1 / concurrent, of_the_threads * quicker)


def _around_s(size: Floats, units: Floats, concurrent: int, around: Around) -> Floats:
    """Seconds of the engine's own work, of lookups and of the copy to the GPU, whose link the requests share."""
    lookups = units * (around.lookup_s_per_unit or 0.0) + (units > 0) * (around.hit_overhead_s or 0.0)
    if around.gpu_copy_bytes_per_s is None:
        return lookups
    return lookups + size * concurrent / around.gpu_copy_bytes_per_s


def _simulate(
    histogram: Histogram, workers: int, units: NDArray[np.int64], alone_s: float | None
) -> tuple[Floats, Floats]:
    """Makespans in seconds, shape (replicates, len(units)), of list-scheduling each number of units over the workers,
    and each replicate's mean latency relative to the measured mean."""
    values = np.array([ns for ns, _ in histogram.bins], dtype=float) / 1e9
    weights = np.array([count for _, count in histogram.bins], dtype=float)
    mean = float((values * weights).sum() / weights.sum())
    generator = np.random.default_rng(_SEED)
    resampled = generator.multinomial(histogram.samples, weights / weights.sum(), size=_REPLICATES) / histogram.samples
    means = resampled @ values
    simulated = np.minimum(units, _SIMULATED_UNITS)
    drawn = _drawn(values, resampled, int(simulated.max(initial=0)), generator)
    quickest = 1.0 if alone_s is None else min(1.0, alone_s / mean)
    ends = _ends(drawn, workers, simulated, quickest)
    beyond = (units - simulated) * means[:, np.newaxis] / workers
    return ends + beyond, means / mean


def _drawn(values: Floats, shares: Floats, count: int, generator: np.random.Generator) -> Floats:
    """``count`` latencies for each replicate by inverting its own distribution, shape (replicates, count)."""
    uniform = generator.random((len(shares), count))
    cumulative = np.cumsum(shares, axis=1)
    picked = [np.searchsorted(row, chance) for row, chance in zip(cumulative, uniform, strict=True)]
    latencies: Floats = values[np.minimum(np.array(picked), len(values) - 1)]
    return latencies.reshape(uniform.shape)


def _ends(drawn: Floats, workers: int, counts: NDArray[np.int64], quickest: float) -> Floats:
    """When the first ``counts`` units are all done, shape (replicates, len(counts)): each unit goes to the worker that
    is free first, and the last ones get quicker as fewer are in flight."""
    replicates = len(drawn)
    if workers == 1:
        sums = np.concatenate([np.zeros((replicates, 1)), np.cumsum(drawn, axis=1)], axis=1)
        return sums[:, counts]
    free, rows = np.zeros((replicates, workers)), np.arange(replicates)
    found = np.zeros((replicates, len(counts)))
    wanted = {count: np.flatnonzero(counts == count) for count in set(counts.tolist())}
    for number in range(drawn.shape[1]):
        chosen = free.argmin(axis=1)
        begun = free[rows, chosen]
        free[rows, chosen] += drawn[:, number]
        if (columns := wanted.get(number + 1)) is not None:
            found[:, columns] = _last_end(free, begun, min(number + 1, workers), quickest)[:, np.newaxis]
    return found


def _last_end(free: Floats, begun: Floats, in_flight: int, quickest: float) -> Floats:
    """When the last unit is done, given when each worker would be free under full load, shape (replicates,).

    The latencies were measured with all workers busy: Little's law makes them workers / rate. A tier that is limited by
    its rate gives the few that are left at the end the share of the others, down to the latency of a unit alone
    (``quickest``, relative to the mean under load): processor sharing (Kleinrock, Queueing Systems 2, 4.4).
    """
    workers = free.shape[1]
    ordered = np.sort(free, axis=1)[:, workers - in_flight :]
    steps = np.diff(np.concatenate([begun[:, np.newaxis], ordered], axis=1), axis=1)
    left = np.arange(in_flight, 0, -1)
    end: Floats = begun + (steps * np.maximum(quickest, left / workers)).sum(axis=1)
    return end
