"""What a measurement of TTFT is going to send, written down before it starts so that a killed one can be resumed."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kvbench.errors import UsageError
from kvbench.units import format_duration_s, format_tokens

Api = Literal["auto", "completions", "chat"]

DEFAULT_CONTEXTS = (1024, 2048, 4096, 8192, 16384, 32768)
SHORTEST_CONTEXT = 32
# Six is the least for which order statistics bound a median with 95 %: (1/2)^5 > 0.05 > 2 x (1/2)^6.
FEWEST_SAMPLES, MOST_SAMPLES = 6, 20
_CALIBRATION_WORDS = (24, 160)
# Words of two syllables take two to five tokens, by the size of the vocabulary; for the estimate only.
_LEAST_TOKENS_PER_WORD, _MOST_TOKENS_PER_WORD = 2, 5
# Where the server has no tokenizer, so many more warm-ups correct the length.
EXTRA_WARMUPS = 2
# From a small CPU server or a large model on one GPU to a small model on a fast one.
_SLOW_TOKENS_PER_S, _FAST_TOKENS_PER_S = 1_000, 30_000


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that decides which requests are sent. ``seed`` makes the prompts, and differs from run to run.

    ``model`` is the server's word for the model, ``name`` the one that the CSV carries.
    """

    url: str
    model: str
    name: str
    api: Api
    contexts: tuple[int, ...]
    concurrency: tuple[int, ...]
    fewest_samples: int
    most_samples: int
    precision: float
    warmups: int
    timeout_s: float
    seed: str


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a plan sends at least and at most, and how long the tokens take a slow and a fast server, in seconds."""

    fewest_requests: int
    most_requests: int
    fewest_tokens: int
    most_tokens: int
    fast_s: float
    slow_s: float


def new_seed() -> str:
    """A seed that no earlier run had: a server may still hold the prompts of the last one."""
    return secrets.token_hex(8)


def same_but_seed(a: Plan, b: Plan) -> bool:
    """Whether two plans ask for the same measurement."""
    return replace(a, seed="") == replace(b, seed="")


def checked_contexts(contexts: Sequence[int]) -> tuple[int, ...]:
    """The context lengths in ascending order, each once; UsageError for none or one below SHORTEST_CONTEXT."""
    found = tuple(sorted(set(contexts)))
    if not found or found[0] < SHORTEST_CONTEXT:
        raise UsageError(f"--contexts: give lengths of {SHORTEST_CONTEXT} tokens or more, like 1k,8k,32k.")
    return found


def calibration_words(plan: Plan) -> tuple[int, int]:
    """Words of the two calibration prompts: fewer than usual where the longest context is short."""
    most = min(_CALIBRATION_WORDS[1], max(2, max(plan.contexts) // 5))
    return min(_CALIBRATION_WORDS[0], most // 2), most


def estimate(plan: Plan) -> Estimate:
    """Requests and prompt tokens between the least and the most of a measurement in which every sample is good."""
    words = calibration_words(plan)
    fewest = most = len(words)
    fewest_tokens, most_tokens = _LEAST_TOKENS_PER_WORD * sum(words), _MOST_TOKENS_PER_WORD * sum(words)
    for concurrency in plan.concurrency:
        # Each connection has a warm-up of its own, and at the end the others are still at work.
        ramp, late = (concurrency, concurrency - 1) if concurrency > 1 else (0, 0)
        least = plan.warmups + ramp + plan.fewest_samples
        greatest = plan.warmups + EXTRA_WARMUPS + ramp + plan.most_samples + late
        fewest += least * len(plan.contexts)
        most += greatest * len(plan.contexts)
        fewest_tokens += least * sum(plan.contexts)
        most_tokens += greatest * sum(plan.contexts)
    return Estimate(
        fewest, most, fewest_tokens, most_tokens, fewest_tokens / _FAST_TOKENS_PER_S, most_tokens / _SLOW_TOKENS_PER_S
    )


def describe(plan: Plan) -> list[str]:
    """The plan in lines for a person."""
    found = estimate(plan)
    requests = _between(found.fewest_requests, found.most_requests)
    return [
        f"would send to {plan.url} ({plan.api}), model {plan.model}:",
        f"  prompts of {', '.join(map(format_tokens, plan.contexts))} tokens, one token of answer each, "
        f"{_between(plan.fewest_samples, plan.most_samples)} samples after {plan.warmups} warm-up, "
        f"{', '.join(map(str, plan.concurrency))} at a time",
        f"  {requests} requests with {_between(found.fewest_tokens, found.most_tokens)} prompt tokens in all",
        f"  about {format_duration_s(found.fast_s)} at {format_tokens(_FAST_TOKENS_PER_S)} prompt tokens/s, "
        f"{format_duration_s(found.slow_s)} at {format_tokens(_SLOW_TOKENS_PER_S)}",
    ]


def _between(low: int, high: int) -> str:
    return format_tokens(low) if low == high else f"{format_tokens(low)} to {format_tokens(high)}"
