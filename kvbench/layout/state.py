"""Recurrent states: what a linear-attention or Mamba layer keeps once per request (vLLM 0.24.0 mamba_utils.py).

Shapes follow MambaStateShapeCalculator. A convolution state is kept in the model's 16-bit dtype, a recurrent state
in the same unless the config (or, for Nemotron-H and Kimi-Linear, the engine) says float32.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvbench.layout.config import Config
from kvbench.layout.kv import StatePart

MODEL_BYTES = 2
FLOAT32_BYTES = 4
_STATE_BYTES = {"float32": FLOAT32_BYTES, "float16": MODEL_BYTES, "bfloat16": MODEL_BYTES, "auto": MODEL_BYTES}


def state_dtype_bytes(config: Config, key: str, absent: int = MODEL_BYTES) -> int:
    """Bytes per element of a recurrent state from a key such as mamba_ssm_dtype."""
    name = config.text_or_none(key)
    if name is None:
        return absent
    if name not in _STATE_BYTES:
        config.refuse(f"{key} is {name!r}; known: {', '.join(_STATE_BYTES)}")
    return _STATE_BYTES[name]


def absent_keys(config: Config, *keys: str) -> str | None:
    """Why a state cannot be sized, naming the keys that are absent; None when all are there."""
    absent = [key for key in keys if not config.given(key)]
    return f"{', '.join(absent)} missing in the config" if absent else None


def mamba1(inner: int, state: int, kernel: int, state_bytes: int = MODEL_BYTES) -> Sequence[StatePart]:
    """Mamba-1: convolution (kernel-1, inner) and state (inner, state)."""
    return (
        StatePart("conv", inner, (kernel - 1) * MODEL_BYTES),
        StatePart("ssm", inner, state * state_bytes),
    )


def mamba2(heads: int, dim: int, groups: int, state: int, kernel: int, state_bytes: int) -> Sequence[StatePart]:
    """Mamba-2: convolution (kernel-1, heads*dim + 2*groups*state) and state (heads, dim, state)."""
    return (
        StatePart("conv x", heads, dim * (kernel - 1) * MODEL_BYTES),
        StatePart("conv B and C", groups, 2 * state * (kernel - 1) * MODEL_BYTES, replicates=True),
        StatePart("ssm", heads, dim * state * state_bytes),
    )


def gated_delta(config: Config) -> Sequence[StatePart]:
    """Gated delta net (Qwen3-Next, Qwen3.5, Qwen3.6) from its linear_* keys."""
    key_heads, value_heads = config.count("linear_num_key_heads"), config.count("linear_num_value_heads")
    key_dim, value_dim = config.count("linear_key_head_dim"), config.count("linear_value_head_dim")
    taps = (config.count("linear_conv_kernel_dim") - 1) * MODEL_BYTES
    return (
        StatePart("conv q and k", key_heads, 2 * key_dim * taps),
        StatePart("conv v", value_heads, value_dim * taps),
        StatePart("delta rule", value_heads, value_dim * key_dim * state_dtype_bytes(config, "mamba_ssm_dtype")),
    )


def delta_attention(heads: int, dim: int, kernel: int) -> Sequence[StatePart]:
    """Kimi delta attention: convolution (kernel-1, 3*heads*dim) and a float32 state (heads, dim, dim)."""
    return (
        StatePart("conv q, k and v", heads, 3 * dim * (kernel - 1) * MODEL_BYTES),
        StatePart("delta rule", heads, dim * dim * FLOAT32_BYTES),
    )
