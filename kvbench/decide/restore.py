"""How long a tier takes to give back the KV of a prompt: every unit of it, as the connector reads them (pure).

T_restore = lookups + the tier's reads + the copy to the GPU. The reads are list-scheduled over what one request has in
flight, with latencies drawn from the measured histogram, and never faster than the measured rate shared by the requests
that restore at once. Lookups come first (one thread, vLLM 0.24 kv_offload/tiering/async_lookup.py) and the copy to the
GPU last (a promotion is complete before the load starts, vLLM RFC #51439), so the three add up. The requests queue for
the one thread that looks up (``_Line``). A request that looks blocks up or copies reads nothing meanwhile, which
leaves the tier to the others (``reads_s``).
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
# Times that the queue for lookups and the reads are computed from each other: they meet within a percent.
_TURNS = 12

# A single section does not say how much a tier changes from minute to minute. Identical rounds strayed by up to 1.2 on
# a noisy virtual machine, and beyond 1.5 they are called a drift (checks/speed.py).
USUAL_VARIATION = 1.5


@dataclass(frozen=True, slots=True)
class MeasuredReads:
    """The read side of one point: what restoring from a tier costs at that load.

    ``alone_s`` is the mean latency with one operation in flight and ``alone`` all of them, None where nobody measured
    it. ``bounds`` are the quickest and the slowest that a load can be which nobody measured.
    """

    point: PointResult
    read: Direction
    histogram: Histogram | None
    alone_s: float | None = None
    bounds: tuple[MeasuredReads, MeasuredReads] | None = None
    alone: Histogram | None = None


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
    ``around_s`` is the part that is not the tier's, the wait for others' lookups included, and ``loaded_s`` what the
    reads take while all the others read too, both of shape (len(tokens),); ``alone_share`` is the part of ``loaded_s``
    that they take while nobody else does.
    """

    tokens: Floats
    restored: Floats
    seconds: Floats
    draws: Floats
    around_s: Floats
    loaded_s: Floats
    alone_share: float
    requests: Floats
    all_lookups_s: Floats | None = None

    def least_s(self, tokens: float) -> float:
        """Seconds that no tier makes a restore shorter than while others restore: the lookups of all."""
        return 0.0 if self.all_lookups_s is None else float(np.interp(tokens, self.tokens, self.all_lookups_s))


def restore_curve(
    use: Use, measured: MeasuredReads, concurrent: int, tokens: Floats, around: Around = NOTHING_AROUND
) -> RestoreCurve:
    """Seconds to restore each of ``tokens`` while ``concurrent`` requests restore at once.

    Every replicate first resamples the histogram, so that few samples widen the band, and is then as much quicker or
    slower as the tier's rate is uncertain over time (``long_run_factors``). Without a histogram the mean latency stands
    for every unit. A load within bounds has the draws of both.
    """
    restored = np.array([use.restored_tokens(int(length)) for length in tokens], dtype=float)
    units, workers = units_of(use, tokens), use.parallelism_per_request
    lookups_s = units * (around.lookup_s_per_unit or 0.0)
    others_s = _after_lookups_s(units * use.io_bytes, units, concurrent, around)
    alone_share = _alone_share(use, measured, concurrent)
    shared_s = units / (measured.read.iops / concurrent)
    if measured.histogram is None:
        waves = np.ceil(units / workers)
        loaded = np.maximum(shared_s, waves * (_mean_s(measured) or 0))[np.newaxis, :]
    else:
        # While others restore, they fill what the end of a request leaves free.
        quickest = _quickest(measured) if concurrent == 1 else None
        scheduled, relative_mean = _simulate(measured.histogram, workers, units.astype(int), quickest)
        # In a closed loop the rate moves with 1 / mean latency: a replicate with slower units also has less bandwidth.
        loaded = np.maximum(scheduled, relative_mean[:, np.newaxis] * shared_s)
    mean_s = loaded.mean(axis=0)
    line = _Line(concurrent, lookups_s, others_s, loaded.std(axis=0) / np.maximum(mean_s, 1e-12))
    factors = long_run_factors(known_over_time(measured.point, "read"))[:, np.newaxis]
    requests = line.whole_s(loaded, mean_s, alone_share)
    draws = line.whole_s(loaded * factors, mean_s * factors, alone_share)
    if measured.bounds is not None:
        draws = _interleaved([restore_curve(use, bound, concurrent, tokens, around).draws for bound in measured.bounds])
    middle_s = np.median(loaded, axis=0)
    all_lookups_s = concurrent * lookups_s
    around_s = line.parts(middle_s, alone_share)[1] + others_s
    return RestoreCurve(
        tokens, restored, np.median(requests, axis=0), draws, around_s, middle_s, alone_share, requests, all_lookups_s
    )


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


@dataclass(frozen=True, slots=True)
class _Line:
    """The requests that share one lookup thread: how many, what each asks it for, and seconds after its lookups.

    ``spread``: standard deviation : mean of the reads of a request.
    """

    concurrent: int
    lookups_s: Floats
    others_s: Floats
    spread: Floats | float = 0.0

    def parts(self, loaded_s: Floats, alone_share: float) -> tuple[Floats, Floats]:
        """Seconds of the reads of a request, and of its lookups with the wait for those of the others.

        One thread serves the requests in turn, so nobody's cycle is shorter than the lookups of all. Requests that take
        equally long fall into step, and none waits before that is the limit. Else an arriving one finds each other one
        there for a share W / C of its cycle C = W + others + reads, half of the one being served over (arrival theorem,
        Schweitzer's estimate): W = L + (R - 1) L (W - L / 2) / C, a quadratic equation, which holds for exponential
        reads. Between the two by the root of the spread, as simulations are (tests/test_restore_queue.py). The reads
        depend on W in turn (``reads_s``): repeated until both hold.
        """
        looking_up = self.lookups_s + np.zeros_like(loaded_s)
        reads = reads_s(loaded_s, alone_share, looking_up + self.others_s)
        for _ in range(_TURNS if self.concurrent > 1 and self.lookups_s.any() else 0):
            looking_up = self._queued(reads + self.others_s)
            reads = reads_s(loaded_s, alone_share, looking_up + self.others_s)
        return reads, looking_up

    def whole_s(self, loaded_s: Floats, mean_s: Floats, alone_share: float) -> Floats:
        """Seconds of whole restores, which wait for others whose reads take ``mean_s`` while all read."""
        around_s = self.parts(mean_s, alone_share)[1] + self.others_s
        return reads_s(loaded_s, alone_share, around_s) + around_s

    def _queued(self, beside: Floats) -> Floats:
        """Seconds of the lookups of a request, which spends ``beside`` elsewhere."""
        own, all_s = self.lookups_s, self.concurrent * self.lookups_s
        in_step = np.maximum(own, all_s - beside)
        half = (beside - all_s) / 2
        constant = own * ((self.concurrent - 1) * own / 2 - beside)
        by_chance = np.maximum(np.sqrt(np.maximum(half**2 - constant, 0.0)) - half, in_step)
        found: Floats = in_step + np.sqrt(np.minimum(self.spread, 1.0)) * (by_chance - in_step)
        return found


def restore_tokens_per_s(
    use: Use, measured: MeasuredReads, concurrent: int, around: Around = NOTHING_AROUND
) -> float | None:
    """Tokens that one of ``concurrent`` requests gets back per second on a long prompt: the prefill speed to beat.

    None where a restore stops growing with the prompt, because every layer has a window.
    """
    if use.units_per_block == 0:
        return None
    one = np.ones(1)
    # On a long prompt what a hit costs at any length no longer counts.
    others = _after_lookups_s(one * use.io_bytes, one, concurrent, replace(around, hit_overhead_s=None))
    workers = use.in_flight(concurrent) / concurrent
    loaded = one * max(concurrent / measured.read.iops, (_mean_s(measured) or 0) / workers)
    line = _Line(concurrent, one * (around.lookup_s_per_unit or 0.0), others)
    per_unit = float(line.whole_s(loaded, loaded, _alone_share(use, measured, concurrent))[0])
    return use.block_tokens / (use.units_per_block * per_unit)


def units_of(use: Use, tokens: Floats) -> Floats:
    """Units that a restore of each number of tokens reads."""
    return np.array([use.units(int(length)) for length in tokens], dtype=float)


def _mean_s(measured: MeasuredReads) -> float | None:
    """Mean latency of a unit under load."""
    return measured.read.latency_ns.mean_s if measured.read.latency_ns else None


def _alone_share(use: Use, measured: MeasuredReads, concurrent: int) -> float:
    """What the reads of a request take while nobody else reads, relative to all ``concurrent`` reading: 1 / concurrent
    where they share the rate or the threads, 1 where a unit takes as long alone, or nobody knows."""
    mean_s = _mean_s(measured)
    quicker = 1.0 if measured.alone_s is None or not mean_s else min(1.0, measured.alone_s / mean_s)
    of_the_threads = use.in_flight(concurrent) / (concurrent * use.parallelism_per_request)
    return max(1 / concurrent, of_the_threads * quicker)


def _after_lookups_s(size: Floats, units: Floats, concurrent: int, around: Around) -> Floats:
    """Seconds of the engine's own work and of the copy to the GPU, whose link the requests share."""
    own: Floats = np.where(units > 0, around.hit_overhead_s or 0.0, 0.0)
    if around.gpu_copy_bytes_per_s is None:
        return own
    copied: Floats = own + size * concurrent / around.gpu_copy_bytes_per_s
    return copied


def _quickest(measured: MeasuredReads) -> Floats | None:
    """What a unit of each bin takes alone, relative to what it took under load: None where nobody knows.

    Of the same rank among all units, where units alone were measured: those that are slow in themselves are as slow
    alone. Else as for the mean of all.
    """
    mean_s = _mean_s(measured)
    if measured.histogram is None or measured.alone_s is None or not mean_s:
        return None
    values = np.array([ns for ns, _ in measured.histogram.bins], dtype=float)
    if measured.alone is None:
        return np.full(len(values), min(1.0, measured.alone_s / mean_s))
    ranks = _ranks(measured.histogram)
    alone = np.array([ns for ns, _ in measured.alone.bins], dtype=float)
    same_rank = alone[np.minimum(np.searchsorted(_ranks(measured.alone, ends=True), ranks), len(alone) - 1)]
    quickest: Floats = np.minimum(1.0, same_rank / np.maximum(values, 1.0))
    return quickest


def _ranks(histogram: Histogram, *, ends: bool = False) -> Floats:
    """The share of all samples below the middle of each bin, or up to its end."""
    counts = np.array([count for _, count in histogram.bins], dtype=float)
    below: Floats = ((np.cumsum(counts) - (0.0 if ends else counts / 2)) / counts.sum()).astype(np.float64)
    return below


def _simulate(
    histogram: Histogram, workers: int, units: NDArray[np.int64], quickest: Floats | None
) -> tuple[Floats, Floats]:
    """Makespans in seconds, shape (replicates, len(units)), of list-scheduling each number of units over the workers,
    and each replicate's mean latency relative to the measured mean.

    ``quickest``: what a unit of each bin takes alone, relative to what it took.
    """
    values = np.array([ns for ns, _ in histogram.bins], dtype=float) / 1e9
    weights = np.array([count for _, count in histogram.bins], dtype=float)
    mean = float((values * weights).sum() / weights.sum())
    generator = np.random.default_rng(_SEED)
    resampled = generator.multinomial(histogram.samples, weights / weights.sum(), size=_REPLICATES) / histogram.samples
    means = resampled @ values
    simulated = np.minimum(units, _SIMULATED_UNITS)
    picked = _picked(resampled, int(simulated.max(initial=0)), generator)
    ends = _ends(values[picked], workers, simulated, None if quickest is None else quickest[picked])
    beyond = (units - simulated) * means[:, np.newaxis] / workers
    return ends + beyond, means / mean


def _picked(shares: Floats, count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Bins of ``count`` latencies for each replicate by inverting its own distribution, shape (replicates, count)."""
    uniform = generator.random((len(shares), count))
    cumulative = np.cumsum(shares, axis=1)
    picked = [np.searchsorted(row, chance) for row, chance in zip(cumulative, uniform, strict=True)]
    bins: NDArray[np.int64] = np.minimum(np.array(picked, dtype=np.int64), shares.shape[1] - 1).reshape(uniform.shape)
    return bins


def _ends(drawn: Floats, workers: int, counts: NDArray[np.int64], quickest: Floats | None) -> Floats:
    """When the first ``counts`` units are all done, shape (replicates, len(counts)): each unit goes to the worker that
    is free first, and the last ones get quicker as fewer are in flight."""
    replicates = len(drawn)
    if workers == 1:
        sums = np.concatenate([np.zeros((replicates, 1)), np.cumsum(drawn, axis=1)], axis=1)
        return sums[:, counts]
    free, rows = np.zeros((replicates, workers)), np.arange(replicates)
    # Seconds of each worker's unit that fewer others would not make shorter.
    own = np.zeros((replicates, workers))
    found = np.zeros((replicates, len(counts)))
    wanted = {count: np.flatnonzero(counts == count) for count in set(counts.tolist())}
    for number in range(drawn.shape[1]):
        chosen = free.argmin(axis=1)
        begun = free[rows, chosen]
        free[rows, chosen] += drawn[:, number]
        own[rows, chosen] = drawn[:, number] * (1.0 if quickest is None else quickest[:, number])
        if (columns := wanted.get(number + 1)) is not None:
            found[:, columns] = _last_end(free, begun, min(number + 1, workers), own)[:, np.newaxis]
    return found


def _last_end(free: Floats, begun: Floats, in_flight: int, own: Floats) -> Floats:
    """When the last unit is done, given when each worker would be free under full load, shape (replicates,).

    The latencies were measured with all workers busy. ``own`` of each is what a unit takes alone (by worker), the rest
    is waiting for the others, which a tier that is limited by its rate makes shorter as fewer are left:
    (left - 1) / (workers - 1) of it, processor sharing (Kleinrock, Queueing Systems 2, 4.4). A unit that is slow in
    itself is not quicker for being the last. Waiting comes first.
    """
    workers = free.shape[1]
    order = np.argsort(free, axis=1)[:, workers - in_flight :]
    ordered = np.take_along_axis(free, order, axis=1)
    waited = ordered - np.take_along_axis(own, order, axis=1)
    times = np.concatenate([begun[:, np.newaxis], ordered], axis=1)
    spared = 1 - (np.arange(in_flight, 0, -1) - 1) / max(1, workers - 1)
    ends = []
    for at in range(in_flight):
        waiting = np.clip(waited[:, at, np.newaxis] - times[:, : at + 1], 0.0, np.diff(times[:, : at + 2], axis=1))
        ends.append(ordered[:, at] - waiting @ spared[: at + 1])
    end: Floats = np.max(ends, axis=0)
    return end
