"""Which samples may carry a prefill curve, why others may not, and when there are enough: pure functions of records."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvbench.prefill.live.log import Record
from kvbench.prefill.live.plan import Plan
from kvbench.record.results import PointWarning
from kvbench.record.stats import interval_ranks
from kvbench.units import format_duration_ns, format_tokens

# Beginning-of-text tokens and chat templates are the same in every prompt, so a few cached tokens prove nothing.
CACHED_SHARE = 0.005
LENGTH_OFF_SHARE = 0.02
# Five-fold: what a warm prefix cache does at once, and noise on a shared machine hardly (llm-d-benchmark#499).
DROP_FACTOR = 5.0
CLIENT_SHARE = 0.1
# At most so many unusable samples in a row before a length is given up: nothing is tried again for ever.
UNUSABLE_IN_A_ROW = 3


@dataclass(frozen=True, slots=True)
class JudgedSample:
    """A record with what is to be said of it; ``refused`` is the reason to leave it out, ``codes`` are its warnings."""

    record: Record
    tokens: int
    refused: str | None
    codes: tuple[str, ...]

    @property
    def ttft_ns(self) -> int:
        """TTFT of a record that has one."""
        assert self.record.exchange.ttft_ns is not None
        return self.record.exchange.ttft_ns


@dataclass(frozen=True, slots=True)
class LengthResult:
    """One length at one concurrency: its samples, judged, their median and its 95 % interval in ns, and warnings."""

    asked_tokens: int
    concurrency: int
    judged: tuple[JudgedSample, ...]
    median_ns: int | None
    low_ns: int | None
    high_ns: int | None
    reason: str | None
    warnings: tuple[PointWarning, ...]

    @property
    def usable(self) -> tuple[JudgedSample, ...]:
        """The samples that count."""
        return tuple(item for item in self.judged if item.refused is None)


def judge_length(asked_tokens: int, concurrency: int, records: Sequence[Record]) -> LengthResult:
    """The samples of one length; warm-ups among the records only tell how many there were."""
    judged = _without_drop([judge_sample(record) for record in records if record.kind == "sample"])
    usable = [item for item in judged if item.refused is None]
    times = sorted(item.ttft_ns for item in usable)
    median, low, high = (None, None, None) if not times else _median(times)
    reason = None
    if not usable:
        said = [item.refused for item in judged if item.refused] or [
            record.exchange.failure for record in records if record.exchange.failure
        ]
        reason = said[-1] if said else "not tried, because a shorter prompt gave nothing"
    return LengthResult(asked_tokens, concurrency, tuple(judged), median, low, high, reason, _warnings(judged))


def judge_sample(record: Record) -> JudgedSample:
    """One sample, looked at alone."""
    exchange = record.exchange
    tokens, codes = _tokens(record)
    refused = exchange.failure
    cached = exchange.cached_tokens or 0
    if refused is None and cached > CACHED_SHARE * tokens:
        refused = f"{format_tokens(cached)} of {format_tokens(tokens)} prompt tokens came out of the prefix cache"
    elif cached:
        codes.append("few-cached")
    if exchange.failure is None:
        if exchange.first == "finish":
            codes.append("token-without-text")
        if _client_bound(record):
            codes.append("client-cpu")
    return JudgedSample(record, tokens, refused, tuple(codes))


def enough(records: Sequence[Record], plan: Plan) -> bool:
    """Whether the median is known well enough, or the most samples are taken, or the length is to be given up."""
    judged = _without_drop([judge_sample(record) for record in records if record.kind == "sample"])
    if len(judged) >= UNUSABLE_IN_A_ROW and all(item.refused for item in judged[-UNUSABLE_IN_A_ROW:]):
        return True
    times = sorted(item.ttft_ns for item in judged if item.refused is None)
    if len(times) < plan.fewest_samples:
        return len(judged) >= plan.most_samples + UNUSABLE_IN_A_ROW
    if len(times) >= plan.most_samples:
        return True
    median, low, high = _median(times)
    return low is not None and high is not None and (high - low) / 2 <= plan.precision * median


def _median(times: Sequence[int]) -> tuple[int, int | None, int | None]:
    low, high = interval_ranks(len(times), 50)
    return (
        round(statistics.median(times)),
        None if low is None else times[low - 1],
        None if high is None else times[high - 1],
    )


def _tokens(record: Record) -> tuple[int, list[str]]:
    """Prompt tokens as the server counted them, else its tokenizer, else as asked; and the warning codes for that."""
    asked = record.asked_tokens or 0
    counted = record.exchange.prompt_tokens or record.counted_tokens
    if not counted:
        return asked, ["length-unknown"]
    return counted, ["length-off"] if abs(counted - asked) > LENGTH_OFF_SHARE * asked else []


def _client_bound(record: Record) -> bool:
    """Whether this process's own thread ran, or waited for a processor, for a good part of the TTFT."""
    exchange = record.exchange
    own_ns = exchange.client_cpu_ns + (exchange.client_wait_ns or 0)
    return exchange.ttft_ns is not None and own_ns > CLIENT_SHARE * exchange.ttft_ns


def _without_drop(judged: Sequence[JudgedSample]) -> list[JudgedSample]:
    """The samples with those refused that a drop after the first one makes doubtful.

    With the server's word that nothing was cached the slow first one is the odd one out (a kernel compiled late);
    without it the fast ones may be cache hits, and then nothing of this length can be told.
    """
    usable = [item for item in judged if item.refused is None]
    if len(usable) < 3:
        return list(judged)
    first, later = usable[0], statistics.median(item.ttft_ns for item in usable[1:])
    if first.ttft_ns <= DROP_FACTOR * later:
        return list(judged)
    drop = f"TTFT fell from {format_duration_ns(first.ttft_ns)} to {format_duration_ns(later)} after the first sample"
    if all(item.record.exchange.cached_tokens is not None for item in usable):
        return [replace(item, refused=f"{drop}, with nothing cached") if item is first else item for item in judged]
    return [
        replace(item, refused=f"{drop}, and the server does not say what came out of its prefix cache")
        if item.refused is None
        else item
        for item in judged
    ]


_WARNINGS = {
    "few-cached": (
        "a few of the prompt tokens (at most 0.5 %) came out of the prefix cache",
        "That is the beginning that all prompts share, like a chat template.",
    ),
    "token-without-text": (
        "the first token had no text, so the chunk that says it was made ended the TTFT",
        "Nothing to do: half a character, or a control token of a thinking model.",
    ),
    "client-cpu": (
        "this client's own work or its wait for a processor was more than a tenth of the TTFT",
        "Run kvbench on another or a quieter machine than the server.",
    ),
    "length-unknown": (
        "the server does not count prompt tokens, so the length is the one asked for",
        "Use a server that answers stream_options.include_usage.",
    ),
    "length-off": (
        "the prompts are more than 2 % off the length asked for; the samples stand at their true length",
        "Nothing to do: the curve uses the true length.",
    ),
}


def _warnings(judged: Sequence[JudgedSample]) -> tuple[PointWarning, ...]:
    usable = [item for item in judged if item.refused is None]
    found = []
    for code, (message, hint) in _WARNINGS.items():
        if count := sum(1 for item in usable if code in item.codes):
            found.append(PointWarning(code, f"{message} ({count} of {len(usable)} samples).", hint, {"samples": count}))
    if refused := [item for item in judged if item.refused is not None]:
        message = f"{len(refused)} of {len(judged)} samples are left out; the last one: {refused[-1].refused}."
        hint = "See the log for every one of them."
        found.append(PointWarning("refused-samples", message, hint, {"samples": len(refused)}))
    if usable and all(item.record.exchange.cached_tokens is None for item in usable):
        message = "the server does not say how much came out of its prefix cache; only the unique prompts speak for it."
        # vLLM up to 0.25 at least (chat_completion/serving.py) leaves a zero out, so it is silent on a cold prompt.
        hint = (
            "SGLang says it with --enable-cache-report, vLLM with --enable-prompt-tokens-details (many versions only "
            "when there was some)."
        )
        found.append(PointWarning("cache-unknown", message, hint, {}))
    return tuple(found)
