"""Gemma 2, 3, 3n and 4: sliding and full layers, shared layers, and (Gemma 4) other heads on the full layers.

Gemma 1 is a plain family. head_dim is always its own number here: 256 in most, never hidden_size / heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvbench.layout.attention import (
    FULL_OR_SLIDING,
    attention,
    declared_kinds,
    depth,
    every_nth,
    grouped,
    head_dim,
    kv_heads,
    query_heads,
    window_if_any,
)
from kvbench.layout.config import Config
from kvbench.layout.kv import Kind, KVLayout, Layer

_GEMMA3_DEFAULT = "transformers 5.24.0 Gemma3TextConfig"
_GEMMA3_QUERIES, _GEMMA3_KV_HEADS, _GEMMA3_HEAD_DIM, _GEMMA3_INTERVAL = 8, 4, 256, 6
_SHARED = Layer("shared")
# What a layer of Gemma 4 may have of its own; only the first two change its cache.
_BY_LAYER = frozenset({"head_dim", "num_key_value_heads", "intermediate_size"})


def read_gemma2(config: Config) -> KVLayout:
    """Even layers slide, odd ones are full (Gemma2Config has no pattern key); layer_types wins when present."""
    queries, layers = query_heads(config), depth(config)
    kinds = declared_kinds(config, layers, FULL_OR_SLIDING) or every_nth(layers, 2, "full", "sliding")
    return window_if_any(config, kinds, kv_heads(config, queries), head_dim(config), queries)


def read_gemma3(config: Config) -> KVLayout:
    """Every sixth layer is full unless the file says otherwise; heads and head_dim may rest on the class defaults."""
    if config.flag("use_bidirectional_attention"):
        config.refuse("use_bidirectional_attention is true (an encoder, which keeps no KV cache)")
    queries, heads = _gemma3_heads(config)
    return window_if_any(config, _gemma3_kinds(config), heads, _gemma3_head_dim(config), queries)


def _gemma3_heads(config: Config) -> tuple[int, int]:
    # gemma-3-4b's file omits both; a file with only one of them is damaged, not defaulted.
    if config.given("num_attention_heads") or config.given("num_key_value_heads"):
        queries = query_heads(config)
        return queries, kv_heads(config, queries)
    queries = config.default("num_attention_heads", _GEMMA3_QUERIES, _GEMMA3_DEFAULT)
    return queries, config.default("num_key_value_heads", _GEMMA3_KV_HEADS, _GEMMA3_DEFAULT)


def _gemma3_head_dim(config: Config) -> int:
    dim = config.count_or_none("head_dim")
    if dim is not None:
        return dim
    # The 27B has head_dim 128 and scales queries by 168; where the scalar is not 256, the default is not the model's.
    scalar = config.count_or_none("query_pre_attn_scalar")
    if scalar not in (None, _GEMMA3_HEAD_DIM):
        config.refuse(f"head_dim is missing and query_pre_attn_scalar={scalar} contradicts the class default 256")
    return config.default("head_dim", _GEMMA3_HEAD_DIM, _GEMMA3_DEFAULT)


def _gemma3_kinds(config: Config) -> Sequence[Kind]:
    layers = depth(config)
    declared = declared_kinds(config, layers, FULL_OR_SLIDING)
    if declared is not None:
        config.ignore("sliding_window_pattern", "_sliding_window_pattern")
        return declared
    interval = config.count_or_none("sliding_window_pattern", "_sliding_window_pattern")
    if interval is None:
        interval = config.default("sliding_window_pattern", _GEMMA3_INTERVAL, _GEMMA3_DEFAULT)
    return every_nth(layers, interval, "full", "sliding")


def read_gemma3n(config: Config) -> KVLayout:
    """The last num_kv_shared_layers layers reuse an earlier layer's KV and own none."""
    queries = query_heads(config)
    heads, dim = kv_heads(config, queries), head_dim(config)
    full = attention("full", heads, dim)
    return _with_shared(config, queries, full, attention("sliding", heads, dim, config.count("sliding_window")))


def read_gemma4(config: Config) -> KVLayout:
    """Full layers have global_head_dim, and num_global_key_value_heads where attention_k_eq_v is true.

    attention_k_eq_v shares the projection only; K (rotated) and V are both cached (vLLM 0.24.0 models/gemma4.py).
    Files saved by transformers 5.16 and later say both in per_layer_config, which vLLM 0.33.0 reads layer by layer.
    """
    if config.text_or_none("use_bidirectional_attention") == "all":
        config.refuse("use_bidirectional_attention is 'all' (an encoder, which keeps no KV cache)")
    queries = query_heads(config)
    heads, dim = kv_heads(config, queries), head_dim(config)
    sliding = attention("sliding", heads, dim, config.count("sliding_window"))
    by_layer = config.section_or_none("per_layer_config")
    if by_layer is not None:
        return _gemma4_by_layer(config, by_layer, queries, sliding)
    global_heads = grouped(config, _gemma4_global_heads(config, heads), queries)
    return _with_shared(config, queries, attention("full", global_heads, config.count("global_head_dim")), sliding)


def _gemma4_by_layer(config: Config, by_layer: Config, queries: int, sliding: Layer) -> KVLayout:
    """Every layer as the top level says, unless its number in per_layer_config says otherwise."""
    config.ignore("attention_k_eq_v")
    chosen = {_layer_number(config, key): key for key in by_layer.names()}
    if len(chosen) != len(by_layer.names()) or any(number >= depth(config) for number in chosen):
        config.refuse(f"per_layer_config does not name different layers below {depth(config)}")
    full = replace(sliding, kind="full", window=None)
    plain = _with_shared(config, queries, full, sliding)
    layers = list(plain.layers)
    for number, key in chosen.items():
        own = by_layer.section_or_none(key)
        if own is None or not set(own.names()) <= _BY_LAYER:
            config.refuse(f"per_layer_config.{key} holds something other than {', '.join(sorted(_BY_LAYER))}")
        if layers[number].owns_kv:
            layers[number] = _overridden(config, layers[number], own, queries)
    _refuse_other_global(config, layers)
    return replace(plain, layers=tuple(layers))


def _layer_number(config: Config, key: str) -> int:
    if not (key.isascii() and key.isdecimal() and len(key) < 6):
        config.refuse(f"per_layer_config names a layer {key[:20]!r}, which is no number")
    return int(key)


def _overridden(config: Config, layer: Layer, own: Config, queries: int) -> Layer:
    heads, dim = own.count_or_none("num_key_value_heads"), own.count_or_none("head_dim")
    heads = layer.kv_heads if heads is None else grouped(config, heads, queries)
    dim = layer.k_dim if dim is None else dim
    return replace(layer, kv_heads=heads, k_dim=dim, v_dim=dim)


def _refuse_other_global(config: Config, layers: Sequence[Layer]) -> None:
    """transformers 5.24 lets per_layer_config win over the older keys, the releases before knew only those."""
    dim, heads = config.count_or_none("global_head_dim"), config.count_or_none("num_global_key_value_heads")
    full = [layer for layer in layers if layer.kind == "full"]
    if dim is not None and {layer.k_dim for layer in full} != {dim}:
        config.refuse(f"global_head_dim={dim} and per_layer_config contradict each other")
    if heads is not None and config.flag("attention_k_eq_v") and {layer.kv_heads for layer in full} != {heads}:
        config.refuse(f"num_global_key_value_heads={heads} and per_layer_config contradict each other")


def _gemma4_global_heads(config: Config, heads: int) -> int:
    if not config.given("attention_k_eq_v"):
        config.missing("attention_k_eq_v")
    if config.flag("attention_k_eq_v"):
        return config.count("num_global_key_value_heads")
    config.ignore("num_global_key_value_heads")
    return heads


def _with_shared(config: Config, queries: int, full: Layer, sliding: Layer) -> KVLayout:
    layers = depth(config)
    kinds = declared_kinds(config, layers, FULL_OR_SLIDING)
    if kinds is None:
        config.missing("layer_types")
    shared = config.natural_or_none("num_kv_shared_layers")
    if shared is None:
        config.missing("num_kv_shared_layers")
    # Each shared layer reuses the last owner of its own kind, so every kind needs an owner.
    own = kinds[: layers - shared] if shared < layers else ()
    if set(own) != set(kinds):
        config.refuse(f"num_kv_shared_layers={shared} leaves no layer to share from")
    owners = tuple(full if kind == "full" else sliding for kind in own)
    return KVLayout(owners + (_SHARED,) * shared, query_heads=queries)
