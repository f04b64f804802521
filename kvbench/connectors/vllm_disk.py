"""vLLM's SimpleCPUOffloadConnector with kv_offload_backend=disk (0.28.0 and later): one preallocated file per worker.

v1/simple_kv_offload/disk_backend.py: preadv and pwritev of one GPU block at slot x block, one thread each way, O_DIRECT
unless use_page_cache; the file is unlinked at exit, so nothing outlives the engine.
"""

from __future__ import annotations

from kvbench.connectors.stored import Group, Stored, UnitCalls
from kvbench.engines.vllm.blocks import DEFAULT_TOKENS
from kvbench.engines.vllm.cache import Deployment, EngineCache, engine_cache
from kvbench.errors import ModelConfigError, UsageError
from kvbench.layout.sized import SizedModel

NAME = "vllm-disk"

_ALIGNMENT = 4096
_CALLS = UnitCalls(lookup=(), store=("pwritev",), load=("preadv",))
_NOTES = ("the file is unlinked when the engine ends: nothing is found after a restart",)


def stored(sized: SizedModel, deployment: Deployment) -> Stored:
    """One slot of every rank's file for each block; ModelConfigError where the engine refuses or no source settles."""
    release = deployment.release
    if not release.has("disk-backend"):
        raise UsageError(
            f"vLLM {release.version} has no disk backend (it came in 0.28); pass a later --engine-version."
        )
    if sized.block_tokens != DEFAULT_TOKENS:
        raise UsageError(f"{NAME} stores the engine's own blocks; leave --block-tokens out.")
    cache = engine_cache(sized, deployment)
    size, tokens = _slot_bytes(sized, cache), cache.block_tokens
    group = cache.groups[0]
    ranks = sized.tp * sized.pp
    return Stored(
        connector=NAME,
        engine_version=release.version,
        block_tokens=tokens,
        parallelism_per_request=ranks,
        threads=ranks,
        groups=(Group(0, group.kind, len(group.members), tokens, size, size, ranks, group.page_bytes),),
        unit="slot of a file for each rank",
        engine_block_tokens=tokens,
        rank_block_bytes=cache.rank_block_bytes,
        calls=_CALLS,
        notes=_NOTES,
    )


def _slot_bytes(sized: SizedModel, cache: EngineCache) -> int:
    if sized.layout.cross is not None or len(cache.groups) > 1 or cache.groups[0].window or cache.mode != "none":
        raise ModelConfigError(
            f"{sized.model} has windowed, recurrent or cross-attention layers, and which of their blocks the disk "
            "backend keeps is not known here; use vllm-fs."
        )
    sizes = set(cache.rank_block_bytes)
    if len(sizes) > 1:
        raise ModelConfigError(
            f"PP {sized.pp} gives stages blocks of different sizes; choose a PP that divides the layers."
        )
    size = sizes.pop()
    if size % _ALIGNMENT:
        raise ModelConfigError(
            f"a block of {size:,} bytes is no multiple of {_ALIGNMENT}, and the disk backend stops with "
            "'total_block_bytes not aligned' (unless use_page_cache is set, from 0.30); use vllm-fs."
        )
    return size
