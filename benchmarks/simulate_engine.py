"""The simulation beside the real engine: ``python -m benchmarks.simulate_engine``.

A made-up trace of conversations is sent, one request after the other, to the lab's vLLM with small capacities: no
offload, a CPU tier, a CPU tier with an fs tier behind it, and two servers that share the fs tier. For every request the
tokens that the engine found in its own cache and outside of it, and the bytes that moved behind the CPU tier, are held
against the simulation of the same trace. Printed: requests that are equal, and the sums of both sides.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from kvbench.simulate.lineage import lineage_of, routes_of
from kvbench.simulate.plan import Engine as Simulator
from kvbench.simulate.plan import Policy, SecondaryTier, TierSet
from kvbench.simulate.run import moves_of
from kvbench.traces.trace import Trace
from tests.lab.engine import BLOCK_TOKENS, Engine, Wish, serving

_MODEL, _VOCABULARY = "tiny", 32_000
_BLOCK_BYTES = 8192 * BLOCK_TOKENS
# One of the pool's blocks is never used (vllm/v1/core/block_pool.py: null_block).
_NULL_BLOCKS = 1
_STEP_TOKENS = 4096
_SHARED_BLOCKS = 2

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


def counted(engine: Engine) -> Found:
    """What the engine has counted so far."""
    return Found(
        int(engine.total("vllm:prefix_cache_hits_total")),
        int(engine.total("vllm:external_prefix_cache_hits_total")),
        int(engine.total("vllm:kv_offload_tiering_read_bytes_total", "fs")),
        int(engine.total("vllm:kv_offload_tiering_write_bytes_total", "fs")),
    )


def settled(engine: Engine) -> Found:
    """The counters after they have stopped moving: stores go on behind an answer."""
    before, same = counted(engine), 0
    while same < 2:
        time.sleep(0.15)
        now = counted(engine)
        before, same = now, same + 1 if now == before else 0
    return before


def observed(engines: Sequence[Engine], requests: Requests, routes: Sequence[int]) -> list[Found]:
    """What each request found, from the counters around it."""
    last = [settled(engine) for engine in engines]
    found = []
    for (_, prompt), route in zip(requests, routes, strict=True):
        engines[route].ask(prompt)
        now, before = settled(engines[route]), last[route]
        found.append(Found(*(getattr(now, name) - getattr(before, name) for name in Found.__slots__)))
        last[route] = now
    return found


def simulated(trace: Trace, engine: Simulator, tiers: TierSet) -> list[Found]:
    """What the simulation says of each request."""
    return [
        Found(
            one.gpu_tokens,
            sum(one.tier_tokens),
            sum(one.read_chunks[1:]) * _BLOCK_BYTES,
            sum(one.written_chunks[1:]) * _BLOCK_BYTES,
        )
        for one in moves_of(trace, engine, tiers)
    ]


def compare(name: str, ours: Sequence[Found], theirs: Sequence[Found]) -> None:
    """Print how many requests are equal, and the sums."""
    print(f"{name}: {len(ours)} requests")
    for key in Found.__slots__:
        pairs = [(getattr(one, key), getattr(other, key)) for one, other in zip(ours, theirs, strict=True)]
        equal = sum(one == other for one, other in pairs)
        sums = [sum(side) for side in zip(*pairs, strict=True)]
        first = next((f", first at {at}: {pair}" for at, pair in enumerate(pairs) if pair[0] != pair[1]), "")
        print(f"  {key:8} equal in {equal:3}   simulated {sums[0]:>12,}   engine {sums[1]:>12,}{first}")


def run(arm: Literal["none", "cpu", "fs"], sizes: Sizes, requests: Requests, servers: int, policy: Policy) -> None:
    """One configuration on both sides."""
    trace = trace_of(requests)
    behind = (SecondaryTier("fs", shared=True),) if arm == "fs" else ()
    tiers = TierSet(arm, 0 if arm == "none" else sizes.cpu * _BLOCK_BYTES, behind)
    simulator = Simulator(
        (sizes.gpu - _NULL_BLOCKS) * _BLOCK_BYTES, _BLOCK_BYTES, _BLOCK_BYTES,
        policy=policy, batch_tokens=_STEP_TOKENS, replicas=servers, routing="random" if servers > 1 else "sticky",
    )  # fmt: skip
    routes = routes_of(trace, lineage_of(trace), simulator)
    arguments = (
        "--num-gpu-blocks-override", str(sizes.gpu), "--max-num-batched-tokens", str(_STEP_TOKENS),
        "--max-model-len", str((sizes.gpu - _NULL_BLOCKS) * BLOCK_TOKENS),
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="kvbench-simulate-") as tier, ExitStack() as stack:
        wish = Wish(
            arm, _MODEL, Path(tier) if arm == "fs" else None, sizes.cpu * _BLOCK_BYTES,
            arguments, {"eviction_policy": policy},
        )  # fmt: skip
        engines = [stack.enter_context(serving(wish)) for _ in range(servers)]
        theirs = observed(engines, requests, routes)
    compare(f"{arm}, {policy}, {servers} server{'s' * (servers > 1)}", simulated(trace, simulator, tiers), theirs)


def main() -> None:
    """Every configuration in turn."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--gpu", type=int, default=40, help="blocks of the GPU's pool")
    parser.add_argument("--cpu", type=int, default=64, help="blocks of the CPU tier")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="none,cpu,arc,fs,two")
    asked = parser.parse_args()
    requests = list(prompts(asked.sessions, asked.turns, asked.seed))
    sizes = Sizes(asked.gpu, asked.cpu)
    cases: dict[str, tuple[Literal["none", "cpu", "fs"], int, Policy]] = {
        "none": ("none", 1, "lru"), "cpu": ("cpu", 1, "lru"), "arc": ("cpu", 1, "arc"), "fs": ("fs", 1, "lru"),
        "two": ("fs", 2, "lru"),
    }  # fmt: skip
    for name in asked.only.split(","):
        arm, servers, policy = cases[name]
        run(arm, sizes, requests, servers, policy)


if __name__ == "__main__":
    main()
