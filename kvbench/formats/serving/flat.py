"""The flat object that ``vllm bench serve`` and ``sglang.bench_serving`` share: parallel lists beside averages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kvbench.border.foreign import Foreign
from kvbench.errors import InputFileError
from kvbench.formats.serving.record import ServedRequest, ServingSummary
from kvbench.formats.serving.schema import Number, Rate, Setting, count, seconds, workload

_MS = 1e-3
# In the names of data sets whose prompts begin alike.
_SHARING = ("prefix", "gsp", "loogle", "mooncake", "multi-turn", "multiturn")


class FlatResult(Foreign):
    """One run; the lists hold one item for each request, in the order in which they were sent."""

    num_prompts: Number = None
    request_rate: Rate = None
    max_concurrency: Setting = None
    max_concurrent_requests: Number = None
    duration: Number = None
    completed: Number = None
    failed: Number = None
    total_input_tokens: Number = None
    total_output_tokens: Number = None
    concurrency: Setting = None
    dataset_name: Any = None
    dataset_path: Any = None
    seed: Any = None
    gsp_system_prompt_len: Setting = None
    request_throughput: Number = None
    mean_ttft_ms: Number = None
    p95_ttft_ms: Number = None
    mean_tpot_ms: Number = None
    latencies: list[Number] | None = None
    input_lens: list[Number] | None = None
    ttfts: list[Number] | None = None
    itls: list[list[Number] | None] | None = None
    start_times: list[Number] | None = None
    errors: list[Any] | None = None
    cached_tokens: list[Number] | None = None

    @property
    def limit(self) -> int | None:
        """The most requests in flight: what the client was limited to, or 1 where no second one was ever seen."""
        peak = 1 if self.max_concurrent_requests == 1 or self.num_prompts == 1 else None
        return count(self.max_concurrency) or peak

    @property
    def shared_prefixes(self) -> str | None:
        """The data set, where its prompts share prefixes by design (sglang benchmark/datasets, vllm datasets.py)."""
        name = self.dataset_name if isinstance(self.dataset_name, str) else ""
        if not any(word in name.lower() for word in _SHARING):
            return None
        tokens = count(self.gsp_system_prompt_len)
        return f"{name}, {tokens:,} tokens each" if tokens else name

    @property
    def sent(self) -> tuple[tuple[str, str], ...]:
        """What it says of what was sent; vLLM names data set and seed only where its user gave them as metadata."""
        return workload(data_set=self.dataset_name, path=self.dataset_path, seed=self.seed)


def requests_of(result: FlatResult, path: Path, tool: str) -> tuple[ServedRequest, ...]:
    """The requests, none when the run was saved without them; InputFileError when the lists do not match."""
    if not result.input_lens or not result.ttfts:
        return ()
    total = len(result.input_lens)
    lists = {
        "ttfts": result.ttfts,
        "itls": result.itls,
        "start_times": result.start_times,
        "errors": result.errors,
        "cached_tokens": result.cached_tokens,
    }
    for name, items in lists.items():
        if items and len(items) != total:
            raise InputFileError(
                f"{path} looks like a result of {tool}, but has {total} input_lens and {len(items)} {name}; "
                "name a file as the tool wrote it."
            )
    return tuple(_request(result, at) for at in range(total))


def summary_of(
    result: FlatResult,
    requests: tuple[ServedRequest, ...],
    *,
    e2e_mean_ms: float | None,
    e2e_p95_ms: float | None,
    hit_rate: float | None = None,
) -> ServingSummary:
    """The run's own averages in seconds; the mean length is over the requests that completed, as the total is.

    NOTE: vLLM prints no end-to-end latency by default; 0.33 leaves ``latencies`` (seconds) in the file, from which it
    follows.
    """
    completed = count(result.completed)
    lengths = [request.prompt_tokens for request in requests if request.ok and request.prompt_tokens]
    ttfts = [request.ttft_s for request in requests if request.ok and request.ttft_s]
    latencies = [value for value in result.latencies or () if value is not None and value > 0]
    total = result.total_input_tokens
    return ServingSummary(
        completed=completed,
        failed=count(result.failed),
        duration_s=seconds(result.duration),
        requests_per_s=result.request_throughput,
        prompt_tokens_mean=total / completed if total is not None and completed else None,
        prompt_tokens_min=min(lengths, default=None),
        prompt_tokens_max=max(lengths, default=None),
        ttft_mean_s=seconds(result.mean_ttft_ms, _MS) or _mean(ttfts),
        ttft_p95_s=seconds(result.p95_ttft_ms, _MS),
        e2e_mean_s=seconds(e2e_mean_ms, _MS) or _mean(latencies),
        e2e_p95_s=seconds(e2e_p95_ms, _MS),
        hit_rate=hit_rate,
        per_token_s=seconds(result.mean_tpot_ms, _MS),
        output_tokens_mean=result.total_output_tokens / completed if result.total_output_tokens and completed else None,
        in_flight=result.concurrency,
    )


def _request(result: FlatResult, at: int) -> ServedRequest:
    ttft_s = seconds(_item(result.ttfts, at))
    between = result.itls[at] if result.itls else None
    later_s = sum(value for value in between if value is not None) if between is not None else None
    error = result.errors[at] if result.errors else None
    return ServedRequest(
        prompt_tokens=count(_item(result.input_lens, at)),
        ttft_s=ttft_s,
        e2e_s=ttft_s + later_s if ttft_s is not None and later_s is not None else None,
        start_s=_item(result.start_times, at),
        cached_tokens=count(_item(result.cached_tokens, at)),
        ok=ttft_s is not None and not error,
    )


def _item(items: list[Number] | None, at: int) -> float | None:
    return items[at] if items else None


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None
