"""How much of the GPUs' memory is left for KV, and how many prompts that is (pure).

vLLM takes its share of the whole memory (``--gpu-memory-utilization``) and gives to KV what weights, activations and
CUDA graphs leave of it. The last two are not known before it runs, so this is the most that there can be.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvbench.errors import UsageError
from kvbench.layout.sized import SizedModel
from kvbench.layout.view import weigh
from kvbench.units import format_bytes


@dataclass(frozen=True, slots=True)
class GpuRoom:
    """Bytes left for KV on one of ``gpus``, and what a prompt of ``prompt_tokens`` takes there; None: not known."""

    gpus: int
    left_bytes: int
    prompt_tokens: int | None
    prompt_bytes: int | None

    @property
    def prompts(self) -> float | None:
        """How many such prompts fit at once, at most."""
        return self.left_bytes / self.prompt_bytes if self.prompt_bytes else None


def room_of(
    sized: SizedModel, gpu_bytes: int, utilization: float, weights_bytes: int, prompt_tokens: float | None
) -> GpuRoom:
    """What the ranks of a model leave for KV; UsageError where the weights alone do not fit."""
    taken, weights = int(gpu_bytes * utilization), -(-weights_bytes // sized.tp)
    if weights >= taken:
        raise UsageError(
            f"the weights take {format_bytes(weights)} of each GPU and {format_bytes(taken)} may be used: give --tp, "
            "or the --weights of the quantised model."
        )
    if prompt_tokens is None:
        return GpuRoom(sized.tp, taken - weights, None, None)
    weighed, known = weigh(sized, round(prompt_tokens))
    return GpuRoom(sized.tp, taken - weights, weighed.tokens, weighed.rank_bytes if known else None)
