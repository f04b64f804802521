"""Warnings about imported TTFT samples, as sentences without their full stop (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from kvbench.formats.serving.record import ServingRun
from kvbench.prefill.occupancy import too_many_in_flight
from kvbench.prefill.samples import WAITING_NOTE, Sample
from kvbench.prefill.selection import Taken

# No GPU prefills this many tokens a second (an H100 reads fewer than 400,000 of a 0.6 B model): the unit is wrong, or
# an empty first chunk was taken for the first token.
_IMPOSSIBLE_TOKENS_PER_S = 500_000
# Lengths within a factor below which a run is as good as of one length, and below which they give no slope.
_SPREAD, _NARROW = 1.1, 2
_DROP = 5
# Averages of a run are rounded and leave out what failed; twice what can be is more than that.
_CROWD = 2
_MOST_REMARKS = 4


def warnings_about(rows: Sequence[Sample], taken: Taken) -> Iterable[str]:
    """The warnings about samples that are sorted by length, the gravest first."""
    runs = [usable.run for usable in taken.runs]
    if taken.has("shared"):
        yield WAITING_NOTE
    if taken.has("unknown"):
        yield "the TTFT results do not say how many requests ran at once, so waiting may be in the TTFT"
    yield from _few([text for run in runs for text in _crowds(run)])
    if lost := taken.lost():
        yield f"of the TTFT results were left out: {lost}"
    if taken.averaged:
        yield "the TTFT results hold averages only, so the curve goes through means and its interval says little"
        yield from _few([text for run in runs for text in _spreads(run)])
    low, high = rows[0].prompt_tokens, rows[-1].prompt_tokens
    if high < _NARROW * low:
        yield f"the prompts of the TTFT results span only {low:,} to {high:,} tokens"
    if any(run.lengths_from == "client" for run in runs):
        yield "the prompt lengths are the client's count, not the server's"
    if silent := [run for run in runs if _is_silent(run)]:
        which = silent[0].source if len(silent) == 1 else f"{len(silent)} of {len(runs)} TTFT results"
        yield f"nothing in {which} says whether a prefix cache answered part of a prompt"
    if fast := sum(row.prompt_tokens / row.ttft_s > _IMPOSSIBLE_TOKENS_PER_S for row in rows):
        yield (
            f"{fast} of {len(rows)} TTFT samples are faster than {_IMPOSSIBLE_TOKENS_PER_S:,} tokens/s, as when an "
            "empty first chunk counts as the first token or a unit is wrong"
        )
    yield from _few([text for run in runs for text in (*run.notes, *_drops(run))])


def _crowds(run: ServingRun) -> Iterable[str]:
    """A client that says it sent one request after the other, and numbers that say otherwise (Little's law)."""
    found = too_many_in_flight(run)
    if run.concurrency == 1 and found is not None and found > _CROWD:
        yield (
            f"{run.source} says that one request ran at a time, but requests/s times seconds makes {found:.1f} in the "
            "server"
        )


def _is_silent(run: ServingRun) -> bool:
    """Whether a warm prefix cache would not show in the run."""
    return run.hit_rate is None and all(request.cached_tokens is None for request in run.requests)


def _spreads(run: ServingRun) -> Iterable[str]:
    """An average over different lengths is not the TTFT of the average length: prefill grows faster than linearly."""
    low, high = run.summary.prompt_tokens_min, run.summary.prompt_tokens_max
    if low and high and high > _SPREAD * low:
        yield f"{run.source} averages over prompts of {low:,.0f} to {high:,.0f} tokens"


def _drops(run: ServingRun) -> Iterable[str]:
    """First requests that took over five times what the later ones of their length did: a cache, or a cold start."""
    by_length: dict[int, list[float]] = {}
    for request in run.requests:
        if request.ok and not request.warm_up and request.prompt_tokens and request.ttft_s is not None:
            by_length.setdefault(request.prompt_tokens, []).append(request.ttft_s)
    for tokens, times in by_length.items():
        later = float(np.median(times[1:])) if len(times) > 2 else None
        if later is not None and times[0] > _DROP * later:
            yield (
                f"in {run.source} the first prompt of {tokens:,} tokens took {times[0]:.3g} s and the later ones "
                f"{later:.3g} s, as with a warm prefix cache or a cold start"
            )


def _few(remarks: Sequence[str]) -> list[str]:
    different = list(dict.fromkeys(remarks))
    rest = len(different) - _MOST_REMARKS
    return different[:_MOST_REMARKS] + ([f"{rest} more remarks like this one"] if rest > 0 else [])
