"""Hunyuan: cross-layer attention (CLA), where only every cla_share_factor-th layer owns its KV."""

from __future__ import annotations

from kvbench.layout.attention import attention, depth, head_dim_or_derived, kv_heads, query_heads
from kvbench.layout.config import Config
from kvbench.layout.kv import KVLayout, Layer


def read_hunyuan(config: Config) -> KVLayout:
    """With use_cla, layer i reuses the last owner's KV unless i % cla_share_factor == 0 (vLLM models/hunyuan_v1.py)."""
    queries = query_heads(config)
    dim = config.count_or_none("head_dim", "attention_head_dim") or head_dim_or_derived(config, queries)
    own = attention("full", kv_heads(config, queries), dim)
    every = config.count("cla_share_factor") if config.flag("use_cla") else 1
    layers = tuple(own if index % every == 0 else Layer("shared") for index in range(depth(config)))
    return KVLayout(layers, query_heads=queries)
