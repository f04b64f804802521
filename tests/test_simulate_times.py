"""Predicted waiting: queues worked out by hand, and what must hold whatever the trace."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kvbench.simulate.plan import Engine, SecondaryTier, TierSet
from kvbench.simulate.run import sending_of, serve
from kvbench.simulate.timing import Compute, TierRates, over_first, predict
from kvbench.traces.trace import Trace
from tests.conftest import Outcome
from tests.test_simulate import ENGINE, one_more

Run = Callable[..., Outcome]
# One second for ten tokens.
COMPUTE = Compute(0.0, 0.1, 0.0, 0.0)
NONE = TierSet("none")


def times(trace: Trace, engine: Engine, *sets: TierSet, compute: Compute = COMPUTE, rates: TierRates | None = None):  # type: ignore[no-untyped-def]
    sending = sending_of(trace, engine)
    return over_first([predict(sending, serve(sending, one), compute, rates or TierRates()) for one in sets])


def test_requests_wait_for_each_other_on_the_gpu() -> None:
    """Two prompts of 11 tokens at once: 1.1 s and 2.2 s; on two replicas 1.1 s each."""
    trace = one_more([[0], [1]], arrival_s=[0.0, 0.0])
    (alone,) = times(trace, ENGINE, NONE)
    assert (alone.ttft_mean_s, alone.requests_per_s) == pytest.approx((1.65, 2 / 2.2))
    (two,) = times(trace, replace(ENGINE, replicas=2), NONE)
    assert two.ttft_mean_s == pytest.approx(1.1)
    (later,) = times(replace(trace, arrival_s=np.array([0.0, 5.0])), ENGINE, NONE)
    assert later.ttft_mean_s == pytest.approx(1.1)


def test_what_is_found_is_not_computed_and_takes_the_tiers_time() -> None:
    """Thirty tokens come back from the tier: three chunks at two bytes each second, and one token is computed."""
    trace = one_more([[0, 1, 2], [10, 11, 12], [0, 1, 2]], arrival_s=[0.0, 10.0, 20.0])
    tiers = TierSet("both", 3, (SecondaryTier("nvme"),))
    none, free, slow = (
        times(trace, ENGINE, one, rates=rates)[0]
        for one, rates in ((NONE, None), (tiers, None), (tiers, TierRates({"nvme": 2.0})))
    )
    assert none.ttft_mean_s == pytest.approx(3.1)
    assert free.ttft_mean_s == pytest.approx((3.1 + 3.1 + 0.1) / 3)
    assert slow.ttft_mean_s == pytest.approx((3.1 + 3.1 + 1.6) / 3)


def test_a_prefix_spares_what_the_formula_says() -> None:
    compute = Compute(1.0, 0.1, 0.01, 0.0)
    assert compute.prefill_s(30, 20) == pytest.approx(1 + 1 + 0.01 * (900 - 400))


def test_a_shared_tier_serves_replicas_one_after_the_other() -> None:
    """Both replicas read three chunks at once from a tier of three a second: one waits for the other."""
    prompts = [[0, 1, 2], [10, 11, 12], [20, 21, 22], [30, 31, 32], [0, 1, 2], [10, 11, 12]]
    trace = one_more(prompts, arrival_s=[0.0, 0.0, 10.0, 10.0, 20.0, 20.0])
    engine, three = replace(ENGINE, replicas=2), TierRates({"nvme": 3.0})
    own, shared = (
        times(trace, engine, TierSet("t", 3, (SecondaryTier("nvme", shared=shared),)), rates=three)[0]
        for shared in (False, True)
    )
    assert shared.ttft_mean_s - own.ttft_mean_s == pytest.approx(1 / 6)


def test_sessions_send_when_they_are_answered() -> None:
    """One session of two prompts and another: with one place the second waits until the first has ended."""
    trace = replace(one_more([[0], [10], [0, 1]]), session=np.array([0, 1, 0], np.int32))
    (found,) = times(trace, replace(ENGINE, concurrency=1), NONE, compute=replace(COMPUTE, per_token_s=0.0))
    # 1.1 s, then 1.1 s for what ten found tokens leave of 21, then 1.1 s: nobody ever waits.
    assert found.ttft_mean_s == pytest.approx(1.1)
    assert found.requests_per_s == pytest.approx(3 / 3.3)


def test_who_answers_for_long_holds_up_nobody() -> None:
    """A session whose first answer takes 100 s, and one of three turns: the three wait for their own prefill only."""
    trace = replace(
        one_more([[0], [10], [0, 1], [10, 11], [10, 11, 12]]),
        session=np.array([0, 1, 0, 1, 1], np.int32),
        output_tokens=np.array([100, 0, 0, 0, 0]),
    )
    engine, slow = replace(ENGINE, gpu_bytes=40, concurrency=2), replace(COMPUTE, per_token_s=1.0)
    (found,) = times(trace, engine, NONE, compute=slow)
    # 1.1, and 1.1 behind it; the next turn after the long answer finds that too, the other two compute eleven tokens.
    assert found.ttft_mean_s == pytest.approx((1.1 + 2.2 + 0.1 + 1.1 + 1.1) / 5)


def test_who_waits_for_a_tier_does_not_hold_the_gpu() -> None:
    """A restore of 30 s, and a prompt that needs none 0.1 s later: it is computed at once."""
    prompts = [[0, 1, 2], [10, 11, 12], [0, 1, 2], [20]]
    trace = one_more(prompts, arrival_s=[0.0, 100.0, 200.0, 200.1])
    tiers = TierSet("slow", 3, (SecondaryTier("nvme"),))
    (found,) = times(trace, ENGINE, tiers, rates=TierRates({"nvme": 0.1}))
    assert found.ttft_mean_s == pytest.approx((3.1 + 3.1 + 30.1 + 1.1) / 4)


def test_a_set_that_fits_gains_nothing_from_a_tier_behind() -> None:
    prompts = [[10 * at + block for block in range(3)] for at in range(4)] * 3
    trace = one_more(prompts, arrival_s=[float(at) for at in range(12)])
    behind = (SecondaryTier("nvme"),)
    _, cpu, both = times(
        trace, ENGINE, NONE, TierSet("cpu", 12), TierSet("both", 12, behind), rates=TierRates({"nvme": 1.0})
    )
    assert cpu.ttft_mean_ratio < 0.5
    assert both.ttft_mean_s == cpu.ttft_mean_s


def test_a_tier_slower_than_computing_makes_waiting_longer() -> None:
    trace = one_more([[0, 1, 2], [10, 11, 12]] * 4, arrival_s=[20.0 * at for at in range(8)])
    none, slow = times(trace, ENGINE, NONE, TierSet("s", 3, (SecondaryTier("nvme"),)), rates=TierRates({"nvme": 0.5}))
    assert slow.ttft_mean_ratio > 1
    assert none.ttft_mean_ratio == 1


def test_the_command(kvbench: Run, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    assert kvbench("trace", "make", "-o", path, "--conversation-num", "10").code == 0
    common = ("workingset", path, "--model", "qwen3-8b", "--gpu", "8GiB", "--cpu", "4GiB", "--tier", "nvme")
    outcome = kvbench(*common, "--ttft-csv", "gpt-oss-120b-h200", "--read-rate", "nvme=2GiB/s", "--json")
    assert outcome.code == 0
    found = json.loads(outcome.out)["predicted"]
    assert [one["name"] for one in found] == ["none", "cpu", "cpu+nvme"]
    assert found[0]["ttft_mean_ratio"] == 1
    for more, said in (
        (("--read-rate", "nvme=2GiB/s"), "give --ttft-csv"),
        (("--ttft-csv", "gpt-oss-120b-h200", "--read-rate", "x=2GiB/s"), "x is no tier here"),
        (("--ttft-csv", "gpt-oss-120b-h200", "--read-rate", "nvme"), "NAME=RATE"),
    ):
        refused = kvbench(*common, *more)
        assert refused.code == 2
        assert said in refused.err
