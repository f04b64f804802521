"""Hybrids of attention and recurrent layers: Qwen3-Next/3.5/3.6, Granite 4, Nemotron-H, Falcon-H1, Jamba, Bamba, ..."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kvbench.layout import state
from kvbench.layout.attention import (
    attention,
    declared_kinds,
    depth,
    every_nth,
    head_dim,
    head_dim_or_derived,
    kv_heads,
    query_heads,
)
from kvbench.layout.config import Config
from kvbench.layout.deepseek import latent
from kvbench.layout.kv import Kind, KVLayout, Layer, StatePart

_LINEAR_OR_FULL: Mapping[str, Kind] = {"linear_attention": "linear", "full_attention": "full"}
_MAMBA_OR_ATTENTION: Mapping[str, Kind] = {"mamba": "linear", "attention": "full", **_LINEAR_OR_FULL}
_NEMOTRON_BLOCKS: Mapping[str, Kind] = {"moe": "none", "mlp": "none", **_MAMBA_OR_ATTENTION}
_NEMOTRON_LETTERS: Mapping[str, Kind] = {"*": "full", "M": "linear", "-": "none", "E": "none"}
_CONV_OR_FULL: Mapping[str, Kind] = {"conv": "linear", "full_attention": "full"}
_LFM2_DEFAULT, _LFM2_TAPS = "transformers 5.24.0 Lfm2Config", 3
_NEMOTRON_HEAD_DIM = 128
_NONE = Layer("none")

State = tuple[Sequence[StatePart], str | None]


def _hybrid(kinds: Sequence[Kind], queries: int, full: Layer, made: State) -> KVLayout:
    parts, unknown = made
    layers: dict[Kind, Layer] = {full.kind: full, "linear": Layer("linear", state=tuple(parts)), "none": _NONE}
    has_state = "linear" in kinds
    return KVLayout(
        tuple(layers[kind] for kind in kinds), query_heads=queries, state_unknown=unknown if has_state else None
    )


def read_qwen_linear(config: Config) -> KVLayout:
    """Qwen3-Next, Qwen3.5, Qwen3.6: gated delta net layers, and every full_attention_interval-th layer is full."""
    queries, layers = query_heads(config), depth(config)
    kinds: Sequence[Kind] | None = declared_kinds(config, layers, _LINEAR_OR_FULL)
    if kinds is None:
        kinds = every_nth(layers, config.count("full_attention_interval"), "full", "linear")
    config.ignore("full_attention_interval")
    full = attention("full", kv_heads(config, queries), head_dim(config))
    return _hybrid(kinds, queries, full, (state.gated_delta(config), None))


def read_granite_hybrid(config: Config) -> KVLayout:
    """Granite 4: layer_types decides; Mamba keys do not make a layer Mamba (granite-4.0-micro is all attention)."""
    queries, layers = query_heads(config), depth(config)
    kinds = _one_list(config, layers, _MAMBA_OR_ATTENTION)
    full = attention("full", kv_heads(config, queries), head_dim_or_derived(config, queries))
    return _hybrid(kinds, queries, full, _mamba_n_state(config))


def read_bamba(config: Config) -> KVLayout:
    """Bamba: attn_layer_indices lists the attention layers, from 0."""
    queries, layers = query_heads(config), depth(config)
    chosen = config.naturals_or_none("attn_layer_indices")
    if chosen is None:
        config.missing("attn_layer_indices")
    if len(set(chosen)) != len(chosen) or any(index >= layers for index in chosen):
        config.refuse(f"attn_layer_indices is not a list of different layers below {layers}")
    kinds: list[Kind] = ["full" if index in chosen else "linear" for index in range(layers)]
    full = attention("full", kv_heads(config, queries), head_dim_or_derived(config, queries))
    return _hybrid(kinds, queries, full, _mamba_n_state(config))


def read_jamba(config: Config) -> KVLayout:
    """Jamba: layer i is attention where i % attn_layer_period == attn_layer_offset, else Mamba-1."""
    queries, layers = query_heads(config), depth(config)
    period, offset = config.count("attn_layer_period"), config.natural_or_none("attn_layer_offset")
    if offset is None:
        config.missing("attn_layer_offset")
    if offset >= period:
        config.refuse(f"attn_layer_offset={offset} is not below attn_layer_period={period}")
    kinds: list[Kind] = ["full" if index % period == offset else "linear" for index in range(layers)]
    full = attention("full", kv_heads(config, queries), head_dim_or_derived(config, queries))
    return _hybrid(kinds, queries, full, _jamba_state(config))


def _jamba_state(config: Config) -> State:
    unknown = state.absent_keys(config, "hidden_size", "mamba_expand", "mamba_d_state", "mamba_d_conv")
    if unknown:
        return (), unknown
    inner = config.count("hidden_size") * config.count("mamba_expand")
    return state.mamba1(inner, config.count("mamba_d_state"), config.count("mamba_d_conv")), None


def read_falcon_h1(config: Config) -> KVLayout:
    """Falcon-H1: every layer holds both attention KV and a Mamba-2 state.

    An absent head_dim is hidden_size / heads to the engine (vLLM 0.24.0); the published files give another one.
    """
    if config.naturals_or_none("attn_layer_indices") is not None:
        config.refuse("attn_layer_indices is not null, and which layers then keep both is not documented")
    queries = query_heads(config)
    parts, unknown = _mamba_n_state(config)
    dim = head_dim_or_derived(config, queries)
    layer = replace(attention("full", kv_heads(config, queries), dim), state=tuple(parts))
    return KVLayout((layer,) * depth(config), query_heads=queries, state_unknown=unknown)


def read_lfm2(config: Config) -> KVLayout:
    """LFM2: short convolutions, and attention where layer_types or full_attn_idxs say."""
    queries, layers = query_heads(config), depth(config)
    full = attention("full", kv_heads(config, queries), _lfm2_head_dim(config, queries))
    return _hybrid(_lfm2_kinds(config, layers), queries, full, (_lfm2_state(config), None))


def _lfm2_head_dim(config: Config, queries: int) -> int:
    # vLLM 0.24.0 models/lfm2.py divides whatever head_dim says.
    width, dim = config.count("hidden_size"), head_dim_or_derived(config, queries)
    if width != dim * queries:
        config.refuse(f"head_dim={dim} is not hidden_size {width} / {queries} attention heads, which the engine takes")
    return dim


def _lfm2_kinds(config: Config, layers: int) -> Sequence[Kind]:
    listed, chosen = declared_kinds(config, layers, _CONV_OR_FULL), config.naturals_or_none("full_attn_idxs")
    numbered: tuple[Kind, ...] | None = None
    if chosen is not None:
        if len(set(chosen)) != len(chosen) or any(index >= layers for index in chosen):
            config.refuse(f"full_attn_idxs is not a list of different layers below {layers}")
        numbered = tuple("full" if index in chosen else "linear" for index in range(layers))
    if listed is not None and numbered not in (None, listed):
        config.refuse("layer_types and full_attn_idxs contradict each other")
    found = listed or numbered
    return config.missing("layer_types") if found is None else found


def _lfm2_state(config: Config) -> Sequence[StatePart]:
    width = config.count_or_none("conv_dim")
    if width is None:
        width = config.default("conv_dim", config.count("hidden_size"), f"hidden_size, {_LFM2_DEFAULT}")
    taps = config.count_or_none("conv_L_cache") or config.default("conv_L_cache", _LFM2_TAPS, _LFM2_DEFAULT)
    return (StatePart("conv", width, (taps - 1) * state.MODEL_BYTES),)


def read_zamba2(config: Config) -> KVLayout:
    """Zamba2: hybrid layers run the shared attention block beside Mamba-2; each keeps its own KV."""
    queries, layers = query_heads(config), depth(config)
    known: Mapping[str, Kind] = {"mamba": "linear", "linear_attention": "linear", "hybrid": "full"}
    kinds = declared_kinds(config, layers, known, "layers_block_type")
    if kinds is None:
        config.missing("layers_block_type")
    config.ignore("kv_channels")
    parts, unknown = _zamba2_state(config)
    full = replace(attention("full", kv_heads(config, queries), config.count("attention_head_dim")), state=tuple(parts))
    return _hybrid(kinds, queries, full, (parts, unknown))


def _zamba2_state(config: Config) -> State:
    keys = ("n_mamba_heads", "mamba_headdim", "mamba_ngroups", "mamba_d_state", "mamba_d_conv")
    unknown = state.absent_keys(config, *keys)
    if unknown:
        return (), unknown
    heads, dim, groups, size, kernel = (config.count(key) for key in keys)
    return state.mamba2(heads, dim, groups, size, kernel, state.MODEL_BYTES), None


def _mamba_n_state(config: Config) -> State:
    keys = ("mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv")
    unknown = state.absent_keys(config, *keys)
    if unknown:
        return (), unknown
    heads = config.count("mamba_n_heads")
    dim = _mamba_d_head(config, heads)
    inner = config.count_or_none("mamba_d_ssm")
    if inner not in (None, heads * dim):
        config.refuse(f"mamba_d_ssm={inner} is not mamba_n_heads {heads} x mamba_d_head {dim}")
    groups, size, kernel = (config.count(key) for key in keys[2:])
    ssm_bytes = state.state_dtype_bytes(config, "mamba_ssm_cache_dtype")
    return state.mamba2(heads, dim, groups, size, kernel, ssm_bytes), None


def _mamba_d_head(config: Config, heads: int) -> int:
    if not config.is_text("mamba_d_head"):
        return config.count("mamba_d_head")
    inner = config.count("mamba_expand") * config.count("hidden_size")
    if config.text_or_none("mamba_d_head") != "auto" or inner % heads:
        config.refuse("mamba_d_head is neither a number nor 'auto' with mamba_expand x hidden_size divisible")
    return inner // heads


def read_nemotron_h(config: Config) -> KVLayout:
    """Nemotron-H and Nemotron 3: hybrid_override_pattern or layers_block_type, one letter or name per layer."""
    queries = query_heads(config)
    kinds = _nemotron_kinds(config)
    full = attention("full", kv_heads(config, queries), _nemotron_head_dim(config, queries))
    return _hybrid(kinds, queries, full, _nemotron_state(config))


def _nemotron_kinds(config: Config) -> Sequence[Kind]:
    letters = config.text_or_none("hybrid_override_pattern")
    if letters is None:
        names = config.texts_or_none("layers_block_type")
        if not names:
            config.missing("hybrid_override_pattern")
        layers = config.count_or_none("num_hidden_layers") or len(names)
        return declared_kinds(config, layers, _NEMOTRON_BLOCKS, "layers_block_type") or ()
    layers = depth(config)
    if len(letters) != layers:
        config.refuse(f"hybrid_override_pattern has {len(letters)} letters for {layers} layers")
    if set(letters) - set(_NEMOTRON_LETTERS):
        config.refuse("hybrid_override_pattern has letters other than * M - E")
    kinds = tuple(_NEMOTRON_LETTERS[letter] for letter in letters)
    if declared_kinds(config, layers, _NEMOTRON_BLOCKS, "layers_block_type") not in (None, kinds):
        config.refuse("hybrid_override_pattern and layers_block_type contradict each other")
    return kinds


def _nemotron_head_dim(config: Config, queries: int) -> int:
    explicit = config.count_or_none("head_dim", "attention_head_dim")
    if explicit is not None:
        return explicit
    # Nemotron-3-Nano: 2688 / 32 = 84 divides and is wrong (128), so the division counts only where it gives the
    # class default.
    if config.count("hidden_size") != _NEMOTRON_HEAD_DIM * queries:
        config.missing("head_dim")
    return head_dim_or_derived(config, queries)


def _nemotron_state(config: Config) -> State:
    keys = ("mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel")
    unknown = state.absent_keys(config, *keys)
    if unknown:
        return (), unknown
    heads, dim, groups, size, kernel = (config.count(key) for key in keys)
    ssm_bytes = state.state_dtype_bytes(config, "mamba_ssm_cache_dtype", absent=state.FLOAT32_BYTES)
    return state.mamba2(heads, dim, groups, size, kernel, ssm_bytes), None


def read_kimi_linear(config: Config) -> KVLayout:
    """Kimi-Linear and Kimi-K3: Kimi delta attention layers, and MLA layers where full_attn_layers (from 1) says."""
    queries, layers = query_heads(config), depth(config)
    section = config.section_or_none("linear_attn_config")
    if section is None:
        kinds = _kimi_listed(config, layers)
        made = _delta_state(config, "linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")
    else:
        kinds = _kimi_numbered(config, section, layers)
        made = _delta_state(section, "num_heads", "head_dim", "short_conv_kernel_size")
        config.ignore("layer_types")
    return _hybrid(kinds, queries, latent(config), made)


def _kimi_listed(config: Config, layers: int) -> Sequence[Kind]:
    kinds = declared_kinds(config, layers, {"linear_attention": "linear", "full_attention": "mla"})
    return config.missing("linear_attn_config") if kinds is None else kinds


def _kimi_numbered(config: Config, section: Config, layers: int) -> Sequence[Kind]:
    full, delta = section.naturals_or_none("full_attn_layers"), section.naturals_or_none("kda_layers")
    if full is None or delta is None:
        section.missing("full_attn_layers" if full is None else "kda_layers")
    # Layers count from 1 in the published files; each must be in exactly one list.
    if sorted(full + delta) != list(range(1, layers + 1)):
        config.refuse(f"linear_attn_config does not put each of {layers} layers in one of its two lists")
    return tuple("mla" if index + 1 in full else "linear" for index in range(layers))


def _delta_state(config: Config, heads: str, dim: str, kernel: str) -> State:
    unknown = state.absent_keys(config, heads, dim, kernel)
    if unknown:
        return (), unknown
    return state.delta_attention(config.count(heads), config.count(dim), config.count(kernel)), None


def _one_list(config: Config, layers: int, known: Mapping[str, Kind]) -> Sequence[Kind]:
    kinds = declared_kinds(config, layers, known)
    also = declared_kinds(config, layers, known, "layers_block_type")
    if kinds is not None and also not in (None, kinds):
        config.refuse("layer_types and layers_block_type contradict each other")
    found = kinds or also
    return config.missing("layer_types") if found is None else found
