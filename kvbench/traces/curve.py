"""LRU hits at every capacity at once, in blocks or in bytes (pure)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvbench.traces.stack import reuse_distances
from kvbench.traces.trace import Floats, Ints, Trace

# A share of the ideal is told from a rounding error of its product.
_EPSILON = 1e-9


@dataclass(frozen=True, slots=True)
class Hits:
    """What one capacity finds; ``rate`` is the share of all prompt tokens."""

    blocks: int
    tokens: int
    rate: float


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """The capacities at which hits grow, in rising order, and the hits of a cache of exactly that capacity.

    ``prompt_tokens`` are those of the whole trace, blocks or not.
    """

    capacities: Ints
    blocks: Ints
    tokens: Ints
    prompt_tokens: int

    def at(self, capacity: int) -> Hits:
        """The hits of an LRU cache of that capacity."""
        place = int(np.searchsorted(self.capacities, capacity, side="right")) - 1
        if place < 0:
            return Hits(0, 0, 0.0)
        tokens = int(self.tokens[place])
        return Hits(int(self.blocks[place]), tokens, self._rate(tokens))

    @property
    def ideal(self) -> Hits:
        """The hits of a cache that never evicts."""
        return self.at(self.largest)

    @property
    def largest(self) -> int:
        """The least capacity that finds all there is to find; 0 where nothing is ever reused."""
        return int(self.capacities[-1]) if len(self.capacities) else 0

    def capacity_for(self, share: float) -> int | None:
        """The least capacity with at least that share of the ideal block hits; None where nothing is ever reused."""
        if not len(self.capacities):
            return None
        return self.capacity_of(share * int(self.blocks[-1]) - _EPSILON)

    def capacity_of(self, blocks: float) -> int:
        """The least capacity that hits at least so many blocks, the largest at most."""
        if blocks <= 0 or not len(self.capacities):
            return 0
        place = int(np.searchsorted(self.blocks, blocks, side="left"))
        return int(self.capacities[min(place, len(self.capacities) - 1)])

    def rates(self) -> Floats:
        """The hit rate at each of ``capacities``."""
        return self.tokens / max(1, self.prompt_tokens)

    def _rate(self, tokens: int) -> float:
        return tokens / self.prompt_tokens if self.prompt_tokens else 0.0


def reuse_curve(trace: Trace, weights: Ints | None = None) -> tuple[Curve, Ints]:
    """The trace's curve in blocks, or in the unit of ``weights``, with the distance of each reference."""
    distances = reuse_distances(trace.blocks, trace.first, weights)
    return curve_of(distances, trace.reference_tokens(), int(trace.prompt_tokens.sum())), distances


def curve_of(distances: Ints, tokens: Ints, prompt_tokens: int) -> Curve:
    """The curve of references with those distances (0: never found) and tokens."""
    found = np.flatnonzero(distances)
    near, own = distances[found], tokens[found]
    if len(found) and int(near.max()) <= 4 * len(distances) + 1024:
        counts = np.bincount(near)
        # Sums of whole numbers below 2^53 are exact in floating point.
        sums = np.bincount(near, weights=own).astype(np.int64)
        capacities = np.flatnonzero(counts)
        return Curve(capacities, np.cumsum(counts[capacities]), np.cumsum(sums[capacities]), prompt_tokens)
    order = np.argsort(near)
    near, own = near[order], own[order]
    last = np.flatnonzero(np.append(near[1:] != near[:-1], True)) if len(near) else np.zeros(0, np.int64)
    return Curve(near[last], last + 1, np.cumsum(own)[last], prompt_tokens)


def head_first(trace: Trace) -> Trace:
    """The trace with every block a request of its own: plain LRU, which moves a prompt's first block first.

    It is what simulators do that know no requests; the last block of a prompt is then evicted last, and prefixes break.
    """
    every = np.arange(trace.references + 1)
    request = trace.request_of()
    return Trace(
        trace.block_tokens,
        trace.reuse,
        None if trace.arrival_s is None else trace.arrival_s[request],
        trace.session[request],
        trace.reference_tokens(),
        np.full(trace.references, -1, np.int64),
        every,
        trace.blocks,
        trace.unique_blocks,
    )
