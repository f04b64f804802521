"""Qwen2, Qwen2.5 and Qwen3 (dense and MoE): a window only with use_sliding_window, then from max_window_layers on."""

from __future__ import annotations

from collections.abc import Sequence

from kvbench.layout.attention import (
    FULL_OR_SLIDING,
    all_of,
    declared_kinds,
    depth,
    head_dim,
    head_dim_or_derived,
    kv_heads,
    query_heads,
    window_if_any,
)
from kvbench.layout.config import Config
from kvbench.layout.kv import Kind, KVLayout


def read_qwen2(config: Config) -> KVLayout:
    """Qwen2 and Qwen2.5: head_dim is hidden_size / heads."""
    queries = query_heads(config)
    heads, dim = kv_heads(config, queries), head_dim_or_derived(config, queries)
    return window_if_any(config, _kinds(config), heads, dim, queries)


def read_qwen2_moe(config: Config) -> KVLayout:
    """Qwen1.5/2 MoE: as Qwen2, but its class counts windowed layers differently, so a window is refused."""
    _refuse_window(config)
    return read_qwen2(config)


def read_qwen3(config: Config) -> KVLayout:
    """Qwen3 dense: head_dim is required (128 in every checkpoint, whatever hidden_size / heads says)."""
    queries = query_heads(config)
    return window_if_any(config, _kinds(config), kv_heads(config, queries), head_dim(config), queries)


def read_qwen3_moe(config: Config) -> KVLayout:
    """Qwen3 MoE: as Qwen3; its class slides every layer or none, so a window is refused."""
    _refuse_window(config)
    return read_qwen3(config)


def _refuse_window(config: Config) -> None:
    if config.flag("use_sliding_window"):
        config.refuse("use_sliding_window is true, and which of its layers then slide is not documented")


def _kinds(config: Config) -> Sequence[Kind]:
    layers = depth(config)
    declared = declared_kinds(config, layers, FULL_OR_SLIDING)
    # transformers 5.24.0 Qwen2Config: layer i slides when use_sliding_window and i >= max_window_layers.
    if not config.flag("use_sliding_window"):
        if declared is not None and "sliding" in declared:
            config.refuse("layer_types has sliding layers although use_sliding_window is not true")
        return all_of(layers, "full")
    if declared is not None:
        return declared
    first = config.natural_or_none("max_window_layers")
    if first is None:
        config.missing("max_window_layers")
    return tuple("sliding" if index >= first else "full" for index in range(layers))
