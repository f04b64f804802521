"""One hand-computed anchor per family: the config keys, and the bytes that follow from them (bf16, one copy)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kvbench.errors import ModelConfigError
from kvbench.layout import FAMILIES, read_layout, reader_of
from kvbench.layout.sizing import index_bytes_per_token, state_bytes, token_bytes

Config = dict[str, Any]


def flat(model_type: str, layers: int, heads: int, kv: int | None, dim: int | None, hidden: int, **more: Any) -> Config:
    keys = {"num_key_value_heads": kv, "head_dim": dim, "hidden_size": hidden}
    given = {key: value for key, value in keys.items() if value is not None}
    return {"model_type": model_type, "num_hidden_layers": layers, "num_attention_heads": heads, **given, **more}


def mla(model_type: str, layers: int, heads: int, rank: int = 512, **more: Any) -> Config:
    # num_key_value_heads and head_dim stand in real files and must not matter.
    noise = {"num_key_value_heads": heads, "head_dim": 192, "v_head_dim": 128, "hidden_size": 7168}
    return {
        "model_type": model_type,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "kv_lora_rank": rank,
        "qk_rope_head_dim": 64,
        **noise,
        **more,
    }


DELTA = {
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}
MAMBA2 = {"mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4}
NEMOTRON = {"mamba_num_heads": 64, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4}
NAS_BLOCKS = [
    {"attention": {"n_heads_in_group": 16, "no_op": False, "replace_with_linear": False, "window_length": None}},
    {"attention": {"n_heads_in_group": None, "no_op": True}},
    {"attention": {"n_heads_in_group": None, "no_op": False, "replace_with_linear": True}},
    {"attention": {"n_heads_in_group": 8, "no_op": False}},
]
SPARSE = {"use_sparse_attention": True, "sparse_attention_freq": [0, 0, 0] + [1] * 57, "sparse_index_dim": 128}

# Family, config, B/token, of which without a window.
ANCHORS: list[tuple[str, Config, int, int]] = [
    # 80 layers x 8 heads x (128 + 128) x 2 B; 8192 / 64 = 128.
    ("llama", flat("llama", 80, 64, 8, None, 8192, intermediate_size=28672), 327_680, 327_680),
    # Multi-head: 32 x 32 x 256 x 2, the key absent as in LLaMA-1's files.
    ("llama", flat("llama", 32, 32, None, None, 4096, intermediate_size=11008), 524_288, 524_288),
    # head_dim 128 although 1024 / 16 = 64: 28 x 8 x 256 x 2.
    ("qwen3", flat("qwen3", 28, 16, 8, 128, 1024, sliding_window=None, use_sliding_window=False), 114_688, 114_688),
    ("qwen3", flat("qwen3", 36, 32, 8, 128, 4096), 147_456, 147_456),
    ("qwen3_moe", flat("qwen3_moe", 94, 64, 4, 128, 4096, max_window_layers=94), 192_512, 192_512),
    # sliding_window is ignored unless use_sliding_window: 28 x 4 x 256 x 2.
    ("qwen2", flat("qwen2", 28, 28, 4, None, 3584, sliding_window=131072, use_sliding_window=False), 57_344, 57_344),
    # With it, layers from max_window_layers on slide: 4 full of 8.
    (
        "qwen2",
        flat("qwen2", 8, 8, 2, 64, 512, sliding_window=4096, use_sliding_window=True, max_window_layers=4),
        8 * 2 * 128 * 2,
        4 * 2 * 128 * 2,
    ),
    # Every layer slides: nothing grows.
    ("mistral", flat("mistral", 32, 32, 8, None, 4096, sliding_window=4096, max_position_embeddings=32768), 131_072, 0),
    ("mistral", flat("mistral", 40, 32, 8, 128, 5120, sliding_window=None), 163_840, 163_840),
    # MLC's copy of Mistral-7B-v0.1 spells the window otherwise.
    (
        "mistral",
        flat("mistral", 32, 32, 8, None, 4096, sliding_window_size=4096, max_position_embeddings=32768),
        131_072,
        0,
    ),
    ("mixtral", flat("mixtral", 32, 32, 8, None, 4096, sliding_window=None), 131_072, 131_072),
    # A window longer than the model's positions is full attention.
    (
        "phi3",
        flat("phi3", 32, 24, 8, None, 3072, sliding_window=262144, max_position_embeddings=131072),
        131_072,
        131_072,
    ),
    # 36 x 8 x 128 x 2 B; half of the layers keep 128 tokens.
    (
        "gpt_oss",
        flat(
            "gpt_oss", 36, 64, 8, 64, 2880, sliding_window=128, layer_types=["sliding_attention", "full_attention"] * 18
        ),
        73_728,
        36_864,
    ),
    ("gemma", flat("gemma", 28, 16, 16, 256, 3072), 458_752, 458_752),
    ("gemma2", flat("gemma2", 46, 32, 16, 128, 4608, sliding_window=4096), 376_832, 188_416),
    # Pattern 6 by class default: layers 5, 11, ..., 59 are full.
    ("gemma3_text", flat("gemma3_text", 62, 32, 16, 128, 5376, sliding_window=1024), 507_904, 81_920),
    # gemma-3-4b's text_config states neither heads nor head_dim: 34 x 4 x 512 x 2, five layers full.
    (
        "gemma3_text",
        {"model_type": "gemma3_text", "num_hidden_layers": 34, "hidden_size": 2560, "sliding_window": 1024},
        139_264,
        5 * 4 * 512 * 2,
    ),
    (
        "gemma3n_text",
        flat(
            "gemma3n_text",
            35,
            8,
            2,
            256,
            2048,
            sliding_window=512,
            num_kv_shared_layers=15,
            layer_types=(["sliding_attention"] * 4 + ["full_attention"]) * 7,
        ),
        40_960,
        8_192,
    ),
    # 50 x 16 x 512 x 2 sliding, 10 x 4 x 1024 x 2 full.
    (
        "gemma4_text",
        flat(
            "gemma4_text",
            60,
            32,
            16,
            256,
            5376,
            sliding_window=1024,
            num_kv_shared_layers=0,
            global_head_dim=512,
            num_global_key_value_heads=4,
            attention_k_eq_v=True,
            use_bidirectional_attention="vision",
            layer_types=(["sliding_attention"] * 5 + ["full_attention"]) * 10,
        ),
        901_120,
        81_920,
    ),
    # no_rope_layers absent: every fourth layer is full.
    ("llama4_text", flat("llama4_text", 48, 40, 8, 128, 5120, attention_chunk_size=8192), 196_608, 49_152),
    (
        "cohere2",
        flat("cohere2", 64, 96, 8, 128, 12288, sliding_window=4096, sliding_window_pattern=4),
        262_144,
        65_536,
    ),
    ("cohere", flat("cohere", 40, 64, 8, None, 8192), 163_840, 163_840),
    ("olmo3", flat("olmo3", 32, 32, 32, None, 4096, sliding_window=4096), 524_288, 131_072),
    ("olmo2", flat("olmo2", 32, 32, 32, None, 4096), 524_288, 524_288),
    (
        "exaone4",
        flat("exaone4", 64, 40, 8, 128, 5120, sliding_window=4096, sliding_window_pattern="LLLG"),
        262_144,
        65_536,
    ),
    ("exaone4", flat("exaone4", 30, 32, 8, 64, 2048, sliding_window=None), 30 * 8 * 128 * 2, 30 * 8 * 128 * 2),
    # Three trailing entries of layer_types are multi-token-prediction layers.
    (
        "step3p7",
        flat(
            "step3p7",
            4,
            64,
            8,
            128,
            4096,
            sliding_window=512,
            num_nextn_predict_layers=3,
            layer_types=["full_attention"] + ["sliding_attention"] * 6,
        ),
        4 * 4096,
        4096,
    ),
    # K is wider than V, and sliding layers have other heads: 4 x (192+128) x 2 and 8 x (192+128) x 2.
    (
        "mimo_v2_flash",
        flat(
            "mimo_v2_flash",
            3,
            64,
            4,
            192,
            4096,
            v_head_dim=128,
            swa_num_key_value_heads=8,
            swa_head_dim=192,
            swa_v_head_dim=128,
            sliding_window=128,
            attention_chunk_size=128,
            hybrid_layer_pattern=[0, 1, 1],
        ),
        2_560 + 2 * 5_120,
        2_560,
    ),
    ("glm4_moe", flat("glm4_moe", 92, 96, 8, 128, 5120), 376_832, 376_832),
    ("minimax_m2", flat("minimax_m2", 62, 48, 8, 128, 3072), 253_952, 253_952),
    (
        "minimax",
        flat("minimax", 4, 64, 8, 128, 6144, attn_type_list=[0, 0, 0, 1]),
        8 * 256 * 2,
        8 * 256 * 2,
    ),
    ("minimax_m3", flat("minimax_m3", 60, 64, 4, 128, 6144, sparse_attention_config=SPARSE), 122_880, 122_880),
    # 61 x (512 + 64) x 2 B, nothing doubled.
    ("deepseek_v3", mla("deepseek_v3", 61, 128), 70_272, 70_272),
    ("deepseek_v2", mla("deepseek_v2", 27, 16), 31_104, 31_104),
    ("mistral4", mla("mistral4", 36, 32, rank=256), 23_040, 23_040),
    ("deepseek_v32", mla("deepseek_v32", 61, 128, index_head_dim=128, index_topk=2048), 70_272, 70_272),
    ("glm_moe_dsa", mla("glm_moe_dsa", 78, 64, index_head_dim=128), 89_856, 89_856),
    # 12 of 48 layers are full: 12 x 2 x 512 x 2.
    ("qwen3_next", flat("qwen3_next", 48, 16, 2, 256, 2048, full_attention_interval=4, **DELTA), 24_576, 24_576),
    (
        "granitemoehybrid",
        flat("granitemoehybrid", 4, 32, 8, None, 4096, layer_types=["mamba", "attention", "mamba", "mamba"]),
        4_096,
        4_096,
    ),
    # Mamba keys alone make no layer Mamba (granite-4.0-micro).
    (
        "granitemoehybrid",
        flat("granitemoehybrid", 2, 32, 8, None, 4096, layer_types=["attention"] * 2, **MAMBA2),
        8_192,
        8_192,
    ),
    # One * in the pattern: 2 heads x 256 x 2 B.
    (
        "nemotron_h",
        flat("nemotron_h", 6, 32, 2, 128, 2688, hybrid_override_pattern="MEM*E-", **NEMOTRON),
        1_024,
        1_024,
    ),
    # Nemotron-3-Ultra: no num_hidden_layers at all.
    (
        "nemotron_h",
        {
            "model_type": "nemotron_h",
            "num_attention_heads": 64,
            "num_key_value_heads": 2,
            "head_dim": 128,
            "layers_block_type": ["mamba", "moe", "attention", "mlp"],
            **NEMOTRON,
        },
        1_024,
        1_024,
    ),
    (
        "kimi_linear",
        mla("kimi_linear", 4, 32, linear_attn_config={"full_attn_layers": [4], "kda_layers": [1, 2, 3]}),
        1_152,
        1_152,
    ),
    ("falcon_h1", flat("falcon_h1", 36, 8, 2, 64, 1024, attn_layer_indices=None, **MAMBA2), 18_432, 18_432),
    # i % 8 == 4: layers 4, 12, 20, 28.
    ("jamba", flat("jamba", 32, 32, 8, None, 4096, attn_layer_period=8, attn_layer_offset=4), 16_384, 16_384),
    ("bamba", flat("bamba", 32, 32, 8, None, 4096, attn_layer_indices=[9, 18, 27], **MAMBA2), 12_288, 12_288),
    (
        "zamba2",
        flat("zamba2", 3, 32, 32, None, 2560, attention_head_dim=160, layers_block_type=["mamba", "hybrid", "mamba"]),
        32 * 320 * 2,
        32 * 320 * 2,
    ),
    # 128 / 16 = 8 heads and 128 / 8 = 16 heads of 16384 / 128 = 128; the others own nothing.
    (
        "nemotron-nas",
        flat("nemotron-nas", 4, 128, None, None, 16384, block_configs=NAS_BLOCKS),
        (8 + 16) * 256 * 2,
        (8 + 16) * 256 * 2,
    ),
    # Every second layer owns its KV.
    (
        "hunyuan",
        flat("hunyuan", 4, 80, 8, None, 6400, use_cla=True, cla_share_factor=2, attention_head_dim=128),
        2 * 8 * 256 * 2,
        2 * 8 * 256 * 2,
    ),
    ("hunyuan_v1_moe", flat("hunyuan_v1_moe", 32, 32, 8, 128, 4096, cla_share_factor=2), 131_072, 131_072),
    ("gpt2", {"model_type": "gpt2", "n_layer": 12, "n_head": 12, "n_embd": 768}, 36_864, 36_864),
    (
        "bloom",
        {"architectures": ["BloomForCausalLM"], "n_layer": 30, "n_head": 32, "hidden_size": 4096},
        491_520,
        491_520,
    ),
    (
        "gpt_bigcode",
        {"model_type": "gpt_bigcode", "n_layer": 40, "n_head": 48, "n_embd": 6144, "multi_query": True},
        40 * 256 * 2,
        40 * 256 * 2,
    ),
    # A re-saved Falcon-7B: num_kv_heads 71 does not count, the real number is 1.
    (
        "falcon",
        {
            "model_type": "falcon",
            "num_hidden_layers": 32,
            "num_attention_heads": 71,
            "num_kv_heads": 71,
            "hidden_size": 4544,
            "multi_query": True,
            "new_decoder_architecture": False,
        },
        8_192,
        8_192,
    ),
    (
        "falcon",
        {
            "model_type": "falcon",
            "n_layer": 60,
            "num_hidden_layers": 60,
            "n_head": 128,
            "num_kv_heads": 8,
            "hidden_size": 8192,
            "multi_query": True,
            "new_decoder_architecture": True,
        },
        122_880,
        122_880,
    ),
    (
        "RefinedWebModel",
        {"model_type": "RefinedWebModel", "n_layer": 32, "n_head": 71, "hidden_size": 4544, "multi_query": True},
        8_192,
        8_192,
    ),
    (
        "RefinedWeb",
        {"model_type": "RefinedWeb", "n_layer": 60, "n_head": 128, "n_head_kv": 8, "hidden_size": 8192},
        122_880,
        122_880,
    ),
    (
        "mpt",
        {"model_type": "mpt", "n_layers": 32, "n_heads": 32, "d_model": 4096, "attn_config": {"attn_impl": "torch"}},
        524_288,
        524_288,
    ),
    (
        "dbrx",
        {"model_type": "dbrx", "n_layers": 40, "n_heads": 48, "d_model": 6144, "attn_config": {"kv_n_heads": 8}},
        163_840,
        163_840,
    ),
    (
        "chatglm",
        {
            "model_type": "chatglm",
            "num_layers": 28,
            "num_attention_heads": 32,
            "hidden_size": 4096,
            "multi_query_attention": True,
            "multi_query_group_num": 2,
            "kv_channels": 128,
        },
        28_672,
        28_672,
    ),
    (
        "step3_text",
        {
            "model_type": "step3_text",
            "num_hidden_layers": 61,
            "num_attention_heads": 64,
            "num_attention_groups": 1,
            "head_dim": 256,
        },
        61 * 512 * 2,
        61 * 512 * 2,
    ),
    (
        "mamba",
        {
            "model_type": "mamba",
            "num_hidden_layers": 24,
            "hidden_size": 768,
            "expand": 2,
            "state_size": 16,
            "conv_kernel": 4,
        },
        0,
        0,
    ),
    ("rwkv", {"model_type": "rwkv", "num_hidden_layers": 32, "hidden_size": 4096, "attention_hidden_size": 4096}, 0, 0),
    # whisper-large-v3: the decoder's 32 layers, 20 x 64.
    (
        "whisper",
        {
            "model_type": "whisper",
            "is_encoder_decoder": True,
            "num_hidden_layers": 32,
            "decoder_layers": 32,
            "decoder_attention_heads": 20,
            "d_model": 1280,
            "max_source_positions": 1500,
        },
        163_840,
        163_840,
    ),
]


def per_token(config: Mapping[str, object]) -> tuple[int, int]:
    layers = read_layout(config).layout.layers
    sizes = [(layer, token_bytes(layer, "bfloat16")) for layer in layers]
    return sum(size for _, size in sizes), sum(size for layer, size in sizes if layer.window is None)


@pytest.mark.parametrize(
    ("family", "config", "total", "growing"), ANCHORS, ids=lambda x: x if isinstance(x, str) else ""
)
def test_bytes_per_token(family: str, config: Config, total: int, growing: int) -> None:
    assert per_token(config) == (total, growing)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_names_a_function_that_exists(family: str) -> None:
    assert callable(reader_of(family))


@pytest.mark.parametrize("wrapper", ["gemma3", "llama4", "qwen3_5"])
def test_a_wrapper_hands_over_its_text_config_even_without_an_inner_model_type(wrapper: str) -> None:
    inner = {
        "gemma3": flat("", 62, 32, 16, 128, 5376, sliding_window=1024),
        "llama4": flat("", 48, 40, 8, 128, 5120, attention_chunk_size=8192),
        "qwen3_5": flat("", 48, 16, 2, 256, 2048, full_attention_interval=4, **DELTA),
    }[wrapper]
    outer = {"model_type": wrapper, "text_config": inner, "vision_config": {"num_hidden_layers": 27, "head_dim": 80}}

    assert per_token(outer)[0] == {"gemma3": 507_904, "llama4": 196_608, "qwen3_5": 24_576}[wrapper]


def test_a_thinker_is_unwrapped_twice() -> None:
    text = flat("qwen3_omni_moe_text", 48, 32, 4, 128, 2048)
    thinker = {"model_type": "qwen3_omni_moe_thinker", "text_config": text}

    assert per_token({"model_type": "qwen3_omni_moe", "thinker_config": thinker})[0] == 98_304


def test_qwen2_vl_is_read_flat_and_nested() -> None:
    keys = {"sliding_window": 32768, "use_sliding_window": False, "max_window_layers": 28}
    text = flat("qwen2_5_vl_text", 28, 28, 4, None, 3584, **keys)

    assert per_token({"model_type": "qwen2_5_vl", "text_config": text}) == (57_344, 57_344)
    assert per_token({**text, "model_type": "qwen2_5_vl"}) == (57_344, 57_344)


def test_dsa_index_keys() -> None:
    # 128 fp8 elements and one fp32 scale: 132 B on each layer that has an indexer of its own.
    every = mla("deepseek_v32", 61, 128, index_head_dim=128)
    some = mla(
        "glm_moe_dsa", 78, 64, index_head_dim=128, indexer_types=["full"] * 21 + ["shared"] * 57, index_topk_freq=4
    )

    assert index_bytes_per_token(read_layout(every).layout) == 8_052
    assert index_bytes_per_token(read_layout(some).layout) == 2_772


def test_minimax_m3_index_keys() -> None:
    config = flat("minimax_m3", 60, 64, 4, 128, 6144, sparse_attention_config=SPARSE)

    assert index_bytes_per_token(read_layout(config).layout) == 57 * 128 * 2


STATES: list[tuple[str, Config, int]] = [
    # Per layer: convolution (2 x 16 x 128 + 32 x 128) x 3 x 2 B, state 32 x 128 x 128 in float32 or 16 bit.
    (
        "float32",
        flat("qwen3_next", 4, 16, 2, 256, 2048, full_attention_interval=4, mamba_ssm_dtype="float32", **DELTA),
        3 * (49_152 + 2_097_152),
    ),
    ("16 bit", flat("qwen3_next", 4, 16, 2, 256, 2048, full_attention_interval=4, **DELTA), 3 * (49_152 + 1_048_576)),
    # (64 x 64 + 2 x 8 x 128) x 3 x 2 B and 64 x 64 x 128 x 4 B: Nemotron-H's recurrent state is float32 by default.
    ("mamba2", flat("nemotron_h", 2, 32, 2, 128, 2688, hybrid_override_pattern="M*", **NEMOTRON), 36_864 + 2_097_152),
    # 1536 x 3 x 2 B and 1536 x 16 x 2 B, 24 layers.
    (
        "mamba1",
        {"model_type": "mamba", "n_layer": 24, "intermediate_size": 1536, "state_size": 16, "conv_kernel": 4},
        24 * (9_216 + 49_152),
    ),
    # 3 x 32 x 128 x 3 x 2 B and 32 x 128 x 128 x 4 B.
    (
        "kda",
        mla(
            "kimi_linear",
            2,
            32,
            linear_attn_config={
                "full_attn_layers": [2],
                "kda_layers": [1],
                "num_heads": 32,
                "head_dim": 128,
                "short_conv_kernel_size": 4,
            },
        ),
        73_728 + 2_097_152,
    ),
    # 64 heads x 128 x 128 x 2 B.
    ("lightning", flat("minimax", 2, 64, 8, 128, 6144, attn_type_list=[0, 1]), 2_097_152),
]


@pytest.mark.parametrize(("name", "config", "size"), STATES, ids=lambda x: x if isinstance(x, str) else "")
def test_state_bytes(name: str, config: Config, size: int) -> None:
    assert state_bytes(read_layout(config).layout) == size


def test_a_state_without_its_keys_is_unknown_not_zero() -> None:
    config = flat("granitemoehybrid", 2, 32, 8, None, 4096, layer_types=["mamba", "attention"], mamba_d_state=128)

    assert "mamba_n_heads" in (read_layout(config).layout.state_unknown or "")


LLAMA = flat("llama", 32, 32, 8, 128, 4096)
REFUSED: list[tuple[str, Config, str]] = [
    ("unknown", {"model_type": "llama9"}, "does not know the architecture 'llama9'"),
    ("unknown lists the known", {"model_type": "llama9"}, "qwen3_moe"),
    ("v4", {"model_type": "deepseek_v4"}, "DeepSeek-V4"),
    ("no model_type", {"num_hidden_layers": 3}, "no model_type"),
    ("two architectures", {"architectures": ["LlamaForCausalLM", "GPT2LMHeadModel"]}, "no model_type"),
    ("model_type not text", {"model_type": 3}, "model_type is not a string"),
    ("no layers", {**LLAMA, "num_hidden_layers": None}, "num_hidden_layers is missing"),
    ("zero layers", {**LLAMA, "num_hidden_layers": 0}, "num_hidden_layers is 0"),
    ("negative", {**LLAMA, "num_key_value_heads": -8}, "num_key_value_heads is -8"),
    ("bool", {**LLAMA, "num_hidden_layers": True}, "num_hidden_layers is true"),
    ("float", {**LLAMA, "head_dim": 128.0}, "head_dim is 128.0"),
    ("text", {**LLAMA, "num_attention_heads": "32"}, "num_attention_heads is '32'"),
    ("infinity", {**LLAMA, "num_hidden_layers": float("inf")}, "num_hidden_layers is inf"),
    ("a billion layers", {**LLAMA, "num_hidden_layers": 10**9}, "more than any model"),
    ("kv heads do not divide", {**LLAMA, "num_key_value_heads": 5}, "does not divide"),
    ("more kv heads than heads", {**LLAMA, "num_key_value_heads": 64}, "does not divide"),
    ("gqa key lost", {**flat("llama", 80, 64, None, None, 8192), "intermediate_size": 28672}, "num_key_value_heads"),
    ("hidden not divisible", flat("llama", 32, 30, 30, None, 4096), "head_dim is missing"),
    ("spellings disagree", {**LLAMA, "n_layer": 48}, "contradict"),
    ("mla in a llama", {**LLAMA, "kv_lora_rank": 512}, "kv_lora_rank would change its cache"),
    ("window in a llama", {**LLAMA, "sliding_window": 4096}, "sliding_window would change its cache"),
    ("layer types in a llama", {**LLAMA, "layer_types": ["sliding_attention"] * 32}, "sliding_attention"),
    ("encoder-decoder llama", {**LLAMA, "is_encoder_decoder": True}, "is_encoder_decoder"),
    ("nested llama", {**LLAMA, "text_config": LLAMA}, "nested text config"),
    ("head_dim of qwen3", flat("qwen3", 36, 32, 8, None, 2560), "head_dim is missing"),
    ("kv heads of qwen3", flat("qwen3", 36, 32, None, 128, 2560), "num_key_value_heads is missing"),
    ("head_dim of mistral small", flat("mistral", 40, 32, 8, None, 5120, sliding_window=None), "head_dim"),
    ("mistral window unsaid", flat("mistral", 32, 32, 8, 128, 4096), "sliding_window is missing"),
    ("window not integer", flat("mistral", 32, 32, 8, 128, 4096, sliding_window=4096.5), "sliding_window is 4096.5"),
    ("window is text", flat("gemma2", 46, 32, 16, 128, 4608, sliding_window="4096"), "sliding_window is '4096'"),
    ("gpt-oss without layer_types", flat("gpt_oss", 36, 64, 8, 64, 2880, sliding_window=128), "layer_types is missing"),
    (
        "layer_types too short",
        flat("gpt_oss", 36, 64, 8, 64, 2880, sliding_window=128, layer_types=["full_attention"] * 35),
        "35 entries for 36 layers",
    ),
    (
        "strange layer type",
        flat("gpt_oss", 1, 64, 8, 64, 2880, sliding_window=128, layer_types=["conv"]),
        "layer_types names conv",
    ),
    (
        "sliding layers without a window",
        flat("gpt_oss", 1, 64, 8, 64, 2880, layer_types=["sliding_attention"]),
        "sliding_window is missing",
    ),
    (
        "gemma-3-27b without head_dim",
        flat("gemma3_text", 62, 32, 16, None, 5376, sliding_window=1024, query_pre_attn_scalar=168),
        "head_dim is missing",
    ),
    ("half of gemma-3's heads", flat("gemma3_text", 62, 32, None, 128, 5376, sliding_window=1024), "num_key_value"),
    ("an encoder", flat("gemma3_text", 24, 3, 1, 256, 768, use_bidirectional_attention=True), "encoder"),
    ("latent without rope", {**mla("deepseek_v3", 61, 128), "qk_rope_head_dim": None}, "qk_rope_head_dim is missing"),
    ("indexer in a V3", mla("deepseek_v3", 61, 128, index_head_dim=128), "index_head_dim would change"),
    ("shared index unsaid", mla("glm_moe_dsa", 78, 64, index_head_dim=128, index_topk_freq=4), "index_topk_freq"),
    ("V3.2 without indexer", mla("deepseek_v32", 61, 128), "index_head_dim is missing"),
    (
        "falcon unsaid",
        {
            "model_type": "falcon",
            "n_layer": 60,
            "n_head": 128,
            "num_kv_heads": 8,
            "hidden_size": 8192,
            "multi_query": True,
        },
        "new_decoder_architecture",
    ),
    (
        "falcon without multi_query",
        {"model_type": "falcon", "n_layer": 32, "n_head": 71, "hidden_size": 4544},
        "multi_query is missing",
    ),
    (
        "nemotron pattern length",
        flat("nemotron_h", 7, 32, 2, 128, 2688, hybrid_override_pattern="M*"),
        "2 letters for 7 layers",
    ),
    ("nemotron letters", flat("nemotron_h", 2, 32, 2, 128, 2688, hybrid_override_pattern="MX"), "letters"),
    (
        "nemotron head_dim",
        flat("nemotron_h", 2, 32, 2, None, 2688, hybrid_override_pattern="M*"),
        "head_dim is missing",
    ),
    ("no layers at all", {"model_type": "nemotron_h", "num_attention_heads": 32, "layers_block_type": []}, "missing"),
    ("nas length", flat("nemotron-nas", 3, 128, None, None, 16384, block_configs=NAS_BLOCKS), "4 entries for 3"),
    (
        "nas group lost",
        flat("nemotron-nas", 1, 128, None, None, 16384, block_configs=[{"attention": {}}]),
        "n_heads_in_group",
    ),
    (
        "kimi lists overlap",
        mla("kimi_linear", 2, 32, linear_attn_config={"full_attn_layers": [1], "kda_layers": [1, 2]}),
        "one of its two lists",
    ),
    (
        "kimi lists from 0",
        mla("kimi_linear", 2, 32, linear_attn_config={"full_attn_layers": [0], "kda_layers": [1]}),
        "one of its two lists",
    ),
    ("jamba offset", flat("jamba", 32, 32, 8, None, 4096, attn_layer_period=4, attn_layer_offset=4), "not below"),
    ("bamba index", flat("bamba", 8, 32, 8, None, 4096, attn_layer_indices=[9]), "below 8"),
    (
        "mamba depth",
        {
            "model_type": "mamba",
            "n_layer": 48,
            "num_hidden_layers": 32,
            "intermediate_size": 1536,
            "state_size": 16,
            "conv_kernel": 4,
        },
        "contradict",
    ),
    (
        "gemma4 shares all",
        flat(
            "gemma4_text",
            2,
            8,
            2,
            256,
            2048,
            sliding_window=512,
            num_kv_shared_layers=2,
            global_head_dim=512,
            attention_k_eq_v=False,
            layer_types=["sliding_attention", "full_attention"],
        ),
        "no layer to share from",
    ),
    ("two text configs", {"model_type": "llava", "text_config": LLAMA, "llm_config": LLAMA}, "2 text configs"),
    ("no text config", {"model_type": "llava"}, "0 text configs"),
    (
        "outer contradicts inner",
        {"model_type": "llava", "num_hidden_layers": 40, "text_config": LLAMA},
        "contradicts itself",
    ),
    ("unknown inner", {"model_type": "llava", "text_config": {"model_type": "llama9"}}, "llama9"),
]


@pytest.mark.parametrize(("name", "config", "sentence"), REFUSED, ids=lambda x: x if isinstance(x, str) else "")
def test_refusals_name_the_key(name: str, config: Config, sentence: str) -> None:
    with pytest.raises(ModelConfigError) as caught:
        read_layout(config)
    text = str(caught.value)
    assert sentence in text
    assert text.endswith(".")
    assert "\n" not in text
