"""Which request goes on from which, in what order they are sent, and to which replica (pure).

Names of blocks are chained in every format that has them, so a prompt that holds the last whole block of another
prompt begins with all of it, and what follows there is the other's answer, then something new.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kvbench.simulate.plan import Engine
from kvbench.traces.trace import Trace


@dataclass(frozen=True, slots=True)
class Lineage:
    """For each request the one that it goes on from (-1: none), and its first and last block that a parent's answer
    holds: ``answers[r]`` are the places of r's own blocks that its parent produced."""

    parent: tuple[int, ...]
    answers: tuple[range, ...]


def lineage_of(trace: Trace) -> Lineage:
    """The parents of a trace's requests, by the longest prompt that each of them begins with.

    One that is with its answer less than half of a prompt is what many conversations share (a system prompt), and no
    turn before it.
    """
    last_block: dict[int, int] = {}
    parents, answers = [], []
    first, blocks, tokens = trace.first.tolist(), trace.blocks, trace.block_tokens
    prompts, outputs = trace.prompt_tokens.tolist(), trace.output_tokens.tolist()
    for request in range(trace.requests):
        own = blocks[first[request] : first[request + 1]].tolist()
        parent = next((last_block[block] for block in reversed(own) if block in last_block), -1)
        if parent >= 0 and 2 * (prompts[parent] + max(0, outputs[parent])) < prompts[request]:
            parent = -1
        whole = min(len(own), prompts[request] // tokens)
        parents.append(parent)
        if parent < 0 or outputs[parent] <= 0:
            answers.append(range(0))
        else:
            begin = prompts[parent] // tokens
            answers.append(range(begin, max(begin, min(whole, (prompts[parent] + outputs[parent]) // tokens))))
        if whole:
            last_block[own[whole - 1]] = request
    return Lineage(tuple(parents), tuple(answers))


def routes_of(trace: Trace, lineage: Lineage, engine: Engine) -> list[int]:
    """The replica of each request: where its parent went, or by chance; new conversations go round in turn."""
    random = np.random.default_rng(engine.seed)
    if engine.routing == "random":
        return [int(at) for at in random.integers(engine.replicas, size=trace.requests)]
    routes: list[int] = []
    started = 0
    by_session: dict[int, int] = {}
    for request, parent in enumerate(lineage.parent):
        session = int(trace.session[request])
        if parent >= 0:
            route = routes[parent]
        elif session >= 0 and session in by_session:
            route = by_session[session]
        else:
            route, started = started % engine.replicas, started + 1
        if session >= 0:
            by_session.setdefault(session, route)
        routes.append(route)
    return routes


def order_of(trace: Trace, lineage: Lineage, engine: Engine) -> list[int]:
    """The requests as they are sent: in the trace's order, or so many sessions at once, one request of each in turn."""
    if engine.concurrency is None:
        return list(range(trace.requests))
    waiting = deque(sessions_in_order(trace, lineage))
    active: deque[deque[int]] = deque()
    order: list[int] = []
    while waiting or active:
        while waiting and len(active) < engine.concurrency * engine.replicas:
            active.append(waiting.popleft())
        session = active.popleft()
        order.append(session.popleft())
        if session:
            active.append(session)
    return order


def sessions_of(trace: Trace, lineage: Lineage) -> list[int]:
    """The session of each request: the trace's own, or the number of the conversation that it goes on from."""
    found: list[int] = []
    for request, parent in enumerate(lineage.parent):
        session = int(trace.session[request])
        # Numbers below zero cannot be those of the trace's own sessions.
        found.append(session if session >= 0 else found[parent] if parent >= 0 else -2 - request)
    return found


def sessions_in_order(trace: Trace, lineage: Lineage) -> Iterator[deque[int]]:
    """The requests of each session in order, sessions by their first request; a trace without them has lineages."""
    found: dict[int, deque[int]] = {}
    for request, session in enumerate(sessions_of(trace, lineage)):
        found.setdefault(session, deque()).append(request)
    yield from found.values()
