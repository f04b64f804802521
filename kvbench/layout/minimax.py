"""MiniMax: Text-01 and M1 mix softmax and lightning attention, M2 is softmax only, M3 adds a sparse index."""

from __future__ import annotations

from dataclasses import replace

from kvbench.layout.attention import attention, declared_kinds, depth, head_dim, kv_heads, query_heads, uniform
from kvbench.layout.config import Config
from kvbench.layout.kv import Kind, KVLayout, Layer, StatePart
from kvbench.layout.state import MODEL_BYTES

_LIGHTNING_OR_SOFTMAX: tuple[Kind, Kind] = ("linear", "full")
# One key of sparse_index_dim elements per token and sparse layer, in 16 bits.
_INDEX_ELEMENT_BYTES = 2


def read_minimax(config: Config) -> KVLayout:
    """MiniMax-Text-01 and M1: attn_type_list (1 softmax, 0 lightning) or layer_types.

    A lightning layer keeps one (head_dim, head_dim) matrix per head (vLLM 0.24.0 linear_attention_state_shape).
    """
    queries, layers, dim = query_heads(config), depth(config), head_dim(config)
    kinds = _kinds(config, layers)
    linear = Layer("linear", state=(StatePart("lightning attention", queries, dim * dim * MODEL_BYTES),))
    full = attention("full", kv_heads(config, queries), dim)
    return KVLayout(tuple(full if kind == "full" else linear for kind in kinds), query_heads=queries)


def read_minimax_m2(config: Config) -> KVLayout:
    """MiniMax-M2: full attention everywhere; attn_type_list, where present, is all ones."""
    queries, layers = query_heads(config), depth(config)
    if any(kind != "full" for kind in _listed(config, layers) or ()):
        config.refuse("attn_type_list has entries other than 1, which MiniMax-M2 does not have")
    return uniform(layers, queries, attention("full", kv_heads(config, queries), head_dim(config)))


def read_minimax_m3(config: Config) -> KVLayout:
    """MiniMax-M3: full attention, and an index key on the layers that sparse_attention_freq marks."""
    queries, layers = query_heads(config), depth(config)
    full = attention("full", kv_heads(config, queries), head_dim(config))
    section = config.section_or_none("sparse_attention_config")
    if section is None:
        config.missing("sparse_attention_config")
    if not section.flag("use_sparse_attention"):
        section.refuse("sparse_attention_config.use_sparse_attention is not true")
    marks = section.naturals_or_none("sparse_attention_freq")
    if marks is None:
        section.missing("sparse_attention_freq")
    if len(marks) != layers or set(marks) - {0, 1}:
        config.refuse(f"sparse_attention_config.sparse_attention_freq does not give 0 or 1 for each of {layers} layers")
    indexed = replace(full, index_bytes=section.count("sparse_index_dim") * _INDEX_ELEMENT_BYTES)
    return KVLayout(tuple(indexed if one else full for one in marks), query_heads=queries)


def _kinds(config: Config, layers: int) -> tuple[Kind, ...]:
    kinds = declared_kinds(config, layers, {"linear_attention": "linear", "full_attention": "full"})
    listed = _listed(config, layers)
    if kinds is not None and listed not in (None, kinds):
        config.refuse("attn_type_list and layer_types contradict each other")
    found = kinds or listed
    return config.missing("attn_type_list") if found is None else found


def _listed(config: Config, layers: int) -> tuple[Kind, ...] | None:
    marks = config.naturals_or_none("attn_type_list")
    if marks is None:
        return None
    if len(marks) != layers or set(marks) - {0, 1}:
        config.refuse(f"attn_type_list does not give 0 or 1 for each of {layers} layers")
    return tuple(_LIGHTNING_OR_SOFTMAX[one] for one in marks)
