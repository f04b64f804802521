"""Llama 4: layers with rotary positions attend within chunks, layers without (NoPE) attend to everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvbench.layout.attention import (
    all_of,
    attention,
    declared_kinds,
    depth,
    every_nth,
    head_dim_or_derived,
    kv_heads,
    of_kinds,
    query_heads,
)
from kvbench.layout.config import Config
from kvbench.layout.kv import Kind, KVLayout, Layer

_FULL_OR_CHUNKED: Mapping[str, Kind] = {"full_attention": "full", "chunked_attention": "chunked"}
_NOPE_INTERVAL = 4


def read_llama4(config: Config) -> KVLayout:
    """A null attention_chunk_size means that no layer is chunked; an absent one is refused."""
    queries = query_heads(config)
    heads, dim = kv_heads(config, queries), head_dim_or_derived(config, queries)
    if not config.has("attention_chunk_size"):
        config.missing("attention_chunk_size")
    chunk = config.count_or_none("attention_chunk_size")
    layers: dict[Kind, Layer] = {"full": attention("full", heads, dim)}
    if chunk is not None:
        layers["chunked"] = attention("chunked", heads, dim, chunk)
    kinds = _kinds(config, depth(config))
    return of_kinds(config, kinds if chunk is not None else all_of(len(kinds), "full"), queries, layers)


def _kinds(config: Config, layers: int) -> Sequence[Kind]:
    declared = declared_kinds(config, layers, _FULL_OR_CHUNKED)
    if declared is not None:
        return declared
    rotary = config.naturals_or_none("no_rope_layers")
    if not rotary:
        interval = config.count_or_none("no_rope_layer_interval")
        if interval is None:
            interval = config.default("no_rope_layer_interval", _NOPE_INTERVAL, "transformers 5.24.0 Llama4TextConfig")
        return every_nth(layers, interval, "full", "chunked")
    if len(rotary) != layers or set(rotary) - {0, 1}:
        config.refuse(f"no_rope_layers does not give 0 or 1 for each of {layers} layers")
    # The name misleads: 1 means that the layer does use rotary positions, and is therefore chunked.
    return tuple("chunked" if one else "full" for one in rotary)
