"""What a cache of a trace finds and moves: chosen capacities, shares of the ideal, windows, traffic (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvbench.traces.curve import Curve, Hits, reuse_curve
from kvbench.traces.sample import SampledCurve, sampled_curve
from kvbench.traces.summary import Summary, summarize
from kvbench.traces.trace import Ints, Trace
from kvbench.traces.weights import BlockWeight
from kvbench.traces.windows import Traffic, WorkingSets, step_s, too_short, traffic, working_sets

_GIB = 1 << 30
_MOST_DEFAULT_POINTS = 24


@dataclass(frozen=True, slots=True)
class Capacity:
    """A capacity that somebody asks about, in bytes or in the trace's blocks (one of them is None)."""

    name: str
    bytes: int | None = None
    blocks: int | None = None


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """What one capacity finds.

    Where blocks of a model do not all weigh the same, the size that was not asked for is the least with as many hits.
    ``interval`` is the 95 % interval of an estimated rate, None for an exact one.
    """

    name: str
    bytes: int | None
    blocks: int | None
    hits: Hits
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class ShareSize:
    """The least capacity that hits so much of what an endless cache hits."""

    share: float
    blocks: int | None
    bytes: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """Everything about one trace and model; ``shown`` is the curve in bytes where a model is given, else in blocks.

    ``chosen`` tells capacities that somebody asked for from the round ones.
    """

    trace: Trace
    summary: Summary
    weight: BlockWeight | None
    shown: Curve
    points: tuple[CurvePoint, ...]
    shares: tuple[ShareSize, ...]
    working_sets: tuple[WorkingSets, ...]
    traffic: tuple[Traffic, ...]
    step_s: int | None
    sampled: SampledCurve | None
    chosen: bool
    skipped_minutes: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Curves:
    """The trace's curve in blocks, and in bytes where blocks differ in weight, exact or of a sample."""

    weight: BlockWeight | None
    blocks: Curve
    bytes: Curve | None
    sampled: SampledCurve | None
    sampled_bytes: SampledCurve | None
    distances: Ints | None
    byte_distances: Ints | None

    def point(self, wanted: Capacity) -> CurvePoint:
        if wanted.blocks is not None:
            hits = self.blocks.at(wanted.blocks)
            return self._point(wanted, self.to_bytes(wanted.blocks, hits), wanted.blocks, hits, in_bytes=False)
        assert wanted.bytes is not None
        assert self.weight is not None
        if self.bytes is None:
            blocks = wanted.bytes // self.weight.block_bytes
            return self._point(wanted, wanted.bytes, blocks, self.blocks.at(blocks), in_bytes=False)
        hits = self.bytes.at(wanted.bytes)
        return self._point(wanted, wanted.bytes, self.blocks.capacity_of(hits.blocks), hits, in_bytes=True)

    def _point(self, wanted: Capacity, size: int | None, blocks: int, hits: Hits, *, in_bytes: bool) -> CurvePoint:
        sampled, at = (self.sampled_bytes, size) if in_bytes else (self.sampled, blocks)
        interval = None if sampled is None or at is None else sampled.interval(at)
        return CurvePoint(wanted.name, size, blocks, hits, interval)

    def to_bytes(self, blocks: int, hits: Hits) -> int | None:
        if self.weight is None:
            return None
        return blocks * self.weight.block_bytes if self.bytes is None else self.bytes.capacity_of(hits.blocks)

    def share(self, share: float, blocks: int | None) -> ShareSize:
        if blocks is None:
            return ShareSize(share, None, None)
        return ShareSize(share, blocks, self.to_bytes(blocks, self.blocks.at(blocks)))

    def shown(self) -> Curve:
        if self.weight is None:
            return self.blocks
        if self.bytes is not None:
            return self.bytes
        own = self.blocks
        return Curve(own.capacities * self.weight.block_bytes, own.blocks, own.tokens, own.prompt_tokens)


def answer(
    trace: Trace,
    weight: BlockWeight | None,
    wanted: Sequence[Capacity],
    minutes: tuple[int, ...],
    sample: float | None = None,
) -> Answer:
    """Work everything out; without wanted capacities, round ones up to what finds all."""
    curves = _curves(trace, weight, sample)
    summary = summarize(trace, curves.blocks, curves.distances)
    shown = curves.shown()
    points = tuple(
        curves.point(one) for one in wanted or default_capacities(shown.largest, in_bytes=weight is not None)
    )
    moved, step = _traffic(trace, curves, points if wanted else ())
    return Answer(
        trace,
        summary,
        weight,
        shown,
        points,
        tuple(curves.share(share, blocks) for share, blocks in summary.blocks_for_share),
        working_sets(trace, weight, minutes),
        moved,
        step,
        curves.sampled,
        bool(wanted),
        too_short(trace, minutes),
    )


def _curves(trace: Trace, weight: BlockWeight | None, sample: float | None) -> _Curves:
    weights = None if weight is None or weight.uniform else weight.of(trace)
    if sample is not None:
        sampled = sampled_curve(trace, sample)
        in_bytes = None if weights is None else sampled_curve(trace, sample, weights)
        own = None if in_bytes is None else in_bytes.curve
        return _Curves(weight, sampled.curve, own, sampled, in_bytes, None, None)
    blocks, distances = reuse_curve(trace)
    if weights is None:
        return _Curves(weight, blocks, None, None, None, distances, None)
    heavy, byte_distances = reuse_curve(trace, weights)
    return _Curves(weight, blocks, heavy, None, None, distances, byte_distances)


def default_capacities(largest: int, *, in_bytes: bool) -> list[Capacity]:
    """Doubling capacities up to the first that finds all there is to find."""
    found: list[Capacity] = []
    size = _GIB if in_bytes else 64
    while size > largest > 0 and size > 1:
        size //= 2
    while len(found) < _MOST_DEFAULT_POINTS:
        found.append(Capacity("", bytes=size) if in_bytes else Capacity("", blocks=size))
        if size >= largest:
            break
        size *= 2
    return found


def _traffic(trace: Trace, curves: _Curves, points: Sequence[CurvePoint]) -> tuple[tuple[Traffic, ...], int | None]:
    if trace.arrival_s is None or curves.distances is None or curves.weight is None:
        return (), None
    step = step_s(trace)
    in_bytes = curves.byte_distances
    moved = []
    for point in points:
        distances, capacity = (curves.distances, point.blocks) if in_bytes is None else (in_bytes, point.bytes)
        assert capacity is not None
        moved.append(traffic(trace, distances, curves.weight, capacity, point.name, step))
    return tuple(moved), step
