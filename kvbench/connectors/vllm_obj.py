"""vLLM's object tier: a secondary tier of type obj, one object per block hash and KV group through NIXL's OBJ backend.

v1/kv_offload/tiering/obj/ (0.24.0 to 0.33.0): an object is a row, as in the fs tier. Whether NIXL makes a multipart
upload of it is not in vLLM's source.
"""

from __future__ import annotations

from dataclasses import replace

from kvbench.connectors.stored import Stored, UnitCalls
from kvbench.connectors.vllm_rows import offloaded
from kvbench.engines.vllm.cache import Deployment
from kvbench.layout.sized import SizedModel

NAME = "vllm-obj"

# obj/manager.py io_threads: one transfer holds all blocks of a job, and NIXL serves it with so many threads.
_IO_THREADS = 4
_CALLS = UnitCalls(
    lookup=("query_memory, once for a request's keys",),
    store=("register descriptor", "one transfer for the job's blocks: PUT"),
    load=("register descriptor", "one transfer for the job's blocks: GET"),
)


def stored(sized: SizedModel, deployment: Deployment) -> Stored:
    """One object for each block and group, holding all ranks; ModelConfigError for a model that is not offloaded."""
    rows = offloaded(sized, deployment)
    return replace(
        rows, connector=NAME, parallelism_per_request=_IO_THREADS, threads=_IO_THREADS, unit="object", calls=_CALLS
    )
