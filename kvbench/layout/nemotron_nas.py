"""Nemotron Super/Ultra and DeciLM: neural architecture search chose heads, or nothing, for each layer."""

from __future__ import annotations

from kvbench.layout.attention import attention, depth, head_dim_or_derived, query_heads
from kvbench.layout.config import Config
from kvbench.layout.kv import KVLayout, Layer

_NONE = Layer("none")


def read_nemotron_nas(config: Config) -> KVLayout:
    """block_configs[i].attention: no KV when no_op or replace_with_linear, else heads / n_heads_in_group KV heads."""
    queries, layers = query_heads(config), depth(config)
    if config.given("num_key_value_heads"):
        config.refuse("num_key_value_heads is given at the top level beside block_configs")
    blocks = config.sections("block_configs")
    if len(blocks) != layers:
        config.refuse(f"block_configs has {len(blocks)} entries for {layers} layers")
    dim = head_dim_or_derived(config, queries)
    return KVLayout(tuple(_layer(block, queries, dim) for block in blocks), query_heads=queries)


def _layer(block: Config, queries: int, dim: int) -> Layer:
    chosen = block.section_or_none("attention")
    if chosen is None:
        block.missing("attention")
    if chosen.flag("no_op") or chosen.flag("replace_with_linear"):
        return _NONE
    group = chosen.count("n_heads_in_group")
    if queries % group:
        chosen.refuse(f"n_heads_in_group={group} does not divide {queries} attention heads")
    window = chosen.count_or_none("window_length")
    return attention("full" if window is None else "sliding", queries // group, dim, window)
