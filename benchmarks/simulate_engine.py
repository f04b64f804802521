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
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from kvbench.simulate.lineage import lineage_of, routes_of
from kvbench.simulate.plan import Policy
from tests.lab.conversations import (
    BLOCK_BYTES,
    NULL_BLOCKS,
    STEP_TOKENS,
    Arm,
    Found,
    Requests,
    Sizes,
    case_of,
    prompts,
    simulated,
    trace_of,
)
from tests.lab.engine import BLOCK_TOKENS, Engine, Wish, serving, write_model

_MODEL = "tiny"


def counted(engine: Engine) -> Found:
    """What the engine has counted so far."""
    return Found(
        int(engine.total("vllm:prefix_cache_hits_total")),
        int(engine.total("vllm:external_prefix_cache_hits_total")),
        int(engine.total("vllm:kv_offload_tiering_read_bytes_total", "fs")),
        # Not what the engine counts as written: a file that is there already is counted and not written again.
        len(engine.files()) * BLOCK_BYTES,
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
    found = []
    for (_, prompt), route in zip(requests, routes, strict=True):
        before = counted(engines[route])
        engines[route].ask(prompt)
        now = settled(engines[route])
        found.append(Found(*(getattr(now, name) - getattr(before, name) for name in Found.__slots__)))
    return found


def compare(name: str, ours: Sequence[Found], theirs: Sequence[Found]) -> None:
    """Print how many requests are equal, and the sums."""
    print(f"{name}: {len(ours)} requests")
    for key in Found.__slots__:
        pairs = [(getattr(one, key), getattr(other, key)) for one, other in zip(ours, theirs, strict=True)]
        equal = sum(one == other for one, other in pairs)
        sums = [sum(side) for side in zip(*pairs, strict=True)]
        first = next((f", first at {at}: {pair}" for at, pair in enumerate(pairs) if pair[0] != pair[1]), "")
        print(f"  {key:8} equal in {equal:3}   simulated {sums[0]:>12,}   engine {sums[1]:>12,}{first}")


def run(arm: Arm, sizes: Sizes, requests: Requests, servers: int, policy: Policy) -> None:
    """One configuration on both sides."""
    trace = trace_of(requests)
    simulator, tiers = case_of(arm, sizes, servers, policy)
    routes = routes_of(trace, lineage_of(trace), simulator)
    arguments = (
        "--num-gpu-blocks-override", str(sizes.gpu), "--max-num-batched-tokens", str(STEP_TOKENS),
        "--max-model-len", str((sizes.gpu - NULL_BLOCKS) * BLOCK_TOKENS),
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="kvbench-simulate-") as folder, ExitStack() as stack:
        tier = Path(folder) / "tier"
        tier.mkdir()
        # Servers share blocks only where they call the model alike: its name is part of where they lie.
        model = ("--model", str(write_model(Path(folder), _MODEL)))
        wish = Wish(
            arm, _MODEL, tier if arm == "fs" else None, sizes.cpu * BLOCK_BYTES, (*arguments, *model),
            {"eviction_policy": policy},
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
    cases: dict[str, tuple[Arm, int, Policy]] = {
        "none": ("none", 1, "lru"), "cpu": ("cpu", 1, "lru"), "arc": ("cpu", 1, "arc"), "fs": ("fs", 1, "lru"),
        "two": ("fs", 2, "lru"),
    }  # fmt: skip
    for name in asked.only.split(","):
        arm, servers, policy = cases[name]
        run(arm, sizes, requests, servers, policy)


if __name__ == "__main__":
    main()
