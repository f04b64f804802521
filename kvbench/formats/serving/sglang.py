"""Results of ``sglang.bench_serving``: one flat object for each run, appended to a JSON lines file.

Source: python/sglang/benchmark/serving.py of 0.5.23 (bench_serving.py before): the lists (``--output-details``) are in
seconds, keys that end in ``_ms`` in milliseconds; ``cached_tokens`` and ``cache_report`` come with ``--cache-report``.
The model is only in ``server_info``, which older versions do not write. A rate of ``Infinity`` is bare in the JSON.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from kvbench.border.foreign import Foreign
from kvbench.formats.serving.flat import FlatResult, requests_of, summary_of
from kvbench.formats.serving.record import ServingRun
from kvbench.formats.serving.schema import Number, Optional, Text, parsed, share

NAME = "SGLang bench_serving"
_KEYS = frozenset({"request_throughput", "completed"})
_OWN_KEYS = frozenset({"mean_e2e_latency_ms", "input_throughput", "total_output_tokens_retokenized"})


class _Server(Foreign):
    model_path: Text = None
    served_model_name: Text = None
    version: Text = None


class _CacheReport(Foreign):
    cache_hit_rate_pct: Number = None


class _Result(FlatResult):
    server_info: Annotated[_Server | None, Optional] = None
    cache_report: Annotated[_CacheReport | None, Optional] = None
    mean_e2e_latency_ms: Number = None
    p95_e2e_latency_ms: Number = None


def accepts(documents: tuple[Any, ...]) -> bool:
    """Whether these are results of ``sglang.bench_serving``."""
    return bool(documents) and all(
        isinstance(document, dict)
        and document.keys() >= _KEYS
        and bool(document.keys() & _OWN_KEYS)
        and "model_id" not in document
        for document in documents
    )


def read(documents: tuple[Any, ...], path: Path) -> tuple[ServingRun, ...]:
    """One run for each line, in order; InputFileError for what is not as SGLang writes it."""
    return tuple(_run(parsed(_Result, document, path, NAME), path) for document in documents)


def _run(result: _Result, path: Path) -> ServingRun:
    requests = requests_of(result, path, NAME)
    server = result.server_info or _Server()
    hit_rate = share(result.cache_report.cache_hit_rate_pct, 0.01) if result.cache_report else None
    return ServingRun(
        tool=NAME,
        tool_version=server.version,
        model=server.served_model_name or server.model_path,
        source=path.name,
        summary=summary_of(
            result,
            requests,
            e2e_mean_ms=result.mean_e2e_latency_ms,
            e2e_p95_ms=result.p95_e2e_latency_ms,
            hit_rate=hit_rate,
        ),
        requests=requests,
        concurrency=result.limit,
        request_rate=result.request_rate,
        lengths_from="client",
        shared_prefixes=result.shared_prefixes,
        workload=result.sent,
    )
