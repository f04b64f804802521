"""The GPU architectures that vLLM chooses its kernels, and with them its block sizes, for."""

from __future__ import annotations

from typing import Literal

from kvbench.errors import UsageError

GpuArch = Literal["sm90", "sm100"]
GPU_ARCHS: tuple[GpuArch, ...] = ("sm90", "sm100")


def parse_gpu_arch(text: str) -> GpuArch:
    """The GPU architecture of ``--gpu-arch``; UsageError for any other."""
    for arch in GPU_ARCHS:
        if text == arch:
            return arch
    raise UsageError(f"--gpu-arch {text!r}: choose from {', '.join(GPU_ARCHS)}.")
