"""The derivation of a model's sizes, line by line, for ``blocksize --explain``."""

from __future__ import annotations

from collections import Counter

from kvbench.layout.dtype import layer_head_bytes
from kvbench.layout.kv import Layer
from kvbench.layout.sized import SizedModel
from kvbench.layout.sizing import heads_per_rank, rank_state_bytes, token_bytes


def explain(sized: SizedModel) -> list[str]:
    """Lines of text: keys used, dtype, each kind of layer, the sums, the rank's share, the state."""
    return [
        f"{sized.model} ({sized.model_type}), {sized.source}",
        *_labelled("keys", [", ".join(f"{key} = {value}" for key, value in sized.used)]),
        *_labelled("absent", list(sized.defaults)),
        *_labelled("KV dtype", [f"{sized.kv_dtype} ({sized.kv_dtype_source})"]),
        *_labelled("layers", _layer_lines(sized)),
        *_labelled("token", _token_lines(sized)),
        *_labelled("rank", _rank_lines(sized)),
        *_labelled("stages", _stage_lines(sized)),
        *_labelled("state", _state_lines(sized)),
        *_labelled("note", list(sized.warnings)),
    ]


def layer_groups(sized: SizedModel) -> list[tuple[Layer, int]]:
    """Equal layers counted together, in order of first appearance."""
    return list(Counter(sized.layout.layers).items())


def _labelled(label: str, lines: list[str]) -> list[str]:
    return [f"  {label if index == 0 else '':<9} {line}" for index, line in enumerate(lines)]


def _layer_lines(sized: SizedModel) -> list[str]:
    return [f"{count} x {_layer_text(layer, count, sized.kv_dtype)}" for layer, count in layer_groups(sized)]


def _layer_text(layer: Layer, count: int, dtype: str) -> str:
    if not layer.owns_kv:
        reason = {"linear": "constant state", "shared": "another layer's KV", "none": "no attention"}[layer.kind]
        return f"{layer.kind}: {reason}, 0 B per token"
    size = token_bytes(layer, dtype)
    window = f", at most {layer.window:,} tokens" if layer.window is not None else ""
    return f"{layer.kind}: {_width_text(layer, dtype)} = {size:,} B per token{window}; x {count} = {count * size:,}"


def _width_text(layer: Layer, dtype: str) -> str:
    per_head = layer_head_bytes(layer, dtype)
    if layer.kind == "mla":
        return f"latent {layer.k_dim - layer.rope_dim} + {layer.rope_dim} in {dtype}: {per_head:,} B"
    return f"{layer.kv_heads} KV heads x (K {layer.k_dim} + V {layer.v_dim} in {dtype}: {per_head:,} B)"


def _token_lines(sized: SizedModel) -> list[str]:
    lines = [f"one copy of all layers: {sized.bytes_per_token:,} B per token"]
    if sized.growing_bytes_per_token != sized.bytes_per_token:
        lines.append(f"layers without a window: {sized.growing_bytes_per_token:,} B per token")
    if sized.index_bytes_per_token:
        lines.append(f"index keys beside it: {sized.index_bytes_per_token:,} B per token")
    return lines


def _rank_lines(sized: SizedModel) -> list[str]:
    per_token = sized.rank_block_bytes // sized.block_tokens
    heads = sorted({_rank_heads_text(layer, sized.tp) for layer, _ in layer_groups(sized) if layer.owns_kv})
    how = f" ({'; '.join(heads)})" if heads else ""
    return [
        f"TP {sized.tp}{how}: {per_token:,} B per token x {sized.block_tokens} tokens = {sized.rank_block_bytes:,} B",
        f"server: {sized.rank_block_bytes:,} B x {sized.tp} ranks = {sized.server_block_bytes:,} B",
    ]


def _rank_heads_text(layer: Layer, tp: int) -> str:
    if layer.kind == "mla":
        return "the whole latent"
    return f"{heads_per_rank(layer.kv_heads, tp)} of {layer.kv_heads} KV heads"


def _stage_lines(sized: SizedModel) -> list[str]:
    if sized.pp == 1:
        return []
    return [f"{one.stage}: {one.layers} layers, {one.rank_block_bytes:,} B per rank block" for one in sized.stages]


def _state_lines(sized: SizedModel) -> list[str]:
    if not sized.state_bytes:
        return []
    parts = Counter[str]()
    for layer in sized.layout.layers:
        for part in layer.state:
            parts[f"{part.name}: {part.units} x {part.unit_bytes:,} B"] += 1
    lines = [f"{count} x {text}" for text, count in parts.items()]
    rank = rank_state_bytes(sized.layout, sized.tp)
    return [*lines, f"per request: {sized.state_bytes:,} B one copy, {rank:,} B per rank"]
