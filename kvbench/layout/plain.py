"""Families in which every layer attends to everything with the same heads: Llama and what follows it.

They differ in what their own classes do about absent keys (transformers 5.24.0, configuration_*.py): some read an
absent num_key_value_heads as MHA, others have a number there that belongs to one checkpoint; likewise head_dim.
"""

from __future__ import annotations

from kvbench.layout.attention import (
    attention,
    depth,
    full_only,
    grouped,
    head_dim,
    head_dim_or_derived,
    kv_heads,
    kv_heads_or_mha,
    llama_kv_heads,
    query_heads,
    uniform,
)
from kvbench.layout.config import Config
from kvbench.layout.kv import KVLayout


def read_llama(config: Config) -> KVLayout:
    """Absent num_key_value_heads is MHA and absent head_dim is hidden_size / heads, as in LlamaConfig."""
    queries = query_heads(config)
    return _full(config, queries, llama_kv_heads(config, queries), head_dim_or_derived(config, queries))


def read_phi(config: Config) -> KVLayout:
    """Phi-1 to Phi-2: num_key_value_heads is null in the files, for multi-head attention."""
    queries = query_heads(config)
    return _full(config, queries, kv_heads_or_mha(config, queries), head_dim_or_derived(config, queries))


def read_grouped(config: Config) -> KVLayout:
    """num_key_value_heads is required (the class default is one checkpoint's), head_dim may be derived."""
    queries = query_heads(config)
    return _full(config, queries, kv_heads(config, queries), head_dim_or_derived(config, queries))


def read_explicit(config: Config) -> KVLayout:
    """Both num_key_value_heads and head_dim are required: hidden_size / heads is not this family's head width."""
    queries = query_heads(config)
    return _full(config, queries, kv_heads(config, queries), head_dim(config))


def read_chatglm(config: Config) -> KVLayout:
    """ChatGLM2/3 and GLM-4 in their original files: multi_query_group_num heads of kv_channels."""
    queries = query_heads(config)
    if config.flag("multi_query_attention"):
        heads = config.count("multi_query_group_num")
    else:
        config.ignore("multi_query_group_num")
        heads = queries
    return _full(config, queries, grouped(config, heads, queries), config.count("kv_channels"))


def _full(config: Config, queries: int, heads: int, dim: int) -> KVLayout:
    layers = depth(config)
    full_only(config, layers)
    return uniform(layers, queries, attention("full", heads, dim))
