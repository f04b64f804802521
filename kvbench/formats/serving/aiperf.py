"""AIPerf results: ``profile_export.jsonl`` with every request, or ``profile_export_aiperf.json`` with averages.

Source: files of 0.13.0, docs/tutorials/working-with-profile-exports.md and docs/reference/json-export-schema.md of
ai-dynamo/aiperf; 0.1 to 0.3 had the same tags, ``input_config.loadgen`` and for a while ``records`` around the tags.
Every value comes with its unit. Warm-up requests are in the file (``benchmark_phase``). ``input_sequence_length`` is
what the client meant to send and ``usage_prompt_tokens`` what the server got, in 0.13 sometimes a third less.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from kvbench.border import bounded
from kvbench.border.foreign import Foreign
from kvbench.errors import InputFileError
from kvbench.formats.serving.genai_perf import is_genai_perf
from kvbench.formats.serving.record import ServedRequest, ServingRun, ServingSummary
from kvbench.formats.serving.schema import Number, Optional, Rate, Setting, Text, count, parsed, workload
from kvbench.formats.serving.server_metrics import with_server
from kvbench.formats.serving.tags import Tags, has_tags, in_seconds, summary_of, texts

NAME = "AIPerf"
_NS = 1e-9


class _LoadSettings(Foreign):
    kind: Any = None
    concurrency: Setting = None
    request_rate: Rate = None
    rate: Rate = None


class _Endpoint(Foreign):
    model_names: Any = None
    streaming: bool | None = None


class _Models(Foreign):
    items: Any = None


class _Config(Foreign):
    models: Annotated[_Models | None, Optional] = None
    endpoint: Annotated[_Endpoint | None, Optional] = None
    loadgen: Annotated[_LoadSettings | None, Optional] = None
    phases: Any = None
    datasets: Any = None


class _RunInfo(Foreign):
    random_seed: Any = None


class _Export(Tags):
    aiperf_version: Text = None
    input_config: Annotated[_Config | None, Optional] = None
    run_info: Annotated[_RunInfo | None, Optional] = None


class _Value(Foreign):
    value: Any = None
    unit: Text = None


class _Metadata(Foreign):
    benchmark_phase: Text = None
    conversation_id: Any = None
    turn_index: Setting = None
    request_start_ns: Number = None
    request_end_ns: Number = None
    was_cancelled: bool | None = None


class _Record(Foreign):
    metadata: _Metadata
    metrics: dict[str, _Value] | None = None
    error: Any = None


class _Numbers(Foreign):
    """The metrics of one request that matter, as numbers."""

    time_to_first_token: Number = None
    request_latency: Number = None
    input_sequence_length: Number = None
    usage_prompt_tokens: Number = None
    usage_prompt_cache_read_tokens: Number = None


def accepts(documents: tuple[Any, ...]) -> bool:
    """Whether these are AIPerf's records, or its summary."""
    return _are_records(documents) or (
        len(documents) == 1 and has_tags(_flat(documents[0])) and not is_genai_perf(_flat(documents[0]))
    )


def read(documents: tuple[Any, ...], path: Path) -> tuple[ServingRun, ...]:
    """The one run; InputFileError for what is not as AIPerf writes it."""
    if path.resolve().parent.name == "warmup":
        raise InputFileError(f"{path} is of the warm-up phase; name the folder above 'phases'.")
    if not _are_records(documents):
        return (_from_export(parsed(_Export, _flat(documents[0]), path, NAME), path),)
    records = [parsed(_Record, document, path, NAME) for document in documents]
    requests = _first_turns(records, tuple(_request(record, path) for record in records))
    told = _export_beside(path)
    from_server = any(record.metrics and "usage_prompt_tokens" in record.metrics for record in records)
    run = ServingRun(
        tool=NAME,
        tool_version=told.tool_version if told else None,
        model=told.model if told else None,
        source=path.name,
        summary=told.summary if told else with_server(ServingSummary(), path),
        requests=requests,
        concurrency=told.concurrency if told else None,
        request_rate=told.request_rate if told else None,
        lengths_from="server" if from_server else "client",
        workload=told.workload if told else (),
    )
    return (run,)


def _are_records(documents: tuple[Any, ...]) -> bool:
    """Not those of ``profile_export_raw.jsonl``, which have ``responses`` where these have metrics."""
    return bool(documents) and all(
        isinstance(document, dict)
        and isinstance(document.get("metadata"), dict)
        and "request_start_ns" in document["metadata"]
        and ("metrics" in document or "error" in document)
        and "responses" not in document
        for document in documents
    )


def _flat(document: Any) -> Any:
    """The tags at the top, where 0.1 put them below ``records``."""
    inner = document.get("records") if isinstance(document, dict) else None
    return {**document, **inner} if isinstance(inner, dict) else document


def _export_beside(path: Path) -> ServingRun | None:
    """The summary that AIPerf wrote beside the records: they name neither model nor load."""
    names = (f"{path.stem}_aiperf.json", f"{path.stem}.json")
    for beside in (path.with_name(name) for name in names):
        try:
            document = _flat(bounded.json_of(bounded.read_bytes(beside, regular=True)))
            if has_tags(document) and not is_genai_perf(document):
                return _from_export(parsed(_Export, document, beside, NAME), beside)
        except (OSError, ValueError, InputFileError):
            continue
    return None


def _from_export(export: _Export, path: Path) -> ServingRun:
    config = export.input_config or _Config()
    endpoint = config.endpoint or _Endpoint()
    load = config.loadgen or _profiling(config.phases) or _LoadSettings()
    names = (config.models.items if config.models else None, endpoint.model_names)
    counted: Literal["server", "client"] = "server" if export.usage_prompt_tokens else "client"
    return ServingRun(
        tool=NAME,
        tool_version=export.aiperf_version,
        model=next((name for listed in names for name in texts(listed)), None),
        source=path.name,
        summary=with_server(summary_of(export), path),
        concurrency=count(load.concurrency),
        request_rate=load.request_rate or load.rate,
        streamed=endpoint.streaming,
        lengths_from=counted,
        workload=workload(data_sets=config.datasets, seed=export.run_info.random_seed if export.run_info else None),
    )


def _profiling(phases: Any) -> _LoadSettings | None:
    """The load of the phase that was measured: ``phases`` is a list, or an object by name."""
    listed = phases if isinstance(phases, list) else list(phases.values()) if isinstance(phases, dict) else []
    found = [_LoadSettings.model_validate(phase) for phase in listed if isinstance(phase, dict)]
    return next((load for load in found if load.kind != "warmup"), None)


def _first_turns(records: list[_Record], requests: tuple[ServedRequest, ...]) -> tuple[ServedRequest, ...]:
    """The requests, those marked whose prompt the server has seen: later turns, and a prompt that is sent again.

    A turn sends what was said before it once more; the client goes through its data set again when it ends.
    """
    seen: set[tuple[object, ...]] = set()
    marked = []
    order = sorted(range(len(requests)), key=lambda at: requests[at].start_s or 0.0)
    repeats = set()
    for at in order:
        about = records[at].metadata
        key = (str(about.conversation_id), about.turn_index, requests[at].prompt_tokens)
        if about.turn_index or (about.conversation_id is not None and key in seen):
            repeats.add(at)
        seen.add(key)
    for at, request in enumerate(requests):
        marked.append(replace(request, repeats=True) if at in repeats else request)
    return tuple(marked)


def _request(record: _Record, path: Path) -> ServedRequest:
    metrics, about = record.metrics or {}, record.metadata
    numbers = parsed(_Numbers, {name: metric.value for name, metric in metrics.items()}, path, NAME)
    units = {name: metric.unit for name, metric in metrics.items()}
    ttft_s = in_seconds(numbers.time_to_first_token, units.get("time_to_first_token"))
    start, end = about.request_start_ns, about.request_end_ns
    whole = (end - start) * _NS if start is not None and end is not None and end > start else None
    return ServedRequest(
        prompt_tokens=count(numbers.usage_prompt_tokens or numbers.input_sequence_length),
        ttft_s=ttft_s,
        e2e_s=in_seconds(numbers.request_latency, units.get("request_latency")) or whole,
        start_s=None if start is None else start * _NS,
        cached_tokens=count(numbers.usage_prompt_cache_read_tokens),
        ok=ttft_s is not None and not record.error and not about.was_cancelled,
        warm_up=about.benchmark_phase not in (None, "profiling"),
    )
