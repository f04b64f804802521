"""llm-d's file system backend for vLLM's OffloadingConnector: one file of 256 tokens for each rank.

llm-d/llm-d-kv-cache, kv_connectors/llmd_fs_backend (for vLLM 0.20): spec.py (DEFAULT_STORAGE_BLOCK_SIZE 256, exactly
one KV group), file_mapper.py (a directory for each rank), worker.py (64 threads for each GPU, at most the CPUs),
csrc/.../file_io.cpp (buffered write in pieces of 4 MiB to a temporary file, then rename; no O_DIRECT).
"""

from __future__ import annotations

from kvbench.connectors.ranks import plain_rank_bytes
from kvbench.connectors.stored import Group, Stored, UnitCalls
from kvbench.engines.vllm.blocks import DEFAULT_TOKENS
from kvbench.engines.vllm.cache import Deployment
from kvbench.errors import UsageError
from kvbench.layout.sized import SizedModel

NAME = "llm-d-fs"

_FILE_TOKENS = 256
_THREADS_PER_GPU = 64
_CALLS = UnitCalls(
    lookup=("stat",),
    store=("mkdir -p", "open O_CREAT", "write 4 MiB, repeated", "rename", "close"),
    load=("open", "read", "close"),
)


def stored(sized: SizedModel, _: Deployment) -> Stored:
    """One unpadded file of each rank for ``block_tokens`` tokens (256 unless --block-tokens says otherwise)."""
    tokens = _FILE_TOKENS if sized.block_tokens == DEFAULT_TOKENS else sized.block_tokens
    if tokens % DEFAULT_TOKENS:
        raise UsageError(
            f"--block-tokens {tokens}: llm-d stores multiples of the GPU block of {DEFAULT_TOKENS} tokens."
        )
    size, ranks = plain_rank_bytes(sized, NAME) * tokens, sized.tp * sized.pp
    return Stored(
        connector=NAME,
        engine_version=None,
        block_tokens=tokens,
        parallelism_per_request=_THREADS_PER_GPU * ranks,
        threads=_THREADS_PER_GPU * ranks,
        groups=(Group(0, "full", sized.layout.count("full"), tokens, size, size, ranks),),
        unit="file for each rank",
        engine_block_tokens=DEFAULT_TOKENS,
        calls=_CALLS,
        notes=(
            "I/O is buffered: the page cache of the node serves what it holds",
            f"{_THREADS_PER_GPU} threads for each GPU, but never more than the node has CPUs",
            "files are never evicted: cleaning up is left to the storage system",
        ),
    )
