"""How much a model computes for one prompt token: the parameters that each token meets, from its config (pure).

Source: the transformers classes of each family (modeling_*.py, 4.57): which projections a layer has. An embedding is
looked up, and the output layer reads the last token only, so neither is counted. Checked against what the models' cards
publish (Qwen3-8B 6.95 billion without embeddings, DeepSeek-V3 37 billion active).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kvbench.layout.kv import KVLayout, Layer

# Two matrices instead of three: their MLP has no gate.
_UNGATED = frozenset(
    {"gpt2", "gptj", "gpt_neox", "bloom", "opt", "falcon", "RefinedWebModel", "RefinedWeb", "mpt", "gpt_bigcode", "phi",
     "starcoder2"}
)  # fmt: skip
# Built of layers that these keys do not describe: lists of sizes, encoders, recurrences, experts only in some layers.
_UNKNOWN = frozenset(
    {"nemotron_h", "nemotron-nas", "deci", "gemma3n_text", "jamba", "zamba2", "bamba", "falcon_h1", "hunyuan",
     "hunyuan_v1_moe", "mamba", "mamba2", "falcon_mamba", "rwkv", "whisper", "bart", "mbart", "t5", "dbrx",
     "step3_text", "step3p5", "step3p7", "longcat_flash", "lfm2", "minimax", "minimax_text_01", "minimax_m1"}
)  # fmt: skip
_MIXTURES = ("mixtral", "gpt_oss", "deepseek", "kimi", "minimax", "llama4", "qwen3_next", "glm_moe", "mimo_v2",
             "mistral4", "mistral_large_3")  # fmt: skip
_HIDDEN = ("hidden_size", "n_embd", "d_model")
_INNER = ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size")
_EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts")
_CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "top_k_experts")
_EXPERT_INNER = ("moe_intermediate_size", "expert_intermediate_size")
_SHARED_INNER = ("shared_expert_intermediate_size", "shared_intermediate_size")
_SHARED_COUNT = ("n_shared_experts", "num_shared_experts")
# Every so manyth layer has experts.
_STEP = ("interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_freq")
# A recurrent layer's projections in squares of the hidden size: 6 with Mamba-2's expansion by 2, 8 in Qwen3-Next.
_RECURRENT = 6

# Of what was counted: biases, norms, routers, gates and recurrent layers are not counted exactly.
_LEAST, _MOST = 0.9, 1.25
# What a name tells: "A22B" rounds, "70B" may be all experts together (Kimi K2: 1 in 32 is
# active, gpt-oss-20b 1 in 6).
_NAMED_LEAST, _NAMED_MOST = 0.7, 1.3
_SPARSEST, _SPARSEST_SMALL, _SMALL = 1 / 40, 1 / 8, 20e9
# Of a model that nobody knows: from a small one to the largest dense one with open weights (Llama 3.1 405B).
_SMALLEST, _LARGEST = 0.1e9, 405e9
_ACTIVE = re.compile(r"(?<![a-z0-9.])a(\d+(?:\.\d+)?)b(?![a-z0-9])", re.IGNORECASE)
_MIXTURE = re.compile(r"(?<![a-z0-9.])(\d+)x(\d+(?:\.\d+)?)b(?![a-z0-9])", re.IGNORECASE)
_TOTAL = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)b(?![a-z0-9])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Work:
    """Parameters that a prompt token is multiplied with, and FLOP for each pair of tokens in full attention."""

    parameters: int
    pair_flop: int


@dataclass(frozen=True, slots=True)
class WorkBounds:
    """The least and the most FLOP that a prompt can take, and in words where that comes from."""

    least_parameters: float
    most_parameters: float
    pair_flop: int
    source: str

    def least_flop(self, tokens: float) -> float:
        """FLOP of a prompt, at least: two for each parameter and token, and causal attention."""
        return tokens * (2 * self.least_parameters + self.pair_flop * tokens / 2)

    def most_flop(self, tokens: float) -> float:
        """FLOP of a prompt, at most."""
        return tokens * (2 * self.most_parameters + self.pair_flop * tokens / 2)


def work_of(config: Mapping[str, object], model_type: str, layout: KVLayout) -> Work | None:
    """What a prompt token costs a model with that text config; None where the config does not settle it."""
    hidden = _number(config, _HIDDEN)
    if hidden is None or model_type in _UNKNOWN or not layout.query_heads or layout.cross is not None:
        return None
    attention = [_attention(config, layer, layout.query_heads, hidden) for layer in layout.layers]
    mlps = _mlps(config, model_type, len(layout.layers), hidden)
    if mlps is None or None in attention:
        return None
    quadratic = [layer for layer in layout.layers if layer.kind in ("full", "mla") and not layout.sparse]
    pairs = sum(2 * layout.query_heads * sum(_head_dims(config, layer)) for layer in quadratic)
    return Work(sum(part for part in attention if part) + mlps, pairs)


def bounds_of(work: Work | None, name: str | None) -> WorkBounds:
    """Bounds around the count; without one, what the model's name tells of its size, and else those of any model."""
    if work is not None:
        text = f"{_billions(work.parameters)} active parameters"
        return WorkBounds(_LEAST * work.parameters, _MOST * work.parameters, work.pair_flop, text)
    least, most = _named(name or "") or (_SMALLEST, _LARGEST)
    known = "as its name says" if _named(name or "") else "its size is not known"
    return WorkBounds(least, most, 0, f"{_billions(least)} to {_billions(most)} active parameters, {known}")


def _named(name: str) -> tuple[float, float] | None:
    last = name.rpartition("/")[2].replace("_", "-")
    if found := _ACTIVE.search(last):
        active = float(found[1]) * 1e9
        return _NAMED_LEAST * active, _NAMED_MOST * active
    if found := _MIXTURE.search(last):
        return _NAMED_LEAST * float(found[2]) * 1e9, float(found[1]) * float(found[2]) * 1e9
    if (found := _TOTAL.search(last)) and float(found[1]) > 0:
        total = float(found[1]) * 1e9
        return total * (_SPARSEST_SMALL if total <= _SMALL else _SPARSEST), _NAMED_MOST * total
    return None


def _billions(parameters: float) -> str:
    return f"{parameters / 1e9:.3g} billion"


def _head_dims(config: Mapping[str, object], layer: Layer) -> tuple[int, int]:
    """Dimensions of a query's head and of a value's; an MLA layer's latent is expanded to both."""
    if layer.kind != "mla":
        return layer.k_dim, layer.v_dim
    nope, value = _number(config, ("qk_nope_head_dim",)), _number(config, ("v_head_dim",))
    return (nope or 0) + layer.rope_dim, value or 0


def _attention(config: Mapping[str, object], layer: Layer, heads: int, hidden: int) -> int | None:
    """The projections of one layer's attention, or of the recurrence in its place."""
    if layer.kind == "linear":
        return _RECURRENT * hidden**2
    query, value = _head_dims(config, layer)
    if layer.kind != "mla":
        return hidden * (heads * (query + value) + layer.kv_heads * (layer.k_dim + layer.v_dim))
    if not query or not value:
        return None
    rank, latent = _number(config, ("q_lora_rank",)), layer.k_dim - layer.rope_dim
    queries = hidden * heads * query if rank is None else rank * (hidden + heads * query)
    expanded = latent * heads * (query - layer.rope_dim + value)
    return queries + hidden * layer.k_dim + expanded + heads * value * hidden


def _mlps(config: Mapping[str, object], model_type: str, layers: int, hidden: int) -> int | None:
    """The MLPs of all layers; of experts those that are chosen and those that all tokens share."""
    matrices = 2 if model_type in _UNGATED else 3
    inner = _number(config, _INNER) or (4 * hidden if model_type in _UNGATED else None)
    experts, chosen = _number(config, _EXPERTS), _number(config, _CHOSEN)
    if experts is None and _is_mixture(model_type):
        return None
    if experts is None or config.get("enable_moe_block") is False:
        return None if inner is None else matrices * hidden * inner * layers
    expert_inner = _number(config, _EXPERT_INNER) or inner
    if chosen is None or expert_inner is None:
        return None
    shared = (_number(config, _SHARED_COUNT) or 0) * expert_inner or _number(config, _SHARED_INNER) or 0
    beside = (inner or 0) if config.get("enable_moe_block") else 0
    sparse = max(0, layers - (_number(config, ("first_k_dense_replace",)) or 0)) // (_number(config, _STEP) or 1)
    dense_inner = _number(config, ("intermediate_size_mlp",)) or inner or 0
    # Llama 4 has a shared expert of the same size in every layer with experts.
    shared = expert_inner if model_type == "llama4_text" else shared
    return 3 * hidden * (sparse * (chosen * expert_inner + shared + beside) + (layers - sparse) * dense_inner)


def _is_mixture(model_type: str) -> bool:
    """Whether every model of a family has experts, so that a config that names none was trimmed."""
    return "moe" in model_type or model_type.startswith(_MIXTURES)


def _number(config: Mapping[str, object], spellings: tuple[str, ...]) -> int | None:
    """A positive integer under the first spelling that has one."""
    values = (config.get(name) for name in spellings)
    return next((one for one in values if isinstance(one, int) and not isinstance(one, bool) and one > 0), None)
