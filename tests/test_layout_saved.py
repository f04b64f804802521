"""Files that leave something to the class or the engine: StarCoder2, LongCat-Flash, LFM2, Falcon-H1, Gemma 4."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvbench.connectors import stored_layout
from kvbench.connectors.stored import Stored
from kvbench.errors import ModelConfigError
from kvbench.layout import ReadConfig, read_layout
from kvbench.layout.models import size_model
from kvbench.layout.sizing import state_bytes, token_bytes
from tests.factories import shared_data, write_json

STARCODER2: dict[str, Any] = {
    "model_type": "starcoder2", "hidden_size": 3072, "num_hidden_layers": 30, "num_attention_heads": 24,
    "num_key_value_heads": 2, "max_position_embeddings": 16384, "sliding_window": 4096,
}  # fmt: skip
LONGCAT: dict[str, Any] = {
    "model_type": "longcat_flash", "hidden_size": 6144, "num_layers": 28, "num_attention_heads": 64,
    "kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128, "head_dim": 64,
}  # fmt: skip
ATTENTION = [2, 5, 8, 10, 12, 14]
LFM2: dict[str, Any] = {
    "model_type": "lfm2", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
    "num_key_value_heads": 8, "conv_L_cache": 3, "conv_dim": 2048, "full_attn_idxs": ATTENTION,
}  # fmt: skip
LISTED = ["full_attention" if layer in ATTENTION else "conv" for layer in range(16)]
FALCON: dict[str, Any] = {
    "model_type": "falcon_h1", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 8,
    "num_key_value_heads": 2, "attn_layer_indices": None, "mamba_n_heads": 48, "mamba_d_head": 64,
    "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_d_ssm": 3072,
    "mamba_chunk_size": 256,
}  # fmt: skip


def without(config: dict[str, Any], *names: str) -> dict[str, Any]:
    """The config without these keys."""
    return {key: value for key, value in config.items() if key not in names}


def per_token(read: ReadConfig) -> int:
    """Bytes of one token of all layers in bfloat16."""
    return sum(token_bytes(layer, "bfloat16") for layer in read.layout.layers)


def refused(config: dict[str, Any]) -> str:
    """Why a config is refused."""
    with pytest.raises(ModelConfigError) as error:
        read_layout(config)
    return str(error.value)


def stored(config: dict[str, Any], folder: Path, tp: int = 1) -> Stored:
    """What vLLM's fs tier stores of the model."""
    path = write_json(folder / "config.json", {**config, "dtype": "bfloat16"})
    return stored_layout(size_model(str(path), tp=tp), "vllm-fs", engine_version="0.24")


def test_starcoder2_slides_in_every_layer() -> None:
    """30 layers x 2 heads x (128 + 128) x 2 bytes; 3072 / 24 = 128."""
    read = read_layout(STARCODER2)
    assert (per_token(read), {layer.window for layer in read.layout.layers}) == (30_720, {4096})
    full = read_layout(without(STARCODER2, "sliding_window")).layout
    assert {(layer.kind, layer.window) for layer in full.layers} == {("full", None)}
    assert "which the engine takes" in refused({**STARCODER2, "head_dim": 64})
    assert "num_key_value_heads is missing" in refused(without(STARCODER2, "num_key_value_heads"))


def test_longcat_flash_keeps_two_latents_in_a_layer(tmp_path: Path) -> None:
    """28 x 2 x 576 x 2 bytes; the engine stores it for each of 8 ranks: 8,257,536 bytes of 16 tokens."""
    assert per_token(read_layout(LONGCAT)) == 64_512
    assert stored(LONGCAT, tmp_path, tp=8).stored_bytes_per_block == 8_257_536
    for layers in (28, 56):
        assert per_token(read_layout({**LONGCAT, "num_hidden_layers": layers})) == 64_512
    assert "neither num_layers 28 nor its attentions, 56" in refused({**LONGCAT, "num_hidden_layers": 29})
    assert "num_layers is missing" in refused(without(LONGCAT, "num_layers") | {"num_hidden_layers": 56})


def test_a_pipeline_keeps_the_attentions_of_a_decoder_layer_together(tmp_path: Path) -> None:
    """28 decoder layers over 8 stages are four of 3 and four of 4: 6 or 8 latents of 16 x 1,152 bytes."""
    path = write_json(tmp_path / "config.json", {**LONGCAT, "dtype": "bfloat16"})
    stages = size_model(str(path), pp=8).stages
    assert sum(stage.layers for stage in stages) == 56
    assert {(stage.layers, stage.rank_block_bytes) for stage in stages} == {(6, 110_592), (8, 147_456)}
    with pytest.raises(ModelConfigError, match="PP 29 is more than the model's 28 layers"):
        size_model(str(path), pp=29)


def test_lfm2_is_convolutions_and_attention() -> None:
    """6 x 8 heads x 128 x 2 bytes; each of 10 convolutions keeps 2 x 2048 x 2 bytes."""
    read = read_layout(LFM2)
    assert (per_token(read), state_bytes(read.layout)) == (12_288, 81_920)
    assert read_layout(without(LFM2, "full_attn_idxs") | {"layer_types": LISTED}).layout == read.layout
    assert read_layout({**LFM2, "layer_types": LISTED}).layout == read.layout
    defaulted = read_layout(without(LFM2, "conv_dim", "conv_L_cache"))
    assert (defaulted.layout, len(defaulted.defaults)) == (read.layout, 3)
    assert "contradict each other" in refused({**LFM2, "layer_types": ["conv"] * 10 + ["full_attention"] * 6})
    assert "layer_types is missing" in refused(without(LFM2, "full_attn_idxs"))
    assert "different layers below 16" in refused({**LFM2, "full_attn_idxs": [2, 16]})
    assert read_layout({**LFM2, "model_type": "lfm2_moe"}).layout == read.layout


@pytest.mark.parametrize(
    ("attention", "layers", "hidden", "block", "groups"),
    [
        (ATTENTION, 16, 2048, 196_608, 3),
        ([2, 5, 8, 11, 14], 16, 2048, 163_840, 4),
        ([4, 12, 20, 28], 32, 2560, 163_840, 8),
    ],
)
def test_blocks_of_lfm2_with_prefix_caching(
    attention: list[int], layers: int, hidden: int, block: int, groups: int, tmp_path: Path
) -> None:
    """A page is 16 tokens of an attention layer, a state is padded to it; a block has the fewest layers of a kind."""
    config = {
        **LFM2,
        "full_attn_idxs": attention,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "conv_dim": hidden,
    }
    found = stored(config, tmp_path)
    assert (found.engine_block_tokens, found.rank_block_bytes, len(found.groups)) == (16, (block,), groups)


def test_falcon_h1_without_head_dim_divides() -> None:
    """2048 / 8 = 256: 24 x 2 x 512 x 2 bytes; a head_dim of the file wins."""
    read = read_layout(FALCON)
    assert (per_token(read), len(read.defaults)) == (49_152, 1)
    assert per_token(read_layout({**FALCON, "head_dim": 128})) == 24_576
    assert "not a multiple of 7" in refused({**FALCON, "num_attention_heads": 7, "num_key_value_heads": 7})


@pytest.mark.parametrize(
    ("config", "tp", "tokens", "block", "groups", "file"),
    [
        (STARCODER2, 1, 16, 491_520, 1, 491_520), (STARCODER2, 2, 16, 245_760, 1, 491_520),
        (LONGCAT, 1, 16, 1_032_192, 1, 1_032_192), (LONGCAT, 2, 16, 1_032_192, 1, 2_064_384),
        (LFM2, 1, 16, 196_608, 3, 196_608), (LFM2, 2, 16, 98_304, 3, 196_608),
        (FALCON, 1, 1024, 50_331_648, 2, 50_331_648), (FALCON, 2, 1024, 25_165_824, 2, 50_331_648),
    ],
)  # fmt: skip
def test_what_vllm_0_24_computed(
    config: dict[str, Any], tp: int, tokens: int, block: int, groups: int, file: int, tmp_path: Path
) -> None:
    """By benchmarks/geometry_oracle.py, with prefix caching (docs/geometry-oracle.md)."""
    found = stored(config, tmp_path, tp=tp)
    assert (found.engine_block_tokens, found.rank_block_bytes, len(found.groups)) == (tokens, (block,), groups)
    assert {group.padded_bytes for group in found.groups} == {file}


# Gemma 4 as transformers 5.16 and later save it


def saved(shown: dict[str, Any], width: int = 2) -> dict[str, Any]:
    """The text config with per_layer_config instead of the two keys for full layers (transformers 5.24.0, to_dict)."""
    text = dict(shown)
    own: dict[str, Any] = {"head_dim": text.pop("global_head_dim")}
    heads = text.pop("num_global_key_value_heads", None)
    if text["attention_k_eq_v"] and heads is not None:
        own["num_key_value_heads"] = heads
    full = [at for at, name in enumerate(text["layer_types"]) if name == "full_attention"]
    return text | {"per_layer_config": {f"{at:0{width}}": own for at in full}}


GEMMA4: dict[str, Any] = {
    "model_type": "gemma4_text", "hidden_size": 5376, "num_hidden_layers": 12, "num_attention_heads": 32,
    "num_key_value_heads": 16, "head_dim": 256, "sliding_window": 1024, "num_kv_shared_layers": 0,
    "global_head_dim": 512, "num_global_key_value_heads": 4, "attention_k_eq_v": True,
    "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 2,
}  # fmt: skip


@pytest.mark.parametrize("changes", [{}, {"attention_k_eq_v": False}, {"num_kv_shared_layers": 5}])
@pytest.mark.parametrize("width", [1, 2])
def test_gemma_4_is_the_same_as_its_class_saves_it(changes: dict[str, Any], width: int) -> None:
    shown = {**GEMMA4, **changes}
    assert read_layout(saved(shown, width)).layout == read_layout(shown).layout


@pytest.mark.parametrize("name", ["google__gemma-4-31B", "google__gemma-4-E4B"])
def test_the_published_gemma_4_files_are_too(name: str) -> None:
    shown = json.loads((shared_data("model-configs") / f"{name}.json").read_text())
    text = shown.get("text_config", shown)
    again = {**shown, "text_config": saved(text)} if "text_config" in shown else saved(text)
    assert read_layout(again).layout == read_layout(shown).layout


def test_per_layer_config_counts_for_the_layers_that_it_names() -> None:
    found = read_layout(
        {**saved(GEMMA4), "per_layer_config": {"0": {"head_dim": 128}, "5": {"num_key_value_heads": 8}}}
    )
    layers = found.layout.layers
    assert [(layer.kv_heads, layer.k_dim, layer.v_dim) for layer in (layers[0], layers[1], layers[5], layers[11])] == [
        (16, 128, 128), (16, 256, 256), (8, 256, 256), (16, 256, 256),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"per_layer_config": {"12": {"head_dim": 512}}}, "different layers below 12"),
        ({"per_layer_config": {"5": {"head_dim": 512}, "05": {"head_dim": 256}}}, "different layers below 12"),
        ({"per_layer_config": {"full_attention": {"head_dim": 512}}}, "which is no number"),
        ({"per_layer_config": {"5": {"head_dim": 512, "sliding_window": 9}}}, "holds something other than"),
        ({"per_layer_config": {"5": {"num_key_value_heads": 5}}}, "does not divide"),
        ({"per_layer_config": ["x"]}, "not an object"),
        ({"global_head_dim": 384}, "global_head_dim=384 and per_layer_config contradict each other"),
        ({"num_global_key_value_heads": 8}, "num_global_key_value_heads=8 and per_layer_config contradict"),
    ],
)
def test_what_per_layer_config_must_not_say(changes: dict[str, Any], why: str) -> None:
    assert why in refused({**saved(GEMMA4), **changes})
