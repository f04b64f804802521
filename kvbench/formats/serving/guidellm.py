"""GuideLLM reports (JSON or YAML), 0.2 to 0.8: a list of benchmarks, each at one load.

Source: reports of 0.2.1, 0.3.1, 0.5.4 and 0.8.1, and src/guidellm/schemas/base/info.py. Units differ within one
object: ``time_to_first_token_ms`` is milliseconds, ``request_latency`` is seconds. The strategy is in ``args`` up to
0.3 and in ``config`` since 0.4. The model is in ``worker`` (0.2, 0.3), ``args`` (0.4 to 0.6) or ``config.spec`` (0.7
and later). ``max_concurrency`` of a constant rate is a ceiling that nobody reaches, so only ``streams`` is a load.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from kvbench.border.foreign import Foreign
from kvbench.errors import InputFileError
from kvbench.formats.serving.record import ServedRequest, ServingRun, ServingSummary
from kvbench.formats.serving.schema import Number, Optional, Setting, Text, count, parsed, seconds, workload

NAME = "GuideLLM"
_MS = 1e-3
# Times since 1970 in floating point are exact to less than a microsecond, the report's own to less than this.
_CLOCK_S = 1e-3


class _Percentiles(Foreign):
    p95: Number = None


class _Distribution(Foreign):
    mean: Number = None
    min: Number = None
    max: Number = None
    count: Number = None
    percentiles: Annotated[_Percentiles | None, Optional] = None


class _Metric(Foreign):
    successful: _Distribution | None = None


class _Totals(Foreign):
    successful: Number = None
    errored: Number = None


class _Metrics(Foreign):
    request_totals: _Totals | None = None
    requests_per_second: _Metric | None = None
    request_latency: _Metric | None = None
    request_concurrency: _Metric | None = None
    prompt_token_count: _Metric | None = None
    output_token_count: _Metric | None = None
    inter_token_latency_ms: _Metric | None = None
    time_to_first_token_ms: _Metric | None = None


class _Tokens(Foreign):
    text_tokens: Number = None
    total_tokens: Number = None
    cached_tokens: Number = None


class _Timings(Foreign):
    request_start: Number = None
    first_iteration: Number = None
    first_token_iteration: Number = None
    request_end: Number = None


class _Info(Foreign):
    timings: _Timings | None = None


class _Request(Foreign):
    prompt_tokens: Number = None
    cached_tokens: Number = None
    input_metrics: _Tokens | None = None
    time_to_first_token_ms: Number = None
    request_latency: Number = None
    start_time: Number = None
    request_start_time: Number = None
    info: _Info | None = None


class _Requests(Foreign):
    successful: list[_Request] | None = None
    errored: list[_Request] | None = None
    incomplete: list[_Request] | None = None


class _Strategy(Foreign):
    type_: Text = None
    streams: Setting = None
    rate: Setting = None


class _Backend(Foreign):
    model: Text = None
    stream: bool | None = None


class _Load(Foreign):
    strategy: Annotated[_Strategy | None, Optional] = None
    backend: Annotated[_Backend | None, Optional] = None


class _Worker(Foreign):
    backend_model: Text = None


class _Loader(Foreign):
    data: Any = None


class _Benchmark(Foreign):
    args: Annotated[_Load | None, Optional] = None
    config: Annotated[_Load | None, Optional] = None
    worker: Annotated[_Worker | None, Optional] = None
    metrics: _Metrics
    requests: _Requests | None = None
    request_totals: _Totals | None = None
    request_loader: Annotated[_Loader | None, Optional] = None
    duration: Number = None
    start_time: Number = None
    end_time: Number = None
    warmup_duration: Number = None


class _Spec(Foreign):
    backend: Annotated[_Backend | None, Optional] = None
    data: Any = None
    seed: Any = None


class _Config(Foreign):
    spec: Annotated[_Spec | None, Optional] = None


class _Args(Foreign):
    model: Text = None
    data: Any = None
    random_seed: Any = None


class _Metadata(Foreign):
    guidellm_version: Text = None


class _Report(Foreign):
    metadata: Annotated[_Metadata | None, Optional] = None
    args: Annotated[_Args | None, Optional] = None
    config: Annotated[_Config | None, Optional] = None
    benchmarks: list[_Benchmark]


def accepts(documents: tuple[Any, ...]) -> bool:
    """Whether this is a GuideLLM report."""
    return len(documents) == 1 and isinstance(documents[0], dict) and isinstance(documents[0].get("benchmarks"), list)


def read(documents: tuple[Any, ...], path: Path) -> tuple[ServingRun, ...]:
    """One run for each benchmark, in order; InputFileError for what is not as GuideLLM writes it."""
    report = parsed(_Report, documents[0], path, NAME)
    if not report.benchmarks:
        raise InputFileError(f"{path} holds no benchmark; run GuideLLM again.")
    return tuple(_run(report, benchmark, f"{path.name} #{at}") for at, benchmark in enumerate(report.benchmarks, 1))


def _run(report: _Report, benchmark: _Benchmark, source: str) -> ServingRun:
    load = benchmark.config or benchmark.args or _Load()
    backend = load.backend or (report.config and report.config.spec and report.config.spec.backend) or _Backend()
    asked = report.args.model if report.args else None
    worker = benchmark.worker.backend_model if benchmark.worker else None
    concurrency, rate = _load_of(load.strategy)
    requests = benchmark.requests or _Requests()
    return ServingRun(
        tool=NAME,
        tool_version=report.metadata.guidellm_version if report.metadata else None,
        model=backend.model or asked or worker,
        source=source,
        summary=_summary(benchmark),
        requests=_measured(
            (
                *(_request(item, ok=True) for item in requests.successful or ()),
                *(_request(item, ok=False) for item in (*(requests.errored or ()), *(requests.incomplete or ()))),
            ),
            benchmark,
        ),
        concurrency=concurrency,
        request_rate=rate,
        streamed=backend.stream,
        workload=_sent(report, benchmark),
    )


def _sent(report: _Report, benchmark: _Benchmark) -> tuple[tuple[str, str], ...]:
    """The data that was asked for and its seed, wherever the version says them."""
    spec = (report.config.spec if report.config else None) or _Spec()
    args, loader = report.args or _Args(), benchmark.request_loader or _Loader()
    return workload(data=spec.data or args.data or loader.data, seed=spec.seed or args.random_seed)


def _load_of(strategy: _Strategy | None) -> tuple[int | None, float | None]:
    """Requests in flight and requests per second."""
    if strategy is None:
        return None, None
    if strategy.type_ == "synchronous":
        return 1, None
    if strategy.type_ == "throughput":
        return None, math.inf
    return (count(strategy.streams), None) if strategy.type_ == "concurrent" else (None, strategy.rate)


def _summary(benchmark: _Benchmark) -> ServingSummary:
    metrics = benchmark.metrics
    lengths, ttft, e2e = (
        _successful(metric)
        for metric in (metrics.prompt_token_count, metrics.time_to_first_token_ms, metrics.request_latency)
    )
    totals = metrics.request_totals or benchmark.request_totals or _Totals()
    return ServingSummary(
        completed=count(totals.successful if totals.successful is not None else lengths.count),
        failed=count(totals.errored),
        duration_s=seconds(benchmark.duration),
        requests_per_s=_successful(metrics.requests_per_second).mean,
        prompt_tokens_mean=lengths.mean,
        prompt_tokens_min=lengths.min,
        prompt_tokens_max=lengths.max,
        ttft_mean_s=seconds(ttft.mean, _MS),
        ttft_p95_s=seconds((ttft.percentiles or _Percentiles()).p95, _MS),
        e2e_mean_s=seconds(e2e.mean),
        e2e_p95_s=seconds((e2e.percentiles or _Percentiles()).p95),
        per_token_s=seconds(_successful(metrics.inter_token_latency_ms).mean, _MS),
        output_tokens_mean=_successful(metrics.output_token_count).mean,
        in_flight=_successful(metrics.request_concurrency).mean,
    )


def _successful(metric: _Metric | None) -> _Distribution:
    return metric.successful if metric is not None and metric.successful is not None else _Distribution()


def _measured(requests: tuple[ServedRequest, ...], benchmark: _Benchmark) -> tuple[ServedRequest, ...]:
    """The requests, marked as warm-up where they began before what the benchmark measured, or after it.

    Since 0.4 the report keeps them (vllm-project/guidellm#1078); ``start_time`` is where the measuring began, in some
    versions only ``warmup_duration`` says it.
    """
    starts = [request.start_s for request in requests if request.start_s is not None]
    if not starts:
        return requests
    begin_s = max(benchmark.start_time or 0.0, min(starts) + (benchmark.warmup_duration or 0.0)) - _CLOCK_S
    end_s = (benchmark.end_time or math.inf) + _CLOCK_S
    return tuple(
        request if request.start_s is None or begin_s <= request.start_s <= end_s else replace(request, warm_up=True)
        for request in requests
    )


def _request(item: _Request, *, ok: bool) -> ServedRequest:
    """One request; 0.4 has its times only as ``info.timings``, in seconds since 1970."""
    tokens = item.input_metrics or _Tokens()
    timings = (item.info.timings if item.info else None) or _Timings()
    start_s = next((at for at in (item.request_start_time, item.start_time, timings.request_start) if at), None)
    first_s = timings.first_token_iteration or timings.first_iteration
    timed_s = first_s - timings.request_start if first_s and timings.request_start else None
    whole_s = timings.request_end - start_s if timings.request_end and start_s else None
    counts = (item.prompt_tokens, tokens.text_tokens, tokens.total_tokens)
    ttft_s = seconds(item.time_to_first_token_ms, _MS) or seconds(timed_s)
    return ServedRequest(
        prompt_tokens=count(next((value for value in counts if value), None)),
        ttft_s=ttft_s,
        e2e_s=seconds(item.request_latency) or seconds(whole_s),
        start_s=start_s,
        cached_tokens=count(item.cached_tokens if item.cached_tokens is not None else tokens.cached_tokens),
        ok=ok and ttft_s is not None,
    )
