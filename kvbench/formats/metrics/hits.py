"""Tokens that a server looked up in its caches and those that it found there, under the names of each engine (pure).

vLLM counts tokens that were looked up and found, in its own cache and (of those that were not) in an external one
(vllm/v1/metrics/loggers.py of 0.33; ``gpu_prefix_cache_*`` before); SGLang counts all prompt tokens and the cached ones
(sglang/srt/metrics/collector.py).
"""

from __future__ import annotations

from kvbench.formats.metrics.record import Metrics

# Hits and lookups; the first pair that a server has counts.
Pairs = tuple[tuple[str, str], ...]
LOCAL: Pairs = (
    ("vllm:prefix_cache_hits", "vllm:prefix_cache_queries"),
    ("vllm:gpu_prefix_cache_hits", "vllm:gpu_prefix_cache_queries"),
    ("sglang:cached_tokens", "sglang:prompt_tokens"),
)
EXTERNAL: Pairs = (("vllm:external_prefix_cache_hits", "vllm:external_prefix_cache_queries"),)


def hits_over_lookups(metrics: Metrics, pairs: Pairs) -> float | None:
    """Hits of all engines over lookups of all engines; above 1 where the two were not counted over the same time."""
    for hits, lookups in pairs:
        found, asked = metrics.grew(hits), metrics.grew(lookups)
        if found is not None and asked:
            return found / asked
    return None
