"""What an inference engine's connector puts on storage: one file per connector, listed in CONNECTORS."""

from __future__ import annotations

from collections.abc import Callable

from kvbench.connectors import llmd_fs, lmcache, logical, vllm_disk, vllm_fs, vllm_obj
from kvbench.connectors.stored import Group, Stored, UnitCalls
from kvbench.connectors.transfer import Moved, Transfer, transfer
from kvbench.engines.vllm.cache import Deployment
from kvbench.engines.vllm.gpu import parse_gpu_arch
from kvbench.engines.vllm.releases import find_release
from kvbench.errors import UsageError
from kvbench.layout.sized import SizedModel

__all__ = [
    "CONNECTORS",
    "DEFAULT_CONNECTOR",
    "Group",
    "Moved",
    "Stored",
    "Transfer",
    "UnitCalls",
    "stored_layout",
    "transfer",
]

Connector = Callable[[SizedModel, Deployment], Stored]

CONNECTORS: dict[str, Connector] = {
    logical.NAME: logical.stored,
    vllm_fs.NAME: vllm_fs.stored,
    vllm_obj.NAME: vllm_obj.stored,
    vllm_disk.NAME: vllm_disk.stored,
    llmd_fs.NAME: llmd_fs.stored,
    lmcache.NAME: lmcache.stored,
}
DEFAULT_CONNECTOR = vllm_fs.NAME


def stored_layout(
    sized: SizedModel,
    connector: str = DEFAULT_CONNECTOR,
    *,
    engine_version: str | None = None,
    gpu_arch: str = "sm90",
    prefix_caching: bool = True,
    hybrid_manager: bool = True,
) -> Stored:
    """What ``connector`` stores for ``sized``.

    UsageError for a connector, version or architecture that is not known; ModelConfigError for a model that the
    engine does not offload, or whose files are not known.
    """
    make = CONNECTORS.get(connector)
    if make is None:
        raise UsageError(f"unknown connector {connector!r}; known: {', '.join(CONNECTORS)}.")
    release, arch = find_release(engine_version), parse_gpu_arch(gpu_arch)
    return make(sized, Deployment(release, arch, prefix_caching, hybrid_manager))
