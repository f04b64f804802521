"""From a Hugging Face config to a KVLayout: FAMILIES maps each known model_type to the function that reads it.

Adding an architecture is one reader (in the file of its family) and one line here. The functions are named, as
``module:function``, rather than imported because one call needs one of them, and importing all doubles the time of
``kvbench blocksize``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from types import MappingProxyType

from kvbench.errors import ModelConfigError
from kvbench.layout.config import Config
from kvbench.layout.kv import KINDS, Cross, Kind, KVLayout, Layer

__all__ = ["FAMILIES", "KINDS", "Cross", "KVLayout", "Kind", "Layer", "ReadConfig", "read_layout", "reader_of"]

Reader = Callable[[Config], KVLayout]

FAMILIES: dict[str, str] = {
    # Every layer full, same heads.
    "llama": "kvbench.layout.plain:read_llama",
    "phi": "kvbench.layout.plain:read_phi",
    "cohere": "kvbench.layout.plain:read_grouped",
    "olmo": "kvbench.layout.plain:read_grouped",
    "olmo2": "kvbench.layout.plain:read_grouped",
    "olmoe": "kvbench.layout.plain:read_grouped",
    "granite": "kvbench.layout.plain:read_grouped",
    "granitemoe": "kvbench.layout.plain:read_grouped",
    "internlm2": "kvbench.layout.plain:read_grouped",
    "ernie4_5_moe": "kvbench.layout.plain:read_grouped",
    "ernie4_5": "kvbench.layout.plain:read_explicit",
    "gemma": "kvbench.layout.plain:read_explicit",
    "glm": "kvbench.layout.plain:read_explicit",
    "glm4": "kvbench.layout.plain:read_explicit",
    "glm4_moe": "kvbench.layout.plain:read_explicit",
    "chatglm": "kvbench.layout.plain:read_chatglm",
    # One window for all layers, or none.
    "mistral": "kvbench.layout.windowed:read_mistral",
    "ministral3": "kvbench.layout.windowed:read_mistral",
    "mixtral": "kvbench.layout.windowed:read_mixtral",
    "phi3": "kvbench.layout.windowed:read_phi3",
    "starcoder2": "kvbench.layout.windowed:read_starcoder2",
    "qwen2": "kvbench.layout.qwen:read_qwen2",
    "qwen2_moe": "kvbench.layout.qwen:read_qwen2_moe",
    "mimo": "kvbench.layout.qwen:read_qwen2",
    "qwen3": "kvbench.layout.qwen:read_qwen3",
    "qwen3_moe": "kvbench.layout.qwen:read_qwen3_moe",
    # Sliding or chunked and full layers mixed.
    "gpt_oss": "kvbench.layout.gpt_oss:read_gpt_oss",
    "gemma2": "kvbench.layout.gemma:read_gemma2",
    "gemma3_text": "kvbench.layout.gemma:read_gemma3",
    "gemma3n_text": "kvbench.layout.gemma:read_gemma3n",
    "gemma4_text": "kvbench.layout.gemma:read_gemma4",
    "llama4_text": "kvbench.layout.llama4:read_llama4",
    "cohere2": "kvbench.layout.patterned:read_cohere2",
    "olmo3": "kvbench.layout.patterned:read_olmo3",
    "exaone4": "kvbench.layout.patterned:read_exaone4",
    "step3p5": "kvbench.layout.patterned:read_step",
    "step3p7": "kvbench.layout.patterned:read_step",
    "step3_text": "kvbench.layout.patterned:read_step3",
    "mimo_v2_flash": "kvbench.layout.patterned:read_mimo_v2",
    # One latent per layer.
    "deepseek_v2": "kvbench.layout.deepseek:read_mla",
    "deepseek_v3": "kvbench.layout.deepseek:read_mla",
    "kimi_k2": "kvbench.layout.deepseek:read_mla",
    "glm4_moe_lite": "kvbench.layout.deepseek:read_mla",
    "mistral4": "kvbench.layout.deepseek:read_mla",
    "mistral_large_3": "kvbench.layout.deepseek:read_mla",
    "longcat_flash": "kvbench.layout.deepseek:read_longcat_flash",
    "deepseek_v32": "kvbench.layout.deepseek:read_sparse_mla",
    "glm_moe_dsa": "kvbench.layout.deepseek:read_sparse_mla",
    # Attention beside recurrent layers, or layers that own nothing.
    "qwen3_next": "kvbench.layout.hybrid:read_qwen_linear",
    "qwen3_5_text": "kvbench.layout.hybrid:read_qwen_linear",
    "qwen3_5_moe_text": "kvbench.layout.hybrid:read_qwen_linear",
    "granitemoehybrid": "kvbench.layout.hybrid:read_granite_hybrid",
    "nemotron_h": "kvbench.layout.hybrid:read_nemotron_h",
    "kimi_linear": "kvbench.layout.hybrid:read_kimi_linear",
    "falcon_h1": "kvbench.layout.hybrid:read_falcon_h1",
    "lfm2": "kvbench.layout.hybrid:read_lfm2",
    "lfm2_moe": "kvbench.layout.hybrid:read_lfm2",
    "jamba": "kvbench.layout.hybrid:read_jamba",
    "bamba": "kvbench.layout.hybrid:read_bamba",
    "zamba2": "kvbench.layout.hybrid:read_zamba2",
    "minimax": "kvbench.layout.minimax:read_minimax",
    "minimax_text_01": "kvbench.layout.minimax:read_minimax",
    "minimax_m1": "kvbench.layout.minimax:read_minimax",
    "minimax_m2": "kvbench.layout.minimax:read_minimax_m2",
    "minimax_m3": "kvbench.layout.minimax:read_minimax_m3",
    "nemotron-nas": "kvbench.layout.nemotron_nas:read_nemotron_nas",
    "deci": "kvbench.layout.nemotron_nas:read_nemotron_nas",
    "hunyuan": "kvbench.layout.shared_kv:read_hunyuan",
    "hunyuan_v1_dense": "kvbench.layout.shared_kv:read_hunyuan",
    "hunyuan_v1_moe": "kvbench.layout.shared_kv:read_hunyuan",
    # Older spellings.
    "gpt2": "kvbench.layout.legacy:read_mha",
    "gptj": "kvbench.layout.legacy:read_mha",
    "gpt_neox": "kvbench.layout.legacy:read_mha",
    "bloom": "kvbench.layout.legacy:read_mha",
    "opt": "kvbench.layout.legacy:read_mha",
    "gpt_bigcode": "kvbench.layout.legacy:read_gpt_bigcode",
    "falcon": "kvbench.layout.legacy:read_falcon",
    "RefinedWebModel": "kvbench.layout.legacy:read_falcon",
    "RefinedWeb": "kvbench.layout.legacy:read_refined_web",
    "mpt": "kvbench.layout.legacy:read_mpt",
    "dbrx": "kvbench.layout.legacy:read_dbrx",
    # No growing cache, or one beside an encoder.
    "mamba": "kvbench.layout.attention_free:read_mamba",
    "falcon_mamba": "kvbench.layout.attention_free:read_mamba",
    "mamba2": "kvbench.layout.attention_free:read_mamba2",
    "rwkv": "kvbench.layout.attention_free:read_rwkv",
    "whisper": "kvbench.layout.encoder_decoder:read_whisper",
    "bart": "kvbench.layout.encoder_decoder:read_bart",
    "mbart": "kvbench.layout.encoder_decoder:read_bart",
    "t5": "kvbench.layout.encoder_decoder:read_t5",
}

# Multimodal configs whose cache is that of the text model inside; the value is the inner model_type when the inner
# config does not say it, None where it must.
_WRAPPERS: Mapping[str, str | None] = MappingProxyType(
    {
        "aya_vision": None,
        "gemma3": "gemma3_text",
        "gemma3n": "gemma3n_text",
        "gemma4": "gemma4_text",
        "glm4v": None,
        "glm4v_moe": None,
        "internvl": None,
        "internvl_chat": None,
        "kimi_k25": None,
        "kimi_k3": None,
        "kimi_vl": None,
        "llama4": "llama4_text",
        "llava": None,
        "llava_next": None,
        "minimax_m3_vl": "minimax_m3",
        "mistral3": None,
        "qwen2_5_omni": None,
        "qwen2_5_omni_thinker": None,
        "qwen2_5_vl": None,
        "qwen2_vl": None,
        "qwen3_5": "qwen3_5_text",
        "qwen3_5_moe": "qwen3_5_moe_text",
        "qwen3_omni_moe": None,
        "qwen3_omni_moe_thinker": None,
        "qwen3_vl": None,
        "qwen3_vl_moe": None,
        "step3_vl": None,
    }
)
# Other names of a family; also the text parts of wrappers whose cache is that of a plain family.
_ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "glm4v_moe_text": "glm4_moe",
        "glm4v_text": "glm4",
        "minimax_m3_vl_text": "minimax_m3",
        "qwen2_5_omni_text": "qwen2",
        "qwen2_5_vl_text": "qwen2",
        "qwen2_vl_text": "qwen2",
        "qwen3_omni_moe_text": "qwen3_moe",
        "qwen3_vl_moe_text": "qwen3_moe",
        "qwen3_vl_text": "qwen3",
    }
)
# Known, and refused with their own reason.
_UNSIZED: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(
        ("deepseek_v4", "deepseek_ref"),
        "DeepSeek-V4 keeps one entry for 4 or for 128 tokens, so it has no whole number of bytes per token and no "
        "block of 16 tokens, and kvbench does not size it yet; size DeepSeek-V3.2 instead, or ask for it.",
    )
)
# Wrappers that older files write flat, without a text_config.
_FLAT: Mapping[str, str] = MappingProxyType({"qwen2_vl": "qwen2", "qwen2_5_vl": "qwen2"})
_TEXT_SECTIONS = ("text_config", "llm_config", "language_config", "thinker_config")
# For files without model_type (trimmed ones exist).
_ARCHITECTURES: Mapping[str, str] = MappingProxyType(
    {
        "BloomForCausalLM": "bloom",
        "DeepseekV2ForCausalLM": "deepseek_v2",
        "DeepseekV3ForCausalLM": "deepseek_v3",
        "FalconForCausalLM": "falcon",
        "GPT2LMHeadModel": "gpt2",
        "GPTJForCausalLM": "gptj",
        "GPTNeoXForCausalLM": "gpt_neox",
        "GemmaForCausalLM": "gemma",
        "Gemma2ForCausalLM": "gemma2",
        "GptOssForCausalLM": "gpt_oss",
        "InternLM2ForCausalLM": "internlm2",
        "LlamaForCausalLM": "llama",
        "MistralForCausalLM": "mistral",
        "MistralLarge3ForCausalLM": "mistral_large_3",
        "MixtralForCausalLM": "mixtral",
        "OPTForCausalLM": "opt",
        "Phi3ForCausalLM": "phi3",
        "Qwen2ForCausalLM": "qwen2",
        "Qwen3ForCausalLM": "qwen3",
        "Qwen3MoeForCausalLM": "qwen3_moe",
    }
)
_REPEATED = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")


@dataclass(frozen=True, slots=True)
class ReadConfig:
    """A layout with where it came from: the family's model_type, the keys that were used, the defaults taken."""

    layout: KVLayout
    model_type: str
    used: tuple[tuple[str, str], ...]
    defaults: tuple[str, ...]
    text: Mapping[str, object]


def reader_of(family: str) -> Reader:
    """The function that reads configs of a family in FAMILIES."""
    reader: Reader = resolve_name(FAMILIES[family])
    return reader


def read_layout(data: Mapping[str, object]) -> ReadConfig:
    """The layout that a config.json describes; ModelConfigError for anything unknown, missing or contradictory."""
    text, prefix, model_type = _text_part(data)
    family = _ALIASES.get(model_type, model_type)
    if family not in FAMILIES:
        raise _unknown(model_type)
    config = Config(text, model_type, prefix)
    layout = reader_of(family)(config)
    if any(layer.state for layer in layout.layers):
        layout = replace(layout, scan_tokens=_scan_tokens(config))
    config.refuse_unread()
    return ReadConfig(layout, model_type, tuple(config.used.items()), tuple(config.defaults), text)


def _scan_tokens(config: Config) -> int | None:
    # vLLM 0.24.0 config/model.py get_mamba_chunk_size, without its default for configs that name none.
    return config.count_or_none("mamba_chunk_size") or config.count_or_none("chunk_size")


def _text_part(data: Mapping[str, object]) -> tuple[Mapping[str, object], str, str]:
    model_type = _model_type(data)
    if model_type in _WRAPPERS:
        return _unwrap(data, model_type)
    if model_type not in FAMILIES and model_type not in _ALIASES:
        raise _unknown(model_type)
    if any(isinstance(data.get(key), Mapping) for key in _TEXT_SECTIONS):
        raise ModelConfigError(
            f"this {model_type} config has a nested text config, which {model_type} does not have; "
            "check the file against the model's Hub page."
        )
    return data, "", model_type


def _unwrap(data: Mapping[str, object], model_type: str) -> tuple[Mapping[str, object], str, str]:
    found = [(key, data[key]) for key in _TEXT_SECTIONS if isinstance(data.get(key), Mapping)]
    if not found and model_type in _FLAT:
        return data, "", _FLAT[model_type]
    if len(found) != 1:
        raise ModelConfigError(
            f"this {model_type} config has {len(found)} text configs ({', '.join(_TEXT_SECTIONS)}) instead of one; "
            "check the file against the model's Hub page."
        )
    key, text = found[0]
    assert isinstance(text, Mapping)
    _refuse_contradiction(data, text, model_type, key)
    inner = _WRAPPERS[model_type] if _anonymous(text) else None
    inner = inner or _model_type(text)
    if inner in _WRAPPERS:
        part, prefix, inner = _unwrap(text, inner)
        return part, f"{key}.{prefix}", inner
    return text, f"{key}.", inner


def _refuse_contradiction(
    outer: Mapping[str, object], inner: Mapping[str, object], model_type: str, section: str
) -> None:
    for key in _REPEATED:
        if outer.get(key) is not None and inner.get(key) is not None and outer[key] != inner[key]:
            raise ModelConfigError(
                f"this {model_type} config contradicts itself: {key} is {outer[key]} and {section}.{key} is "
                f"{inner[key]}; check the file against the model's Hub page."
            )


def _anonymous(data: Mapping[str, object]) -> bool:
    return data.get("model_type") in (None, "")


def _model_type(data: Mapping[str, object]) -> str:
    name = data.get("model_type")
    if isinstance(name, str) and name:
        return name
    if name not in (None, ""):
        raise ModelConfigError("model_type is not a string; check that the file is a Hugging Face config.json.")
    architectures = data.get("architectures")
    names = architectures if isinstance(architectures, list) else []
    known = {_ARCHITECTURES[item] for item in names if isinstance(item, str) and item in _ARCHITECTURES}
    if len(known) == 1 and len(names) == 1:
        return known.pop()
    raise ModelConfigError(
        "the config has no model_type and its architectures do not settle it; add the model_type of its Hub page."
    )


def _unknown(model_type: str) -> ModelConfigError:
    if model_type in _UNSIZED:
        return ModelConfigError(_UNSIZED[model_type])
    known = ", ".join(sorted({*FAMILIES, *_WRAPPERS}, key=str.lower))
    return ModelConfigError(
        f"kvbench does not know the architecture {model_type!r} and does not guess; it knows {known}."
    )
