"""Which dtype the KV cache has, and why: vLLM's rule for ``auto`` (0.24.0), and what each dtype weighs per vector.

KV dtype is not weight dtype. Only two declarations in a checkpoint change it: ModelOpt's (quantization_config, or
the separate hf_quant_config.json of older exports when config.json has no quantization_config;
transformers_utils/config.py and utils/torch_utils.py get_kv_cache_quant_algo_string) and compressed-tensors'
kv_cache_scheme (model_executor/layers/attention/attention.py), which MLA layers do not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kvbench.errors import ModelConfigError, UsageError
from kvbench.layout.kv import KVLayout, Layer

_SIXTEEN_BIT = ("bfloat16", "float16")
_FP8 = ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc")
_PER_TOKEN_HEAD = ("int8_per_token_head", "fp8_per_token_head")
# Bits of a key and of a value element (vLLM 0.24.0 model_executor/layers/quantization/turboquant/config.py).
_TURBOQUANT = {
    "turboquant_k8v4": (8, 4),
    "turboquant_4bit_nc": (4, 4),
    "turboquant_k3v4_nc": (3, 4),
    "turboquant_3bit_nc": (3, 3),
}
KV_DTYPES = ("auto", *_SIXTEEN_BIT, *_FP8, "fp8_ds_mla", *_PER_TOKEN_HEAD, "nvfp4", *_TURBOQUANT)

# A norm in 16 bit for each key that is not fp8, a scale and a zero in 16 bit for each value (the same file).
_TURBOQUANT_NORM_BYTES, _TURBOQUANT_SCALE_BYTES = 2, 4
# Dense models leave so many layers at each end unquantised (the same file, get_boundary_skip_layers).
_TURBOQUANT_ENDS = 2

# One fp32 scale per token and head, for K and for V each (vLLM 0.24.0 v1/kv_cache_interface.py AttentionSpec).
_PER_TOKEN_HEAD_SCALE_BYTES = 4
# 4-bit values, and one fp8 scale per 16 of them (vLLM 0.24.0 utils/torch_utils.py nvfp4_kv_cache_full_dim).
_NVFP4_GROUP = 16
# fp8_ds_mla: 512 fp8, one fp32 scale per 128 of them, and 64 rotary elements in bf16 = 656 bytes
# (vLLM 0.24.0 v1/kv_cache_interface.py MLAAttentionSpec). The constant holds for this shape only.
_DS_MLA_RANK, _DS_MLA_ROPE, _DS_MLA_BYTES = 512, 64, 656

_MODEL_DTYPES = {
    "bfloat16": "bfloat16",
    "float16": "float16",
    "half": "float16",
    # vLLM serves float32 checkpoints in 16 bit under dtype auto.
    "float32": "bfloat16",
    "float": "bfloat16",
}
_MODELOPT_ALGORITHMS = {"fp8": "fp8", "nvfp4": "nvfp4"}


@dataclass(frozen=True, slots=True)
class KVDtype:
    """The name of a KV dtype in vLLM's spelling, where it came from, and what a reader should be warned of."""

    name: str
    source: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a checkpoint says about dtypes: its config.json, the text part of it, and hf_quant_config.json if any."""

    config: Mapping[str, object]
    text: Mapping[str, object]
    hf_quant: Mapping[str, object] | None = None


def resolve(requested: str, layout: KVLayout, checkpoint: Checkpoint) -> KVDtype:
    """The KV dtype for a request such as ``auto`` or ``fp8``; UsageError for an unknown name."""
    if requested not in KV_DTYPES:
        raise UsageError(f"unknown KV dtype {requested!r}; known: {', '.join(KV_DTYPES)}.")
    if requested != "auto":
        return _sparse(KVDtype(requested, "--kv-dtype"), layout)
    declared = _modelopt(checkpoint) or _compressed_tensors(checkpoint, layout) or _foreign(checkpoint)
    if declared is None:
        return _model_dtype(checkpoint)
    if declared.name == "auto":
        fallback = _model_dtype(checkpoint)
        return KVDtype(fallback.name, fallback.source, declared.warnings)
    return _sparse(declared, layout)


def _sparse(dtype: KVDtype, layout: KVLayout) -> KVDtype:
    # Sparse MLA keeps any fp8 as fp8_ds_mla (vLLM 0.24.0 mla_attention.py _canonicalize_sparse_mla_kv_cache_dtype).
    if layout.sparse and dtype.name in _FP8:
        return KVDtype("fp8_ds_mla", f"{dtype.source}: fp8, which sparse MLA keeps as fp8_ds_mla", dtype.warnings)
    return dtype


def _modelopt(checkpoint: Checkpoint) -> KVDtype | None:
    quant = _object(checkpoint.config, "quantization_config", "quantization_config")
    where = "quantization_config"
    if quant is None and checkpoint.hf_quant is not None:
        quant, where = checkpoint.hf_quant, "hf_quant_config.json"
    if quant is None or not _is_modelopt(quant):
        return None
    inner = _object(quant, "quantization", where) or quant
    for key in ("kv_cache_scheme", "kv_cache_quant_algo"):
        value = inner.get(key) or quant.get(key)
        if value:
            return _modelopt_value(value, f"{where} (ModelOpt) {key}")
    return _unheard(checkpoint) if where == "quantization_config" else None


def _is_modelopt(quant: Mapping[str, object]) -> bool:
    method = quant.get("quant_method")
    if isinstance(method, str) and method:
        return method.lower().startswith("modelopt")
    producer = quant.get("producer")
    return isinstance(producer, Mapping) and producer.get("name") == "modelopt"


def _modelopt_value(value: object, where: str) -> KVDtype:
    if isinstance(value, Mapping):
        shown = f"{value.get('num_bits')} bit {value.get('type')}"
        algorithm = {"8 bit float": "fp8", "4 bit float": "nvfp4"}.get(shown)
        if algorithm == "fp8" and value.get("dynamic") is not False:
            algorithm = None
    else:
        algorithm = _MODELOPT_ALGORITHMS.get(value.lower()) if isinstance(value, str) else None
        shown = str(value)
    if algorithm is None:
        return KVDtype("auto", where, (f"{where} is {shown}, which vLLM does not know and treats as auto",))
    return KVDtype(algorithm, f"{where}: {shown}")


def _unheard(checkpoint: Checkpoint) -> KVDtype | None:
    # A newer export embeds quantization_config; vLLM then does not open hf_quant_config.json.
    hidden = _object(checkpoint.hf_quant or {}, "quantization", "hf_quant_config.json") or {}
    algorithm = hidden.get("kv_cache_quant_algo")
    if not algorithm:
        return None
    warning = (
        f"hf_quant_config.json declares {algorithm} KV, but vLLM reads quantization_config in config.json, which does "
        "not; pass --kv-dtype to size the other"
    )
    return KVDtype("auto", "config.json", (warning,))


def _compressed_tensors(checkpoint: Checkpoint, layout: KVLayout) -> KVDtype | None:
    found = _compressed_scheme(checkpoint)
    if found is None:
        return None
    where, scheme = found
    if scheme.get("num_bits") != 8 or scheme.get("type") != "float":
        raise ModelConfigError(
            f"{where} is {scheme.get('num_bits')} bit {scheme.get('type')}, which vLLM refuses; pass --kv-dtype."
        )
    if layout.count("mla"):
        warning = f"{where} declares fp8 KV, which vLLM's MLA layers do not read; pass --kv-dtype fp8 to size it"
        return KVDtype("auto", where, (warning,))
    return KVDtype("fp8", f"{where}: 8 bit float")


def _compressed_scheme(checkpoint: Checkpoint) -> tuple[str, Mapping[str, object]] | None:
    places = (
        ("quantization_config", checkpoint.config),
        ("text_config.quantization_config", checkpoint.text),
        ("compression_config", checkpoint.config),
    )
    for where, holder in places:
        quant = _object(holder, where.rpartition(".")[2], where)
        if quant is not None and str(quant.get("quant_method")).lower().replace("_", "-") == "compressed-tensors":
            scheme = _object(quant, "kv_cache_scheme", f"{where}.kv_cache_scheme")
            return None if scheme is None else (f"{where}.kv_cache_scheme", scheme)
    return None


def _foreign(checkpoint: Checkpoint) -> KVDtype | None:
    """None, or a refusal when a KV dtype is declared where, or by whom, the engine's rule does not say."""
    top = _object(checkpoint.config, "quantization_config", "quantization_config") or {}
    inner = _object(checkpoint.text, "quantization_config", "text_config.quantization_config") or {}
    for quant, where in ((top, "quantization_config"), (inner, "text_config.quantization_config")):
        method = str(quant.get("quant_method")).replace("_", "-")
        if method == "compressed-tensors" or (quant is top and _is_modelopt(quant)):
            continue
        for key in ("kv_cache_scheme", "kv_cache_quant_algo"):
            if quant.get(key):
                raise ModelConfigError(
                    f"{where}.{key} is set by {method!r}, for which no rule of the engine is known; pass --kv-dtype."
                )
    return None


def _model_dtype(checkpoint: Checkpoint) -> KVDtype:
    for holder, prefix in ((checkpoint.config, ""), (checkpoint.text, "text config ")):
        for key in ("dtype", "torch_dtype"):
            value = holder.get(key)
            if value is not None:
                return _named(value, f"{prefix}{key}")
    return KVDtype("bfloat16", "auto: the config names no dtype, bfloat16 assumed")


def _named(value: object, where: str) -> KVDtype:
    name = str(value).removeprefix("torch.")
    if not isinstance(value, str) or name not in _MODEL_DTYPES:
        raise ModelConfigError(f"{where} is {value!r}, which is no dtype that a KV cache follows; pass --kv-dtype.")
    if name in ("float32", "float"):
        return KVDtype("bfloat16", f"auto: {where} float32, which vLLM serves in 16 bit")
    return KVDtype(_MODEL_DTYPES[name], f"auto: {where} {name}")


def _object(holder: Mapping[str, object], key: str, where: str) -> Mapping[str, object] | None:
    value = holder.get(key)
    if value is None or isinstance(value, Mapping):
        return value
    raise ModelConfigError(f"{where} is not an object; check the file against the model's Hub page.")


def protect_ends(layout: KVLayout, dtype: str) -> KVLayout:
    """The layout with the layers that a TurboQuant dtype leaves in 16 bit marked; unchanged for any other dtype."""
    if dtype not in _TURBOQUANT or any(layer.state for layer in layout.layers):
        return layout
    layers = list(layout.layers)
    ends = min(_TURBOQUANT_ENDS, len(layers) // 2)
    for index in (*range(ends), *range(len(layers) - ends, len(layers))):
        layers[index] = replace(layers[index], kv_dtype="bfloat16")
    return replace(layout, layers=tuple(layers))


def layer_head_bytes(layer: Layer, dtype: str) -> int:
    """Bytes that one KV head of a layer keeps per token (K and V; for MLA the whole latent) in a KV dtype."""
    dtype = layer.kv_dtype or dtype
    if layer.kind == "mla":
        return _latent_bytes(layer, dtype)
    if dtype in _TURBOQUANT:
        return _turboquant_bytes(layer, *_TURBOQUANT[dtype])
    return _vector_bytes(layer.k_dim, dtype) + _vector_bytes(layer.v_dim, dtype)


def _turboquant_bytes(layer: Layer, key_bits: int, value_bits: int) -> int:
    if layer.k_dim != layer.v_dim:
        raise ModelConfigError("TurboQuant has one slot for K and V of the same width; pass another --kv-dtype.")
    key = layer.k_dim if key_bits == 8 else -(-layer.k_dim * key_bits // 8) + _TURBOQUANT_NORM_BYTES
    slot = key + -(-layer.v_dim * value_bits // 8) + _TURBOQUANT_SCALE_BYTES
    return slot + slot % 2


def _vector_bytes(dim: int, dtype: str) -> int:
    if dtype in _SIXTEEN_BIT:
        return 2 * dim
    if dtype in _FP8:
        return dim
    if dtype in _PER_TOKEN_HEAD:
        return dim + _PER_TOKEN_HEAD_SCALE_BYTES
    if dtype == "nvfp4":
        if dim % _NVFP4_GROUP:
            raise ModelConfigError(f"head_dim {dim} is not a multiple of {_NVFP4_GROUP}, as nvfp4 needs.")
        return dim // 2 + dim // _NVFP4_GROUP
    raise ModelConfigError("fp8_ds_mla is a layout for MLA models; pass --kv-dtype fp8.")


def _latent_bytes(layer: Layer, dtype: str) -> int:
    if dtype in _SIXTEEN_BIT:
        return 2 * layer.k_dim
    if dtype in _FP8:
        return layer.k_dim
    if dtype == "fp8_ds_mla":
        if (layer.k_dim - layer.rope_dim, layer.rope_dim) != (_DS_MLA_RANK, _DS_MLA_ROPE):
            raise ModelConfigError(
                f"fp8_ds_mla is defined for a latent of {_DS_MLA_RANK} + {_DS_MLA_ROPE} only, this model has "
                f"{layer.k_dim - layer.rope_dim} + {layer.rope_dim}; pass another --kv-dtype."
            )
        return _DS_MLA_BYTES
    raise ModelConfigError(f"vLLM has no MLA layout in {dtype}; pass --kv-dtype fp8 or bfloat16.")
