"""A trace in memory: requests in order of arrival, each with the blocks of its prompt as small numbers (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int32]

# hashes: the trace says which blocks are equal; sessions: each prompt is taken to extend the earlier ones of its
# session; nothing: the trace says neither, so nothing is known of reuse.
Reuse = Literal["hashes", "sessions", "nothing"]


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Requests in order of arrival; request r has the blocks ``blocks[first[r] : first[r + 1]]``.

    Blocks are numbers from 0 to ``unique_blocks`` - 1. A block holds ``block_tokens`` tokens, the last one of a prompt
    perhaps fewer. ``arrival_s`` counts from the first request and is None where the trace has no times; a session or
    a number of output tokens is -1 where it is unknown.
    """

    block_tokens: int
    reuse: Reuse
    arrival_s: Floats | None
    session: Places
    prompt_tokens: Ints
    output_tokens: Ints
    first: Ints
    blocks: Places
    unique_blocks: int

    @property
    def requests(self) -> int:
        """How many requests there are."""
        return len(self.prompt_tokens)

    @property
    def references(self) -> int:
        """How many blocks all prompts have together."""
        return len(self.blocks)

    def request_of(self) -> Places:
        """The request of each reference."""
        return np.repeat(np.arange(self.requests, dtype=np.int32), np.diff(self.first))

    def reference_tokens(self) -> Ints:
        """The tokens of each reference: those of a whole block, or what is left of the prompt."""
        tokens = np.full(self.references, self.block_tokens, np.int64)
        counts = np.diff(self.first)
        having = np.flatnonzero(counts)
        left = self.prompt_tokens[having] - (counts[having] - 1) * self.block_tokens
        tokens[self.first[having + 1] - 1] = np.minimum(left, self.block_tokens)
        return tokens

    def from_end(self) -> Places:
        """For each reference how many blocks of its prompt follow it."""
        ends = np.repeat(self.first[1:], np.diff(self.first))
        return (ends - 1 - np.arange(self.references)).astype(np.int32)
