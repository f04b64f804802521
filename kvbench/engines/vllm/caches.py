"""One entry for each KV cache that vLLM registers: what a rank keeps per token, or per state.

Page rules of v1/kv_cache_interface.py (0.24.0, unchanged to 0.33.0 for these kinds): attention keeps block x heads x
(K + V); an MLA layer one latent; an indexer of sparse attention is a cache of its own; Mamba keeps one state per block.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvbench.errors import ModelConfigError
from kvbench.layout.kv import Kind, Layer
from kvbench.layout.sized import SizedModel
from kvbench.layout.sizing import layer_state_bytes, rank_token_bytes

# vLLM calls these FullAttentionSpec or its subclass MLAAttentionSpec, so they may share one group.
UNWINDOWED: frozenset[Kind] = frozenset({"full", "mla"})


@dataclass(frozen=True, slots=True)
class Cache:
    """A KV cache of decoder layer ``layer`` on one TP rank: ``token_bytes`` for a token, or ``state_bytes`` in all."""

    layer: int
    kind: Kind
    token_bytes: int = 0
    window: int | None = None
    state_bytes: int = 0

    @property
    def shape(self) -> tuple[object, ...]:
        """What vLLM compares to call two caches the same."""
        return (self.kind, self.token_bytes, self.window, self.state_bytes)


def caches_of(sized: SizedModel) -> tuple[Cache, ...]:
    """Every cache of a model in layer order; ModelConfigError where its state cannot be sized."""
    if sized.state_unknown is not None:
        raise ModelConfigError(
            f"{sized.model}: the recurrent state sets the engine's block size, and it is not sized "
            f"({sized.state_unknown}); give the model's full config.json."
        )
    return tuple(cache for index, layer in enumerate(sized.layout.layers) for cache in _of_layer(index, layer, sized))


def _of_layer(index: int, layer: Layer, sized: SizedModel) -> list[Cache]:
    found = []
    if layer.owns_kv:
        size = rank_token_bytes(layer, sized.kv_dtype, sized.tp)
        found.append(Cache(index, layer.kind, token_bytes=size, window=layer.window))
    if layer.index_bytes:
        found.append(Cache(index, layer.kind, token_bytes=layer.index_bytes))
    if layer.state:
        found.append(Cache(index, "linear", state_bytes=layer_state_bytes(layer, sized.tp)))
    return found
