"""What the server's own counters said during an AIPerf run: ``server_metrics_export.json`` beside the profile.

Source: a file of 0.13.0 and docs/server-metrics of ai-dynamo/aiperf: ``metrics{NAME: {type, series: [{labels,
stats}]}}``, a counter's ``stats.total`` is its growth in the measured phase; the names are Prometheus' without
``_total``. vLLM counts tokens that were looked up and found, in its own cache and (of those that were not) in an
external one; SGLang counts all prompt tokens and the cached ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvbench.formats.serving.record import ServingSummary
from kvbench.formats.serving.schema import share

_LOCAL = (
    ("vllm:prefix_cache_hits", "vllm:prefix_cache_queries"),
    ("vllm:gpu_prefix_cache_hits", "vllm:gpu_prefix_cache_queries"),
    ("sglang:cached_tokens", "sglang:prompt_tokens"),
    ("vllm:prompt_tokens_cached", "vllm:prompt_tokens"),
)
_EXTERNAL = (("vllm:external_prefix_cache_hits", "vllm:external_prefix_cache_queries"),)


def with_server(summary: ServingSummary, path: Path) -> ServingSummary:
    """The summary with the hit rates that the server counted, where the file beside ``path`` tells them."""
    metrics = _metrics_beside(path)
    local, external = _rate(metrics, _LOCAL), _rate(metrics, _EXTERNAL)
    return replace(
        summary,
        hit_rate=_larger(summary.hit_rate, local),
        external_hit_rate=_larger(summary.external_hit_rate, external),
    )


def _metrics_beside(path: Path) -> Mapping[str, Any]:
    """``server_metrics_export.json``, or ``foo_server_metrics.json`` beside ``foo.jsonl``; empty without one."""
    stem = path.stem.removesuffix("_aiperf")
    for name in ("server_metrics_export.json", f"{stem}_server_metrics.json"):
        try:
            found = json.loads(path.with_name(name).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            continue
        metrics = found.get("metrics") if isinstance(found, dict) else None
        if isinstance(metrics, dict):
            return metrics
    return {}


def _rate(metrics: Mapping[str, Any], names: tuple[tuple[str, str], ...]) -> float | None:
    """Hits of all engines over lookups of all engines, of the first pair of counters that is there."""
    for hits, queries in names:
        found, asked = _total(metrics, hits), _total(metrics, queries)
        if found is not None and asked:
            return share(found / asked)
    return None


def _total(metrics: Mapping[str, Any], name: str) -> float | None:
    metric = metrics.get(name, metrics.get(f"{name}_total"))
    series = metric.get("series") if isinstance(metric, dict) else None
    stats = [one.get("stats") for one in series if isinstance(one, dict)] if isinstance(series, list) else []
    totals = [one["total"] for one in stats if isinstance(one, dict) and _is_count(one.get("total"))]
    return float(sum(totals)) if totals else None


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")


def _larger(one: float | None, other: float | None) -> float | None:
    return max((value for value in (one, other) if value is not None), default=None)
