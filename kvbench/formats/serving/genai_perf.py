"""GenAI-Perf summaries, ``<prefix>_genai_perf.json``: metrics by tag, without any request.

Source: genai-perf/genai_perf/export_data/json_exporter.py, 0.0.1 to 0.0.16. ``input_config`` is the flat list of the
command line's arguments at first and a tree (``model_names``, ``perf_analyzer.stimulus``) later. The raw
``profile_export.json`` beside it holds times without token counts, so it cannot serve.
NOTE: without streaming GenAI-Perf writes the whole request's latency as ``time_to_first_token``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from kvbench.border.foreign import Foreign
from kvbench.formats.serving.record import ServingRun
from kvbench.formats.serving.schema import Optional, Rate, Setting, count, parsed
from kvbench.formats.serving.tags import Tags, has_tags, summary_of, texts

NAME = "GenAI-Perf"
_OLD_KEYS = frozenset({"formatted_model_name", "model_selection_strategy", "profile_export_file", "service_kind"})


class _Stimulus(Foreign):
    concurrency: Setting = None
    request_rate: Rate = None


class _Analyzer(Foreign):
    stimulus: Annotated[_Stimulus | None, Optional] = None


class _Endpoint(Foreign):
    streaming: bool | None = None


class _Config(_Stimulus):
    model: Any = None
    model_names: Any = None
    streaming: bool | None = None
    endpoint: Annotated[_Endpoint | None, Optional] = None
    perf_analyzer: Annotated[_Analyzer | None, Optional] = None


class _Summary(Tags):
    input_config: Annotated[_Config | None, Optional] = None


def accepts(documents: tuple[Any, ...]) -> bool:
    """Whether this is a GenAI-Perf summary."""
    return len(documents) == 1 and has_tags(documents[0]) and is_genai_perf(documents[0])


def is_genai_perf(document: dict[str, Any]) -> bool:
    """Whether a document with tags is GenAI-Perf's, and not AIPerf's, which began as the same."""
    config = document.get("input_config")
    keys = set(config) if isinstance(config, dict) else set()
    theirs = "telemetry_stats" in document or "perf_analyzer" in keys or bool(keys & _OLD_KEYS)
    return theirs and "aiperf_version" not in document and "loadgen" not in keys


def read(documents: tuple[Any, ...], path: Path) -> tuple[ServingRun, ...]:
    """The one run; InputFileError for what is not as GenAI-Perf writes it."""
    summary = parsed(_Summary, documents[0], path, NAME)
    config = summary.input_config or _Config()
    stimulus = (config.perf_analyzer.stimulus if config.perf_analyzer else None) or config
    streaming = config.endpoint.streaming if config.endpoint is not None else None
    run = ServingRun(
        tool=NAME,
        tool_version=None,
        model=next((name for names in (config.model_names, config.model) for name in texts(names)), None),
        source=path.name,
        summary=summary_of(summary),
        concurrency=count(stimulus.concurrency),
        request_rate=stimulus.request_rate,
        streamed=config.streaming if streaming is None else streaming,
        lengths_from="client",
    )
    return (run,)
