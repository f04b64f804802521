"""The published method: one logical block of the whole server is one I/O, whatever the engine really writes.

Source: natoscott/benchmarks storage-offload-eval, method of 2026: fio's block size is the server-wide KV block
(16 tokens x every layer that owns KV x all ranks), and fio runs 16 jobs at depth 1.
"""

from __future__ import annotations

from kvbench.connectors.stored import Group, Stored
from kvbench.engines.vllm.cache import Deployment
from kvbench.errors import ModelConfigError
from kvbench.layout.sized import SizedModel

NAME = "logical"

# The published method measures with 16 jobs, so one request is taken to have 16 blocks in flight.
PARALLELISM_PER_REQUEST = 16


def stored(sized: SizedModel, _: Deployment) -> Stored:
    """One group of whole server blocks, unpadded; ModelConfigError for a model that keeps no KV cache."""
    if sized.server_block_bytes == 0:
        raise ModelConfigError(
            f"{sized.model} keeps a constant state and no KV cache, so it has no blocks to store; leave it out."
        )
    owners = [layer for layer in sized.layout.layers if layer.owns_kv]
    kinds = {layer.kind for layer in owners}
    return Stored(
        connector=NAME,
        engine_version=None,
        block_tokens=sized.block_tokens,
        parallelism_per_request=PARALLELISM_PER_REQUEST,
        groups=(
            Group(
                index=0,
                kind=kinds.pop() if len(kinds) == 1 else "full",
                layers=len(owners),
                tokens_per_unit=sized.block_tokens,
                bytes=sized.server_block_bytes,
                padded_bytes=sized.server_block_bytes,
            ),
        ),
        partial_blocks=True,
    )
