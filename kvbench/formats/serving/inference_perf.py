"""inference-perf reports: ``per_request_lifecycle_metrics.json``, ``stage_N`` and ``summary`` ones, and Prometheus'.

Source: inference_perf/reportgen/base.py and apis/base.py of kubernetes-sigs/inference-perf, 0.1 to 0.7. Every time is
in seconds. TTFT of a request ends with the first chunk that has text; its own reports take ``output_token_times[0]``,
which leaves the reasoning of a thinking model out. ``info`` was flat once and has ``request_metrics`` and
``response_metrics`` now; ``computed_metrics`` may stand in its place. ``*_prometheus_metrics.json`` is the server's own
view, of which only the hit rates are taken: they are read from beside the report of the same stage.
NOTE: ``prompt_tokens.cached`` is 0 too where the server never said what was cached.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from kvbench.border import bounded
from kvbench.border.foreign import Foreign
from kvbench.errors import InputFileError
from kvbench.formats.chunks import first_choice, text_in
from kvbench.formats.serving.record import ServedRequest, ServingRun, ServingSummary
from kvbench.formats.serving.schema import Number, Optional, Rate, Setting, count, parsed, seconds, share

NAME = "inference-perf"
_MEASURED = frozenset({"info", "computed_metrics"})


class _Statistics(Foreign):
    mean: Number = None
    min: Number = None
    max: Number = None
    p95: Number = None


class _Latency(Foreign):
    request_latency: Annotated[_Statistics | None, Optional] = None
    time_to_first_token: Annotated[_Statistics | None, Optional] = None
    time_per_output_token: Annotated[_Statistics | None, Optional] = None


class _Throughput(Foreign):
    requests_per_sec: Number = None


class _Tokens(_Statistics):
    total: Number = None
    cached: Number = None


class _Successes(Foreign):
    count: Number = None
    latency: Annotated[_Latency | None, Optional] = None
    throughput: Annotated[_Throughput | None, Optional] = None
    prompt_len: Annotated[_Statistics | None, Optional] = None
    output_len: Annotated[_Statistics | None, Optional] = None
    prompt_tokens: Annotated[_Tokens | None, Optional] = None
    prefix_cache_hit_percent: Annotated[_Statistics | None, Optional] = None
    external_prefix_cache_hit_percent: Annotated[_Statistics | None, Optional] = None


class _LoadSummary(Foreign):
    requested_rate: Rate = None
    concurrency: Setting = None


class _Failures(Foreign):
    count: Number = None


class _Report(Foreign):
    load_summary: Annotated[_LoadSummary | None, Optional] = None
    successes: _Successes
    failures: Annotated[_Failures | None, Optional] = None


class _Details(Foreign):
    cached_tokens: Number = None


class _Usage(Foreign):
    prompt_tokens: Number = None
    prompt_tokens_details: Annotated[_Details | None, Optional] = None


class _Response(Foreign):
    output_token_times: list[Number] | None = None
    response_chunks: list[Any] | None = None
    chunk_times: list[Number] | None = None
    server_usage: Annotated[_Usage | None, Optional] = None


class _Text(Foreign):
    input_tokens: Number = None


class _Sent(Foreign):
    text: Annotated[_Text | None, Optional] = None


class _Info(_Response):
    input_tokens: Number = None
    request_metrics: Annotated[_Sent | None, Optional] = None
    response_metrics: Annotated[_Response | None, Optional] = None


class _Computed(Foreign):
    time_to_first_token: Number = None
    input_tokens: Number = None


class _Request(Foreign):
    start_time: Number = None
    end_time: Number = None
    request: Any = None
    info: Annotated[_Info | None, Optional] = None
    computed_metrics: Annotated[_Computed | None, Optional] = None
    error: Any = None


def accepts(documents: tuple[Any, ...]) -> bool:
    """Whether this is one of inference-perf's reports."""
    if len(documents) != 1:
        return False
    document = documents[0]
    if isinstance(document, list):
        # A failed request has no metrics, and no info where the report was told to leave it out.
        return any(isinstance(item, dict) and _MEASURED & item.keys() for item in document) and all(
            isinstance(item, dict)
            and {"start_time", "end_time"} <= item.keys()
            and bool(_MEASURED & item.keys() or item.get("error"))
            for item in document
        )
    return isinstance(document, dict) and {"load_summary", "successes"} <= document.keys()


def read(documents: tuple[Any, ...], path: Path) -> tuple[ServingRun, ...]:
    """The one run; InputFileError for what is not as inference-perf writes it."""
    seen = _server_beside(path)
    if isinstance(documents[0], list):
        return (_from_requests([parsed(_Request, item, path, NAME) for item in documents[0]], seen, path),)
    report = parsed(_Report, documents[0], path, NAME)
    load, summary = report.load_summary or _LoadSummary(), _summary(report)
    if seen is not None and summary.hit_rate is None:
        summary = replace(summary, hit_rate=seen.hit_rate, external_hit_rate=seen.external_hit_rate)
    run = ServingRun(
        tool=NAME,
        tool_version=None,
        model=None,
        source=path.name,
        summary=summary,
        concurrency=count(load.concurrency),
        request_rate=load.requested_rate,
    )
    return (run,)


def _server_beside(path: Path) -> ServingSummary | None:
    """What Prometheus saw during the same stage, from the file beside; the whole run's for single requests."""
    beside = path.with_name(path.name.replace("per_request_", "summary_").replace("_lifecycle_", "_prometheus_"))
    if beside.name == path.name:
        return None
    try:
        return _summary(parsed(_Report, bounded.json_of(bounded.read_bytes(beside, regular=True)), beside, NAME))
    except (OSError, ValueError, InputFileError):
        return None


def _from_requests(requests: list[_Request], seen: ServingSummary | None, path: Path) -> ServingRun:
    return ServingRun(
        tool=NAME,
        tool_version=None,
        model=next((model for item in requests if (model := _model(item.request))), None),
        source=path.name,
        summary=ServingSummary(
            hit_rate=seen.hit_rate if seen else None, external_hit_rate=seen.external_hit_rate if seen else None
        ),
        requests=tuple(_request(item) for item in requests),
    )


def _summary(report: _Report) -> ServingSummary:
    done = report.successes
    latency, prompt = done.latency or _Latency(), done.prompt_len or done.prompt_tokens or _Statistics()
    ttft, e2e = latency.time_to_first_token or _Statistics(), latency.request_latency or _Statistics()
    hits = done.prefix_cache_hit_percent or _Statistics()
    external = done.external_prefix_cache_hit_percent or _Statistics()
    tokens = done.prompt_tokens or _Tokens()
    told = tokens.cached / tokens.total if tokens.cached and tokens.total else None
    return ServingSummary(
        completed=count(done.count),
        failed=count(report.failures.count) if report.failures else None,
        requests_per_s=done.throughput.requests_per_sec if done.throughput else None,
        prompt_tokens_mean=prompt.mean,
        prompt_tokens_min=prompt.min,
        prompt_tokens_max=prompt.max,
        ttft_mean_s=seconds(ttft.mean),
        ttft_p95_s=seconds(ttft.p95),
        e2e_mean_s=seconds(e2e.mean),
        e2e_p95_s=seconds(e2e.p95),
        hit_rate=share(hits.mean, 0.01) if hits.mean is not None else share(told),
        external_hit_rate=share(external.mean, 0.01),
        per_token_s=seconds((latency.time_per_output_token or _Statistics()).mean),
        output_tokens_mean=(done.output_len or _Statistics()).mean,
    )


def _request(item: _Request) -> ServedRequest:
    info, computed = item.info or _Info(), item.computed_metrics or _Computed()
    sent = (info.request_metrics.text if info.request_metrics else None) or _Text()
    response = info.response_metrics or info
    usage = response.server_usage or _Usage()
    first, start, end = _first_token(response), item.start_time, item.end_time
    ttft_s = seconds(first - start if first is not None and start is not None else computed.time_to_first_token)
    details = usage.prompt_tokens_details or _Details()
    return ServedRequest(
        prompt_tokens=count(usage.prompt_tokens or info.input_tokens or sent.input_tokens or computed.input_tokens),
        ttft_s=ttft_s,
        e2e_s=seconds(end - start) if end is not None and start is not None else None,
        start_s=start,
        cached_tokens=count(details.cached_tokens),
        ok=ttft_s is not None and not item.error,
    )


def _first_token(response: _Response) -> float | None:
    """When the first text arrived; never the time of a chunk of which nobody knows whether it had any."""
    chunks = zip(response.response_chunks or (), response.chunk_times or (), strict=False)
    seen = (at for chunk, at in chunks if _has_text(chunk))
    return next(seen, None) or next(iter(response.output_token_times or ()), None)


def _has_text(chunk: Any) -> bool:
    """Whether a chunk, JSON in a text, has content or reasoning: a chat's first one has only a role."""
    try:
        data = json.loads(chunk) if isinstance(chunk, str) else chunk
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and text_in(first_choice(data.get("choices"))) is not None


def _model(request: Any) -> str | None:
    """The model of the request's body, which is JSON in a text."""
    try:
        body = json.loads(request) if isinstance(request, str) else request
    except (ValueError, RecursionError):
        return None
    model = body.get("model") if isinstance(body, dict) else None
    return model if isinstance(model, str) and model else None
