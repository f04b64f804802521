"""The simulation against what the real vLLM 0.32 counted on the same requests (benchmarks/simulate_engine.py)."""

from __future__ import annotations

import pytest

from kvbench.simulate.plan import Policy
from tests.lab.conversations import Arm, Found, Sizes, case_of, prompts, simulated, trace_of

# 64 requests of 8 conversations, 40 blocks on the GPU, 64 in the CPU tier: what the engine counted in all.
# Every single request was equal in all four numbers.
RECORDED: dict[tuple[Arm, Policy], Found] = {
    ("none", "lru"): Found(42_112, 0, 0, 0),
    ("cpu", "lru"): Found(42_112, 7_040, 0, 0),
    ("cpu", "arc"): Found(42_112, 10_240, 0, 0),
    ("fs", "lru"): Found(42_112, 40_064, 254_803_968, 154_140_672),
}


def test_two_servers_with_one_tier() -> None:
    trace = trace_of(list(prompts(sessions=8, turns=8, seed=1)))
    found = simulated(trace, *case_of("fs", Sizes(gpu=40, cpu=64), servers=2, policy="lru"))
    sums = Found(*(sum(getattr(one, name) for one in found) for name in Found.__slots__))
    assert sums == Found(38_016, 44_160, 306_184_192, 154_140_672)


@pytest.mark.parametrize(("arm", "policy"), RECORDED)
def test_the_simulation_counts_what_the_engine_counted(arm: Arm, policy: Policy) -> None:
    trace = trace_of(list(prompts(sessions=8, turns=8, seed=1)))
    found = simulated(trace, *case_of(arm, Sizes(gpu=40, cpu=64), servers=1, policy=policy))
    sums = Found(*(sum(getattr(one, name) for one in found) for name in Found.__slots__))
    assert sums == RECORDED[arm, policy]
