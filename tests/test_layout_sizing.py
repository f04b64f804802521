"""Parallelism, KV dtypes with their scales, pipeline stages and contexts, from hand-made layouts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kvbench.errors import ModelConfigError, UsageError
from kvbench.layout.dtype import KV_DTYPES, Checkpoint, layer_head_bytes, resolve
from kvbench.layout.kv import Cross, KVLayout, Layer, StatePart
from kvbench.layout.sizing import (
    check_context_parallel,
    check_parallel,
    context,
    cross_bytes,
    heads_per_rank,
    rank_state_bytes,
    rank_token_bytes,
    stage_sizes,
    stages,
)

GQA = Layer("full", kv_heads=8, k_dim=128, v_dim=128)
LATENT = Layer("mla", kv_heads=1, k_dim=576, rope_dim=64)
DENSE = KVLayout((GQA,) * 80, query_heads=64)
MLA = KVLayout((LATENT,) * 61, query_heads=128)
SPARSE = KVLayout((LATENT,) * 61, query_heads=128, sparse=True)


@pytest.mark.parametrize(("tp", "rank"), [(1, 5_242_880), (2, 2_621_440), (8, 655_360), (16, 655_360), (64, 655_360)])
def test_llama_70b_shares_heads_until_it_replicates_one(tp: int, rank: int) -> None:
    # 80 layers x 8/TP heads, at least one, x 256 x 2 B x 16 tokens.
    assert 16 * 80 * rank_token_bytes(GQA, "bfloat16", tp) == rank


@pytest.mark.parametrize("tp", [1, 2, 8, 16, 128])
def test_a_latent_is_whole_on_every_rank(tp: int) -> None:
    assert 61 * rank_token_bytes(LATENT, "bfloat16", tp) == 70_272


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ModelConfigError, match="10 KV heads and TP 4"):
        heads_per_rank(10, 4)


def test_attention_heads_are_divided_too() -> None:
    with pytest.raises(ModelConfigError, match="71 attention heads"):
        check_parallel(KVLayout((GQA,), query_heads=71), tp=2, pp=1)


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(ModelConfigError, match="PP 81"):
        check_parallel(DENSE, tp=1, pp=81)


@pytest.mark.parametrize(
    ("layers", "pp", "wanted"),
    [
        (80, 1, (80,)),
        (80, 4, (20, 20, 20, 20)),
        # What does not divide goes to the stages before the last, never to the last.
        (61, 2, (31, 30)),
        (61, 4, (15, 15, 16, 15)),
        (62, 4, (15, 16, 16, 15)),
        (32, 3, (11, 11, 10)),
    ],
)
def test_layers_per_stage(layers: int, pp: int, wanted: tuple[int, ...]) -> None:
    assert stage_sizes(layers, pp) == wanted


def test_uneven_stages_of_a_llama_with_32_layers() -> None:
    # vLLM 0.24.0 computes 720,896 and 655,360 bytes per rank block at PP 3: 11 or 10 layers x 8 x 256 x 2 x 16.
    layout = KVLayout((GQA,) * 32, query_heads=32)

    assert [stage.rank_block_bytes for stage in stages(layout, "bfloat16", 1, 3, 16)] == [720_896, 720_896, 655_360]


DTYPES = [
    ("bfloat16", GQA, 512),
    ("float16", GQA, 512),
    ("fp8", GQA, 256),
    ("fp8_e5m2", GQA, 256),
    # 128 values and one fp32 scale, for K and for V.
    ("int8_per_token_head", GQA, 2 * 132),
    ("fp8_per_token_head", GQA, 2 * 132),
    # 64 bytes of 4-bit values and 8 fp8 scales, for K and for V.
    ("nvfp4", GQA, 2 * 72),
    ("bfloat16", LATENT, 1_152),
    ("fp8", LATENT, 576),
    # 512 fp8 + 4 fp32 scales + 64 bf16.
    ("fp8_ds_mla", LATENT, 656),
]


@pytest.mark.parametrize(("dtype", "layer", "size"), DTYPES)
def test_bytes_per_head(dtype: str, layer: Layer, size: int) -> None:
    assert layer_head_bytes(layer, dtype) == size


@pytest.mark.parametrize(
    ("dtype", "layer"),
    [
        ("fp8_ds_mla", GQA),
        ("nvfp4", LATENT),
        ("int8_per_token_head", LATENT),
        ("nvfp4", Layer("full", 8, 40, 40)),
        ("fp8_ds_mla", Layer("mla", 1, 320, rope_dim=64)),
    ],
)
def test_a_dtype_without_a_layout_is_refused(dtype: str, layer: Layer) -> None:
    with pytest.raises(ModelConfigError):
        layer_head_bytes(layer, dtype)


MODELOPT = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
EIGHT_BIT = {"dynamic": False, "num_bits": 8, "type": "float"}
COMPRESSED = {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}
HF_QUANT = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}


def checkpoint(config: Mapping[str, Any], hf_quant: Mapping[str, Any] | None = None) -> Checkpoint:
    text = config.get("text_config", config)
    return Checkpoint(config, text, hf_quant)


AUTO = [
    ("the model's dtype", DENSE, checkpoint({"torch_dtype": "float16"}), "float16"),
    ("the new spelling", DENSE, checkpoint({"dtype": "bfloat16"}), "bfloat16"),
    ("inside the text config", DENSE, checkpoint({"text_config": {"dtype": "float16"}}), "float16"),
    ("none at all", DENSE, checkpoint({}), "bfloat16"),
    ("float32 is served in 16 bit", DENSE, checkpoint({"torch_dtype": "float32"}), "bfloat16"),
    ("FP8 weights", DENSE, checkpoint({"quantization_config": {"quant_method": "fp8"}}), "bfloat16"),
    ("AWQ weights", DENSE, checkpoint({"quantization_config": {"quant_method": "awq", "bits": 4}}), "bfloat16"),
    ("MXFP4 weights", DENSE, checkpoint({"quantization_config": {"quant_method": "mxfp4"}}), "bfloat16"),
    ("ModelOpt scheme", DENSE, checkpoint({"quantization_config": {**MODELOPT, "kv_cache_scheme": EIGHT_BIT}}), "fp8"),
    ("ModelOpt name", DENSE, checkpoint({"quantization_config": {**MODELOPT, "kv_cache_quant_algo": "FP8"}}), "fp8"),
    (
        "ModelOpt nvfp4",
        DENSE,
        checkpoint({"quantization_config": {**MODELOPT, "kv_cache_quant_algo": "NVFP4"}}),
        "nvfp4",
    ),
    ("ModelOpt on MLA", MLA, checkpoint({"quantization_config": {**MODELOPT, "kv_cache_scheme": EIGHT_BIT}}), "fp8"),
    (
        "sparse MLA",
        SPARSE,
        checkpoint({"quantization_config": {**MODELOPT, "kv_cache_scheme": EIGHT_BIT}}),
        "fp8_ds_mla",
    ),
    ("compressed-tensors", DENSE, checkpoint({"quantization_config": COMPRESSED}), "fp8"),
    ("compressed-tensors, older key", DENSE, checkpoint({"compression_config": COMPRESSED}), "fp8"),
    ("compressed-tensors inside", DENSE, checkpoint({"text_config": {"quantization_config": COMPRESSED}}), "fp8"),
    ("compressed-tensors on MLA", MLA, checkpoint({"quantization_config": COMPRESSED}), "bfloat16"),
    ("no scheme", DENSE, checkpoint({"quantization_config": {**COMPRESSED, "kv_cache_scheme": None}}), "bfloat16"),
    ("separate file", DENSE, checkpoint({}, HF_QUANT), "fp8"),
    ("separate file unheard", DENSE, checkpoint({"quantization_config": MODELOPT}, HF_QUANT), "bfloat16"),
    (
        "unknown algorithm",
        DENSE,
        checkpoint({"quantization_config": {**MODELOPT, "kv_cache_quant_algo": "X"}}),
        "bfloat16",
    ),
]


@pytest.mark.parametrize(("name", "layout", "given", "dtype"), AUTO, ids=[case[0] for case in AUTO])
def test_auto_follows_the_engine(name: str, layout: KVLayout, given: Checkpoint, dtype: str) -> None:
    assert resolve("auto", layout, given).name == dtype


@pytest.mark.parametrize("name", ["compressed-tensors on MLA", "separate file unheard", "unknown algorithm"])
def test_a_declaration_that_the_engine_does_not_follow_is_a_warning(name: str) -> None:
    _, layout, given, _ = next(case for case in AUTO if case[0] == name)

    assert resolve("auto", layout, given).warnings


@pytest.mark.parametrize(
    "config",
    [
        {"torch_dtype": "float8_e4m3fn"},
        {"torch_dtype": 16},
        {"quantization_config": "fp8"},
        {"quantization_config": {"quant_method": "quark", "kv_cache_scheme": EIGHT_BIT}},
        {"text_config": {"quantization_config": {**MODELOPT, "kv_cache_scheme": EIGHT_BIT}}},
        {"quantization_config": {**COMPRESSED, "kv_cache_scheme": {"num_bits": 4, "type": "int"}}},
    ],
)
def test_auto_refuses_what_it_does_not_know(config: dict[str, Any]) -> None:
    with pytest.raises(ModelConfigError):
        resolve("auto", DENSE, checkpoint(config))
    assert resolve("bfloat16", DENSE, checkpoint(config)).name == "bfloat16"


def test_a_requested_dtype_wins() -> None:
    declared = checkpoint({"quantization_config": COMPRESSED})

    assert resolve("bfloat16", DENSE, declared).source == "--kv-dtype"
    assert resolve("fp8", SPARSE, declared).name == "fp8_ds_mla"
    with pytest.raises(UsageError, match="fp4"):
        resolve("fp4", DENSE, declared)
    assert "fp4" not in KV_DTYPES


def test_windows_stop_growing() -> None:
    # gpt-oss-20b at 131,072 tokens: 24,576 x 131,072 + 12 layers x 2,048 x 128.
    full, sliding = Layer("full", 8, 64, 64), Layer("sliding", 8, 64, 64, window=128)
    weighed = context(KVLayout((full, sliding) * 12, query_heads=64), "bfloat16", 1, 131_072)

    assert weighed.bytes == 3_224_371_200


def test_index_keys_are_part_of_a_context() -> None:
    layout = KVLayout((Layer("mla", 1, 576, rope_dim=64, index_bytes=132),) * 61, query_heads=128, sparse=True)
    weighed = context(layout, "fp8_ds_mla", 8, 1)

    # 61 x 656 + 8,052, on each of 8 ranks.
    assert (weighed.bytes, weighed.rank_bytes, weighed.server_bytes) == (48_068, 48_068, 8 * 48_068)


def test_state_is_shared_out_and_groups_are_replicated() -> None:
    parts = (StatePart("ssm", 64, 1000), StatePart("groups", 8, 10, replicates=True))
    layout = KVLayout((Layer("linear", state=parts),))

    assert [rank_state_bytes(layout, tp) for tp in (1, 2, 8, 16)] == [64_080, 32_040, 8_010, 4_010]
    with pytest.raises(ModelConfigError, match="TP 3"):
        rank_state_bytes(layout, 3)


def test_cross_attention_is_fixed_and_apart() -> None:
    # whisper-large-v3: 32 x 20 x 128 x 2 B per token, 1,500 encoder tokens.
    layer = Layer("full", 20, 64, 64)
    layout = KVLayout((layer,) * 32, query_heads=20, cross=Cross((layer,) * 32, 1500))

    assert cross_bytes(layout, "bfloat16") == 245_760_000
    assert context(layout, "bfloat16", 1, 100).bytes == 100 * 163_840 + 245_760_000
    assert context(layout, "bfloat16", 4, 100).rank_bytes == (100 * 163_840 + 245_760_000) // 4
    assert cross_bytes(KVLayout((layer,), 20, cross=Cross((layer,), None)), "bfloat16") is None


def test_a_negative_context_is_a_usage_error() -> None:
    with pytest.raises(UsageError):
        context(DENSE, "bfloat16", 1, -1)


@pytest.mark.parametrize(
    ("layout", "tp", "dcp", "refused"),
    [
        (MLA, 8, 8, None),
        (MLA, 8, 3, "not a multiple"),
        (DENSE, 16, 2, None),
        (DENSE, 8, 2, "choose a smaller DCP"),
        (DENSE, 32, 4, None),
        (SPARSE, 8, 2, "one kind"),
        (KVLayout((GQA, Layer("sliding", 8, 128, 128, window=128)), 64), 16, 2, "one kind"),
    ],
)
def test_decode_context_parallelism(layout: KVLayout, tp: int, dcp: int, refused: str | None) -> None:
    if refused is None:
        check_context_parallel(layout, tp, dcp)
        return
    with pytest.raises(ModelConfigError, match=refused):
        check_context_parallel(layout, tp, dcp)


def test_dcp_spreads_the_tokens_of_a_context() -> None:
    # 1,000 tokens on 8 ranks: 125 on each.
    assert context(MLA, "bfloat16", 8, 1000, dcp=8).rank_bytes == 125 * 70_272
    assert context(MLA, "bfloat16", 8, 1001, dcp=8).rank_bytes == 126 * 70_272
