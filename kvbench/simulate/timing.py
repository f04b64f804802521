"""How long the simulated requests would wait: queues on each GPU and on each tier, first come, first served (pure).

What is assumed is in docs/simulation.md. The times answer "how much better than without", not "how many seconds".
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Literal

import numpy as np

from kvbench.record.results import Way
from kvbench.simulate.lineage import sessions_in_order
from kvbench.simulate.plan import Engine, TierSet
from kvbench.simulate.replica import RequestMoves
from kvbench.simulate.run import Sending, ServedTrace
from kvbench.traces.trace import Trace

_P95 = 95
Step = Literal["ask", "compute", "end"]


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
    """What a configuration would serve; the ratios are over the one that ``over_first`` compared it with."""

    name: str
    ttft_mean_s: float
    ttft_p95_s: float
    requests_per_s: float
    ttft_mean_ratio: float = 1.0
    ttft_p95_ratio: float = 1.0
    requests_per_s_ratio: float = 1.0


def over_first(found: Sequence[Predicted]) -> list[Predicted]:
    """The same with their ratios over the first of them."""
    return [
        replace(
            one,
            ttft_mean_ratio=one.ttft_mean_s / found[0].ttft_mean_s,
            ttft_p95_ratio=one.ttft_p95_s / found[0].ttft_p95_s,
            requests_per_s_ratio=one.requests_per_s / found[0].requests_per_s,
        )
        for one in found
    ]


def predict(sending: Sending, served: ServedTrace, compute: Compute, rates: TierRates) -> Predicted:
    """The times of a configuration that was simulated, without ratios."""
    trace, engine = sending.trace, sending.engine
    queues = _Queues(engine, served.tiers, rates)
    server = _Server(trace, compute, queues, dict(zip(sending.order, served.moves, strict=True)), sending.routes)
    if engine.concurrency is None:
        asked_s = np.zeros(trace.requests) if trace.arrival_s is None else trace.arrival_s
        server.run((float(at), deque([request])) for request, at in enumerate(asked_s))
    else:
        sessions = sessions_in_order(trace, sending.lineage)
        server.run(((0.0, one) for one in sessions), engine.concurrency * engine.replicas)
    took_s = server.last_s - server.first_s
    ttft = list(server.ttft_s.values())
    return Predicted(
        served.tiers.name,
        float(np.mean(ttft)),
        float(np.percentile(ttft, _P95)),
        len(ttft) / took_s if took_s else 0.0,
    )


class _Server:
    """The requests of sessions in order of time: asked, restored, computed, and the session's next one."""

    def __init__(
        self, trace: Trace, compute: Compute, queues: _Queues, moves: Mapping[int, RequestMoves], routes: Sequence[int]
    ) -> None:
        self._trace, self._compute, self._queues, self._moves, self._routes = trace, compute, queues, moves, routes
        self._events: list[tuple[float, int, Step, int, deque[int]]] = []
        self._count = count()
        self._asked_s: dict[int, float] = {}
        self.ttft_s: dict[int, float] = {}
        self.first_s, self.last_s = math.inf, 0.0

    def run(self, sessions: Iterable[tuple[float, deque[int]]], places: int | None = None) -> None:
        """Serve all of them, so many at once; one that waits for a place begins when another has ended."""
        waiting = deque(sessions)
        for _ in range(len(waiting) if places is None else min(places, len(waiting))):
            at_s, session = waiting.popleft()
            self._next(at_s, session)
        while self._events:
            at_s, _, step, request, session = heapq.heappop(self._events)
            if step == "ask":
                self._ask(at_s, request, session)
            elif step == "compute":
                self._finish(at_s, request, session)
            elif session:
                self._next(at_s, session)
            elif waiting:
                self._next(at_s, waiting.popleft()[1])

    def _next(self, at_s: float, session: deque[int]) -> None:
        self._push(at_s, "ask", session.popleft(), session)

    def _ask(self, at_s: float, request: int, session: deque[int]) -> None:
        self._asked_s[request] = at_s
        self.first_s = min(self.first_s, at_s)
        restored_s = self._queues.restore(self._routes[request], self._moves[request], at_s)
        self._push(restored_s, "compute", request, session)

    def _finish(self, at_s: float, request: int, session: deque[int]) -> None:
        """The GPU takes what is there in the order in which it came: who still waits for a tier holds up nobody."""
        prompt, moved = int(self._trace.prompt_tokens[request]), self._moves[request]
        seconds = self._compute.prefill_s(prompt, prompt - moved.recomputed_tokens)
        computed_s = self._queues.compute(self._routes[request], at_s, seconds)
        self._queues.store(self._routes[request], moved, computed_s)
        self.ttft_s[request] = computed_s - self._asked_s[request]
        ended_s = computed_s + max(0, int(self._trace.output_tokens[request])) * self._compute.per_token_s
        self.last_s = max(self.last_s, ended_s)
        self._push(ended_s, "end", request, session)

    def _push(self, at_s: float, step: Step, request: int, session: deque[int]) -> None:
        heapq.heappush(self._events, (at_s, next(self._count), step, request, session))


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
        for name, moved in zip(self._names, chunks, strict=False):
            if not moved or name not in rates:
                continue
            key = (name, -1 if name in self._shared else route, way)
            start_s = max(ready_s, self._tier_s.get(key, 0.0))
            self._tier_s[key] = start_s + moved * self._engine.chunk_bytes / rates[name]
            ends.append(self._tier_s[key])
        return ends
