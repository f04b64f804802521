"""A model sized for one deployment: what the rest of kvbench knows about a model."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvbench.layout.kv import KVLayout
from kvbench.layout.sizing import Stage
from kvbench.layout.work import Work


@dataclass(frozen=True, slots=True)
class SizedModel:
    """The KV geometry of ``model`` for one TP/PP/dtype/block choice; all sizes are whole bytes.

    ``bytes_per_token`` and ``growing_bytes_per_token`` are one copy of the whole model (the second leaves windowed
    layers out); ``rank_block_bytes`` is ``block_tokens`` tokens of every layer that owns KV with the heads of one TP
    rank, over all pipeline stages (``stages`` splits it), and ``server_block_bytes`` is that times ``tp``;
    ``state_bytes`` is the constant state of one request, one copy, and 0 with ``state_unknown`` naming the reason
    where the config does not size it. ``index_bytes_per_token`` (sparse-attention keys) and ``cross_bytes``
    (encoder-decoder, None when it depends on the prompt) are not in the other numbers. With decode-context
    parallelism a rank's block still holds ``block_tokens`` tokens, and one block covers ``dcp`` times as many. ``work``
    is what one prompt token costs to compute, None where the config does not settle it.
    """

    model: str
    source: str
    kv_dtype: str
    kv_dtype_source: str
    tp: int
    pp: int
    block_tokens: int
    layout: KVLayout
    bytes_per_token: int
    growing_bytes_per_token: int
    rank_block_bytes: int
    server_block_bytes: int
    state_bytes: int
    warnings: tuple[str, ...] = ()
    state_unknown: str | None = None
    index_bytes_per_token: int = 0
    cross_bytes: int | None = 0
    stages: tuple[Stage, ...] = ()
    model_type: str = ""
    used: tuple[tuple[str, str], ...] = ()
    defaults: tuple[str, ...] = ()
    dcp: int = 1
    work: Work | None = None

    def in_blocks_of(self, tokens: int) -> SizedModel:
        """The same model with logical blocks of ``tokens`` tokens; blocks weigh what their tokens weigh."""
        stages = tuple(
            replace(stage, rank_block_bytes=stage.rank_block_bytes // self.block_tokens * tokens)
            for stage in self.stages
        )
        return replace(
            self,
            block_tokens=tokens,
            rank_block_bytes=self.rank_block_bytes // self.block_tokens * tokens,
            server_block_bytes=self.server_block_bytes // self.block_tokens * tokens,
            stages=stages,
        )
