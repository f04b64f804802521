"""Families with a fixed pattern of sliding and full layers: Command-A, OLMo 3, EXAONE 4, Step, MiMo-V2."""

from __future__ import annotations

from collections.abc import Sequence

from kvbench.layout.attention import (
    FULL_OR_SLIDING,
    attention,
    declared_kinds,
    depth,
    every_nth,
    full_only,
    grouped,
    head_dim,
    head_dim_or_derived,
    kv_heads,
    query_heads,
    uniform,
    window_if_any,
)
from kvbench.layout.config import Config
from kvbench.layout.kv import Kind, KVLayout, Layer

_COHERE2_INTERVAL = 4
_OLMO3_INTERVAL = 4


def read_cohere2(config: Config) -> KVLayout:
    """Command-R7B and Command-A: every sliding_window_pattern-th layer (default 4) is full."""
    queries = query_heads(config)
    layers = depth(config)
    kinds = declared_kinds(config, layers, FULL_OR_SLIDING) or _cohere2_kinds(config, layers)
    config.ignore("sliding_window_pattern", "_sliding_window_pattern")
    return window_if_any(config, kinds, kv_heads(config, queries), head_dim_or_derived(config, queries), queries)


def _cohere2_kinds(config: Config, layers: int) -> Sequence[Kind]:
    interval = config.count_or_none("sliding_window_pattern", "_sliding_window_pattern")
    if interval is None:
        interval = config.default("sliding_window_pattern", _COHERE2_INTERVAL, "transformers 5.24.0 Cohere2Config")
    return every_nth(layers, interval, "full", "sliding")


def read_olmo3(config: Config) -> KVLayout:
    """Every fourth layer is full (Olmo3Config); layer_types wins when present."""
    queries, layers = query_heads(config), depth(config)
    kinds = declared_kinds(config, layers, FULL_OR_SLIDING)
    if kinds is None:
        interval = config.default("layer_types", _OLMO3_INTERVAL, "every 4th layer full: transformers Olmo3Config")
        kinds = every_nth(layers, interval, "full", "sliding")
    return window_if_any(config, kinds, kv_heads(config, queries), head_dim_or_derived(config, queries), queries)


def read_exaone4(config: Config) -> KVLayout:
    """EXAONE 4: sliding_window_pattern is a number or letters such as LLLG; a null window means full attention."""
    queries, layers = query_heads(config), depth(config)
    heads, dim = kv_heads(config, queries), head_dim_or_derived(config, queries)
    if not config.has("sliding_window"):
        config.missing("sliding_window")
    if not config.given("sliding_window"):
        config.ignore("sliding_window", "sliding_window_pattern", "layer_types")
        return uniform(layers, queries, attention("full", heads, dim))
    kinds = declared_kinds(config, layers, FULL_OR_SLIDING) or _exaone4_kinds(config, layers)
    config.ignore("sliding_window_pattern")
    return window_if_any(config, kinds, heads, dim, queries)


def _exaone4_kinds(config: Config, layers: int) -> Sequence[Kind]:
    if not config.is_text("sliding_window_pattern"):
        return every_nth(layers, config.count("sliding_window_pattern"), "full", "sliding")
    letters = config.text_or_none("sliding_window_pattern") or ""
    if not letters or set(letters) - {"L", "G"}:
        config.refuse(f"sliding_window_pattern={letters!r} is not made of L and G")
    kinds: list[Kind] = ["full" if letters[index % len(letters)] == "G" else "sliding" for index in range(layers)]
    # The class says that the last layer is global whatever the letters; a file in which the two differ is unclear.
    if kinds[-1] != "full":
        config.refuse(f"sliding_window_pattern={letters!r} ends {layers} layers with a local one")
    return kinds


def read_step(config: Config) -> KVLayout:
    """Step-3.5/3.7: layer_types, whose trailing entries may belong to the multi-token-prediction layers.

    KV heads are num_key_value_heads, or num_attention_groups in the original spelling.
    """
    queries, layers = query_heads(config), depth(config)
    heads = grouped(config, config.count("num_key_value_heads", "num_attention_groups"), queries)
    extra = config.natural_or_none("num_nextn_predict_layers") or 0
    kinds = declared_kinds(config, layers, FULL_OR_SLIDING, extra=extra)
    if kinds is None:
        config.missing("layer_types")
    _refuse_other_groups(config, heads)
    return window_if_any(config, kinds, heads, head_dim(config), queries)


def _refuse_other_groups(config: Config, heads: int) -> None:
    other = config.section_or_none("attention_other_setting")
    if other is None:
        return
    if other.count_or_none("num_attention_groups", "num_key_value_heads") not in (None, heads):
        config.refuse("attention_other_setting gives its layers other KV heads, which kvbench cannot place")
    if other.count_or_none("head_dim") not in (None, config.count_or_none("head_dim")):
        config.refuse("attention_other_setting gives its layers another head_dim, which kvbench cannot place")


def read_step3(config: Config) -> KVLayout:
    """Step-3: multi-query-like attention with num_attention_groups KV heads of head_dim, all layers full."""
    queries, layers = query_heads(config), depth(config)
    full_only(config, layers)
    heads = grouped(config, config.count("num_attention_groups"), queries)
    return uniform(layers, queries, attention("full", heads, head_dim(config)))


def read_mimo_v2(config: Config) -> KVLayout:
    """MiMo-V2: hybrid_layer_pattern 1 slides, 0 is full, each with its own heads and with K wider than V.

    attention_chunk_size stands in the file and is not used (vLLM 0.24.0 _strip_mimo_v2_attention_chunk_size).
    """
    config.ignore("attention_chunk_size")
    queries, layers = query_heads(config), depth(config)
    pattern = config.naturals_or_none("hybrid_layer_pattern")
    if pattern is None:
        config.missing("hybrid_layer_pattern")
    if len(pattern) != layers or set(pattern) - {0, 1}:
        config.refuse(f"hybrid_layer_pattern does not give 0 or 1 for each of {layers} layers")
    full = Layer("full", kv_heads(config, queries), head_dim(config), config.count("v_head_dim"))
    sliding = Layer(
        "sliding",
        grouped(config, config.count("swa_num_key_value_heads"), queries),
        config.count("swa_head_dim"),
        config.count("swa_v_head_dim"),
        window=config.count("sliding_window", "sliding_window_size"),
    )
    return KVLayout(tuple(sliding if one else full for one in pattern), query_heads=queries)
