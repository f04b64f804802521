"""Results of ``vllm bench serve`` (and ``benchmark_serving.py`` before it): one flat object for each run.

Source: vllm/benchmarks/serve.py, 0.33 and the versions since 0.6: ``ttfts``, ``itls`` and ``start_times`` are seconds,
keys that end in ``_ms`` are milliseconds, a request that failed has a TTFT of 0 and its text in ``errors``. The lists
are there with ``--save-detailed`` only. ``--append-result`` puts objects one after the other, ``bench sweep serve``
writes one file for each run and a list of them all in ``summary.json``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kvbench.formats.serving.flat import FlatResult, requests_of, summary_of
from kvbench.formats.serving.record import ServingRun
from kvbench.formats.serving.schema import Number, Text, parsed

NAME = "vLLM bench serve"
_KEYS = frozenset({"model_id", "num_prompts", "request_throughput"})


class _Result(FlatResult):
    model_id: Text = None
    mean_e2el_ms: Number = None
    p95_e2el_ms: Number = None


def accepts(documents: tuple[Any, ...]) -> bool:
    """Whether these are results of ``vllm bench serve``, alone or in the list of a sweep."""
    found = _results(documents)
    return bool(found) and all(isinstance(document, dict) and document.keys() >= _KEYS for document in found)


def read(documents: tuple[Any, ...], path: Path) -> tuple[ServingRun, ...]:
    """One run for each result, in order; InputFileError for what is not as vLLM writes it."""
    return tuple(_run(parsed(_Result, document, path, NAME), path) for document in _results(documents))


def _results(documents: tuple[Any, ...]) -> list[Any]:
    return [item for document in documents for item in (document if isinstance(document, list) else [document])]


def _run(result: _Result, path: Path) -> ServingRun:
    requests = requests_of(result, path, NAME)
    return ServingRun(
        tool=NAME,
        tool_version=None,
        model=result.model_id,
        source=path.name,
        summary=summary_of(result, requests, e2e_mean_ms=result.mean_e2el_ms, e2e_p95_ms=result.p95_e2el_ms),
        requests=requests,
        concurrency=result.limit,
        request_rate=result.request_rate,
        lengths_from="client",
        shared_prefixes=result.shared_prefixes,
        workload=result.sent,
    )
