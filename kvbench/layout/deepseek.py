"""Multi-head latent attention: DeepSeek V2, V3, R1, V3.2, Kimi-K2, GLM-5 and others that cache one latent.

A layer keeps kv_lora_rank + qk_rope_head_dim elements per token, once, on every rank (vLLM 0.24.0
model_arch_config_convertor.py get_head_size and v1/kv_cache_interface.py MLAAttentionSpec). num_key_value_heads,
head_dim and v_head_dim describe the projections and are not cache geometry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kvbench.layout.attention import MOST_LAYERS, declared_kinds, depth, full_only, query_heads, uniform
from kvbench.layout.config import Config
from kvbench.layout.kv import Kind, KVLayout, Layer

_SPARSE_NAMES: Mapping[str, Kind] = {"deepseek_sparse_attention": "mla", "indexed_attention": "mla"}
# Of an indexer key: 1 byte per element and one fp32 scale per 128 (vLLM 0.24.0 models/deepseek_v2.py).
_INDEX_SCALE_GROUP = 128
_INDEX_SCALE_BYTES = 4
# vLLM 0.24.0 models/longcat_flash.py FlashDecoderLayer.self_attn.
_LONGCAT_ATTENTIONS = 2


def latent(config: Config) -> Layer:
    """One MLA layer."""
    config.ignore("num_key_value_heads", "head_dim", "v_head_dim")
    rank, rope = config.count("kv_lora_rank"), config.count("qk_rope_head_dim")
    return Layer("mla", kv_heads=1, k_dim=rank + rope, rope_dim=rope)


def read_mla(config: Config) -> KVLayout:
    """Every layer keeps one latent."""
    full_only(config, depth(config))
    return uniform(depth(config), query_heads(config), latent(config))


def read_longcat_flash(config: Config) -> KVLayout:
    """LongCat-Flash: num_layers decoder layers of two attentions each, and a latent for each attention.

    num_hidden_layers is twice num_layers to transformers 5.24.0 and the same to vLLM 0.24.0, so it only may confirm.
    """
    layers = config.count("num_layers")
    attentions = _LONGCAT_ATTENTIONS * layers
    also = config.count_or_none("num_hidden_layers")
    if also not in (None, layers, attentions):
        config.refuse(f"num_hidden_layers={also} is neither num_layers {layers} nor its attentions, {attentions}")
    if attentions > MOST_LAYERS:
        config.refuse(f"{layers} layers are more than any model has")
    full_only(config, attentions)
    layout = uniform(attentions, query_heads(config), latent(config))
    return replace(layout, per_decoder_layer=_LONGCAT_ATTENTIONS)


def read_sparse_mla(config: Config) -> KVLayout:
    """DeepSeek-V3.2 and GLM-5: latents, and an indexer key on each layer (or on those that indexer_types names)."""
    config.ignore("index_topk")
    declared_kinds(config, depth(config), _SPARSE_NAMES)
    dim = config.count("index_head_dim")
    if dim % _INDEX_SCALE_GROUP:
        config.refuse(f"index_head_dim={dim} is not a multiple of {_INDEX_SCALE_GROUP}")
    plain = latent(config)
    indexed = replace(plain, index_bytes=dim + dim // _INDEX_SCALE_GROUP * _INDEX_SCALE_BYTES)
    layers = tuple(indexed if own else plain for own in _own_index(config, depth(config)))
    return KVLayout(layers, query_heads=query_heads(config), sparse=True)


def _own_index(config: Config, layers: int) -> tuple[bool, ...]:
    types = config.texts_or_none("indexer_types")
    if types is None:
        # index_topk_freq and index_topk_pattern let layers share an index; without the list we cannot say which.
        return (True,) * layers
    config.ignore("index_topk_freq", "index_topk_pattern")
    if len(types) != layers:
        config.refuse(f"indexer_types has {len(types)} entries for {layers} layers")
    if not set(types) <= {"full", "shared"}:
        config.refuse("indexer_types names something other than full and shared")
    return tuple(name == "full" for name in types)
