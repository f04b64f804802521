"""LMCache's local disk backend: one file of 256 tokens (a chunk) for each rank, all layers.

LMCache/LMCache lmcache/v1: config.py (chunk_size 256, save_unfull_chunk and enable_async_loading off by default),
storage_backend/local_disk_backend.py (raw bytes in <key>.pt, O_DIRECT only with use_odirect and only for sizes that the
file system's block divides; a request's chunks are read one after the other). Its remote backends are left out: how
many objects a chunk becomes depends on the serde and the store.
"""

from __future__ import annotations

from kvbench.connectors.ranks import plain_rank_bytes
from kvbench.connectors.stored import Group, Stored, UnitCalls
from kvbench.engines.vllm.blocks import DEFAULT_TOKENS
from kvbench.engines.vllm.cache import Deployment
from kvbench.layout.sized import SizedModel

NAME = "lmcache-disk"

_CHUNK_TOKENS = 256
_CALLS = UnitCalls(lookup=(), store=("open O_CREAT", "write", "close"), load=("open", "read", "close"))


def stored(sized: SizedModel, _: Deployment) -> Stored:
    """One unpadded file of each rank for a chunk (256 tokens unless --block-tokens says otherwise)."""
    tokens = _CHUNK_TOKENS if sized.block_tokens == DEFAULT_TOKENS else sized.block_tokens
    size, ranks = plain_rank_bytes(sized, NAME) * tokens, sized.tp * sized.pp
    unaligned = (
        f"a file of {size:,} bytes does not divide by 4096: with use_odirect LMCache says 'Cannot use O_DIRECT for "
        "this file, size is not aligned to disk block size' and reads it buffered"
    )
    return Stored(
        connector=NAME,
        engine_version=None,
        block_tokens=tokens,
        parallelism_per_request=ranks,
        groups=(Group(0, "full", sized.layout.count("full"), tokens, size, size, ranks),),
        unit="file for each rank",
        calls=_CALLS,
        warnings=(unaligned,) if size % 4096 else (),
        notes=(
            "I/O is buffered unless extra_config sets use_odirect",
            "the index is in memory: nothing outlives the engine",
        ),
    )
