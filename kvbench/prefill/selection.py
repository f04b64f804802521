"""Which TTFT of a serving run is the time of an uncached prefill, and what is left out, why (pure)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvbench.formats.serving.record import ServedRequest, ServingRun
from kvbench.prefill.occupancy import Occupancy, occupancies
from kvbench.prefill.samples import Sample, is_plausible

SHARED = "that shared the server with others"
_WARM_UP = "of the warm-up"
_FAILED = "that failed"
_CACHED = "answered partly from a prefix cache"
_REPEATS = "of a later turn or a prompt sent before, which a prefix cache may have answered"
_AVERAGED = "known by their average only"
_WITHOUT = "without a TTFT and a prompt length"
_NOT_STREAMED = "that were not streamed, so that their TTFT is the time of the whole answer"


# The beginning that all prompts have in common, as a chat's template, is no cached prompt.
_FEW_CACHED = 0.005


@dataclass(frozen=True, slots=True)
class Usable:
    """What one run gives: samples, what they shared the server with, and how many requests were left out, why."""

    run: ServingRun
    samples: tuple[Sample, ...]
    occupancies: frozenset[Occupancy]
    left_out: Counter[str]


@dataclass(frozen=True, slots=True)
class Taken:
    """What all runs give: either samples of single requests or, where there are none, averages."""

    runs: tuple[Usable, ...]
    left_out: Counter[str]
    averaged: bool

    @property
    def rows(self) -> list[Sample]:
        """Every sample, sorted by length."""
        rows = [sample for usable in self.runs for sample in usable.samples]
        return sorted(rows, key=lambda row: (row.prompt_tokens, row.ttft_s))

    def has(self, occupancy: Occupancy) -> bool:
        """Whether a sample met others so."""
        return any(occupancy in usable.occupancies for usable in self.runs)

    def lost(self) -> str:
        """What was left out, most first, for a sentence; empty when nothing was."""
        return ", ".join(f"{count:,} {reason}" for reason, count in self.left_out.most_common())


def take(runs: Sequence[ServingRun], *, allow_queued: bool) -> Taken:
    """The samples of the runs; averages count only when no run has usable requests, since a run's weight is unknown."""
    single = [_of_requests(run, allow_queued=allow_queued) for run in runs if run.requests]
    # AIPerf writes a run's summary beside its requests; together they are one run.
    told = {run.summary for run in runs if run.requests}
    others = [run for run in runs if not run.requests and run.summary not in told]
    averages = _different(_of_average(run, allow_queued=allow_queued) for run in others)
    left_out: Counter[str] = Counter()
    for usable in (*single, *averages):
        left_out += usable.left_out
    if any(usable.samples for usable in single):
        unused = sum(usable.run.summary.completed or 1 for usable in averages if usable.samples)
        left_out += Counter({_AVERAGED: unused})
        return Taken(tuple(usable for usable in single if usable.samples), left_out, averaged=False)
    return Taken(tuple(usable for usable in averages if usable.samples), left_out, averaged=True)


def _of_requests(run: ServingRun, *, allow_queued: bool) -> Usable:
    told = any(request.cached_tokens is not None for request in run.requests)
    samples, under, left_out = [], set(), Counter[str]()
    for request, occupancy in zip(run.requests, occupancies(run), strict=True):
        reason = _unusable(request, run, told=told)
        if reason is None and occupancy == "shared" and not allow_queued:
            reason = SHARED
        if reason is not None or request.prompt_tokens is None or request.ttft_s is None:
            left_out[reason or _WITHOUT] += 1
            continue
        samples.append(Sample(request.prompt_tokens, request.ttft_s, {"file": run.source}))
        under.add(occupancy)
    return Usable(run, tuple(samples), frozenset(under), left_out)


def _unusable(request: ServedRequest, run: ServingRun, *, told: bool) -> str | None:
    """Why a request says nothing of prefill; a run whose requests do not tell of a cache is judged as a whole."""
    if request.warm_up:
        return _WARM_UP
    if run.streamed is False:
        return _NOT_STREAMED
    if not request.ok:
        return _FAILED
    if not request.prompt_tokens or request.ttft_s is None or not is_plausible(request.prompt_tokens, request.ttft_s):
        return _WITHOUT
    if _is_cached(request, run, told=told):
        return _CACHED
    # The server's word that nothing was cached settles what the prompts only make likely.
    if request.cached_tokens is not None or run.hit_rate is not None:
        return None
    if run.shared_prefixes:
        return _sharing(run)
    return _REPEATS if request.repeats else None


def _sharing(run: ServingRun) -> str:
    return f"of the data set {run.shared_prefixes}, whose prompts share their beginnings"


def _is_cached(request: ServedRequest, run: ServingRun, *, told: bool) -> bool:
    """Whether a cache answered: by the request's own word, unless none of them has seen what the server counted."""
    blind = told and not any(one.cached_tokens for one in run.requests)
    if told and not blind:
        return bool(request.cached_tokens)
    return (run.hit_rate or 0.0) > _FEW_CACHED


def _of_average(run: ServingRun, *, allow_queued: bool) -> Usable:
    summary, occupancy = run.summary, occupancies(run)[0]
    tokens, ttft_s, count = summary.prompt_tokens_mean, summary.ttft_mean_s, summary.completed or 1
    if tokens is None or ttft_s is None or not is_plausible(round(tokens), ttft_s):
        return Usable(run, (), frozenset(), Counter())
    reason = None
    if run.streamed is False:
        reason = _NOT_STREAMED
    elif (run.hit_rate or 0.0) > _FEW_CACHED:
        reason = _CACHED
    elif run.shared_prefixes and run.hit_rate is None:
        reason = _sharing(run)
    elif occupancy == "shared" and not allow_queued:
        reason = SHARED
    if reason is not None:
        return Usable(run, (), frozenset(), Counter({reason: count}))
    return Usable(run, (Sample(round(tokens), ttft_s, {"file": run.source}),), frozenset({occupancy}), Counter())


def _different(averages: Iterable[Usable]) -> list[Usable]:
    """Each average once: another tool's report of the same run repeats it."""
    found: list[Usable] = []
    for usable in averages:
        if not any(_is_same(one, other) for item in found for one in item.samples for other in usable.samples):
            found.append(usable)
    return found


def _is_same(one: Sample, other: Sample) -> bool:
    return one.prompt_tokens == other.prompt_tokens and math.isclose(one.ttft_s, other.ttft_s, rel_tol=1e-9)
