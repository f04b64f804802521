"""What readers of different families share: spellings of depth, heads and widths, and the layers made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvbench.layout.config import Config
from kvbench.layout.kv import Kind, KVLayout, Layer

# Names used in layer_types; "chunked_attention" is Llama 4's.
FULL_OR_SLIDING: Mapping[str, Kind] = {"full_attention": "full", "sliding_attention": "sliding"}


# Far above any model; a damaged file must not make kvbench build a billion layers.
MOST_LAYERS = 10_000
# LLaMA-1 sized its feed-forward at 8/3 of the hidden size, rounded up to 256; every grouped-query Llama enlarged it.
_FFN_ROUND = 256


def depth(config: Config) -> int:
    """Number of decoder layers."""
    layers = config.count("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    if layers > MOST_LAYERS:
        config.refuse(f"{layers} layers are more than any model has")
    return layers


def query_heads(config: Config) -> int:
    """Number of attention (query) heads."""
    return config.count("num_attention_heads", "n_head", "n_heads")


def kv_heads(config: Config, queries: int) -> int:
    """Number of KV heads of a family whose class default differs from MHA; refused when the key is absent."""
    return grouped(config, config.count("num_key_value_heads"), queries)


def kv_heads_or_mha(config: Config, queries: int) -> int:
    """Number of KV heads of a family that reads an absent num_key_value_heads as multi-head attention."""
    heads = config.count_or_none("num_key_value_heads")
    if heads is None:
        return config.default("num_key_value_heads", queries, "multi-head attention: as many as attention heads")
    return grouped(config, heads, queries)


def llama_kv_heads(config: Config, queries: int) -> int:
    """KV heads of a Llama: absent means MHA, as in LLaMA-1's files, unless the feed-forward is a GQA model's."""
    width, inner = config.count_or_none("hidden_size"), config.count_or_none("intermediate_size")
    if not config.given("num_key_value_heads") and width is not None and inner is not None:
        smallest = -(-8 * width // 3 // _FFN_ROUND) * _FFN_ROUND
        if inner > smallest:
            config.refuse(
                f"num_key_value_heads is missing, and intermediate_size={inner} is not that of a multi-head Llama "
                f"of hidden_size {width}"
            )
    return kv_heads_or_mha(config, queries)


def grouped(config: Config, heads: int, queries: int) -> int:
    """``heads`` KV heads, refused when they do not divide the attention heads."""
    # vLLM 0.24.0 attention.py asserts num_heads % num_kv_heads == 0.
    if queries % heads:
        config.refuse(f"num_key_value_heads={heads} does not divide num_attention_heads={queries}")
    return heads


def head_dim(config: Config) -> int:
    """Explicit head_dim of a family that does not derive it; refused when absent."""
    return config.count("head_dim")


def head_dim_or_derived(config: Config, queries: int) -> int:
    """head_dim, or hidden_size / num_attention_heads for the families whose own code does that division.

    An explicit head_dim wins (LMCache/LMCache#688: Qwen3-4B is 128, not 2560 / 32 = 80).
    """
    explicit = config.count_or_none("head_dim")
    if explicit is not None:
        return explicit
    width = config.count("hidden_size", "n_embd", "d_model", "n_embed")
    if width % queries:
        config.refuse(f"head_dim is missing and hidden_size={width} is not a multiple of {queries} attention heads")
    return config.default("head_dim", width // queries, f"hidden_size {width} / {queries} attention heads")


def full_only(config: Config, layers: int) -> None:
    """Refuse a layer_types that names anything but full attention; re-saved files of plain families carry one."""
    declared_kinds(config, layers, {"full_attention": "full"})


def attention(kind: Kind, heads: int, dim: int, window: int | None = None) -> Layer:
    """A layer whose K and V have the same width."""
    return Layer(kind, kv_heads=heads, k_dim=dim, v_dim=dim, window=window)


def uniform(layers: int, queries: int, layer: Layer, *notes: str) -> KVLayout:
    """A model of ``layers`` equal layers."""
    return KVLayout((layer,) * layers, query_heads=queries, notes=notes)


def of_kinds(config: Config, kinds: Sequence[Kind], queries: int, layers: Mapping[Kind, Layer]) -> KVLayout:
    """A model with one given layer per kind, in the order of ``kinds``."""
    unknown = sorted(set(kinds) - set(layers))
    if unknown:
        config.refuse(f"it has {', '.join(unknown)} layers without the keys that size them")
    return KVLayout(tuple(layers[kind] for kind in kinds), query_heads=queries)


def declared_kinds(
    config: Config, layers: int, known: Mapping[str, Kind], key: str = "layer_types", extra: int = 0
) -> tuple[Kind, ...] | None:
    """Kinds from a list such as layer_types, or None when the file has none.

    ``extra`` allows that many trailing entries for multi-token-prediction layers, where a family documents them.
    """
    names = config.texts_or_none(key)
    if names is None:
        return None
    if len(names) != layers and not (extra and len(names) == layers + extra):
        config.refuse(f"{key} has {len(names)} entries for {layers} layers")
    strange = sorted(set(names) - set(known))
    if strange:
        config.refuse(f"{key} names {', '.join(strange)}; known: {', '.join(sorted(known))}")
    return tuple(known[name] for name in names[:layers])


def all_of(layers: int, kind: Kind) -> tuple[Kind, ...]:
    """``kind`` for every layer."""
    return (kind,) * layers


def every_nth(layers: int, interval: int, nth: Kind, others: Kind) -> tuple[Kind, ...]:
    """``nth`` where (index + 1) is a multiple of ``interval``, ``others`` elsewhere."""
    return tuple(others if (index + 1) % interval else nth for index in range(layers))


def window_if_any(config: Config, kinds: Sequence[Kind], heads: int, dim: int, queries: int) -> KVLayout:
    """Full and sliding layers of equal heads; sliding_window is required when a layer slides."""
    layers: dict[Kind, Layer] = {"full": attention("full", heads, dim)}
    if "sliding" in kinds:
        layers["sliding"] = attention("sliding", heads, dim, config.count("sliding_window"))
    else:
        config.ignore("sliding_window")
    return of_kinds(config, kinds, queries, layers)
