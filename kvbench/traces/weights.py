"""What a trace's block weighs in bytes for a model: windows and states weigh at the end of a request (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kvbench.errors import ModelConfigError
from kvbench.layout.sized import SizedModel
from kvbench.layout.sizing import context
from kvbench.traces.trace import Ints, Trace


@dataclass(frozen=True, slots=True)
class BlockWeight:
    """``block_bytes`` for every block of a request, and ``end_bytes[k]`` more for the k-th from its end.

    A windowed layer keeps a request's last tokens, a recurrent one a state: both weigh in the last blocks only, and a
    block loses that weight when a later request goes on behind it. A request of n blocks then weighs exactly what a
    context of n blocks' tokens weighs on all ranks together.
    """

    block_bytes: int
    end_bytes: tuple[int, ...] = ()

    @property
    def uniform(self) -> bool:
        """Whether all blocks weigh the same."""
        return not self.end_bytes

    def of(self, trace: Trace) -> Ints:
        """The weight of each reference's block from that touch on."""
        weights = np.full(trace.references, self.block_bytes, np.int64)
        if not self.uniform:
            from_end = trace.from_end()
            near = np.flatnonzero(from_end < len(self.end_bytes))
            weights[near] += np.array(self.end_bytes, np.int64)[from_end[near]]
        return weights

    def of_requests(self, blocks: Ints) -> Ints:
        """What requests of so many blocks weigh; nothing for none."""
        ends = np.concatenate(([0], np.cumsum(np.array(self.end_bytes, np.int64))))
        weighed: Ints = blocks * self.block_bytes + ends[np.minimum(blocks, len(self.end_bytes))]
        return weighed


def block_weight(sized: SizedModel, block_tokens: int) -> BlockWeight:
    """The weights of blocks of ``block_tokens`` tokens, all TP ranks together; ModelConfigError where unknown."""
    if sized.state_unknown is not None:
        raise ModelConfigError(
            f"{sized.model}: the recurrent state of a request is not known ({sized.state_unknown}), so blocks have no "
            "size in bytes; complete the config, or ask for --capacity-blocks without --model."
        )
    windows = [layer.window for layer in sized.layout.layers if layer.window is not None]
    ends = -(-max(windows, default=0) // block_tokens)
    sizes = [
        context(sized.layout, sized.kv_dtype, sized.tp, blocks * block_tokens).server_bytes
        for blocks in range(ends + 2)
    ]
    grown = sizes[-1] - sizes[-2]
    steps = [later - earlier - grown for earlier, later in pairwise(sizes[:-1])]
    if sizes[0]:
        # What a request weighs before its first token is its state (and cross-attention).
        steps = [sizes[0] + (steps[0] if steps else 0), *steps[1:]]
    if not grown and not steps:
        raise ModelConfigError(f"{sized.model} keeps no KV cache; name a model that does.")
    return BlockWeight(grown, tuple(steps))
