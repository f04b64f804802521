"""What follows from a decision, in words and settings: every sentence tied to its number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvbench.decide.advice import in_plain_words, settings_of, which_tier
from kvbench.decide.crossover import Crossover, Goal, RequestCrossover, decide
from kvbench.decide.whatif import parse_what_if
from kvbench.errors import UsageError
from tests.factories import curve, measured, use

# 16,384 tokens are 1,024 blocks: 0.5 s of prefill here.
PREFILL = curve(0.0, 0.5 / 16384, 0.0)
GOAL = Goal(16384, 5.0)


def decided(tier: str, iops: float, **changes: Any) -> Crossover:
    """The crossover of a tier that gives ``iops`` blocks per second."""
    at = measured(iops)
    return decide(replace(use(), **changes), tier, 1, at, at, PREFILL, GOAL)


FAST, SLOW = decided("nvme", 20_000.0), decided("cephfs", 100.0)


def test_the_published_trap_is_explained_to_whoever_decides() -> None:
    text = in_plain_words(SLOW, PREFILL)
    # 1,024 blocks at 100 a second are 10.24 s, 20.5 times 0.5 s; one block takes 1 / 6.25 s at 16 in flight.
    assert "10.2 s" in text
    assert "20.5 times as long as computing it again (500 ms)" in text
    assert "But the prompt is 1,024 such pieces" in text
    assert "one request would need" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("iops", "words"),
    [
        (2048.0, "about as long as computing it again"),
        (1.0, "2,048 times as long as computing it again"),
        (20_480.0, "10 times less than computing it again"),
    ],
)
def test_factors_are_written_without_exponents(iops: float, words: str) -> None:
    assert words in in_plain_words(decided("t", iops), PREFILL)


def test_a_p99_is_not_called_the_worst() -> None:
    assert "99 of 100 take at most" in in_plain_words(SLOW, PREFILL)


def test_a_viable_tier_is_not_talked_down() -> None:
    text = in_plain_words(FAST, PREFILL)
    assert "less than computing it again" in text
    assert "But" not in text
    assert "would need" not in text


def test_nothing_is_said_without_prefill() -> None:
    assert in_plain_words(FAST, None) == ""


@pytest.mark.slow
def test_tiers_are_chosen_by_who_can_read_them() -> None:
    said = which_tier([FAST, SLOW], {"nvme": False, "cephfs": True})
    assert said[0].startswith("One node: nvme, which restores 16,384 tokens in")
    assert said[1].startswith("Pods that move and several replicas: no shared tier pays; the best, cephfs, restores")
    assert any(text.startswith("Reject cephfs: ") for text in said)
    assert not any(text.startswith("Reject cephfs beyond ") for text in said)
    both = which_tier([FAST, decided("ceph2", 20_000.0)], {"nvme": False, "ceph2": True})
    assert both[1].startswith("Pods that move and several replicas: ceph2, since all of them can read it")


@pytest.mark.slow
def test_a_tier_that_wins_is_rejected_where_it_breaks_the_budget() -> None:
    at = measured(4000.0)
    # 1,024 blocks at 4,000 a second are 256 ms: faster than the 500 ms of prefill, and more than 100 ms.
    slow = decide(use(), "nvme", 1, at, at, PREFILL, Goal(16384, 0.1))
    (rejected,) = [text for text in which_tier([slow], {"nvme": False}) if text.startswith("Reject")]
    assert rejected.startswith("Reject nvme beyond ")
    assert "100 ms" in rejected


def test_without_a_shared_tier_that_is_said() -> None:
    assert which_tier([FAST], {"nvme": False})[1].startswith("Pods that move and several replicas: no shared tier was")


def test_nothing_is_chosen_from_tiers_that_nobody_can_judge() -> None:
    unknown = decide(use(), "t", 1, None, None, PREFILL, GOAL)
    assert which_tier([unknown], {}) == []


@pytest.mark.slow
def test_threads_are_as_many_as_saturate_the_tier() -> None:
    crossover = decided("nvme", 20_000.0, connector="vllm-fs")
    found = {item.option: item for item in settings_of(crossover, {1: 100.0, 8: 955.0, 16: 1000.0})}
    assert found["n_read_threads"].value == "8"
    assert "not measured" not in found["n_read_threads"].reason
    # Promotion holds the whole request: 1,024 blocks of 1,179,648 bytes.
    assert str(1024 * 1_179_648) in found["cpu_bytes_to_use"].value
    still_rising = settings_of(crossover, {1: 100.0, 16: 1000.0})
    assert any("more jobs than these were not measured" in item.reason for item in still_rising)


def test_a_tier_that_never_pays_is_left_out() -> None:
    (setting,) = settings_of(SLOW, {})
    assert (setting.option, setting.value) == ("secondary_tiers", "leave this tier out")


def test_an_interval_that_leaves_it_open_sets_nothing() -> None:
    def options(kind: Any, low: int | None, high: int | None, verdict: Any = "cannot say") -> list[str]:
        request = RequestCrossover(kind, None, low, high, "because")
        return [setting.value for setting in settings_of(replace(SLOW, request=request, verdict=verdict), {})]

    assert options("never", 4096, None) == []
    assert options("always", 2048, None) == []
    assert options("from", 2048, None) == []
    assert options("always", 2048, 4096) == ["load prefixes from 4,096 tokens on"]
    assert options("always", None, None) == []
    assert options("always", None, None, "viable") == ["any prefix from 1,024 tokens on"]
    # It wins everywhere, and breaks the budget; or loses at the target, and wins for longer prompts.
    assert options("always", None, None, "not viable") == ["leave this tier out"]
    assert options("from", 2048, 32_768, "not viable") == ["load prefixes from 32,768 tokens on"]
    assert options("unknown", None, None, "not viable") == ["leave this tier out"]


@pytest.mark.slow
def test_fewer_threads_than_the_default_need_a_measurement_of_as_many() -> None:
    crossover = decided("nvme", 20_000.0, connector="vllm-fs")
    for rates in ({1: 100.0, 8: 1000.0}, {1: 1000.0, 8: 1000.0}, {16: 1000.0}, {}):
        assert not any(item.option == "n_read_threads" for item in settings_of(crossover, rates))
    (enough,) = [
        item.value for item in settings_of(crossover, {1: 990.0, 16: 1000.0}) if item.option == "n_read_threads"
    ]
    assert enough == "1"


@pytest.mark.slow
def test_a_tier_that_is_left_out_needs_no_settings() -> None:
    slow = decided("slow", 100.0, connector="vllm-fs")
    assert [item.value for item in settings_of(slow, {1: 100.0, 16: 1000.0})] == ["leave this tier out"]


@pytest.mark.slow
def test_several_restores_at_once_are_named() -> None:
    at = measured(20_000.0)
    four = decide(use(), "nvme", 4, at, at, PREFILL, GOAL)
    assert "back from nvme while 4 are restored at once moves" in in_plain_words(four, PREFILL)


def test_what_if_changes_one_thing() -> None:
    parallel = parse_what_if("parallel=32")
    assert parallel.change(use()) == replace(use(), parallelism_per_request=32)
    blocks = parse_what_if("block-tokens=64")
    changed = blocks.change(use())
    assert (changed.block_tokens, changed.io_bytes) == (64, 4 * use().io_bytes)
    ranks = parse_what_if("tp=2")
    assert ranks.change(use()).tp == 2


@pytest.mark.parametrize("text", ["parallel", "parallel=", "parallel=0", "parallel=-1", "speed=3", "tp=1.5", "=2"])
def test_a_what_if_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--what-if"):
        parse_what_if(text)
