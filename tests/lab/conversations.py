"""Conversations that a real engine and the simulation are both asked, and what the simulation says of each request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kvbench.simulate.plan import Engine as Simulator
from kvbench.simulate.plan import Policy, SecondaryTier, TierSet
from kvbench.simulate.run import sending_of, serve
from kvbench.traces.trace import Trace
from tests.lab.engine import BLOCK_TOKENS

_VOCABULARY = 32_000
BLOCK_BYTES = 8192 * BLOCK_TOKENS
# One of the pool's blocks is never used (vllm/v1/core/block_pool.py: null_block).
NULL_BLOCKS = 1
STEP_TOKENS = 4096
_SHARED_BLOCKS = 2

Arm = Literal["none", "cpu", "fs"]
# Session and prompt of each.
Requests = Sequence[tuple[int, list[int]]]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Blocks of the GPU's pool and of the CPU tier, of each server."""

    gpu: int
    cpu: int


@dataclass(frozen=True, slots=True)
class Found:
    """Tokens that one request found on the GPU and outside of it, and bytes read from and written to the fs tier."""

    local: int
    external: int
    read: int
    written: int


def prompts(sessions: int, turns: int, seed: int) -> Iterator[tuple[int, list[int]]]:
    """Session and prompt of each request: turns of all sessions in shuffled order, each some blocks longer."""
    random = np.random.default_rng(seed)
    shared = random.integers(3, _VOCABULARY, _SHARED_BLOCKS * BLOCK_TOKENS).tolist()
    known: list[list[int]] = [list(shared) for _ in range(sessions)]
    left = np.repeat(np.arange(sessions), turns)
    random.shuffle(left)
    for session in left.tolist():
        more = int(random.integers(BLOCK_TOKENS, 4 * BLOCK_TOKENS))
        known[session] = known[session] + random.integers(3, _VOCABULARY, more).tolist()
        yield session, known[session]


def trace_of(requests: Requests) -> Trace:
    """The same requests as a trace: a block's id stands for all tokens up to its end."""
    ids: dict[tuple[int, ...], int] = {}
    blocks, counts = [], []
    for _, prompt in requests:
        whole = len(prompt) // BLOCK_TOKENS
        counts.append(whole)
        blocks += [ids.setdefault(tuple(prompt[: (at + 1) * BLOCK_TOKENS]), len(ids)) for at in range(whole)]
    return Trace(
        BLOCK_TOKENS,
        "hashes",
        None,
        np.array([session for session, _ in requests], np.int32),
        np.array([len(prompt) for _, prompt in requests], np.int64),
        np.ones(len(requests), np.int64),
        np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        np.array(blocks, np.int32),
        len(ids),
    )


def case_of(arm: Arm, sizes: Sizes, servers: int, policy: Policy) -> tuple[Simulator, TierSet]:
    """The simulation's side of a configuration."""
    behind = (SecondaryTier("fs", shared=True),) if arm == "fs" else ()
    tiers = TierSet(arm, 0 if arm == "none" else sizes.cpu * BLOCK_BYTES, behind)
    simulator = Simulator(
        (sizes.gpu - NULL_BLOCKS) * BLOCK_BYTES, BLOCK_BYTES, BLOCK_BYTES,
        policy=policy, batch_tokens=STEP_TOKENS, replicas=servers, routing="random" if servers > 1 else "sticky",
    )  # fmt: skip
    return simulator, tiers


def simulated(trace: Trace, engine: Simulator, tiers: TierSet) -> list[Found]:
    """What the simulation says of each request."""
    return [
        Found(
            one.gpu_tokens,
            sum(one.tier_tokens),
            sum(one.read_chunks[1:]) * BLOCK_BYTES,
            sum(one.written_chunks[1:]) * BLOCK_BYTES,
        )
        for one in serve(sending_of(trace, engine), tiers).moves
    ]
