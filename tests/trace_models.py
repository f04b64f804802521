"""Slow and plain models of what kvbench/traces computes in one pass, and traces to try both on."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from kvbench.traces.trace import Trace

Prompts = Sequence[Sequence[int]]

# Any ids in any order: repeated in a prompt, behind other blocks than before, in empty prompts.
wild_prompts = st.lists(st.lists(st.integers(0, 7), max_size=7), min_size=1, max_size=14)


@st.composite
def chained_prompts(draw: st.DrawFn) -> Prompts:
    """Prompts whose ids stand for whole prefixes, as hashes of engines do."""
    ids: dict[tuple[int, ...], int] = {}
    prompts = []
    for words in draw(st.lists(st.lists(st.integers(0, 2), max_size=7), min_size=1, max_size=16)):
        prefixes = [tuple(words[: end + 1]) for end in range(len(words))]
        prompts.append([ids.setdefault(prefix, len(ids)) for prefix in prefixes])
    return prompts


def make_trace(
    prompts: Prompts, block_tokens: int = 10, short: int = 0, arrival_s: Sequence[float] | None = None
) -> Trace:
    """A trace of those prompts; the last block of each lacks ``short`` tokens."""
    counts = [len(prompt) for prompt in prompts]
    ids, blocks = np.unique([block for prompt in prompts for block in prompt], return_inverse=True)
    return Trace(
        block_tokens,
        "hashes",
        None if arrival_s is None else np.array(arrival_s, np.float64),
        np.full(len(prompts), -1, np.int32),
        np.array([max(0, count * block_tokens - short) for count in counts], np.int64),
        np.full(len(prompts), -1, np.int64),
        np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        blocks.astype(np.int32),
        len(ids),
    )


def lru_hits(prompts: Prompts, capacity: int, tokens: Sequence[Sequence[int]] | None = None) -> tuple[int, int]:
    """Hit blocks and tokens of one cache: a prompt is looked up whole, then touched from its end to its beginning."""
    cache: OrderedDict[int, None] = OrderedDict()
    hits = hit_tokens = 0
    for number, prompt in enumerate(prompts):
        for place, block in enumerate(prompt):
            if block not in cache:
                break
            hits += 1
            hit_tokens += 1 if tokens is None else tokens[number][place]
        for block in reversed(prompt):
            cache.pop(block, None)
            cache[block] = None
        while len(cache) > capacity:
            cache.popitem(last=False)
    return hits, hit_tokens


def weighted_lru_hits(prompts: Prompts, weights: Sequence[Sequence[int]], capacity: int) -> int:
    """Hit blocks of a cache that holds the most recent blocks whose weights together fit ``capacity``."""
    stack: list[tuple[int, int]] = []
    hits = 0
    for prompt, own in zip(prompts, weights, strict=True):
        held, room = set(), capacity
        for block, weight in stack:
            room -= weight
            if room < 0:
                break
            held.add(block)
        for block in prompt:
            if block not in held:
                break
            hits += 1
        for block, weight in reversed(list(zip(prompt, own, strict=True))):
            stack = [(block, weight), *(entry for entry in stack if entry[0] != block)]
    return hits
