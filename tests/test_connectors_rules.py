"""Rules of the connectors beside the recorded tables: versions, refusals, warnings, and what a prompt moves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.connectors import Group, Stored, stored_layout, transfer
from kvbench.connectors.vllm_rows import retained
from kvbench.engines.vllm.releases import NEWEST, RELEASES, find_release
from kvbench.errors import KvbenchError, ModelConfigError, UsageError
from kvbench.layout.models import size_model
from tests.test_connectors import fs, size


@pytest.mark.parametrize(
    ("asked", "version"),
    [
        (None, "0.33.0"),
        ("0.24", "0.24.0"),
        ("0.25", "0.25.1"),
        ("0.27", "0.27.1"),
        ("0.27.0", "0.27.0"),
        ("0.33", NEWEST),
    ],
)
def test_a_version_without_a_patch_means_the_last(asked: str | None, version: str) -> None:
    assert find_release(asked).version == version


@pytest.mark.parametrize("asked", ["0.23.0", "0.34", "0", "", "0.2", "0.27.2", "latest", "0.24.0.post1"])
def test_other_versions_are_refused_with_the_known_ones(asked: str) -> None:
    with pytest.raises(UsageError, match=r"known: 0\.24\.0, 0\.25\.0, 0\.25\.1, .*0\.33\.0"):
        fs("qwen3-8b", asked)


@pytest.mark.parametrize("version", RELEASES)
def test_one_request_has_all_threads_until_one_job_became_one_thread(version: str) -> None:
    assert fs("qwen3-8b", version).parallelism_per_request == (32 if version < "0.27" else 1)


def copies(model: str, version: str, **options: Any) -> int:
    stored = fs(model, version, **options)
    return round(stored.groups[0].padded_bytes / stored.rank_block_bytes[0])


@pytest.mark.parametrize(
    ("version", "latent", "sparse"),
    [("0.24", 8, 8), ("0.26", 8, 8), ("0.27.1", 1, 8), ("0.30", 1, 8), ("0.31", 1, 1), ("0.33", 1, 1)],
)
def test_when_a_latent_is_stored_once(version: str, latent: int, sparse: int) -> None:
    assert copies("deepseek-v3", version, tp=8) == latent
    assert copies("deepseek-v3.2", version, tp=8) == sparse


@pytest.mark.parametrize("parallel", [{"tp": 4, "pp": 2}, {"tp": 8, "dcp": 8}])
def test_a_latent_is_stored_once_with_tensor_parallelism_alone(parallel: dict[str, int]) -> None:
    assert copies("deepseek-v3", "0.33", **parallel) == 8


def test_sm100_takes_another_latent_backend() -> None:
    assert fs("deepseek-v3", "0.24", gpu_arch="sm100").engine_block_tokens == 32
    assert fs("deepseek-v3", "0.24", gpu_arch="sm100", kv_dtype="fp8").engine_block_tokens == 32
    assert fs("qwen3-8b", "0.24", gpu_arch="sm100").groups == fs("qwen3-8b", "0.24").groups


def test_nvfp4_pages() -> None:
    stored = fs("qwen3-8b", "0.24", kv_dtype="nvfp4", gpu_arch="sm100")

    # 16 tokens x 8 heads x 2 x (128 / 2 + 128 / 16) on each of 36 layers.
    assert stored.groups[0].page_bytes == (18_432,)
    assert stored.rank_block_bytes == (663_552,)


@pytest.mark.parametrize(
    ("model", "options", "sentence"),
    [
        ("llama4-default", {"version": "0.24"}, "AssertionError in get_sliding_window_size_in_blocks"),
        ("whisper-default", {"version": "0.24"}, "does not offload cross-attention"),
        ("whisper-default", {"version": "0.33"}, "does not offload cross-attention"),
        ("nemotron-h-8b", {"version": "0.24", "prefix_caching": False}, "need --enable-prefix-caching"),
        ("mamba2-default", {"version": "0.24", "prefix_caching": False}, "one for max_model_len"),
        ("qwen3-next-80b-a3b", {"version": "0.24", "hybrid_manager": False}, "does not start this model"),
        ("qwen3-next-80b-a3b", {"version": "0.33", "gpu_arch": "sm100"}, "depends on its CUDA version"),
        ("qwen3-8b", {"version": "0.24", "kv_dtype": "nvfp4"}, "requires sm100f"),
        ("qwen3-8b", {"version": "0.33", "kv_dtype": "turboquant_k8v4"}, "known for vLLM 0.24.0 only"),
        ("deepseek-v3.2", {"version": "0.24", "gpu_arch": "sm100"}, "which sparse-MLA backend"),
        ("gpt-oss-20b", {"dcp": 2, "tp": 16}, "needs one kind of attention layer"),
    ],
)
def test_what_the_engine_refuses_or_no_source_settles(model: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ModelConfigError, match=sentence):
        fs(model, **options)


def test_an_architecture_that_is_not_known_is_refused() -> None:
    with pytest.raises(UsageError, match="--gpu-arch 'sm120': choose from sm90, sm100"):
        fs("qwen3-8b", gpu_arch="sm120")


def test_llama_4_is_offloaded_without_the_hybrid_manager_and_from_0_28_on() -> None:
    assert [group.kind for group in fs("llama4-default", "0.24", hybrid_manager=False).groups] == ["full"]
    chunked = fs("llama4-default", "0.28").groups[0]
    assert (chunked.kind, chunked.window_units) == ("chunked", 512)


def test_pages_of_different_sizes_get_more_tokens() -> None:
    # Gemma 4 31B: sliding layers 16 x 256, full ones 4 x 512 wide, so a full page holds twice the tokens.
    sized = size_model("gemma-4-31b")
    stored = stored_layout(sized, "vllm-fs", engine_version="0.24")

    assert {(group.kind, group.tokens_per_unit) for group in stored.groups} == {("sliding", 16), ("full", 32)}
    assert (stored.block_tokens, stored.stored_bytes_per_block) == (32, 11 * stored.groups[0].padded_bytes)
    # vLLM 0.33.0 on sm90 computed the same blocks.
    newest = tuple(replace(one, newest_only=False) for one in stored_layout(sized, "vllm-fs").groups)
    assert (stored.rank_block_bytes, stored.groups) == ((2_621_440,), newest)
    for version, arch in (("0.29", "sm90"), ("0.33", "sm100")):
        with pytest.raises(ModelConfigError, match="depends on its cache layout"):
            stored_layout(sized, "vllm-fs", engine_version=version, gpu_arch=arch)


def test_block_tokens_are_the_engines_block_size_option() -> None:
    stored = fs("gpt-oss-20b", "0.24", block_tokens=64)

    assert {(group.tokens_per_unit, group.padded_bytes) for group in stored.groups} == {(64, 1_572_864)}
    assert (stored.engine_block_tokens, stored.groups[0].window_units) == (16, 2)
    with pytest.raises(UsageError, match="must be a multiple of its GPU block, here 16 tokens"):
        fs("gpt-oss-20b", block_tokens=24)


def test_context_parallelism_stretches_a_block() -> None:
    assert fs("deepseek-v3", "0.24", tp=8, dcp=8).groups[0].tokens_per_unit == 128


WARNED = [
    ("nemotron-h-8b", {"version": "0.24"}, "start it with --enable-prefix-caching"),
    ("llama-3.1-8b", {"pp": 5}, "393,216, 393,216, 458,752, 458,752, 393,216 bytes"),
    ("deepseek-v3", {"version": "0.24", "tp": 8}, "8 identical copies of the latent"),
    ("gpt-oss-20b", {"version": "0.24"}, "reads every stored block of the windowed groups"),
    ("qwen3-next-80b-a3b", {}, "at the end of a scheduler step only"),
    ("qwen3-8b", {"version": "0.24", "tp": 16}, "engines of another TP share it"),
]
QUIET = [
    ("nemotron-h-8b", {"version": "0.28"}, "--enable-prefix-caching"),
    ("llama-3.1-8b", {"pp": 2}, "stride"),
    ("deepseek-v3", {"tp": 8}, "copies"),
    ("gpt-oss-20b", {"version": "0.25"}, "reads every"),
    ("nemotron-h-8b", {"version": "0.24"}, "scheduler step"),
    ("qwen3-8b", {"version": "0.28", "tp": 16}, "share"),
    ("qwen3-8b", {"version": "0.24", "tp": 8}, "share"),
]


@pytest.mark.parametrize(("model", "options", "words"), WARNED)
def test_notes_of_a_model(model: str, options: dict[str, Any], words: str) -> None:
    assert any(words in text for text in fs(model, **options).warnings)


@pytest.mark.parametrize(("model", "options", "words"), QUIET)
def test_no_trap_where_there_is_none(model: str, options: dict[str, Any], words: str) -> None:
    assert not any(words in text for text in fs(model, **options).warnings)


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0.24", ["/dev/shm", "PYTHONHASHSEED", "every store is dropped", "never evicted"]),
        ("0.27", ["/dev/shm", "PYTHONHASHSEED", "falls back to buffered", "never evicted"]),
        ("0.33", ["/dev/shm", "falls back to buffered", "never evicted"]),
    ],
)
def test_notes_of_a_release(version: str, words: list[str]) -> None:
    notes = fs("qwen3-8b", version).notes

    assert len(notes) == len(words)
    assert all(word in note for word, note in zip(words, notes, strict=True))


def moved(stored: Stored, tokens: int) -> tuple[int, int, int, int]:
    one = transfer(stored, tokens)
    assert (one.written, one.read) == (one.written_least, one.read_least)
    return one.written.units, one.written.bytes, one.read.units, one.read.bytes


def test_windowed_groups_are_read_whole_in_0_24_and_to_their_window_later() -> None:
    # gemma-3-27b: 6 sliding groups and 1 full one write 7 files of 1,310,720 bytes for each 16 tokens.
    file = 1_310_720
    assert moved(fs("gemma-3-27b-text", "0.24"), 32_768) == (14_336, 14_336 * file, 14_336, 14_336 * file)
    # 2048 blocks of the full group and 1024 / 16 of each sliding one.
    assert moved(fs("gemma-3-27b-text", "0.25"), 32_768) == (14_336, 14_336 * file, 2_432, 2_432 * file)


@pytest.mark.parametrize(
    ("tokens", "written", "read"), [(15, 0, 0), (16, 2, 0), (17, 2, 2), (31, 2, 2), (32, 4, 4), (33, 4, 4)]
)
def test_only_full_blocks_move_and_a_windowed_model_recomputes_its_last_token(
    tokens: int, written: int, read: int
) -> None:
    units = moved(fs("gpt-oss-20b", "0.24"), tokens)
    assert (units[0], units[2]) == (written, read)


def test_a_plain_model_reads_what_it_wrote() -> None:
    assert moved(fs("qwen3-8b"), 16) == (1, 2_359_296, 1, 2_359_296)
    assert moved(fs("qwen3-8b"), 8_191) == (511, 511 * 2_359_296, 511, 511 * 2_359_296)


def test_aligned_states_are_stored_once_a_step_and_read_once() -> None:
    one = transfer(fs("qwen3-next-80b-a3b", "0.28"), 544 * 10)

    # Three groups of states and one of attention; the last block is recomputed.
    assert (one.written.units, one.written_least.units) == (4 * 10, 3 + 10)
    assert (one.read.units, one.read_least.units) == (3 + 9, 3 + 9)
    early = transfer(fs("qwen3-next-80b-a3b", "0.24"), 544 * 10)
    assert (early.read.units, early.read_least.units) == (4 * 9, 3 + 9)


def test_states_of_every_block_are_stored_in_mode_all() -> None:
    one = transfer(fs("jamba-1.5-mini", "0.24"), 2048 * 4 + 1)

    assert (one.written.units, one.written_least.units) == (8 * 4, 8 * 4)


def test_only_the_reachable_blocks_of_a_small_window_are_stored() -> None:
    # As for DeepSeek-V4's groups: blocks of 4 tokens beside a full block of 256, and a window of two of them.
    full = Group(0, "full", 1, 256, 4096, 4096)
    small = Group(1, "sliding", 1, 4, 4096, 4096, window_units=2, kept=(2, 64))
    stored = Stored("x", "0.24.0", 256, 32, (full, small), over_reads=True)

    assert [transfer(stored, tokens).written.units for tokens in (247, 252, 256, 512)] == [0, 1, 3, 6]
    assert all(group.kept is None for group in fs("gpt-oss-20b", "0.24").groups)


@pytest.mark.parametrize(("version", "sliding"), [("0.29", 18), ("0.30", 8), ("0.32", 8)])
def test_of_a_window_only_what_the_same_prompt_needs_again_is_stored(version: str, sliding: int) -> None:
    # tests/engine sees it of the engine itself, with a window of 256 tokens.
    stored = fs("gpt-oss-20b", version)

    assert transfer(stored, 18 * 16 + 5).written.units == 18 + sliding
    # A prompt of whole blocks leaves the last one to be computed, and its block is not found again.
    assert transfer(stored, 128).written.units == (8 + 8 if version == "0.29" else 8 + 7)
    assert transfer(stored, 128).read.units == (8 + 8 if version == "0.29" else 7 + 7)


def test_blocks_that_do_not_divide_are_all_stored() -> None:
    # A hit is aligned to the full group's blocks: 16 tokens are no multiple of a windowed block of 32.
    full, wide = Group(0, "full", 1, 16, 4096, 4096), Group(1, "sliding", 1, 32, 4096, 4096, window_units=2)
    other = replace(full, tokens_per_unit=64)

    assert [one.newest_only for one in retained((full, wide))] == [False, False]
    assert [one.newest_only for one in retained((full, other, wide))] == [False, False, False]
    assert [one.newest_only for one in retained((other, wide))] == [False, True]
    assert [one.newest_only for one in retained((wide,))] == [True]


def test_the_published_method_rounds_up() -> None:
    assert moved(stored_layout(size("gpt-oss-20b"), "logical"), 17) == (2, 2 * 786_432, 2, 2 * 786_432)


@given(tokens=st.integers(1, 200_000), version=st.sampled_from(RELEASES))
def test_no_restore_reads_more_than_was_written(tokens: int, version: str) -> None:
    for model in ("gpt-oss-20b", "gemma-3-1b", "qwen3-next-80b-a3b", "mistral-7b-v0.1(sw4096)"):
        one = transfer(fs(model, version), tokens)
        assert one.read_least.units <= one.read.units <= one.written.units
        assert one.written_least.units <= one.written.units
        assert one.read.bytes <= one.written.bytes


def test_objects_are_the_files_with_other_parallelism() -> None:
    sized = size("gpt-oss-20b", tp=2)
    files, objects = (stored_layout(sized, name, engine_version="0.26") for name in ("vllm-fs", "vllm-obj"))

    assert (objects.groups, objects.unit, objects.parallelism_per_request) == (files.groups, "object", 4)


def test_the_disk_backend_keeps_a_slot_on_every_rank() -> None:
    stored = stored_layout(size("qwen3-8b", tp=4), "vllm-disk")

    assert (stored.groups[0].padded_bytes, stored.groups[0].units) == (589_824, 4)
    assert stored.stored_bytes_per_block == 4 * 589_824
    assert moved(stored, 32)[:2] == (8, 8 * 589_824)


@pytest.mark.parametrize(
    ("connector", "model", "options", "sentence"),
    [
        ("vllm-disk", "qwen3-8b", {"engine_version": "0.27"}, "has no disk backend"),
        ("vllm-disk", "gpt-oss-20b", {}, "windowed, recurrent or cross-attention"),
        ("vllm-disk", "deepseek-v2-lite", {}, "not aligned"),
        ("vllm-disk", "llama-3.1-8b", {"pp": 3}, "stages blocks of different sizes"),
        ("llm-d-fs", "gpt-oss-20b", {}, "only for full attention"),
        ("llm-d-fs", "qwen3-8b", {"block_tokens": 24}, "multiples of the GPU block"),
        ("lmcache-disk", "deepseek-v3", {}, "only for full attention"),
        ("lmcache-disk", "llama-3.1-8b", {"pp": 3}, "files of different sizes"),
        ("lmcache-disk", "qwen3-8b", {"kv_dtype": "int8_per_token_head"}, "only for full attention"),
    ],
)
def test_what_other_connectors_leave_open(connector: str, model: str, options: dict[str, Any], sentence: str) -> None:
    version = options.pop("engine_version", None)
    with pytest.raises(KvbenchError, match=sentence):
        stored_layout(size(model, **options), connector, engine_version=version)


@pytest.mark.parametrize("connector", ["llm-d-fs", "lmcache-disk"])
def test_a_file_of_256_tokens_for_each_rank(connector: str) -> None:
    stored = stored_layout(size("llama-3.1-8b", tp=2, pp=2), connector)

    # 131,072 B per token over 4 ranks.
    assert (stored.groups[0].padded_bytes, stored.groups[0].units, stored.block_tokens) == (256 * 32_768, 4, 256)
    assert stored.stored_bytes_per_block == 256 * 131_072
    assert stored.parallelism_per_request == (256 if connector == "llm-d-fs" else 4)


def test_what_lmcache_says_of_a_size_that_does_not_divide() -> None:
    stored = stored_layout(size("qwen2.5-7b", block_tokens=1, tp=4), "lmcache-disk")

    assert not stored.groups[0].aligned_4096
    assert "Cannot use O_DIRECT for this file" in stored.warnings[0]
