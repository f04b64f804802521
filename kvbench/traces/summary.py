"""A trace in numbers: how much there is, and how much of it could be found again (pure)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvbench.traces.curve import Curve
from kvbench.traces.trace import Ints, Reuse, Trace

SHARES = (0.5, 0.9, 0.95, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts of a trace; None is what the trace does not say.

    ``ideal_hit_rate`` is the share of prompt tokens that an endless cache finds, ``mean_request_ratio`` the mean over
    requests of the share of their blocks (what ``aiperf analyze-trace`` prints), ``blocks_for_share`` the least LRU
    capacities that hit those shares of ``ideal_hit_blocks``. ``unchained`` counts blocks with several predecessors:
    with hashes that include all before a block there are none.
    """

    requests: int
    prompt_tokens: int
    output_tokens: int | None
    sessions: int | None
    span_s: float | None
    median_prompt_tokens: int
    longest_prompt_tokens: int
    reuse: Reuse
    block_tokens: int
    blocks: int
    unique_blocks: int
    unchained: int
    ideal_hit_blocks: int | None
    ideal_hit_tokens: int | None
    ideal_hit_rate: float | None
    mean_request_ratio: float | None
    blocks_for_share: tuple[tuple[float, int | None], ...]


def summarize(trace: Trace, curve: Curve, distances: Ints | None) -> Summary:
    """The summary of a trace with its curve in blocks; ``distances`` None where the curve is estimated."""
    sessions = len(np.unique(trace.session[trace.session >= 0]))
    known = trace.output_tokens >= 0
    says = trace.reuse != "nothing"
    ideal = curve.ideal
    return Summary(
        requests=trace.requests,
        prompt_tokens=int(trace.prompt_tokens.sum()),
        output_tokens=int(trace.output_tokens[known].sum()) if known.any() else None,
        sessions=sessions or None,
        span_s=None if trace.arrival_s is None else float(trace.arrival_s[-1]),
        median_prompt_tokens=int(np.median(trace.prompt_tokens)),
        longest_prompt_tokens=int(trace.prompt_tokens.max()),
        reuse=trace.reuse,
        block_tokens=trace.block_tokens,
        blocks=trace.references,
        unique_blocks=trace.unique_blocks,
        unchained=unchained_blocks(trace),
        ideal_hit_blocks=ideal.blocks if says else None,
        ideal_hit_tokens=ideal.tokens if says else None,
        ideal_hit_rate=ideal.rate if says else None,
        mean_request_ratio=mean_request_ratio(trace, distances) if says and distances is not None else None,
        blocks_for_share=tuple((share, curve.capacity_for(share)) for share in SHARES) if says else (),
    )


def mean_request_ratio(trace: Trace, distances: Ints) -> float | None:
    """The mean over requests of the share of blocks that an endless cache finds; None without blocks."""
    counts = np.diff(trace.first)
    having = counts > 0
    if not having.any():
        return None
    hits = np.add.reduceat((distances > 0).astype(np.int64), trace.first[:-1][having])
    return float((hits / counts[having]).mean())


def unchained_blocks(trace: Trace) -> int:
    """How many pairs of a block and the one before it there are beyond one for each block."""
    if not trace.references:
        return 0
    before = np.empty(trace.references, np.int64)
    before[1:] = trace.blocks[:-1]
    starts = trace.first[:-1][np.diff(trace.first) > 0]
    before[starts] = -1
    pairs = (trace.blocks.astype(np.int64) << 32) | (before + 1)
    pairs.sort()
    return int((pairs[1:] != pairs[:-1]).sum()) + 1 - trace.unique_blocks
