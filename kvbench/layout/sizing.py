"""What a layout weighs: per token, per block on one rank, per pipeline stage and for a whole context.

Rules of vLLM 0.24.0: config/model.py get_num_kv_heads (max(1, heads // TP)), the divisibility asserts of its
attention layers, distributed/utils.py get_pp_indices, v1/kv_cache_interface.py for page sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvbench.errors import ModelConfigError, UsageError
from kvbench.layout.dtype import layer_head_bytes
from kvbench.layout.kv import KVLayout, Layer, StatePart


@dataclass(frozen=True, slots=True)
class Stage:
    """One pipeline stage: how many layers it runs, and its ``rank_block_bytes`` on one of its TP ranks."""

    stage: int
    layers: int
    rank_block_bytes: int


@dataclass(frozen=True, slots=True)
class Context:
    """What one request of ``tokens`` tokens weighs, with windows and states honoured.

    ``bytes`` is one copy of everything that the request keeps, ``rank_bytes`` what one TP rank holds of it (all
    pipeline stages together) and ``server_bytes`` that times TP. ``state_bytes``, ``index_bytes`` and
    ``cross_bytes`` are the parts of ``bytes`` that are not K, V or latents of the tokens.
    """

    tokens: int
    bytes: int
    rank_bytes: int
    server_bytes: int
    state_bytes: int
    index_bytes: int
    cross_bytes: int


def token_bytes(layer: Layer, dtype: str) -> int:
    """Bytes that one copy of a layer keeps per token; 0 when it owns no KV."""
    return layer.kv_heads * layer_head_bytes(layer, dtype) if layer.owns_kv else 0


def rank_token_bytes(layer: Layer, dtype: str, tp: int) -> int:
    """Bytes that one TP rank keeps per token of a layer: an MLA latent is replicated, KV heads are shared out."""
    if not layer.owns_kv:
        return 0
    heads = layer.kv_heads if layer.kind == "mla" else heads_per_rank(layer.kv_heads, tp)
    return heads * layer_head_bytes(layer, dtype)


def heads_per_rank(heads: int, tp: int) -> int:
    """KV heads on one rank: heads / TP, or one replicated head; ModelConfigError when neither divides."""
    if heads % tp == 0:
        return heads // tp
    if tp % heads == 0:
        return 1
    raise ModelConfigError(f"{heads} KV heads and TP {tp} do not divide each other; choose a TP that does.")


def check_parallel(layout: KVLayout, tp: int, pp: int) -> None:
    """Refuse a TP or PP that the engine refuses."""
    if layout.query_heads % tp:
        raise ModelConfigError(
            f"{layout.query_heads} attention heads cannot be shared by TP {tp}; choose a TP that divides them."
        )
    layers = len(layout.layers) // layout.per_decoder_layer
    if pp > layers:
        raise ModelConfigError(f"PP {pp} is more than the model's {layers} layers; choose a smaller PP.")


def check_context_parallel(layout: KVLayout, tp: int, dcp: int) -> None:
    """Refuse a decode-context parallelism that the engine refuses (vLLM 0.24.0 config/model.py, kv_cache_utils.py)."""
    if dcp == 1:
        return
    owners = {layer for layer in layout.layers if layer.owns_kv}
    if len(owners) != 1 or layout.sparse or any(layer.window or layer.state for layer in layout.layers):
        raise ModelConfigError("decode-context parallelism needs one kind of attention layer; choose DCP 1.")
    if tp % dcp:
        raise ModelConfigError(f"TP {tp} is not a multiple of DCP {dcp}; choose a DCP that divides TP.")
    heads, latent = next(iter(owners)).kv_heads, layout.count("mla") > 0
    if not latent and (dcp > tp // heads or layout.query_heads // heads % dcp):
        raise ModelConfigError(
            f"DCP {dcp} needs TP / KV heads ({tp} / {heads}) of at least {dcp} and query heads per KV head "
            f"({layout.query_heads // heads}) divisible by it; choose a smaller DCP."
        )


def stage_sizes(layers: int, pp: int) -> tuple[int, ...]:
    """Layers per pipeline stage: what does not divide goes to the stages before the last, never to the last.

    vLLM 0.24.0 distributed/utils.py get_pp_indices without VLLM_PP_LAYER_PARTITION.
    """
    share, rest = divmod(layers, pp)
    return tuple(share + (pp - 1 - rest <= stage < pp - 1) for stage in range(pp))


def stage_caches(layout: KVLayout, pp: int) -> tuple[int, ...]:
    """Entries of ``layout.layers`` per pipeline stage."""
    each = layout.per_decoder_layer
    return tuple(each * count for count in stage_sizes(len(layout.layers) // each, pp))


def stages(layout: KVLayout, dtype: str, tp: int, pp: int, block_tokens: int) -> tuple[Stage, ...]:
    """The pipeline stages with their block sizes, in order."""
    found, first = [], 0
    for index, count in enumerate(stage_caches(layout, pp)):
        own = layout.layers[first : first + count]
        found.append(Stage(index, count, block_tokens * sum(rank_token_bytes(layer, dtype, tp) for layer in own)))
        first += count
    return tuple(found)


def state_bytes(layout: KVLayout) -> int:
    """Bytes of recurrent state that one copy of the model keeps per request."""
    return sum(part.units * part.unit_bytes for layer in layout.layers for part in layer.state)


def rank_state_bytes(layout: KVLayout, tp: int) -> int:
    """Bytes of recurrent state on one TP rank."""
    return sum(layer_state_bytes(layer, tp) for layer in layout.layers)


def layer_state_bytes(layer: Layer, tp: int) -> int:
    """Bytes of one layer's recurrent state on one TP rank."""
    return sum(_rank_units(part, tp) * part.unit_bytes for part in layer.state)


def _rank_units(part: StatePart, tp: int) -> int:
    if part.units % tp == 0:
        return part.units // tp
    if part.replicates:
        return 1
    raise ModelConfigError(
        f"the recurrent state's {part.name} has {part.units} heads or channels, which TP {tp} cannot share; "
        "choose a TP that divides them."
    )


def index_bytes_per_token(layout: KVLayout) -> int:
    """Bytes per token of sparse-attention index keys, one copy; every rank holds all of them."""
    return sum(layer.index_bytes for layer in layout.layers)


def cross_bytes(layout: KVLayout, dtype: str) -> int | None:
    """Bytes of cross-attention KV per request, one copy; None when they depend on the request's own prompt."""
    if layout.cross is None:
        return 0
    if layout.cross.tokens is None:
        return None
    return layout.cross.tokens * sum(token_bytes(layer, dtype) for layer in layout.cross.layers)


def context(layout: KVLayout, dtype: str, tp: int, tokens: int, dcp: int = 1) -> Context:
    """What a request of ``tokens`` tokens weighs; UsageError for a negative number of tokens.

    sum over full layers of a*n, over windowed ones of b*min(n, window), plus index keys, state and cross-attention.
    With decode-context parallelism the fullest rank keeps every ``dcp``-th token.
    """
    if tokens < 0:
        raise UsageError(f"a context of {tokens} tokens does not exist; give a positive number.")
    kept = [(layer, kept_tokens(layer, tokens)) for layer in layout.layers]
    index = index_bytes_per_token(layout) * tokens
    cross = cross_bytes(layout, dtype) or 0
    one_copy = sum(token_bytes(layer, dtype) * n for layer, n in kept)
    on_rank = sum(rank_token_bytes(layer, dtype, tp) * -(-n // dcp) for layer, n in kept)
    rank = on_rank + index + rank_state_bytes(layout, tp) + _rank_cross(layout, dtype, tp)
    state = state_bytes(layout)
    return Context(tokens, one_copy + index + state + cross, rank, rank * tp, state, index, cross)


def kept_tokens(layer: Layer, tokens: int) -> int:
    """How many of a context's tokens a layer still keeps."""
    return tokens if layer.window is None else min(tokens, layer.window)


def _rank_cross(layout: KVLayout, dtype: str, tp: int) -> int:
    if layout.cross is None or layout.cross.tokens is None:
        return 0
    return layout.cross.tokens * sum(rank_token_bytes(layer, dtype, tp) for layer in layout.cross.layers)
