"""What connectors share that store each rank's tokens by themselves, without the engine's blocks or groups."""

from __future__ import annotations

from kvbench.errors import ModelConfigError
from kvbench.layout.sized import SizedModel

_PLAIN_DTYPES = ("bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2")


def plain_rank_bytes(sized: SizedModel, connector: str) -> int:
    """Bytes per token on one rank of a model with full attention only, the same on every pipeline stage.

    ModelConfigError for any other: its source does not settle what the connector does with windows, states or latents.
    """
    layout = sized.layout
    plain = all(layer.kind in ("full", "none") and not layer.state and not layer.index_bytes for layer in layout.layers)
    if not plain or not layout.count("full") or layout.cross is not None or sized.kv_dtype not in _PLAIN_DTYPES:
        raise ModelConfigError(
            f"what {connector} stores for {sized.model} in {sized.kv_dtype} is not known here, only for full attention "
            "in 16 bit or fp8; use --connector vllm-fs."
        )
    sizes = {stage.rank_block_bytes for stage in sized.stages}
    if len(sizes) > 1 or sized.dcp > 1:
        raise ModelConfigError(
            f"{connector} gives ranks files of different sizes here; choose a PP that divides, and DCP 1."
        )
    return sizes.pop() // sized.block_tokens
