"""Older decoder families: GPT-2, GPT-J, GPT-NeoX, BLOOM, OPT, StarCoder, Falcon, MPT, DBRX."""

from __future__ import annotations

from kvbench.layout.attention import attention, depth, head_dim_or_derived, query_heads, uniform
from kvbench.layout.config import Config
from kvbench.layout.kv import KVLayout


def read_mha(config: Config) -> KVLayout:
    """Multi-head attention without any grouping key."""
    queries = query_heads(config)
    return uniform(depth(config), queries, attention("full", queries, head_dim_or_derived(config, queries)))


def read_gpt_bigcode(config: Config) -> KVLayout:
    """StarCoder and SantaCoder: one KV head with multi_query, which must stand in the file."""
    queries = query_heads(config)
    heads = 1 if _stated_flag(config, "multi_query") else queries
    return uniform(depth(config), queries, attention("full", heads, head_dim_or_derived(config, queries)))


def read_falcon(config: Config) -> KVLayout:
    """Falcon (also RefinedWebModel): num_kv_heads counts only in the new decoder architecture.

    Re-saved Falcon-7B files say num_kv_heads 71 beside multi_query true; the cache has one head (vLLM 0.24.0
    FalconModelArchConfigConvertor).
    """
    queries = query_heads(config)
    counted = config.given("num_kv_heads") or config.given("n_head_kv")
    new = (_stated_flag if counted else Config.flag)(config, "new_decoder_architecture")
    heads = config.count("num_kv_heads", "n_head_kv") if new else _old_falcon_heads(config, queries)
    return _falcon(config, queries, heads)


def read_refined_web(config: Config) -> KVLayout:
    """RefinedWeb, the first files of Falcon-40B: always the new decoder architecture, with n_head_kv."""
    config.ignore("multi_query")
    return _falcon(config, query_heads(config), config.count("n_head_kv", "num_kv_heads"))


def _old_falcon_heads(config: Config, queries: int) -> int:
    if _stated_flag(config, "multi_query"):
        config.ignore("num_kv_heads", "n_head_kv")
        return 1
    return config.count_or_none("num_kv_heads", "n_head_kv") or queries


def _falcon(config: Config, queries: int, heads: int) -> KVLayout:
    config.ignore("multi_query")
    if queries % heads:
        config.refuse(f"num_kv_heads={heads} does not divide {queries} attention heads")
    return uniform(depth(config), queries, attention("full", heads, head_dim_or_derived(config, queries)))


def read_mpt(config: Config) -> KVLayout:
    """MPT: attn_config.kv_n_heads, else multi-head attention."""
    queries = query_heads(config)
    attn = config.section_or_none("attn_config")
    heads = attn.count_or_none("kv_n_heads") if attn is not None else None
    kind = attn.text_or_none("attn_type") if attn is not None else None
    if heads is None and kind not in (None, "multihead_attention"):
        config.refuse(f"attn_config.attn_type is {kind!r} and attn_config.kv_n_heads is missing")
    return _of_width(config, queries, heads or queries)


def read_dbrx(config: Config) -> KVLayout:
    """DBRX: attn_config.kv_n_heads is required."""
    attn = config.section_or_none("attn_config")
    if attn is None:
        config.missing("attn_config")
    return _of_width(config, query_heads(config), attn.count("kv_n_heads"))


def _of_width(config: Config, queries: int, heads: int) -> KVLayout:
    if queries % heads:
        config.refuse(f"attn_config.kv_n_heads={heads} does not divide {queries} attention heads")
    return uniform(depth(config), queries, attention("full", heads, head_dim_or_derived(config, queries)))


def _stated_flag(config: Config, key: str) -> bool:
    if not config.given(key):
        config.missing(key)
    return config.flag(key)
