"""The curve of a sample of blocks, with its error: for traces too large for the exact one (pure).

SHARDS (Waldspurger, Park, Garthwaite, Ahmad 2015): blocks are kept by a hash of their name, so a kept block keeps all
its references, and distances among them are those of the whole trace times the rate. References that the sample has too
few or too many of belong to hot blocks and are made up for at the shortest distance, as SHARDS-adj does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvbench.errors import UsageError
from kvbench.traces.curve import Curve, curve_of
from kvbench.traces.stack import reuse_distances
from kvbench.traces.trace import Ints, Trace

_GROUPS = 8
# 97.5 % quantile of Student's t with 7 degrees of freedom: eight groups give the spread.
_T = 2.365
_LEAST_BLOCKS = 50 * _GROUPS
# A cache of fewer blocks in a part of the sample has no hit rate worth the name.
_RESOLVED_BLOCKS = 20


@dataclass(frozen=True, slots=True, eq=False)
class SampledCurve:
    """The estimated curve, and those of disjoint parts of the sample, whose spread is its error."""

    rate: float
    kept_references: int
    curve: Curve
    parts: tuple[Curve, ...]
    least_capacity: int

    def interval(self, capacity: int) -> tuple[float, float]:
        """The 95 % interval of the hit rate at that capacity.

        Half of it is the parts' own spread and how far their mean is from the whole sample. Below ``least_capacity`` a
        part holds too few blocks to have a spread: all that is known is that a smaller cache finds no more.
        """
        if capacity < self.least_capacity:
            return 0.0, self.interval(self.least_capacity)[1]
        rates = [part.at(capacity).rate for part in self.parts]
        rate = self.curve.at(capacity).rate
        half = float(_T * np.std(rates, ddof=1) / np.sqrt(len(rates)) + abs(np.mean(rates) - rate))
        return max(0.0, rate - half), min(1.0, rate + half)


def sampled_curve(trace: Trace, rate: float, weights: Ints | None = None, seed: int = 0) -> SampledCurve:
    """The curve estimated from a share of the blocks; UsageError where the sample would be too small."""
    hashes = _hashes(trace.unique_blocks, seed)
    kept = hashes < np.uint64(int(rate * 2**32)) << np.uint64(32)
    if int(kept.sum()) < _LEAST_BLOCKS:
        raise UsageError(
            f"a sample of {rate:.2%} keeps {int(kept.sum())} of {trace.unique_blocks:,} blocks, too few to say "
            "anything; leave out --sample, or ask for a larger share."
        )
    group = (hashes & np.uint64(_GROUPS - 1)).astype(np.int8)
    tokens = trace.reference_tokens()
    whole = _part(trace, kept, rate, weights, tokens)
    parts = tuple(_part(trace, kept & (group == number), rate / _GROUPS, weights, tokens) for number in range(_GROUPS))
    weighed = 1.0 if weights is None else float(weights.mean())
    least = int(np.ceil(_RESOLVED_BLOCKS * _GROUPS / rate * weighed))
    return SampledCurve(rate, int(kept[trace.blocks].sum()), whole, parts, least)


def _hashes(count: int, seed: int) -> npt.NDArray[np.uint64]:
    """A well mixed number for each block (the finalizer of SplitMix64)."""
    with np.errstate(over="ignore"):
        mixed = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _part(trace: Trace, kept: npt.NDArray[np.bool_], rate: float, weights: Ints | None, tokens: Ints) -> Curve:
    mask = kept[trace.blocks]
    before = np.concatenate(([0], np.cumsum(mask)))
    own = None if weights is None else weights[mask]
    distances = reuse_distances(trace.blocks[mask], before[trace.first], own)
    distances = np.rint(distances / rate).astype(np.int64)
    found = curve_of(distances, tokens[mask], int(trace.prompt_tokens.sum()))
    missing = trace.references - mask.sum() / rate
    missing_tokens = int(tokens.sum()) - tokens[mask].sum() / rate
    return Curve(
        found.capacities,
        _made_up(found.blocks / rate + missing, trace.references),
        _made_up(found.tokens / rate + missing_tokens, int(tokens.sum())),
        found.prompt_tokens,
    )


def _made_up(hits: npt.NDArray[np.float64], most: int) -> Ints:
    made: Ints = np.clip(np.rint(hits), 0, most).astype(np.int64)
    return made
