"""Metrics by tag with their unit, as GenAI-Perf began them and AIPerf goes on: ``{tag: {unit, avg, ...}}``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvbench.border.foreign import Foreign
from kvbench.formats.serving.record import ServingSummary
from kvbench.formats.serving.schema import Number, Text, count, seconds, share

# Units as written: AIPerf 0.13 has ms, sec, requests/sec and %, its clients may choose others.
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0}


class Metric(Foreign):
    """The statistics of one tag; a metric of the whole run has only ``avg``."""

    unit: Text = None
    avg: Number = None
    min: Number = None
    max: Number = None
    p95: Number = None


class Tags(Foreign):
    """The tags that matter here; both tools write them at the top of the document."""

    request_throughput: Metric | None = None
    request_latency: Metric | None = None
    request_count: Metric | None = None
    error_request_count: Metric | None = None
    time_to_first_token: Metric | None = None
    input_sequence_length: Metric | None = None
    num_input_token: Metric | None = None
    usage_prompt_tokens: Metric | None = None
    benchmark_duration: Metric | None = None
    overall_usage_prompt_cache_read_pct: Metric | None = None
    inter_token_latency: Metric | None = None
    output_sequence_length: Metric | None = None
    effective_concurrency: Metric | None = None


def in_seconds(value: float | None, unit: str | None) -> float | None:
    """A time of that unit in seconds; None without a unit of time, since a guess could be off by a thousand."""
    factor = _SECONDS.get((unit or "").strip().lower())
    return None if factor is None else seconds(value, factor)


def has_tags(document: Any) -> bool:
    """Whether the document has metrics by tag."""
    return isinstance(document, dict) and any(
        isinstance(document.get(tag), dict) and {"unit", "avg"} <= document[tag].keys()
        for tag in ("request_throughput", "request_latency", "time_to_first_token", "request_count")
    )


def summary_of(tags: Tags) -> ServingSummary:
    """The averages in seconds; the server's own count of the prompt's tokens where it is there."""
    lengths = tags.usage_prompt_tokens or tags.input_sequence_length or tags.num_input_token or Metric()
    ttft, e2e = tags.time_to_first_token or Metric(), tags.request_latency or Metric()
    duration = tags.benchmark_duration or Metric()
    between = tags.inter_token_latency or Metric()
    cached = tags.overall_usage_prompt_cache_read_pct or Metric()
    return ServingSummary(
        completed=count((tags.request_count or Metric()).avg),
        failed=count((tags.error_request_count or Metric()).avg),
        duration_s=in_seconds(duration.avg, duration.unit),
        requests_per_s=(tags.request_throughput or Metric()).avg,
        prompt_tokens_mean=lengths.avg,
        prompt_tokens_min=lengths.min,
        prompt_tokens_max=lengths.max,
        ttft_mean_s=in_seconds(ttft.avg, ttft.unit),
        ttft_p95_s=in_seconds(ttft.p95, ttft.unit),
        e2e_p95_s=in_seconds(e2e.p95, e2e.unit),
        e2e_mean_s=in_seconds(e2e.avg, e2e.unit),
        hit_rate=share(cached.avg, 0.01),
        per_token_s=in_seconds(between.avg, between.unit),
        output_tokens_mean=(tags.output_sequence_length or Metric()).avg,
        in_flight=(tags.effective_concurrency or Metric()).avg,
    )


def texts(value: Any) -> Iterator[str]:
    """The names in a list of texts or of objects with a ``name``, or the text itself."""
    for item in value if isinstance(value, list) else [value]:
        name = item.get("name") if isinstance(item, Mapping) else item
        if isinstance(name, str) and name:
            yield name
