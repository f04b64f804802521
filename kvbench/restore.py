"""How long a tier takes to give back the KV of a prompt: every unit of it, as the connector reads them (pure).

T_restore = lookups + the tier's reads + the copy to the GPU. The reads are list-scheduled over what one request has in
flight, with latencies drawn from the measured histogram, and never faster than the measured rate shared by the requests
that restore at once. Lookups come first (one thread, vLLM 0.24 kv_offload/tiering/async_lookup.py) and the copy to the
GPU last (a promotion is complete before the load starts, vLLM RFC #51439), so the three add up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvbench.histogram import Histogram
from kvbench.results import Direction, PointResult, Use

Floats = NDArray[np.float64]

_REPLICATES = 400
# Beyond it a makespan grows by mean / workers for each unit to within a fraction of a percent.
_SIMULATED_UNITS = 4096
_SEED = 20260102


@dataclass(frozen=True, slots=True)
class Measured:
    """The read side of one point: what restoring from a tier costs at that load."""

    point: PointResult
    read: Direction
    histogram: Histogram | None


@dataclass(frozen=True, slots=True)
class Around:
    """What a restore costs beside the tier's reads; None is not known, and then left out.

    ``lookup_s_per_unit``: the check whether a unit exists. ``gpu_copy_bytes_per_s``: from host memory into all GPUs of
    the server together.
    """

    lookup_s_per_unit: float | None = None
    gpu_copy_bytes_per_s: int | None = None


NOTHING_AROUND = Around()


@dataclass(frozen=True)
class RestoreCurve:
    """Seconds to restore ``tokens`` (rising): the middle, and one row of ``draws`` for each simulated request.

    ``around_s`` is the part that is not the tier's, shape (len(tokens),).
    """

    tokens: Floats
    seconds: Floats
    draws: Floats
    around_s: Floats


def restore_curve(
    use: Use, measured: Measured, concurrent: int, tokens: Floats, around: Around = NOTHING_AROUND
) -> RestoreCurve:
    """Seconds to restore each of ``tokens`` while ``concurrent`` requests restore at once.

    Every replicate first resamples the histogram, so that few samples widen the band. Without a histogram the mean
    latency stands for every unit and there is no band.
    """
    units = units_of(use, tokens)
    # Where requests share the connector's threads, each gets its part of them.
    workers = min(use.parallelism_per_request, max(1, -(-use.in_flight(concurrent) // concurrent)))
    around_s = _around_s(units * use.io_bytes, units, concurrent, around)
    shared_s = units / (measured.read.iops / concurrent)
    if measured.histogram is None:
        mean_ns = measured.read.latency_ns.mean if measured.read.latency_ns else None
        waves = np.ceil(units / workers)
        seconds = np.maximum(shared_s, waves * (mean_ns or 0) / 1e9) + around_s
        return RestoreCurve(tokens, seconds, seconds[np.newaxis, :], around_s)
    scheduled, relative_mean = _simulate(measured.histogram, workers, units.astype(int))
    # In a closed loop the rate moves with 1 / mean latency, so a replicate with slower units also has less bandwidth.
    draws = np.maximum(scheduled, relative_mean[:, np.newaxis] * shared_s) + around_s
    return RestoreCurve(tokens, np.median(draws, axis=0), draws, around_s)


def restore_tokens_per_s(
    use: Use, measured: Measured, concurrent: int, around: Around = NOTHING_AROUND
) -> float | None:
    """Tokens that one of ``concurrent`` requests gets back per second on a long prompt: the prefill speed to beat.

    None where a restore stops growing with the prompt, because every layer has a window.
    """
    if use.units_per_block == 0:
        return None
    by_rate = concurrent / measured.read.iops
    mean = measured.read.latency_ns.mean if measured.read.latency_ns else None
    one = np.ones(1)
    beside = float(_around_s(one * use.io_bytes, one, concurrent, around)[0])
    workers = use.in_flight(concurrent) / concurrent
    per_unit = max(by_rate, (mean or 0) / 1e9 / workers) + beside
    return use.block_tokens / (use.units_per_block * per_unit)


def units_of(use: Use, tokens: Floats) -> Floats:
    """Units that a restore of each number of tokens reads; see ``Use.units``."""
    blocks: Floats = np.ceil(tokens / use.block_tokens)
    return blocks * use.units_per_block + np.minimum(blocks * use.windowed_units, use.window_units)


def _around_s(size: Floats, units: Floats, concurrent: int, around: Around) -> Floats:
    """Seconds of lookups and of the copy to the GPU, whose link the requests share."""
    lookups = units * (around.lookup_s_per_unit or 0.0)
    if around.gpu_copy_bytes_per_s is None:
        return lookups
    return lookups + size * concurrent / around.gpu_copy_bytes_per_s


def _simulate(histogram: Histogram, workers: int, units: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Makespans in seconds, shape (replicates, len(units)), of list-scheduling each number of units over the workers,
    and each replicate's mean latency relative to the measured mean."""
    values = np.array([ns for ns, _ in histogram.bins], dtype=float) / 1e9
    weights = np.array([count for _, count in histogram.bins], dtype=float)
    generator = np.random.default_rng(_SEED)
    resampled = generator.multinomial(histogram.samples, weights / weights.sum(), size=_REPLICATES) / histogram.samples
    means = resampled @ values
    simulated = np.minimum(units, _SIMULATED_UNITS)
    drawn = _drawn(values, resampled, int(simulated.max(initial=0)), generator)
    ends = _ends(drawn, workers)
    beyond = (units - simulated) * means[:, np.newaxis] / workers
    return ends[:, simulated] + beyond, means / ((values * weights).sum() / weights.sum())


def _drawn(values: Floats, shares: Floats, count: int, generator: np.random.Generator) -> Floats:
    """``count`` latencies for each replicate by inverting its own distribution, shape (replicates, count)."""
    uniform = generator.random((len(shares), count))
    cumulative = np.cumsum(shares, axis=1)
    picked = [np.searchsorted(row, chance) for row, chance in zip(cumulative, uniform, strict=True)]
    latencies: Floats = values[np.minimum(np.array(picked), len(values) - 1)]
    return latencies.reshape(uniform.shape)


def _ends(drawn: Floats, workers: int) -> Floats:
    """When the first 0, 1, 2, ... units are all done, shape (replicates, units + 1): each goes to the worker that is
    free first."""
    replicates, count = drawn.shape
    ends = np.zeros((replicates, count + 1))
    if workers == 1:
        ends[:, 1:] = np.cumsum(drawn, axis=1)
        return ends
    free, rows = np.zeros((replicates, workers)), np.arange(replicates)
    for number in range(count):
        chosen = free.argmin(axis=1)
        free[rows, chosen] += drawn[:, number]
        np.maximum(ends[:, number], free[rows, chosen], out=ends[:, number + 1])
    return ends
