"""Models without attention: no bytes per token, a constant state per request (Mamba, Falcon-Mamba, RWKV)."""

from __future__ import annotations

from kvbench.layout import state
from kvbench.layout.attention import depth
from kvbench.layout.config import Config
from kvbench.layout.kv import KVLayout, Layer, StatePart

_NOTE = "no attention: 0 bytes per token, a constant state per request"
# RWKV-4 keeps five vectors per layer, at the checkpoint's own precision and never less than float32 for three of
# them (transformers models/rwkv/modeling_rwkv.py); the published files are float32.
_RWKV_HIDDEN_VECTORS, _RWKV_ATTENTION_VECTORS = 2, 3


def read_mamba(config: Config) -> KVLayout:
    """Mamba-1 (also Falcon-Mamba)."""
    inner = _inner(config)
    size, kernel = config.count("state_size"), config.count("conv_kernel")
    return _states(depth(config), *state.mamba1(inner, size, kernel))


def read_mamba2(config: Config) -> KVLayout:
    """Mamba-2."""
    config.ignore("head_dim")
    heads, dim = config.count("num_heads"), config.count("head_dim")
    groups, size, kernel = config.count("n_groups"), config.count("state_size"), config.count("conv_kernel")
    return _states(depth(config), *state.mamba2(heads, dim, groups, size, kernel, state.MODEL_BYTES))


def read_rwkv(config: Config) -> KVLayout:
    """RWKV-4 in float32, as published."""
    config.ignore("num_attention_heads")
    hidden, inner = config.count("hidden_size"), config.count("attention_hidden_size")
    return _states(
        depth(config),
        StatePart("token shift", hidden, _RWKV_HIDDEN_VECTORS * state.FLOAT32_BYTES),
        StatePart("time mix", inner, _RWKV_ATTENTION_VECTORS * state.FLOAT32_BYTES),
    )


def _inner(config: Config) -> int:
    inner = config.count_or_none("intermediate_size", "d_inner")
    if inner is None:
        return config.count("expand") * config.count("hidden_size", "d_model")
    return inner


def _states(layers: int, *parts: StatePart) -> KVLayout:
    return KVLayout((Layer("linear", state=parts),) * layers, notes=(_NOTE,))
