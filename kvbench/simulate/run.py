"""A trace through an engine with each configuration of tiers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kvbench.simulate.caches import POLICIES, TierCache
from kvbench.simulate.lineage import Lineage, lineage_of, order_of, routes_of
from kvbench.simulate.plan import Engine, TierSet
from kvbench.simulate.replica import Replica, RequestMoves, Sent
from kvbench.traces.trace import Floats, Ints, Trace

# More keys than any trace names: a tier without a limit.
_NO_LIMIT = 1 << 62
# Rates are averaged over so long, as a storage system is asked to sustain them.
_WINDOW_S = 60.0


@dataclass(frozen=True, slots=True)
class TierOutcome:
    """What one tier gave back and moved, over all replicas.

    ``hit_rate`` is over all prompt tokens, ``peak_bytes`` the most that it held. The highest rates are those of any
    minute of the trace's own time, None where requests have no times or are sent by sessions in turn.
    """

    name: str
    hit_tokens: int
    hit_rate: float
    read_bytes: int
    written_bytes: int
    peak_bytes: int
    lost_to_full_bytes: int = 0
    highest_read_bytes_per_s: float | None = None
    highest_write_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Simulated:
    """What a configuration did with a trace; tiers are the GPU, the CPU and what lies behind it."""

    configuration: TierSet
    requests: int
    prompt_tokens: int
    tiers: tuple[TierOutcome, ...]
    recomputed_tokens: int
    promotions_without_slot: int
    unstored_chunks: int
    waited_requests: int
    too_long_requests: int

    @property
    def hit_rate(self) -> float:
        """The share of all prompt tokens that some tier gave back."""
        return sum(tier.hit_tokens for tier in self.tiers) / max(1, self.prompt_tokens)

    @property
    def external_hit_rate(self) -> float:
        """The share of what the GPU did not hold, as vLLM counts it."""
        local, *others = (tier.hit_tokens for tier in self.tiers)
        return sum(others) / max(1, self.prompt_tokens - local)


@dataclass(frozen=True, slots=True, eq=False)
class Sending:
    """A trace as an engine is sent it, the same for every configuration: the requests in their order, and the replica
    of each request."""

    trace: Trace
    engine: Engine
    lineage: Lineage
    order: Sequence[int]
    routes: Sequence[int]
    sent: Sequence[Sent]


@dataclass(frozen=True, slots=True, eq=False)
class ServedTrace:
    """What a configuration did: the moves of every request in the order in which they were sent, and the most chunks
    that each replica's tiers held, shape (replicas, tiers)."""

    tiers: TierSet
    moves: Sequence[RequestMoves]
    peaks: Ints


def sending_of(trace: Trace, engine: Engine) -> Sending:
    """The trace's requests for an engine, worked out once for any number of configurations."""
    lineage = lineage_of(trace)
    order, routes = order_of(trace, lineage, engine), routes_of(trace, lineage, engine)
    return Sending(trace, engine, lineage, order, routes, _sent(trace, lineage))


def simulate(trace: Trace, engine: Engine, configurations: Sequence[TierSet]) -> list[Simulated]:
    """Every configuration on the same requests in the same order, on the same replicas."""
    sending = sending_of(trace, engine)
    return [summed(sending, serve(sending, one)) for one in configurations]


def _sent(trace: Trace, lineage: Lineage) -> list[Sent]:
    """The requests with the blocks that later ones name: whole ones of the prompt, and of the answer where a child
    goes on from it."""
    first, tokens = trace.first.tolist(), trace.block_tokens
    answer: dict[int, list[int]] = {}
    for request, parent in enumerate(lineage.parent):
        place = lineage.answers[request]
        if parent >= 0 and len(place):
            begin = first[request]
            answer[parent] = trace.blocks[begin + place.start : begin + place.stop].tolist()
    found = []
    for request in range(trace.requests):
        prompt, output = int(trace.prompt_tokens[request]), max(0, int(trace.output_tokens[request]))
        whole = min(first[request + 1] - first[request], prompt // tokens)
        blocks = trace.blocks[first[request] : first[request] + whole].tolist()
        found.append(Sent(blocks, answer.get(request, []), prompt, -(-(prompt + output) // tokens)))
    return found


def serve(sending: Sending, tiers: TierSet) -> ServedTrace:
    """Send every request to replicas that have these tiers."""
    trace, engine, order = sending.trace, sending.engine, sending.order
    shared = {one.name: _cache(one.capacity_bytes, engine, evicts=one.evicts) for one in tiers.secondary if one.shared}
    private = [
        {one.name: _cache(one.capacity_bytes, engine, evicts=one.evicts) for one in tiers.secondary if not one.shared}
        for _ in range(engine.replicas)
    ]
    behind = [[shared[one.name] if one.shared else own[one.name] for one in tiers.secondary] for own in private]
    replicas = [Replica(engine, tiers, one, trace.block_tokens) for one in behind]
    loss = None if engine.lost_at is None else int(engine.lost_at * len(order))
    moved: list[RequestMoves] = []
    peaks = np.zeros((engine.replicas, 1 + len(tiers.secondary)), np.int64)
    for at, request in enumerate(order):
        if at == loss:
            replicas[0].lose()
            for cache in private[0].values():
                cache.clear()
        route = sending.routes[request]
        moved.append(replicas[route].serve(sending.sent[request]))
        held = [replicas[route].cpu_chunks, *(len(cache) for cache in behind[route])]
        peaks[route] = np.maximum(peaks[route], held)
    return ServedTrace(tiers, moved, peaks)


def _cache(capacity_bytes: int | None, engine: Engine, *, evicts: bool) -> TierCache:
    chunks = _NO_LIMIT if capacity_bytes is None else capacity_bytes // engine.chunk_bytes
    return POLICIES["lru" if evicts else "never"](chunks)


def summed(sending: Sending, served: ServedTrace) -> Simulated:
    """What a configuration found, moved and lost in all."""
    trace, engine = sending.trace, sending.engine
    tiers, moved, peaks = served.tiers, served.moves, served.peaks
    times = None if trace.arrival_s is None or engine.concurrency is not None else trace.arrival_s
    total = int(trace.prompt_tokens.sum())
    gpu = sum(one.gpu_tokens for one in moved)
    found = [TierOutcome("gpu", gpu, gpu / max(1, total), 0, 0, 0)]
    secondary = {one.name: one for one in tiers.secondary}
    for at, name in enumerate(["cpu", *secondary] if tiers.cpu_bytes else []):
        read, written, lost, hits = (
            np.array([getattr(one, key)[at] for one in moved], np.int64)
            for key in ("read_chunks", "written_chunks", "lost_to_full", "tier_tokens")
        )
        is_shared = name in secondary and secondary[name].shared
        peak = int(peaks[:, at].max() if is_shared else peaks[:, at].sum())
        found.append(
            TierOutcome(
                name,
                int(hits.sum()),
                int(hits.sum()) / max(1, total),
                int(read.sum()) * engine.chunk_bytes,
                int(written.sum()) * engine.chunk_bytes,
                peak * engine.chunk_bytes,
                int(lost.sum()) * engine.chunk_bytes,
                _highest(read, times, engine),
                _highest(written, times, engine),
            )
        )
    return Simulated(
        configuration=tiers,
        requests=len(moved),
        prompt_tokens=total,
        tiers=tuple(found),
        recomputed_tokens=sum(one.recomputed_tokens for one in moved),
        promotions_without_slot=sum(one.without_slot for one in moved),
        unstored_chunks=sum(one.unstored_chunks for one in moved),
        waited_requests=sum(one.waited for one in moved),
        too_long_requests=sum(one.too_long for one in moved),
    )


def _highest(chunks: Ints, times: Floats | None, engine: Engine) -> float | None:
    """Bytes per second of the busiest minute."""
    if times is None or not len(times):
        return None
    minutes = ((times - times[0]) // _WINDOW_S).astype(np.int64)
    length = min(_WINDOW_S, float(times[-1] - times[0])) or _WINDOW_S
    return float(np.bincount(minutes, weights=chunks).max()) * engine.chunk_bytes / length
