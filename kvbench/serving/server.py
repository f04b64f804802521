"""What the server, its GPUs and its storage tiers counted during one run, under the names of each engine.

Names: vllm/v1/metrics/loggers.py (0.33; ``gpu_cache_usage_perc`` before), vLLM's tiering connector,
sglang/srt/metrics/collector.py, and NVIDIA's dcgm-exporter, as AIPerf renames it too; those of the hits are in
formats/metrics/hits.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvbench.formats.metrics.hits import EXTERNAL, LOCAL, Pairs, hits_over_lookups
from kvbench.formats.metrics.record import Metrics

_KV_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage")
_PREEMPTIONS = ("vllm:num_preemptions", "sglang:num_retracted_reqs")
_CACHE = "vllm:cache_config_info"
# Python refuses to read integers of thousands of digits; no cache has that many.
_LONGEST = 19
_GPU = ("DCGM_FI_DEV_GPU_UTIL", "nvidia_gpu_utilization")
_READ, _WRITTEN = "vllm:kv_offload_tiering_read_bytes", "vllm:kv_offload_tiering_write_bytes"


@dataclass(frozen=True, slots=True)
class ServerState:
    """Shares from 0 to 1 and counts; None for what was not recorded. The bytes are by the name of the tier.

    ``external_hit_rate`` is over the tokens that the engine's own cache did not hold, ``external_tokens`` how many of
    them another tier gave back, ``kv_tokens`` what the GPUs' KV memory of all engines holds.
    """

    local_hit_rate: float | None = None
    external_hit_rate: float | None = None
    external_tokens: float | None = None
    kv_usage_mean: float | None = None
    kv_usage_highest: float | None = None
    kv_tokens: int | None = None
    preemptions: float | None = None
    gpu_utilization: float | None = None
    read_bytes: Mapping[str, float] = field(default_factory=dict)
    written_bytes: Mapping[str, float] = field(default_factory=dict)


def state_of(metrics: Metrics) -> ServerState:
    """What the metrics of a run say of the server."""
    utilization = metrics.mean(*_GPU)
    return ServerState(
        local_hit_rate=_rate(metrics, LOCAL),
        external_hit_rate=_rate(metrics, EXTERNAL),
        external_tokens=metrics.grew(*(hits for hits, _ in EXTERNAL)),
        kv_usage_mean=metrics.mean(*_KV_USAGE),
        kv_usage_highest=metrics.highest(*_KV_USAGE),
        kv_tokens=_kv_tokens(metrics),
        preemptions=metrics.grew(*_PREEMPTIONS),
        gpu_utilization=None if utilization is None else utilization / 100,
        read_bytes=metrics.grew_by(_READ, "tier"),
        written_bytes=metrics.grew_by(_WRITTEN, "tier"),
    )


def _rate(metrics: Metrics, pairs: Pairs) -> float | None:
    rate = hits_over_lookups(metrics, pairs)
    return None if rate is None else min(1.0, rate)


def _kv_tokens(metrics: Metrics) -> int | None:
    """The label that each engine of vLLM gives itself; blocks times their size would be wrong with several groups."""
    found = {
        (labels.get("instance"), labels.get("engine")): int(size)
        for labels in metrics.described(_CACHE)
        if (size := labels.get("kv_cache_size_tokens", "")).isascii() and size.isdecimal() and len(size) < _LONGEST
    }
    return sum(found.values()) or None
