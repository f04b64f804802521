"""Families where sliding_window alone decides: every layer slides, or none (Mistral, Mixtral, Phi-3, StarCoder2)."""

from __future__ import annotations

from kvbench.layout.attention import (
    FULL_OR_SLIDING,
    attention,
    declared_kinds,
    depth,
    full_only,
    head_dim_or_derived,
    kv_heads,
    query_heads,
    uniform,
    window_if_any,
)
from kvbench.layout.config import Config
from kvbench.layout.kv import KVLayout

_MISTRAL_HEAD_DIM = 128


def read_mistral(config: Config) -> KVLayout:
    """Mistral: sliding_window must stand in the file, null for full attention (the class default, 4096, is v0.1's)."""
    queries = query_heads(config)
    heads, dim = kv_heads(config, queries), _mistral_head_dim(config, queries)
    kinds = declared_kinds(config, depth(config), FULL_OR_SLIDING)
    if kinds is not None:
        return window_if_any(config, kinds, heads, dim, queries)
    if not config.has("sliding_window") and not config.given("sliding_window_size"):
        config.missing("sliding_window")
    return _one_window(config, queries, heads, dim)


def read_mixtral(config: Config) -> KVLayout:
    """Mixtral: as Mistral, and an absent sliding_window is full attention (MixtralConfig)."""
    queries = query_heads(config)
    return _one_window(config, queries, kv_heads(config, queries), head_dim_or_derived(config, queries))


def read_phi3(config: Config) -> KVLayout:
    """Phi-3, Phi-3.5, Phi-4: as Mixtral."""
    return read_mixtral(config)


def read_starcoder2(config: Config) -> KVLayout:
    """StarCoder2: as Mixtral, but K and V are hidden_size / heads wide whatever head_dim says (vLLM 0.24.0)."""
    queries = query_heads(config)
    width, dim = config.count("hidden_size"), head_dim_or_derived(config, queries)
    if width != dim * queries:
        config.refuse(f"head_dim={dim} is not hidden_size {width} / {queries} attention heads, which the engine takes")
    return _one_window(config, queries, kv_heads(config, queries), dim)


def _mistral_head_dim(config: Config, queries: int) -> int:
    dim = head_dim_or_derived(config, queries)
    # Every Mistral has 128. Nemo and Small state it, because 5120 / 32 = 160 would be wrong; a file that lost the
    # key must not be sized by that division.
    if not config.given("head_dim") and dim != _MISTRAL_HEAD_DIM:
        config.refuse(f"head_dim is missing and hidden_size / heads = {dim} is no Mistral's ({_MISTRAL_HEAD_DIM})")
    return dim


def _one_window(config: Config, queries: int, heads: int, dim: int) -> KVLayout:
    layers, window = depth(config), config.count_or_none("sliding_window", "sliding_window_size")
    full_only(config, layers)
    if window is None:
        return uniform(layers, queries, attention("full", heads, dim))
    # Phi-4-mini: a window of 262144 over at most 131072 positions never cuts anything off.
    longest = config.count("max_position_embeddings")
    if window >= longest:
        return uniform(layers, queries, attention("full", heads, dim))
    return uniform(layers, queries, attention("sliding", heads, dim, window))
