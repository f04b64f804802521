"""The neutral record of one serving run, whatever tool made it: every time in seconds, every length in tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """One request; None for what the file does not say. ``start_s`` counts from any origin that its run shares.

    ``repeats``: its prompt begins as an earlier one of the run did (a later turn of a conversation, the same prompt).
    """

    prompt_tokens: int | None
    ttft_s: float | None
    e2e_s: float | None = None
    start_s: float | None = None
    cached_tokens: int | None = None
    ok: bool = True
    warm_up: bool = False
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class ServingSummary:
    """What the tool itself says of the whole run; hit rates are shares from 0 to 1 of the prompt tokens.

    ``per_token_s`` is the time of each output token after the first, ``in_flight`` the requests in the server on
    average, as the tool counted them.
    """

    completed: int | None = None
    failed: int | None = None
    duration_s: float | None = None
    requests_per_s: float | None = None
    prompt_tokens_mean: float | None = None
    prompt_tokens_min: float | None = None
    prompt_tokens_max: float | None = None
    ttft_mean_s: float | None = None
    ttft_p95_s: float | None = None
    e2e_mean_s: float | None = None
    e2e_p95_s: float | None = None
    hit_rate: float | None = None
    external_hit_rate: float | None = None
    per_token_s: float | None = None
    output_tokens_mean: float | None = None
    in_flight: float | None = None


@dataclass(frozen=True, slots=True)
class ServingRun:
    """One run of a serving benchmark at one load.

    ``concurrency`` is the most requests that the client kept in flight (None: no limit, or not said), ``request_rate``
    what it sent per second (infinite: all at once). ``lengths_from`` says who counted the prompt tokens: a client's
    count can be far from what the server got (vllm-project/vllm#10847). ``shared_prefixes`` names the data set whose
    prompts share their beginnings by design. ``workload`` is what the tool says of what it sent (data set, seed, ...),
    by a name that the tool always gives it. ``notes`` are warnings that only the format sees.
    """

    tool: str
    tool_version: str | None
    model: str | None
    source: str
    summary: ServingSummary
    requests: tuple[ServedRequest, ...] = ()
    concurrency: int | None = None
    request_rate: float | None = None
    streamed: bool | None = None
    lengths_from: Literal["server", "client"] | None = None
    shared_prefixes: str | None = None
    workload: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def hit_rate(self) -> float | None:
        """The larger of the two hit rates that the summary holds, None when it holds none."""
        rates = [rate for rate in (self.summary.hit_rate, self.summary.external_hit_rate) if rate is not None]
        return max(rates, default=None)
