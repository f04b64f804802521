"""One configuration of a server and the runs that were made on it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from kvbench.formats.serving.record import ServedRequest, ServingRun
from kvbench.serving.server import ServerState
from kvbench.serving.storage import StorageState

_P95 = 95


@dataclass(frozen=True, order=True, slots=True)
class ClientLoad:
    """What the client asked for: requests in flight, or per second (infinite: all at once); 0 where it is not said."""

    concurrency: int = 0
    request_rate: float = 0.0

    @property
    def words(self) -> str:
        """The load in words."""
        if self.concurrency:
            return f"{self.concurrency} at once"
        if math.isinf(self.request_rate):
            return "all at once"
        return f"{self.request_rate:g}/s" if self.request_rate else "load not said"


@dataclass(frozen=True)
class ArmRun:
    """One run of a configuration. Times are seconds, rates per second; None for what no file says.

    A p95 is the linear interpolation between the order statistics of the run's own requests, which is what
    vLLM, SGLang, AIPerf and inference-perf take as well; without the requests it is what the tool wrote.
    ``filesystem`` is that of the tier where the run's folder says it, and so is what the ``storage`` counted.
    """

    run: ServingRun
    server: ServerState = field(default_factory=ServerState)
    filesystem: Mapping[str, str] | None = None
    storage: StorageState | None = None

    @cached_property
    def requests(self) -> tuple[ServedRequest, ...]:
        """The measured requests: no warm-up, and not those that failed."""
        return tuple(one for one in self.run.requests if one.ok and not one.warm_up)

    @property
    def load(self) -> ClientLoad:
        """The load that it is compared at."""
        if self.run.concurrency:
            return ClientLoad(concurrency=self.run.concurrency)
        return ClientLoad(request_rate=self.run.request_rate or 0.0)

    @property
    def completed(self) -> int | None:
        """How many requests it measured."""
        return len(self.requests) or self.run.summary.completed

    @property
    def failed(self) -> int | None:
        """How many requests failed, None when nothing says so."""
        counted = sum(1 for one in self.run.requests if not one.ok and not one.warm_up)
        return self.run.summary.failed if not self.run.requests else max(counted, self.run.summary.failed or 0)

    @property
    def requests_per_s(self) -> float | None:
        """Requests that were completed each second: the tool's own count, else over the time from first to last."""
        told, window = self.run.summary.requests_per_s, self.window_s
        return told if told or not window else len(self.requests) / (window[1] - window[0])

    @cached_property
    def window_s(self) -> tuple[float, float] | None:
        """When the first request began and the last one ended, None without their times."""
        ends = [one.start_s + one.e2e_s for one in self.requests if one.start_s is not None and one.e2e_s is not None]
        starts = [one.start_s for one in self.requests if one.start_s is not None]
        return (min(starts), max(ends)) if ends and max(ends) > min(starts) else None

    @property
    def duration_s(self) -> float | None:
        """How long the run took: as the tool says it, else from the first request to the end of the last."""
        window = self.window_s
        return self.run.summary.duration_s or (window[1] - window[0] if window else None)

    @property
    def prompts_in_kv(self) -> float | None:
        """How many of its mean prompts the GPUs' KV memory holds at once."""
        tokens, mean = self.server.kv_tokens, self.prompt_tokens_mean
        return tokens / mean if tokens and mean else None

    @cached_property
    def ttft_s(self) -> LatencySummary:
        """Time to the first token."""
        told = self.run.summary
        return _latency([one.ttft_s for one in self.requests], told.ttft_mean_s, told.ttft_p95_s)

    @cached_property
    def e2e_s(self) -> LatencySummary:
        """Time to the last token."""
        told = self.run.summary
        return _latency([one.e2e_s for one in self.requests], told.e2e_mean_s, told.e2e_p95_s)

    @property
    def prompt_tokens_mean(self) -> float | None:
        """How long the measured prompts were."""
        counted = [one.prompt_tokens for one in self.requests if one.prompt_tokens]
        return sum(counted) / len(counted) if counted else self.run.summary.prompt_tokens_mean

    @property
    def external_hit_rate(self) -> float | None:
        """The share of the looked-up tokens that another tier gave back, as the server counted it where it did."""
        counted = self.server.external_hit_rate
        return self.run.summary.external_hit_rate if counted is None else counted

    @property
    def local_hit_rate(self) -> float | None:
        """The share that the engine's own cache held."""
        counted = self.server.local_hit_rate
        return self.run.summary.hit_rate if counted is None else counted


@dataclass(frozen=True, slots=True)
class LatencySummary:
    """Mean and 95th percentile in seconds."""

    mean: float | None = None
    p95: float | None = None


@dataclass(frozen=True, slots=True)
class Configuration:
    """A server's configuration by the name that the user gave it."""

    name: str
    runs: tuple[ArmRun, ...]

    def at(self, load: ClientLoad) -> tuple[ArmRun, ...]:
        """Its runs at a load."""
        return tuple(one for one in self.runs if one.load == load)

    @property
    def loads(self) -> tuple[ClientLoad, ...]:
        """The loads that it was run at, rising."""
        return tuple(sorted({one.load for one in self.runs}))


def _latency(values: Sequence[float | None], mean_s: float | None, p95_s: float | None) -> LatencySummary:
    known = np.array([value for value in values if value is not None])
    if not len(known):
        return LatencySummary(mean_s, p95_s)
    return LatencySummary(float(known.mean()), float(np.percentile(known, _P95)))
