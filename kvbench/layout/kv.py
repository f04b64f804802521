"""What a model's KV cache looks like, layer by layer, before any choice of parallelism, dtype or block size."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

Kind = Literal["full", "sliding", "chunked", "mla", "linear", "none", "shared"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_OWNERS: frozenset[Kind] = frozenset({"full", "sliding", "chunked", "mla"})


@dataclass(frozen=True, slots=True)
class StatePart:
    """One tensor of a recurrent state: ``units`` heads or channels of ``unit_bytes`` each, split over TP ranks.

    ``replicates`` marks units that an indivisible TP copies instead of refusing: the B/C groups of Mamba-2
    (vLLM 0.24.0 model_executor/layers/mamba/mamba_utils.py, extra_groups_for_head_shards).
    """

    name: str
    units: int
    unit_bytes: int
    replicates: bool = False


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer: what it keeps per token, and what it keeps once per request (``state``).

    ``kv_heads`` counts the whole model's heads, before TP. An MLA layer keeps one latent per token: ``kv_heads`` is
    1, ``k_dim`` is kv_lora_rank + qk_rope_head_dim, ``v_dim`` is 0 and ``rope_dim`` is the part of it that
    fp8_ds_mla leaves in 16 bits. ``window`` is in tokens; ``index_bytes`` are those of a sparse-attention indexer's
    key per token, whatever the KV dtype; ``kv_dtype`` is the layer's own where it differs from the model's.
    """

    kind: Kind
    kv_heads: int = 0
    k_dim: int = 0
    v_dim: int = 0
    window: int | None = None
    rope_dim: int = 0
    index_bytes: int = 0
    state: tuple[StatePart, ...] = ()
    kv_dtype: str | None = None

    @property
    def owns_kv(self) -> bool:
        """Whether the layer keeps KV of its own for each token."""
        return self.kind in _OWNERS


@dataclass(frozen=True, slots=True)
class Cross:
    """Cross-attention of an encoder-decoder: ``layers`` keep K and V of the encoder's tokens, fixed per request.

    ``tokens`` is None where the encoder's length is that of the request's own prompt, not of the architecture.
    """

    layers: tuple[Layer, ...]
    tokens: int | None


@dataclass(frozen=True, slots=True)
class KVLayout:
    """The layers of a model in order, and the attention heads that tensor parallelism divides.

    ``state_unknown`` names why a recurrent state cannot be sized; ``sparse`` says that the model's MLA layers are
    sparse (they then use vLLM's fp8_ds_mla when the KV dtype is FP8); ``notes`` are facts a reader should know;
    ``scan_tokens`` is the chunk of a recurrent layer's scan, None where the config names none (no size here rests on
    it, so layouts compare without it). ``per_decoder_layer`` caches belong to one decoder layer, which pipeline
    parallelism does not split.
    """

    layers: tuple[Layer, ...]
    query_heads: int = 0
    cross: Cross | None = None
    sparse: bool = False
    state_unknown: str | None = None
    notes: tuple[str, ...] = ()
    scan_tokens: int | None = field(default=None, compare=False)
    per_decoder_layer: int = 1

    def count(self, kind: Kind) -> int:
        """How many layers are of ``kind``."""
        return sum(layer.kind == kind for layer in self.layers)
