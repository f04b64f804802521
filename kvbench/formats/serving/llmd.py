"""Benchmark reports of llm-d-benchmark, YAML or JSON, versions 0.1, 0.2 and 0.2.1: averages of any tool's run.

Source: llmdbenchmark/analysis/benchmark_report and its JSON schemas. Every statistic has ``units``; for a time they are
``ms`` or ``s`` by the schema, and converters for different tools write different ones, so they are always read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from kvbench.border.foreign import Foreign
from kvbench.errors import InputFileError
from kvbench.formats.serving.record import ServingRun, ServingSummary
from kvbench.formats.serving.schema import Number, Optional, Rate, Setting, Text, count, parsed, seconds, share

NAME = "llm-d-benchmark report"
_SECONDS = {"s": 1.0, "ms": 1e-3}
_SHARES = {"percent": 0.01, "fraction": 1.0, "ratio": 1.0}


class _Statistics(Foreign):
    units: Text = None
    mean: Number = None
    p95: Number = None
    min: Number = None
    max: Number = None


class _Requests(Foreign):
    total: Number = None
    failures: Number = None
    input_length: Annotated[_Statistics | None, Optional] = None
    output_length: Annotated[_Statistics | None, Optional] = None


class _Latency(Foreign):
    request_latency: Annotated[_Statistics | None, Optional] = None
    time_to_first_token: Annotated[_Statistics | None, Optional] = None
    time_per_output_token: Annotated[_Statistics | None, Optional] = None


class _Throughput(Foreign):
    requests_per_sec: Number = None
    request_rate: Annotated[_Statistics | None, Optional] = None


class _Time(Foreign):
    duration: Any = None


class _Performance(Foreign):
    """``metrics`` of 0.1, ``results.request_performance.aggregate`` of 0.2."""

    time: Annotated[_Time | None, Optional] = None
    requests: Annotated[_Requests | None, Optional] = None
    latency: Annotated[_Latency | None, Optional] = None
    throughput: Annotated[_Throughput | None, Optional] = None


class _RequestPerformance(Foreign):
    aggregate: Annotated[_Performance | None, Optional] = None


class _Pod(Foreign):
    statistics: Annotated[_Statistics | None, Optional] = None


class _Pods(Foreign):
    components: list[_Pod] | None = None


class _Observability(Foreign):
    vllm_prefix_cache_hit_rate: Annotated[_Pods | None, Optional] = None
    vllm_external_prefix_cache_hit_rate: Annotated[_Pods | None, Optional] = None


class _Results(Foreign):
    request_performance: Annotated[_RequestPerformance | None, Optional] = None
    observability: Annotated[_Observability | None, Optional] = None


class _Named(Foreign):
    name: Text = None


class _Standardized(Foreign):
    tool: Text = None
    tool_version: Any = None
    model: Annotated[_Named | None, Optional] = None
    concurrency: Rate = None
    rate_qps: Rate = None
    prefix: Any = None


class _Component(Foreign):
    standardized: Annotated[_Standardized | None, Optional] = None


class _Arguments(Foreign):
    max_concurrency: Setting = None
    request_rate: Rate = None


class _LoadSettings(_Component):
    name: Text = None
    args: Annotated[_Arguments | None, Optional] = None


class _Scenario(Foreign):
    model: Annotated[_Named | None, Optional] = None
    load: Annotated[_LoadSettings | None, Optional] = None
    stack: list[_Component] | None = None


class _Report(Foreign):
    version: Any = None
    scenario: Annotated[_Scenario | None, Optional] = None
    metrics: Annotated[_Performance | None, Optional] = None
    results: Annotated[_Results | None, Optional] = None


def accepts(documents: tuple[Any, ...]) -> bool:
    """Whether these are benchmark reports of llm-d."""
    return bool(documents) and all(_is_report(document) for document in documents)


def read(documents: tuple[Any, ...], path: Path) -> tuple[ServingRun, ...]:
    """One run for each report; InputFileError for what is not as llm-d-benchmark writes it."""
    return tuple(_run(parsed(_Report, document, path, NAME), path) for document in documents)


def _is_report(document: Any) -> bool:
    if not isinstance(document, dict) or "version" not in document:
        return False
    metrics, results = document.get("metrics"), document.get("results")
    return (isinstance(metrics, dict) and "latency" in metrics) or (
        isinstance(results, dict) and "request_performance" in results
    )


def _run(report: _Report, path: Path) -> ServingRun:
    scenario = report.scenario or _Scenario()
    load = scenario.load or _LoadSettings()
    asked, told = load.args or _Arguments(), load.standardized or _Standardized()
    parts = [part.standardized for part in scenario.stack or () if part.standardized is not None]
    models = [model for model in (scenario.model, *(part.model for part in parts)) if model is not None]
    version = told.tool_version if isinstance(told.tool_version, str) else None
    return ServingRun(
        tool=NAME,
        tool_version=" ".join(word for word in (told.tool or load.name, version) if word) or None,
        model=next((model.name for model in models if model.name), None),
        source=path.name,
        summary=_summary(report, path),
        concurrency=count(asked.max_concurrency if told.concurrency is None else told.concurrency),
        request_rate=told.rate_qps if told.rate_qps is not None else asked.request_rate,
        notes=("its prompts share prefixes, which a prefix cache can hold",) if told.prefix else (),
    )


def _summary(report: _Report, path: Path) -> ServingSummary:
    results = report.results or _Results()
    newer = results.request_performance.aggregate if results.request_performance else None
    performance = newer or report.metrics or _Performance()
    requests, latency = performance.requests or _Requests(), performance.latency or _Latency()
    throughput, lengths = performance.throughput or _Throughput(), requests.input_length or _Statistics()
    ttft, e2e = latency.time_to_first_token or _Statistics(), latency.request_latency or _Statistics()
    duration = performance.time.duration if performance.time else None
    rate = throughput.request_rate.mean if throughput.request_rate else None
    seen = results.observability or _Observability()
    total, failed = count(requests.total), count(requests.failures)
    return ServingSummary(
        completed=None if total is None else total - (failed or 0),
        failed=failed,
        duration_s=seconds(duration) if isinstance(duration, int | float) else None,
        requests_per_s=throughput.requests_per_sec if rate is None else rate,
        prompt_tokens_mean=lengths.mean,
        prompt_tokens_min=lengths.min,
        prompt_tokens_max=lengths.max,
        ttft_mean_s=_seconds(ttft.mean, ttft, path),
        ttft_p95_s=_seconds(ttft.p95, ttft, path),
        e2e_mean_s=_seconds(e2e.mean, e2e, path),
        e2e_p95_s=_seconds(e2e.p95, e2e, path),
        hit_rate=_hit_rate(seen.vllm_prefix_cache_hit_rate),
        external_hit_rate=_hit_rate(seen.vllm_external_prefix_cache_hit_rate),
        per_token_s=_per_token_s(latency.time_per_output_token),
        output_tokens_mean=(requests.output_length or _Statistics()).mean,
    )


def _seconds(value: float | None, statistics: _Statistics, path: Path) -> float | None:
    if value is None:
        return None
    factor = _SECONDS.get((statistics.units or "").strip())
    if factor is None:
        raise InputFileError(
            f"{path} gives a latency in {statistics.units or 'no unit'}, but the report's schema knows ms and s; "
            "correct the units."
        )
    return seconds(value, factor)


def _per_token_s(statistics: _Statistics | None) -> float | None:
    """Seconds of each output token; None in units that are not a time for each token, as ``ms/token`` always is."""
    if statistics is None:
        return None
    factor = _SECONDS.get((statistics.units or "").strip().partition("/")[0])
    return None if factor is None else seconds(statistics.mean, factor)


def _hit_rate(pods: _Pods | None) -> float | None:
    """The largest share among the pods."""
    found = [pod.statistics for pod in (pods.components if pods else None) or () if pod.statistics is not None]
    shares = [share(one.mean, _SHARES.get(one.units or "", 0.01)) for one in found]
    return max((value for value in shares if value is not None), default=None)
