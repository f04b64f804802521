"""gpt-oss: layer_types alternates sliding and full layers; head_dim 64 is not hidden_size / heads (2880 / 64 = 45)."""

from __future__ import annotations

from kvbench.layout.attention import (
    FULL_OR_SLIDING,
    declared_kinds,
    depth,
    head_dim,
    kv_heads,
    query_heads,
    window_if_any,
)
from kvbench.layout.config import Config
from kvbench.layout.kv import KVLayout


def read_gpt_oss(config: Config) -> KVLayout:
    """layer_types and head_dim are required: both stand in every published file."""
    queries = query_heads(config)
    kinds = declared_kinds(config, depth(config), FULL_OR_SLIDING)
    if kinds is None:
        config.missing("layer_types")
    return window_if_any(config, kinds, kv_heads(config, queries), head_dim(config), queries)
