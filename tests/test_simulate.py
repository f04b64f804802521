"""A trace on an engine with tiers, against hand-made answers, a brute-force cache and the stack distances."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.errors import InputFileError, UsageError
from kvbench.simulate.caches import Arc, Endless, Lru
from kvbench.simulate.lineage import lineage_of, order_of, routes_of
from kvbench.simulate.mix import read_percent
from kvbench.simulate.plan import Engine, SecondaryTier, TierSet
from kvbench.simulate.run import Simulated, simulate
from kvbench.simulate.sizing import endurance, size_for, switched
from kvbench.traces.curve import reuse_curve
from kvbench.traces.trace import Trace
from tests.conftest import Outcome
from tests.trace_models import Prompts, chained_prompts, make_trace

Run = Callable[..., Outcome]
# Sizes in units of one block, which is one chunk.
ENGINE = Engine(gpu_bytes=4, block_bytes=1, chunk_bytes=1)
NVME = SecondaryTier("nvme")


def one_more(prompts: Prompts, **known: Any) -> Trace:
    """A trace whose prompts have one token behind their whole blocks, so that the engine looks all of them up."""
    trace = make_trace(prompts, **known)
    return replace(trace, prompt_tokens=trace.prompt_tokens + (np.diff(trace.first) > 0))


def run(prompts: Prompts, engine: Engine = ENGINE, *sets: TierSet) -> list[Simulated]:
    return simulate(one_more(prompts), engine, sets)


def tier(item: Simulated, name: str) -> Any:
    return next(one for one in item.tiers if one.name == name)


@given(chained_prompts(), st.integers(1, 12))
def test_a_gpu_alone_is_the_lru_cache_of_the_curve(prompts: Prompts, capacity: int) -> None:
    """Two independent ways to the same number: this simulation and the stack distances of every capacity."""
    trace = one_more(prompts)
    # A prompt that fills the GPU could not run there at all; the partial block takes one more.
    room = max(map(len, prompts), default=0) + 1
    engine = replace(ENGINE, gpu_bytes=max(capacity, room))
    # The blocks that a prompt takes while it runs push others out, so the GPU may hold less than an idle cache would.
    (found,) = simulate(trace, engine, [TierSet("none")])
    curve, _ = reuse_curve(make_trace(prompts))
    assert tier(found, "gpu").hit_tokens <= curve.at(engine.gpu_bytes).blocks * 10
    assert tier(found, "gpu").hit_tokens >= curve.at(engine.gpu_bytes - 1).blocks * 10


@given(chained_prompts())
def test_endless_tiers_find_all_there_is(prompts: Prompts) -> None:
    trace = one_more(prompts)
    room = max(map(len, prompts), default=0) + 1
    engine = replace(ENGINE, gpu_bytes=room)
    (found,) = simulate(trace, engine, [TierSet("all", 1000, (NVME,))])
    curve, _ = reuse_curve(make_trace(prompts))
    assert sum(one.hit_tokens for one in found.tiers) == curve.ideal.blocks * 10


@given(chained_prompts(), st.integers(1, 6), st.integers(0, 8), st.integers(1, 3), st.sampled_from(["lru", "arc"]))
def test_every_token_is_found_or_computed(prompts: Prompts, gpu: int, cpu: int, chunk_blocks: int, policy: Any) -> None:
    engine = replace(ENGINE, gpu_bytes=gpu, chunk_blocks=chunk_blocks, policy=policy, replicas=2, routing="random")
    for item in simulate(one_more(prompts), engine, [TierSet("a"), TierSet("b", cpu, (NVME,) if cpu else ())]):
        assert sum(one.hit_tokens for one in item.tiers) + item.recomputed_tokens == item.prompt_tokens
        for one in item.tiers:
            assert one.hit_tokens >= 0
        if cpu and len(item.tiers) > 1:
            assert tier(item, "cpu").peak_bytes <= 2 * cpu


@given(chained_prompts(), st.integers(4, 9))
def test_a_larger_endless_tier_finds_no_less(prompts: Prompts, cpu: int) -> None:
    engine = replace(ENGINE, gpu_bytes=20)
    small, large = simulate(
        one_more(prompts),
        engine,
        [TierSet("s", cpu, (SecondaryTier("n", 6),)), TierSet("l", cpu, (SecondaryTier("n"),))],
    )
    assert large.hit_rate >= small.hit_rate
    assert tier(large, "n").lost_to_full_bytes == 0


def test_by_hand_a_prompt_comes_back_from_the_cpu_and_then_from_behind_it() -> None:
    """A of three blocks, then B pushes it out of the GPU (4 blocks), then C pushes it out of the CPU (6) as well."""
    a, b, c = [0, 1, 2], [10, 11, 12], [20, 21, 22]
    prompts = [a, b, a, c, b, a]
    none, cpu, both = run(prompts, ENGINE, TierSet("none"), TierSet("cpu", 6), TierSet("both", 6, (NVME,)))
    assert [one.hit_tokens for one in none.tiers] == [0]
    # After a, b, a the CPU holds both; c pushes b out, which is older; then b pushes a out.
    assert tier(cpu, "cpu").hit_tokens == 30
    assert tier(cpu, "cpu").written_bytes == 3 * 5
    assert (tier(both, "cpu").hit_tokens, tier(both, "nvme").hit_tokens) == (30, 60)
    # Behind the CPU every block is written once, and read when it is needed there.
    assert (tier(both, "nvme").written_bytes, tier(both, "nvme").read_bytes) == (9, 6)
    # What is promoted goes through the CPU's slots.
    assert (tier(both, "cpu").written_bytes, tier(both, "cpu").read_bytes) == (9 + 6, 9)
    assert both.promotions_without_slot == 0


def test_a_prompt_larger_than_the_cpu_tier_gets_back_what_has_slots() -> None:
    """Five blocks behind a CPU tier of three: three are promoted, the fourth finds no slot."""
    a, b = [0, 1, 2, 3, 4], [10, 11, 12, 13, 14]
    engine = replace(ENGINE, gpu_bytes=6, batch_tokens=10)
    (both,) = run([a, b, a], engine, TierSet("both", 3, (NVME,)))
    assert tier(both, "nvme").hit_tokens == 30
    assert both.promotions_without_slot == 1


@given(chained_prompts(), st.integers(1, 5), st.sampled_from(["lru", "arc"]))
def test_small_tiers_come_to_an_end(prompts: Prompts, cpu: int, policy: Any) -> None:
    engine = replace(ENGINE, gpu_bytes=9, policy=policy)
    (item,) = run(prompts, engine, TierSet("both", cpu, (NVME,)))
    assert sum(one.hit_tokens for one in item.tiers) + item.recomputed_tokens == item.prompt_tokens


def test_a_step_that_finds_no_room_stores_nothing() -> None:
    """A step of eight blocks against a CPU tier of three: all or nothing (kv_offload/cpu/manager.py)."""
    (item,) = run([[0, 1, 2, 3, 4]], replace(ENGINE, gpu_bytes=6), TierSet("both", 3, (NVME,)))
    assert item.unstored_chunks == 5
    assert tier(item, "nvme").written_bytes == 0


def test_a_full_disk_keeps_what_it_has() -> None:
    (item,) = run([[0, 1, 2], [10, 11, 12], [0, 1, 2]], ENGINE, TierSet("both", 3, (SecondaryTier("nvme", 4),)))
    assert tier(item, "nvme").peak_bytes == 4
    assert tier(item, "nvme").lost_to_full_bytes == 2
    assert tier(item, "nvme").hit_tokens == 30


def test_chunks_hold_whole_blocks_only() -> None:
    """Chunks of two blocks: of three blocks one chunk is stored, and a hit gives back twenty tokens."""
    engine = replace(ENGINE, chunk_blocks=2)
    (item,) = run([[0, 1, 2], [10, 11, 12], [0, 1, 2]], engine, TierSet("cpu", 10))
    assert (tier(item, "cpu").hit_tokens, tier(item, "cpu").written_bytes) == (20, 2)


def test_the_last_token_is_computed() -> None:
    """A prompt of exactly three blocks that is sent again finds two: the engine computes at least one token."""
    (item,) = simulate(make_trace([[0, 1, 2], [0, 1, 2]]), ENGINE, [TierSet("none")])
    assert item.recomputed_tokens == 30 + 10


def turns(session: Sequence[int] = (0, 0)) -> Trace:
    """Two turns: twenty tokens are answered with twenty, which the second prompt holds before ten new ones."""
    trace = one_more([[0, 1], [0, 1, 2, 3, 4]])
    return replace(trace, output_tokens=np.array([20, 1]), session=np.array(session, np.int32))


def test_an_answer_is_found_on_the_gpu_and_behind_it_only_when_decode_is_offloaded() -> None:
    engine = replace(ENGINE, gpu_bytes=20)
    (item,) = simulate(turns(), engine, [TierSet("none")])
    assert tier(item, "gpu").hit_tokens == 40
    pushed = replace(one_more([[0, 1], [10, 11, 12, 13, 14], [0, 1, 2, 3, 4]]), output_tokens=np.array([20, 1, 1]))
    engine = replace(engine, gpu_bytes=6)
    for prompt_only, tokens in ((True, 20), (False, 40)):
        (item,) = simulate(pushed, replace(engine, prompt_only=prompt_only), [TierSet("cpu", 20)])
        assert tier(item, "cpu").hit_tokens == tokens


def test_a_shared_tier_serves_the_other_replica_and_a_private_one_does_not() -> None:
    prompts = [[0, 1, 2], [0, 1, 2]]
    trace = one_more(prompts)
    engine = replace(ENGINE, replicas=2, routing="random")
    seed = next(
        seed for seed in range(20) if len(set(routes_of(trace, lineage_of(trace), replace(engine, seed=seed)))) == 2
    )
    private, shared = simulate(
        trace,
        replace(engine, seed=seed),
        [TierSet("p", 6, (NVME,)), TierSet("s", 6, (SecondaryTier("ceph", shared=True),))],
    )
    assert (tier(private, "nvme").hit_tokens, tier(shared, "ceph").hit_tokens) == (0, 30)
    assert (tier(private, "nvme").written_bytes, tier(shared, "ceph").written_bytes) == (6, 3)


def test_sticky_routing_follows_the_conversation_and_spreads_what_is_new() -> None:
    trace = one_more([[0, 1], [10, 11], [0, 1, 2], [10, 11, 12], [20]])
    routes = routes_of(trace, lineage_of(trace), replace(ENGINE, replicas=2))
    assert routes == [0, 1, 0, 1, 0]


def test_a_shared_prompt_is_no_turn_of_one_conversation() -> None:
    """What all begin with is less than half of each: nobody's parent."""
    trace = one_more([[0], [0, 10, 11, 12], [0, 20, 21, 22]])
    assert lineage_of(trace).parent == (-1, -1, -1)
    assert lineage_of(replace(trace, output_tokens=np.array([10, 1, 1]))).parent == (-1, 0, 0)
    assert lineage_of(one_more([[0], [0, 10]])).parent == (-1, 0)


def test_sessions_at_once_are_sent_in_turn() -> None:
    trace = replace(
        one_more([[0], [1], [2], [0, 10], [1, 11], [2, 12]]), session=np.array([0, 1, 2, 0, 1, 2], np.int32)
    )
    lineage = lineage_of(trace)
    assert order_of(trace, lineage, replace(ENGINE, concurrency=1)) == [0, 3, 1, 4, 2, 5]
    assert order_of(trace, lineage, replace(ENGINE, concurrency=2)) == [0, 1, 3, 4, 2, 5]
    assert order_of(trace, lineage, ENGINE) == [0, 1, 2, 3, 4, 5]


def test_more_sessions_at_once_overflow_the_cpu_tier_and_not_the_shared_one() -> None:
    """The published finding: the CPU tier's hit rate collapses with concurrency, what is behind it holds."""
    prompts, sessions = [], []
    for turn in range(4):
        for session in range(16):
            prompts.append([100 * session + at for at in range(4 + 2 * turn)])
            sessions.append(session)
    trace = replace(one_more(prompts), session=np.array(sessions, np.int32))
    tiers = [TierSet("cpu", 60), TierSet("both", 60, (SecondaryTier("ceph", shared=True),))]
    found = {
        open_at_once: simulate(trace, replace(ENGINE, gpu_bytes=12, concurrency=open_at_once), tiers)
        for open_at_once in (2, 16)
    }
    assert found[2][0].hit_rate > 2 * found[16][0].hit_rate
    assert found[16][1].hit_rate == pytest.approx(found[2][1].hit_rate)


def test_a_lost_replica_loses_its_memory_and_what_is_its_own() -> None:
    prompts = [[0, 1, 2], [0, 1, 2]]
    engine = replace(ENGINE, lost_at=0.5)
    private, shared = run(
        prompts, engine, TierSet("p", 6, (NVME,)), TierSet("s", 6, (SecondaryTier("ceph", shared=True),))
    )
    assert (private.hit_rate, tier(shared, "ceph").hit_tokens) == (0.0, 30)


def test_requests_that_run_together_hold_their_blocks() -> None:
    """Two of three blocks and a partial one each: four blocks let one run, and the second waits."""
    trace = replace(one_more([[0, 1], [10, 11]]), session=np.array([0, 1], np.int32))
    (item,) = simulate(trace, replace(ENGINE, concurrency=2), [TierSet("none")])
    assert (item.waited_requests, item.too_long_requests) == (1, 0)
    (item,) = simulate(trace, replace(ENGINE, concurrency=2, gpu_bytes=6), [TierSet("none")])
    assert item.waited_requests == 0
    (item,) = simulate(trace, replace(ENGINE, gpu_bytes=2), [TierSet("none")])
    assert (item.too_long_requests, item.recomputed_tokens) == (2, 42)


def test_arc_keeps_what_comes_back_over_what_passes_by() -> None:
    """A scan of new keys leaves the frequent ones alone, where LRU forgets them."""
    arc, lru = Arc(4), Lru(4)
    for cache in (arc, lru):
        cache.add([1, 2])
        cache.used([1, 2], ())
        cache.used([1, 2], {1, 2})
        for key in range(10, 20):
            cache.add([key])
            cache.used([key], ())
    assert (1 in arc, 2 in arc, 1 in lru) == (True, True, False)


@given(st.lists(st.integers(0, 9), max_size=60), st.integers(1, 5))
def test_caches_never_hold_more_than_they_can(keys: Sequence[int], capacity: int) -> None:
    for cache in (Arc(capacity), Lru(capacity), Endless(capacity)):
        for key in keys:
            if key in cache:
                cache.used([key], {key})
            else:
                cache.add([key])
            assert len(cache) <= capacity
            assert isinstance(cache, Endless) or key in cache


def test_sizes_for_a_share_of_what_is_reachable() -> None:
    """Ten prompts of three blocks in turn, three times: all of it needs thirty blocks, few less find little."""
    prompts = [[10 * at, 10 * at + 1, 10 * at + 2] for at in range(10)] * 3
    trace = one_more(prompts, arrival_s=[60.0 * at for at in range(30)])
    sizing = size_for(trace, ENGINE, 3, 0.9)
    assert sizing.cpu_alone_bytes is not None
    assert 20 < sizing.cpu_alone_bytes <= 30
    least, less = simulate(
        trace, ENGINE, [TierSet("least", sizing.cpu_alone_bytes), TierSet("less", sizing.cpu_alone_bytes - 1)]
    )
    assert less.hit_rate < 0.9 * sizing.reachable_hit_rate <= least.hit_rate
    assert (sizing.behind.peak_bytes, sizing.behind.written_bytes) == (30, 30)
    assert sizing.reachable_hit_rate == pytest.approx(600 / 930)
    # Thirty blocks in 29 minutes, into a tier of ten blocks.
    worn = endurance(trace, sizing.behind, 10)
    assert worn is not None
    assert worn.drive_writes_per_day == pytest.approx(3 * 24 * 60 / 29)
    # What two replicas write into a drive each wears each of them half as much.
    halved = endurance(trace, sizing.behind, 10, 2)
    assert halved is not None
    assert halved.drive_writes_per_day == pytest.approx(3 * 12 * 60 / 29)


def test_each_switch_is_the_same_run_with_one_thing_changed() -> None:
    trace = one_more([[0, 1, 2], [10, 11, 12], [0, 1, 2]])
    sets = [TierSet("cpu", 6)]
    found = switched(trace, ENGINE, sets, ("arc", "lost-replica"))
    assert found["arc"] == simulate(trace, replace(ENGINE, policy="arc"), sets)
    assert found["lost-replica"][0].hit_rate == 0.0


# The command.


@pytest.fixture
def trace_file(kvbench: Run, tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    assert kvbench("trace", "make", "-o", path, "--conversation-num", "20").code == 0
    return path


TIERS = ("--model", "qwen3-8b", "--gpu", "8GiB", "--cpu", "4GiB", "--tier", "nvme=7TB", "--shared-tier", "cephfs")


def test_the_command_as_json_and_its_mix_for_fio(kvbench: Run, trace_file: Path, tmp_path: Path) -> None:
    outcome = kvbench("workingset", trace_file, *TIERS, "--replicas", "2", "--size-for", "90%", "--json")
    assert outcome.code == 0
    data = json.loads(outcome.out)
    names = [one["name"] for one in data["configurations"]]
    assert names == ["none", "cpu", "cpu+nvme", "cpu+cephfs", "cpu+nvme+cephfs"]
    for one in data["configurations"]:
        assert {"name", "hit_rate", "read_bytes", "written_bytes", "peak_bytes"} <= one["tiers"][-1].keys()
        found = sum(each["hit_tokens"] for each in one["tiers"])
        assert found + one["recomputed_tokens"] == data["trace"]["prompt_tokens"]
    assert data["sizing"]["share"] == 0.9
    saved = tmp_path / "workingset.json"
    saved.write_text(outcome.out)
    moved = {one["name"]: one for one in data["configurations"][-1]["tiers"]}
    reads, writes = moved["nvme"]["read_bytes"], moved["nvme"]["written_bytes"]
    planned = kvbench(
        "fio", "--tier", f"nvme={tmp_path}", "--model", "qwen3-8b", "--rwmixread", "auto", "--from-workingset", saved,
        "--dry-run", "--json", "--allow-shared", "--yes",
    )  # fmt: skip
    assert planned.code == 0, planned.err
    plan = json.loads(planned.out)
    assert plan["tiers"][0]["settings"]["rwmixread"] == max(1, round(100 * reads / (reads + writes)))


@pytest.mark.slow
def test_the_command_in_words(kvbench: Run, trace_file: Path) -> None:
    outcome = kvbench("workingset", trace_file, *TIERS, "--what-if", "random-routing,lost-replica", "--size-for", "90%")
    assert outcome.code == 0
    assert "What each configuration finds" in outcome.out
    assert "What a change would do" in outcome.out
    assert "of the reachable hit rate" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--gpu", "8GiB"), "--model"),
        (("--model", "qwen3-8b", "--cpu", "8GiB"), "need --gpu"),
        (("--model", "qwen3-8b", "--gpu", "8GiB", "--tier", "nvme"), "needs --cpu"),
        (("--model", "qwen3-8b", "--gpu", "8GiB", "--cpu", "8GiB", "--tier", "cpu=7TB"), "a name of your own"),
        (("--model", "qwen3-8b", "--gpu", "8GiB", "--cpu", "8GiB", "--tier", "a", "--tier", "a"), "two tiers"),
        (("--model", "qwen3-8b", "--gpu", "8GiB", "--chunk-tokens", "700"), "choose 1024"),
        (("--model", "qwen3-8b", "--gpu", "8GiB", "--what-if", "more"), "choose from"),
        (("--model", "qwen3-8b", "--gpu", "4G"), "ambiguous"),
    ],
)
def test_bad_options(kvbench: Run, trace_file: Path, arguments: tuple[str, ...], said: str) -> None:
    outcome = kvbench("workingset", trace_file, *arguments)
    assert outcome.code == 2
    assert said in outcome.err


def document(**tiers: Any) -> str:
    return json.dumps(
        {"configurations": [{"tiers": [{"name": name, **dict(zip(("read_bytes", "written_bytes"), moved, strict=True))}
                                       for name, moved in tiers.items()]}]}
    )  # fmt: skip


def test_the_mix_of_a_tier(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    path.write_text(document(cpu=(5, 5), nvme=(30, 10), cephfs=(10, 30)))
    assert read_percent(path, ["nvme"]) == 75
    assert read_percent(path, ["cephfs"]) == 25
    with pytest.raises(UsageError, match="read differently"):
        read_percent(path, ["disk"])
    path.write_text(document(nvme=(0, 10)))
    assert read_percent(path, ["disk"]) == 1
    path.write_text(document(cpu=(5, 5)))
    with pytest.raises(UsageError, match="no tier that moved anything"):
        read_percent(path, ["disk"])


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"configurations": 5}', document(nvme=("x", 1)), document(nvme=(-1, 1)), '{"a": NaN}']
)
def test_what_is_no_answer_of_workingset(tmp_path: Path, text: str) -> None:
    path = tmp_path / "w.json"
    path.write_text(text)
    with pytest.raises(InputFileError, match="write it again"):
        read_percent(path, ["nvme"])


@pytest.mark.parametrize("arguments", [("--rwmixread", "auto"), ("--from-workingset", "w.json"), ("--rwmixread", "0")])
def test_auto_and_its_file_go_together(kvbench: Run, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    outcome = kvbench("fio", "--tier", tmp_path, "--dry-run", *arguments)
    assert outcome.code == 2
    assert "--rwmixread" in outcome.err


def test_nothing_to_find_is_one_sentence(kvbench: Run, tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 10, "output_length": 1, "hash_ids": [1]}\n')
    outcome = kvbench("workingset", path, "--model", "qwen3-8b", "--gpu", "1GiB", "--cpu", "1GiB", "--size-for", "90%")
    assert outcome.code == 0
    assert "no tier would find anything" in outcome.out
