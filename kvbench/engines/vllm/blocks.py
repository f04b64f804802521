"""How many tokens vLLM's blocks hold: the attention backend's size, raised where a recurrent state must fit a page.

platforms/interface.py update_block_size_for_backend and _align_hybrid_block_size; backends' sizes and priorities in
v1/attention/backends/ and platforms/cuda.py. What depends on a kernel that the known sources do not settle is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kvbench.engines.vllm.caches import UNWINDOWED, Cache
from kvbench.engines.vllm.gpu import GpuArch
from kvbench.engines.vllm.releases import Release
from kvbench.errors import ModelConfigError
from kvbench.layout.sized import SizedModel

MambaMode = Literal["none", "align", "all"]

# config/cache.py DEFAULT_BLOCK_SIZE; FLASH_ATTN, FLASHINFER, TRITON_ATTN and FLASH_ATTN_MLA all take it.
DEFAULT_TOKENS = 16
# v1/attention/backends/mla: flashmla.py and flashmla_sparse.py 64, flashinfer_mla.py 32 or 64 (the least is preferred).
_FLASHMLA_TOKENS, _FLASHINFER_MLA_TOKENS = 64, 32
# Head sizes that the MLA backends before TRITON_MLA (16, any size) list: 576 is DeepSeek's 512 + 64.
_DEEPSEEK_LATENT = 576
# config/model.py get_mamba_chunk_size: "Mamba1 does not have a chunk notion".
_MAMBA1_SCAN_TOKENS = 2048
_MAMBA1 = frozenset({"jamba", "mamba", "falcon_mamba"})
# Classes with SupportsMambaPrefixCaching in 0.24.0 to 0.27.1; the others fall back to align.
_ALL_MODE = frozenset({"falcon_h1", "granitemoehybrid", "mamba2", "nemotron_h", "zamba2", *_MAMBA1})
# TRT-LLM and FlashInfer MLA decode kernels want 128 / kernel block (0.27.0 _align_hybrid_block_size).
_HYBRID_MLA_TOKENS = 128
# FLASHINFER_GDN_CHECKPOINT_ALIGNMENT (0.33.0 qwen_gdn_linear_attn.py).
_DELTA_NET_TOKENS = 64
_DELTA_NET = frozenset({"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"})


@dataclass(frozen=True, slots=True)
class Blocks:
    """Tokens of an attention block and of a state's block (None: the whole max_model_len), and the state's mode."""

    attention_tokens: int
    state_tokens: int | None
    mode: MambaMode


def blocks_of(
    sized: SizedModel, caches: Sequence[Cache], release: Release, arch: GpuArch, *, prefix_caching: bool
) -> Blocks:
    """The block sizes that the engine settles on; ModelConfigError where they are not known."""
    plain = _backend_tokens(sized, release, arch)
    states = {cache.state_bytes for cache in caches if cache.kind == "linear"}
    if not states:
        return Blocks(plain, None, "none")
    mode = _mode(sized, release, prefix_caching=prefix_caching)
    if all(cache.kind == "linear" for cache in caches):
        return Blocks(plain, None if mode == "none" else plain, mode)
    state, token = _hybrid_shape(sized, caches, states)
    tokens = max(plain, _hybrid_tokens(sized, release, arch, mode, plain, state, token))
    return Blocks(tokens, None if mode == "none" else tokens, mode)


def _backend_tokens(sized: SizedModel, release: Release, arch: GpuArch) -> int:
    if sized.kv_dtype.startswith("turboquant") and release.has("window-scan-stops"):
        raise ModelConfigError(
            f"TurboQuant pages are known for vLLM 0.24.0 only, not for {release.version}; pass --engine-version 0.24."
        )
    if sized.kv_dtype == "nvfp4" and arch == "sm90" and not release.has("nvfp4-on-sm90"):
        raise ModelConfigError(
            f"vLLM {release.version} refuses an nvfp4 KV cache on sm90 ('requires sm100f'); pass --gpu-arch sm100."
        )
    if sized.layout.count("mla"):
        return _mla_tokens(sized, arch)
    _refuse_wide_heads(sized, release)
    return DEFAULT_TOKENS


def _refuse_wide_heads(sized: SizedModel, release: Release) -> None:
    # 0.31.0 flash_attn.py _get_sm90_fa4_fp8_kv_block_size: 64 where FlashAttention 4 serves heads of 512 in fp8.
    widest = max((layer.k_dim for layer in sized.layout.layers), default=0)
    if widest > 256 and sized.kv_dtype.startswith("fp8") and release.has("common-block-size"):
        raise ModelConfigError(
            f"{sized.model}: the block size of heads of {widest} in fp8 depends on the FlashAttention version from "
            "vLLM 0.31 on; pass --kv-dtype bfloat16 or an earlier --engine-version."
        )


def _mla_tokens(sized: SizedModel, arch: GpuArch) -> int:
    latents = {layer.k_dim for layer in sized.layout.layers if layer.kind == "mla"}
    quantised = not sized.kv_dtype.endswith("float16")
    if sized.layout.sparse:
        if arch == "sm100":
            raise ModelConfigError(
                f"{sized.model}: which sparse-MLA backend and layout vLLM takes on sm100 depends on heads and dtype "
                "and is not known here; pass --gpu-arch sm90."
            )
        return _FLASHMLA_TOKENS
    if latents != {_DEEPSEEK_LATENT} and (quantised or arch == "sm100"):
        raise ModelConfigError(
            f"{sized.model}: vLLM's MLA backend for a latent of {sorted(latents)} in {sized.kv_dtype} on {arch} is not "
            f"known here (it is for {_DEEPSEEK_LATENT}); pass --kv-dtype bfloat16 and --gpu-arch sm90."
        )
    if arch == "sm100":
        return _FLASHINFER_MLA_TOKENS
    return _FLASHMLA_TOKENS if quantised else DEFAULT_TOKENS


def _mode(sized: SizedModel, release: Release, *, prefix_caching: bool) -> MambaMode:
    # model_executor/models/config.py MambaModelConfig: "all" where supported by default until 0.27.1, then "align".
    if not prefix_caching:
        return "none"
    if sized.model_type in _ALL_MODE and not release.has("mamba-align-by-default"):
        return "all"
    return "align"


def _hybrid_shape(sized: SizedModel, caches: Sequence[Cache], states: set[int]) -> tuple[int, int]:
    """Bytes of one state, and of one token of one attention layer, on a rank; both must be the same in all layers."""
    tokens = {cache.token_bytes for cache in caches if cache.kind != "linear"}
    windowed = any(cache.kind not in UNWINDOWED for cache in caches if cache.kind != "linear")
    if len(states) != 1 or len(tokens) != 1 or windowed:
        raise ModelConfigError(
            f"{sized.model} mixes recurrent layers with several kinds of attention layers; how vLLM sizes its blocks "
            "then is not known here, so its files have no size."
        )
    return states.pop(), tokens.pop()


def _hybrid_tokens(
    sized: SizedModel, release: Release, arch: GpuArch, mode: MambaMode, plain: int, state: int, token: int
) -> int:
    if mode == "all":
        chunk = math.lcm(_scan_tokens(sized), plain)
        return _round_up(_round_up(state, token) // token, chunk)
    align = plain
    if sized.layout.count("mla") and release.has("hybrid-mla-128"):
        align = max(align, _HYBRID_MLA_TOKENS)
    if mode == "align" and sized.model_type in _DELTA_NET and release.has("delta-net-checkpoints"):
        align = math.lcm(align, _delta_net_alignment(sized, arch))
    return _round_up(state, align * token) // token


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def _delta_net_alignment(sized: SizedModel, arch: GpuArch) -> int:
    # _resolve_gdn_prefill_backend: FlashInfer on sm90 always, on sm100 only with CUDA 13 and key heads of 128.
    if arch != "sm90":
        raise ModelConfigError(
            f"{sized.model}: on {arch} the block size of vLLM 0.33 depends on its CUDA version; pass --gpu-arch sm90 "
            "or an earlier --engine-version."
        )
    return _DELTA_NET_TOKENS


def _scan_tokens(sized: SizedModel) -> int:
    if sized.model_type in _MAMBA1:
        return _MAMBA1_SCAN_TOKENS
    if sized.layout.scan_tokens is None:
        raise ModelConfigError(
            f"{sized.model}: the config names no mamba_chunk_size or chunk_size, which set the block size up to vLLM "
            "0.27; give the full config.json, or pass a later --engine-version."
        )
    return sized.layout.scan_tokens
