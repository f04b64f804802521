"""vLLM's file system tier: TieringOffloadingSpec with a secondary tier of type fs, one file per block and KV group.

v1/kv_offload/tiering/fs/ and file_mapper.py (0.24.0 to 0.33.0); system calls as strace saw them on 0.24.0 and 0.33.0.
"""

from __future__ import annotations

from dataclasses import replace

from kvbench.connectors.stored import Stored, UnitCalls
from kvbench.connectors.vllm_rows import offloaded
from kvbench.engines.vllm.cache import Deployment
from kvbench.engines.vllm.releases import Release
from kvbench.layout.sized import SizedModel

NAME = "vllm-fs"

# fs/manager.py n_read_threads + n_write_threads: each block is a task, and all threads serve both queues.
_POOL_THREADS = 16 + 16

_CALLS_PYTHON = UnitCalls(
    lookup=("stat",),
    store=("stat", "stat parent", "mkdir (exists)", "stat directory", "open O_CREAT|O_EXCL|O_DIRECT", "write", "close",
           "rename"),
    load=("open O_DIRECT", "readv", "close"),
)  # fmt: skip
_CALLS_C = UnitCalls(
    lookup=("access",),
    store=("access", "stat directory", "open O_CREAT|O_EXCL|O_DIRECT", "write", "close", "rename"),
    load=("open O_DIRECT", "read", "close"),
)


def stored(sized: SizedModel, deployment: Deployment) -> Stored:
    """One file for each block and group, holding all ranks; ModelConfigError for a model that is not offloaded."""
    rows, release = offloaded(sized, deployment), deployment.release
    threaded = release.has("one-thread-per-job")
    return replace(
        rows,
        connector=NAME,
        parallelism_per_request=1 if threaded else _POOL_THREADS,
        threads=_POOL_THREADS,
        unit="file",
        calls=_CALLS_C if threaded else _CALLS_PYTHON,
        warnings=(*rows.warnings, *_file_warnings(sized, rows, release)),
        notes=(*rows.notes, *_file_notes(release)),
    )


def _file_warnings(sized: SizedModel, rows: Stored, release: Release) -> list[str]:
    heads = min((layer.kv_heads for layer in sized.layout.layers if layer.owns_kv), default=sized.tp)
    plain = len(rows.groups) == 1 and rows.groups[0].kind == "full"
    if plain and sized.tp > heads and not release.has("sharded-heads-digest"):
        return [
            f"TP {sized.tp} replicates {heads} KV heads, and the directory's name leaves TP out: engines of another TP "
            "share it, though their files differ in size, and a short read deletes the file"
        ]
    return []


def _file_notes(release: Release) -> list[str]:
    falls_back = release.has("o-direct-fallback")
    then = "the tier falls back to buffered I/O" if falls_back else "every store is dropped without a word (#49734)"
    direct = f"where O_DIRECT fails with EINVAL (tmpfs, overlayfs, some NFS) {then}"
    return [direct, "files are never evicted and never synced: the directory grows until the disk is full (#54327)"]
