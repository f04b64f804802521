"""How long the simulated requests would wait: queues on each GPU and on each tier, first come, first served (pure).

What is assumed is in docs/simulation.md. The times answer "how much better than without", not "how many seconds".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kvbench.record.results import Way
from kvbench.simulate.lineage import lineage_of, order_of, routes_of, sessions_of
from kvbench.simulate.plan import Engine, TierSet
from kvbench.simulate.replica import RequestMoves
from kvbench.simulate.run import moves_of
from kvbench.traces.trace import Trace

_P95 = 95


@dataclass(frozen=True, slots=True)
class Compute:
    """Seconds of a prefill of n tokens, a + bn + cn^2, and of each token of an answer."""

    a_s: float
    b_s_per_token: float
    c_s_per_token2: float
    per_token_s: float

    def prefill_s(self, prompt_tokens: int, found_tokens: int) -> float:
        """Seconds to compute what was not found: T(P + S) less what the prefix P spares (decide/recompute.py)."""
        return (
            self.a_s
            + self.b_s_per_token * (prompt_tokens - found_tokens)
            + self.c_s_per_token2 * (prompt_tokens**2 - found_tokens**2)
        )


@dataclass(frozen=True, slots=True)
class TierRates:
    """Bytes per second that a tier reads and writes; a tier that is not named takes no time."""

    read: Mapping[str, float] = field(default_factory=dict)
    write: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Predicted:
    """What a configuration would serve; the ratios are over the first configuration of the same call."""

    name: str
    ttft_mean_s: float
    ttft_p95_s: float
    requests_per_s: float
    ttft_mean_ratio: float = 1.0
    ttft_p95_ratio: float = 1.0
    requests_per_s_ratio: float = 1.0


def predict(
    trace: Trace, engine: Engine, configurations: Sequence[TierSet], compute: Compute, rates: TierRates
) -> list[Predicted]:
    """Each configuration with its times; the first is what the others are compared with."""
    found = [_predict(trace, engine, one, compute, rates) for one in configurations]
    base = found[0]
    return [
        Predicted(
            one.name,
            one.ttft_mean_s,
            one.ttft_p95_s,
            one.requests_per_s,
            one.ttft_mean_s / base.ttft_mean_s,
            one.ttft_p95_s / base.ttft_p95_s,
            one.requests_per_s / base.requests_per_s,
        )
        for one in found
    ]


def _predict(trace: Trace, engine: Engine, tiers: TierSet, compute: Compute, rates: TierRates) -> Predicted:
    lineage = lineage_of(trace)
    order, routes = order_of(trace, lineage, engine), routes_of(trace, lineage, engine)
    sessions = sessions_of(trace, lineage)
    moves = moves_of(trace, engine, tiers)
    queues = _Queues(engine, tiers, rates)
    # When each session may send its next request, how many it has left, and when places for new ones are free.
    free_s: dict[int, float] = {}
    left = Counter(sessions)
    slots = [0.0] * ((engine.concurrency or 0) * engine.replicas)
    ttft, last_s, first_s = [], 0.0, None
    for request, moved in zip(order, moves, strict=True):
        session = sessions[request]
        if engine.concurrency is None:
            asked_s = 0.0 if trace.arrival_s is None else float(trace.arrival_s[request])
        elif session in free_s:
            asked_s = free_s[session]
        else:
            # A new session takes the place of the one that ended first.
            asked_s = slots.pop(slots.index(min(slots)))
        prompt = int(trace.prompt_tokens[request])
        restored_s = queues.restore(routes[request], moved, asked_s)
        computed_s = queues.compute(
            routes[request], restored_s, compute.prefill_s(prompt, prompt - moved.recomputed_tokens)
        )
        queues.store(routes[request], moved, computed_s)
        ended_s = computed_s + max(0, int(trace.output_tokens[request])) * compute.per_token_s
        free_s[session] = ended_s
        left[session] -= 1
        if not left[session]:
            slots.append(ended_s)
        ttft.append(computed_s - asked_s)
        first_s = asked_s if first_s is None else min(first_s, asked_s)
        last_s = max(last_s, ended_s)
    took_s = last_s - (first_s or 0.0)
    return Predicted(
        tiers.name, float(np.mean(ttft)), float(np.percentile(ttft, _P95)), len(ttft) / took_s if took_s else 0.0
    )


class _Queues:
    """When each GPU and each tier is free again, in seconds."""

    def __init__(self, engine: Engine, tiers: TierSet, rates: TierRates) -> None:
        self._engine, self._rates = engine, rates
        self._gpu_s = [0.0] * engine.replicas
        self._names = ["cpu", *(one.name for one in tiers.secondary)]
        self._shared = {one.name for one in tiers.secondary if one.shared}
        self._tier_s: dict[tuple[str, int, Way], float] = {}

    def restore(self, route: int, moved: RequestMoves, asked_s: float) -> float:
        """When everything that was found is there: tiers bring their parts side by side, each in its own queue."""
        return max([asked_s, *self._move(route, "read", moved.read_chunks, asked_s)])

    def store(self, route: int, moved: RequestMoves, computed_s: float) -> None:
        """Stores follow the computation; nobody waits for them but later stores: reads are as fast as in the mix."""
        self._move(route, "write", moved.written_chunks, computed_s)

    def compute(self, route: int, ready_s: float, seconds: float) -> float:
        """When the prefill is done: one after the other on each replica."""
        self._gpu_s[route] = max(ready_s, self._gpu_s[route]) + seconds
        return self._gpu_s[route]

    def _move(self, route: int, way: Way, chunks: Sequence[int], ready_s: float) -> list[float]:
        rates = self._rates.read if way == "read" else self._rates.write
        ends = []
        for name, count in zip(self._names, chunks, strict=False):
            if not count or name not in rates:
                continue
            key = (name, -1 if name in self._shared else route, way)
            start_s = max(ready_s, self._tier_s.get(key, 0.0))
            self._tier_s[key] = start_s + count * self._engine.chunk_bytes / rates[name]
            ends.append(self._tier_s[key])
        return ends
