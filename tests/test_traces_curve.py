"""Exact curves: golden values, a brute-force cache at every capacity, another simulator, weights, windows, samples."""

from __future__ import annotations

import json
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.errors import ModelConfigError, UsageError
from kvbench.formats.traces import load
from kvbench.formats.traces.head import Options
from kvbench.layout.models import size_model
from kvbench.layout.sizing import context
from kvbench.traces.curve import Curve, head_first, reuse_curve
from kvbench.traces.make import Recipe, requests
from kvbench.traces.sample import sampled_curve
from kvbench.traces.stack import earlier_above, reuse_distances
from kvbench.traces.summary import mean_request_ratio, summarize
from kvbench.traces.trace import Trace
from kvbench.traces.weights import BlockWeight, block_weight
from kvbench.traces.windows import step_s, traffic, working_sets
from tests.conftest import SHARED_DATA
from tests.trace_models import Prompts, chained_prompts, lru_hits, make_trace, weighted_lru_hits, wild_prompts

SHARED = SHARED_DATA / "traces"


def golden(name: str) -> tuple[dict[str, Any], Trace]:
    if not SHARED.is_dir():
        pytest.skip("the public traces are not here")
    path = SHARED / "mooncake" / f"{name}_trace.jsonl"
    return json.loads((SHARED / "golden.json").read_text())[name], load(path, Options()).trace


@pytest.mark.parametrize("name", ["conversation", "synthetic"])
def test_golden_values_hold(name: str) -> None:
    known, trace = golden(name)
    curve, distances = reuse_curve(trace)
    assert (trace.requests, trace.references, trace.unique_blocks) == (
        known["requests"],
        known["blocks"],
        known["unique_blocks"],
    )
    assert int(trace.prompt_tokens.sum()) == known["input_tokens"]
    assert int(trace.output_tokens.sum()) == known["output_tokens"]
    assert (curve.ideal.blocks, curve.ideal.tokens) == (
        known["infinite_prefix_hit_blocks"],
        known["infinite_hit_tokens"],
    )
    assert {size: curve.at(int(size)).blocks for size in known["mrc_prefix_hits"]} == known["mrc_prefix_hits"]
    for share, size in known["capacity_blocks_for_frac_of_ideal"].items():
        assert curve.capacity_for(float(share)) == size
    (ten_minutes,) = working_sets(trace, None, (10,))
    assert ten_minutes.touched.tolist() == known["unique_blocks_per_10min_tumbling"]
    # Exclusive tiers are one stack cut into pieces.
    bounds = np.cumsum([0, *known["tiers_exclusive_caps_blocks"]])
    hits = [curve.at(int(high)).blocks - curve.at(int(low)).blocks for low, high in pairwise(bounds)]
    assert hits == known["tiers_hits_mattson"]
    # What `aiperf analyze-trace` prints, to every digit.
    expected = {"conversation": 0.38425808746366197, "synthetic": 0.42323532378348516}[name]
    assert mean_request_ratio(trace, distances) == pytest.approx(expected, abs=1e-15)


def prompts_of(trace: Trace) -> Prompts:
    return [trace.blocks[start:end].tolist() for start, end in pairwise(trace.first)]


@pytest.mark.parametrize("capacity", [37, 777, 12_345, 66_666])
def test_the_public_traces_at_capacities_that_golden_does_not_name(capacity: int) -> None:
    _, trace = golden("synthetic")
    assert reuse_curve(trace)[0].at(capacity).blocks == lru_hits(prompts_of(trace), capacity)[0]


@pytest.mark.slow
@pytest.mark.parametrize("capacity", [500, 5_000, 20_000])
def test_agent_sessions_with_subagents_against_brute_force(capacity: int) -> None:
    if not SHARED.is_dir():
        pytest.skip("the public traces are not here")
    trace = load(SHARED / "weka", Options()).trace
    assert (trace.requests, trace.block_tokens) == (355, 64)
    assert reuse_curve(trace)[0].at(capacity).blocks == lru_hits(prompts_of(trace), capacity)[0]


@pytest.mark.slow
@settings(max_examples=250)
@given(wild_prompts | chained_prompts(), st.integers(0, 9))
def test_every_capacity_equals_a_cache_that_is_run(prompts: Prompts, short: int) -> None:
    trace = make_trace(prompts, 10, short)
    curve, _ = reuse_curve(trace)
    tokens = [[10] * (len(prompt) - 1) + [10 - short] for prompt in prompts]
    for capacity in range(trace.unique_blocks + 3):
        hits = curve.at(capacity)
        assert (hits.blocks, hits.tokens) == lru_hits(prompts, capacity, tokens)
        assert hits.rate == (hits.tokens / int(trace.prompt_tokens.sum()) if hits.tokens else 0)
    assert curve.at(curve.largest) == curve.ideal == curve.at(10**12)


@pytest.mark.slow
@settings(max_examples=200)
@given(wild_prompts | chained_prompts(), st.data())
def test_blocks_of_different_weight_equal_a_cache_that_is_run(prompts: Prompts, data: st.DataObject) -> None:
    weights = [[data.draw(st.integers(1, 5)) for _ in prompt] for prompt in prompts]
    trace = make_trace(prompts)
    curve, _ = reuse_curve(trace, np.array([one for own in weights for one in own], np.int64))
    for capacity in range(curve.largest + 3):
        assert curve.at(capacity).blocks == weighted_lru_hits(prompts, weights, capacity)


@given(st.permutations(range(23)), st.data())
def test_earlier_above_is_what_it_says(ranks: list[int], data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.integers(0, 9), min_size=23, max_size=23))
    found = earlier_above(np.array(ranks, np.int32), np.array(weights, np.int64))
    assert found.tolist() == [
        sum(weights[before] for before in range(at) if ranks[before] > ranks[at]) for at in range(23)
    ]


def test_touching_the_end_of_a_prompt_last_loses_prefixes() -> None:
    prompts = [[1, 2, 3], [1, 2, 3], [1, 2, 4]]
    assert reuse_curve(make_trace(prompts))[0].at(2).blocks == 4
    assert reuse_curve(head_first(make_trace(prompts)))[0].at(2).blocks == 0


def test_an_empty_trace_of_blocks_has_an_empty_curve() -> None:
    trace = make_trace([[], []])
    curve, distances = reuse_curve(trace)
    assert (len(distances), curve.largest, curve.ideal.blocks, curve.capacity_for(0.5)) == (0, 0, 0, None)
    assert mean_request_ratio(trace, distances) is None


def other_simulator(blocks: np.ndarray[Any, Any], capacity: int, folder: Path) -> int:
    """Hits that libCacheSim counts with plain LRU, one call for each block."""
    library = pytest.importorskip("libcachesim", reason="libcachesim is not installed (no wheel for this platform)")
    file = folder / "trace.bin"
    if not file.exists():
        record = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])
        written = np.zeros(len(blocks), record)
        written["time"], written["id"], written["size"], written["next"] = np.arange(len(blocks)), blocks + 1, 1, -1
        assert record.itemsize == struct.calcsize("<IQIq")
        file.write_bytes(written.tobytes())
    reader = library.TraceReader(
        trace=str(file),
        trace_type=library.TraceType.ORACLE_GENERAL_TRACE,
        reader_init_params=library.ReaderInitParam(ignore_obj_size=True),
    )
    ratio, _ = library.LRU(cache_size=capacity, hashpower=16).process_trace(reader)
    return round((1 - float(ratio)) * len(blocks))


def test_another_simulator_agrees_at_four_capacities(tmp_path: Path) -> None:
    trace = trace_of(Recipe(conversation_num=150, isl_block_size=128), tmp_path)
    curve, _ = reuse_curve(head_first(trace))
    sizes = (100, 400, 1000, 2500)
    assert [curve.at(size).blocks for size in sizes] == [
        other_simulator(trace.blocks, size, tmp_path) for size in sizes
    ]
    assert len({curve.at(size).blocks for size in sizes}) == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "hits"),
    [("conversation", (12_831, 39_101, 82_939, 102_290)), ("synthetic", (10_050, 37_703, 69_649, 77_953))],
)
def test_another_simulator_agrees_on_the_public_traces(name: str, hits: tuple[int, ...], tmp_path: Path) -> None:
    _, trace = golden(name)
    curve, _ = reuse_curve(head_first(trace))
    sizes = (1000, 5859, 20_000, 50_000)
    assert tuple(curve.at(size).blocks for size in sizes) == hits
    assert tuple(other_simulator(trace.blocks, size, tmp_path) for size in sizes) == hits


@pytest.mark.parametrize("model", ["qwen3-8b", "gpt-oss-120b", "qwen3.6-35b-a3b", "gemma-3-27b-it", "deepseek-v3"])
@pytest.mark.parametrize("tp", [1, 4])
@pytest.mark.parametrize("block_tokens", [16, 512])
def test_a_request_weighs_what_its_context_weighs(model: str, tp: int, block_tokens: int) -> None:
    sized = size_model(model, tp=tp)
    weight = block_weight(sized, block_tokens)
    for blocks in (1, 2, 7, 300):
        expected = context(sized.layout, sized.kv_dtype, tp, blocks * block_tokens).server_bytes
        trace = make_trace([range(blocks)], block_tokens)
        assert int(weight.of(trace).sum()) == expected
        assert weight.of_requests(np.array([blocks])).tolist() == [expected]
    assert weight.of_requests(np.array([0])).tolist() == [0]


def test_full_attention_weighs_the_same_everywhere_and_a_window_does_not() -> None:
    plain = block_weight(size_model("qwen3-8b"), 512)
    assert plain == BlockWeight(72 << 20)
    windowed = block_weight(size_model("gpt-oss-120b"), 16)
    # 18 full and 18 windowed layers of 128 tokens: 8 blocks at the end weigh double.
    assert windowed == BlockWeight(16 * 36_864, (16 * 36_864,) * 8)


def test_an_unknown_state_is_refused() -> None:
    from dataclasses import replace

    with pytest.raises(ModelConfigError, match="state of a request is not known"):
        block_weight(replace(size_model("qwen3-8b"), state_unknown="a key is missing"), 16)


def test_windows_count_blocks_once_and_know_which_are_used_twice() -> None:
    prompts = [[1, 2], [1, 3, 3], [1, 2], [9], [1]]
    trace = make_trace(prompts, arrival_s=[0, 30, 70, 71, 400])
    one, five = working_sets(trace, BlockWeight(100, (7,)), (1, 5))
    assert one.touched.tolist() == [3, 3, 0, 0, 0, 0, 1]
    assert one.reused.tolist() == [1, 0, 0, 0, 0, 0, 0]
    # Blocks at the end of their prompt weigh 7 more: 2 (3 counts at its first place); 2 and 9; 1.
    assert one.touched_bytes is not None
    assert one.touched_bytes.tolist() == [307, 314, 0, 0, 0, 0, 107]
    assert (five.touched.tolist(), five.reused.tolist()) == ([4, 1], [2, 0])
    assert working_sets(make_trace(prompts), None, (1,)) == ()


def test_traffic_reads_hits_and_writes_the_rest() -> None:
    trace = make_trace([[1, 2], [1, 2, 3], [], [1, 2, 3]], arrival_s=[0, 10, 11, 40])
    _, distances = reuse_curve(trace)
    moved = traffic(trace, distances, BlockWeight(100), 2, "cpu", 30)
    assert moved.read_bytes.tolist() == [200, 200]
    assert moved.written_bytes.tolist() == [300, 100]
    with_ends = traffic(trace, distances, BlockWeight(100, (7,)), 2, "cpu", 30)
    assert with_ends.read_bytes.tolist() == [207, 207]
    assert with_ends.written_bytes.tolist() == [314, 107]
    assert step_s(make_trace([[1], [1]], arrival_s=[0, 3540])) == 60


def trace_of(recipe: Recipe, folder: Path) -> Trace:
    file = folder / "made.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in requests(recipe)))
    return load(file, Options()).trace


@pytest.mark.slow
def test_a_sample_is_near_and_its_interval_is_no_decoration(tmp_path: Path) -> None:
    trace = trace_of(Recipe(conversation_num=700, isl_block_size=64), tmp_path)
    exact, _ = reuse_curve(trace)
    sizes = [int(exact.largest * part) for part in (0.3, 0.45, 0.6, 0.8, 1.0)]
    caught = 0
    for seed in range(8):
        sample = sampled_curve(trace, 0.1, seed=seed)
        assert sample.kept_references < trace.references * 0.2
        assert sample.least_capacity <= sizes[0]
        for size in sizes:
            low, high = sample.interval(size)
            assert 0 <= low <= high <= low + 0.4
            assert abs(sample.curve.at(size).rate - exact.at(size).rate) < 0.1
            caught += low <= exact.at(size).rate <= high
    # 95 % of 40 are 38; the same seeds give the same count.
    assert caught >= 36


def test_a_capacity_below_what_a_sample_resolves_has_a_wide_interval(tmp_path: Path) -> None:
    trace = trace_of(Recipe(conversation_num=300, isl_block_size=64), tmp_path)
    sample = sampled_curve(trace, 0.2)
    assert sample.least_capacity == 800
    assert sample.interval(799) == sample.interval(1) == (0.0, sample.interval(800)[1])
    assert sample.interval(800)[0] > 0


def test_a_sample_of_everything_is_exact() -> None:
    trace = make_trace([[block, block + 1] for block in range(900)] * 2)
    exact, _ = reuse_curve(trace)
    sample = sampled_curve(trace, 0.999_999_999)
    assert sample.curve.ideal == exact.ideal


def test_a_sample_that_is_too_small_is_refused() -> None:
    with pytest.raises(UsageError, match="too few to say"):
        sampled_curve(make_trace([[1, 2, 3]]), 0.5)


def test_ids_that_are_no_prefix_hashes_are_told() -> None:
    def unchained(prompts: Prompts) -> int:
        trace = make_trace(prompts)
        return summarize(trace, *reuse_curve(trace)).unchained

    assert unchained([[1, 2], [1, 3], [1, 2, 4]]) == 0
    assert unchained([[1, 2], [3, 2]]) == 1
    assert unchained([[1, 2], [2]]) == 1


def test_a_curve_has_no_place_for_nothing() -> None:
    empty = np.zeros(0, np.int64)
    curve = Curve(empty, empty, empty, 0)
    assert curve.at(5).rate == 0
    assert curve.capacity_of(3) == 0
    assert reuse_distances(np.zeros(0, np.int32), np.zeros(1, np.int64)).tolist() == []
