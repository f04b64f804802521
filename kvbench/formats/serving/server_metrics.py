"""What the server's own counters said during an AIPerf run: ``server_metrics_export.json`` beside the profile.

Source: a file of 0.13.0 and docs/server-metrics of ai-dynamo/aiperf; formats/metrics reads it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kvbench.errors import InputFileError
from kvbench.formats.metrics import ranges
from kvbench.formats.metrics.hits import EXTERNAL, LOCAL, hits_over_lookups
from kvbench.formats.metrics.record import Metrics
from kvbench.formats.serving.record import ServingSummary
from kvbench.formats.serving.schema import share

# Without any lookup counted, what vLLM says of its prompts: where their tokens came from.
_LOCAL = (*LOCAL, ("vllm:prompt_tokens_cached", "vllm:prompt_tokens"))


def with_server(summary: ServingSummary, path: Path) -> ServingSummary:
    """The summary with the hit rates that the server counted, where the file beside ``path`` tells them."""
    metrics = _metrics_beside(path)
    local, external = (share(hits_over_lookups(metrics, pairs)) for pairs in (_LOCAL, EXTERNAL))
    return replace(
        summary,
        hit_rate=_larger(summary.hit_rate, local),
        external_hit_rate=_larger(summary.external_hit_rate, external),
    )


def _metrics_beside(path: Path) -> Metrics:
    """``server_metrics_export.json``, or ``foo_server_metrics.json`` beside ``foo.jsonl``; empty without one."""
    stem = path.stem.removesuffix("_aiperf")
    for name in ("server_metrics_export.json", f"{stem}_server_metrics.json"):
        try:
            return ranges.read(path.with_name(name))
        except InputFileError:
            continue
    return Metrics({})


def _larger(one: float | None, other: float | None) -> float | None:
    return max((value for value in (one, other) if value is not None), default=None)
