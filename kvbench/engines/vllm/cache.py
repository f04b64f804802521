"""The KV cache that a vLLM release allocates for a deployment, and why it would not start or offload it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvbench.engines.vllm.blocks import MambaMode, blocks_of
from kvbench.engines.vllm.caches import caches_of
from kvbench.engines.vllm.gpu import GpuArch
from kvbench.engines.vllm.groups import CacheGroup, block_bytes, groups_of
from kvbench.engines.vllm.releases import Release
from kvbench.errors import ModelConfigError
from kvbench.layout.sized import SizedModel
from kvbench.layout.sizing import stage_caches

# model_executor/models/registry.py _PREVIOUSLY_SUPPORTED_MODELS and _OOT_SUPPORTED_MODELS (0.24.0); T5 and RWKV have no
# class there.
_NOT_IN_VLLM = frozenset({"bamba", "bart", "mbart", "minimax", "minimax_m1", "minimax_text_01", "rwkv", "t5"})
# Layer sharing or index caches whose pages in vLLM were not established.
_NOT_KNOWN = frozenset({"hunyuan", "minimax_m3"})


@dataclass(frozen=True, slots=True)
class Deployment:
    """How the engine is started, as far as blocks depend on it. The two switches are the engine's own options."""

    release: Release
    gpu_arch: GpuArch = "sm90"
    prefix_caching: bool = True
    hybrid_manager: bool = True


@dataclass(frozen=True, slots=True)
class EngineCache:
    """What the engine allocates: ``rank_block_bytes`` is one GPU block on one rank of each pipeline stage.

    ``block_tokens`` counts the tokens of an attention block over all context-parallel ranks.
    """

    block_tokens: int
    mode: MambaMode
    groups: tuple[CacheGroup, ...]
    rank_block_bytes: tuple[int, ...]
    stage_layers: tuple[range, ...]


def engine_cache(sized: SizedModel, deployment: Deployment) -> EngineCache:
    """The cache of a model; ModelConfigError for one that the release does not run or whose blocks are not known."""
    _refuse_unknown(sized, deployment.release)
    caches = caches_of(sized)
    if not caches:
        raise ModelConfigError(f"{sized.model} keeps neither KV nor state, so there is nothing to store.")
    release = deployment.release
    blocks = blocks_of(sized, caches, release, deployment.gpu_arch, prefix_caching=deployment.prefix_caching)
    groups = groups_of(caches, blocks, release, deployment.gpu_arch, hybrid_manager=deployment.hybrid_manager)
    if sized.dcp > 1 and len(groups) > 1:
        raise ModelConfigError("vLLM's decode-context parallelism needs one KV group; choose DCP 1.")
    stages = tuple(_stages(stage_caches(sized.layout, sized.pp)))
    sizes = tuple(block_bytes(groups, layers) for layers in stages)
    return EngineCache(blocks.attention_tokens * sized.dcp, blocks.mode, groups, sizes, stages)


def _stages(counts: Iterable[int]) -> Iterable[range]:
    first = 0
    for count in counts:
        yield range(first, first + count)
        first += count


def _refuse_unknown(sized: SizedModel, release: Release) -> None:
    if sized.model_type in _NOT_IN_VLLM:
        raise ModelConfigError(
            f"vLLM {release.version} has no {sized.model_type} models; size what the published method stores with "
            "--connector logical."
        )
    if sized.model_type in _NOT_KNOWN or _is_kimi_k3(sized):
        raise ModelConfigError(
            f"how vLLM lays out the caches of {sized.model_type} is not known here; size what the published method "
            "stores with --connector logical."
        )


def _is_kimi_k3(sized: SizedModel) -> bool:
    # Kimi-K3 is a Kimi-Linear inside a wrapper; vLLM 0.33.0 has its own kernels for it (models/kimi_k3).
    return sized.model_type == "kimi_linear" and any(key.startswith("text_config.") for key, _ in sized.used)
