"""First contact: who the server is, how it wants to be asked, and how many tokens its words have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kvbench.errors import MeasurementError
from kvbench.prefill.live import prompts, protocol, server
from kvbench.prefill.live.client import Client
from kvbench.prefill.live.endpoint import Api, Endpoint
from kvbench.prefill.live.log import Record
from kvbench.prefill.live.plan import Plan, calibration_words
from kvbench.prefill.live.prompts import Gauge, ServerTokenizer, Size, gauge
from kvbench.prefill.live.protocol import Dialect
from kvbench.prefill.live.server import Server

_MOST_REFUSALS = 6
_NO_SUCH_API = (404, 405, 501)
# Fields with which a server leaves its prefix cache alone.
_UNCACHED = {"vllm": ("cache_salt",), "llama.cpp": ("cache_prompt",)}

Ask = Callable[[Dialect, Size], Record]


@dataclass(frozen=True, slots=True)
class Contact:
    """What the first requests told. ``tokenizer`` is None where /tokenize and the usage counts do not agree."""

    server: Server
    dialect: Dialect
    gauge: Gauge
    tokenizer: ServerTokenizer | None
    counters: dict[str, float] | None


def make_contact(control: Client, endpoint: Endpoint, plan: Plan, ask: Ask) -> Contact:
    """Two small prompts, after leaving out fields or changing the API where the server wants that.

    MeasurementError when it does not answer as an OpenAI-compatible server does.
    """
    found = server.look(control, endpoint, plan.model)
    counters = server.counters(control, endpoint)
    few, most = calibration_words(plan)
    dialect, first = _first(endpoint, plan, found, ask, Size(few))
    second = ask(dialect, Size(most))
    if second.exchange.failure is not None:
        raise MeasurementError(f"{endpoint.url}: {second.exchange.failure}; nothing was measured.")
    counted = [(record.words, record.exchange.prompt_tokens) for record in (first, second)]
    line = gauge([(words, tokens) for words, tokens in counted if tokens])
    tokenizer = _agreeing(ServerTokenizer(control, endpoint, plan.model), plan, (first, second))
    if tokenizer is not None:
        pad = tokenizer.tokens_per_pad(lambda size: prompts.text(plan.seed, first.index, size))
        line = replace(line, tokens_per_pad=pad)
    return Contact(found, dialect, line, tokenizer, counters)


def _first(endpoint: Endpoint, plan: Plan, found: Server, ask: Ask, size: Size) -> tuple[Dialect, Record]:
    apis: tuple[Api, ...] = ("completions", "chat")
    if endpoint.api is not None or plan.api != "auto":
        apis = (endpoint.api or ("chat" if plan.api == "chat" else "completions"),)
    reasons = []
    for api in apis:
        fields = ("stream_options", "temperature", *_UNCACHED.get(found.name, ()))
        dialect, record = _negotiated(Dialect(api, fields), ask, size)
        if record.exchange.failure is None:
            return dialect, record
        reasons.append(f"{endpoint.path(api)}: {record.exchange.failure}")
        if record.exchange.http_status not in _NO_SUCH_API:
            break
    raise MeasurementError(
        f"{endpoint.origin} cannot be measured; {'; '.join(reasons)}. Check --url, --model and that the server runs."
    )


def _negotiated(dialect: Dialect, ask: Ask, size: Size) -> tuple[Dialect, Record]:
    record = ask(dialect, size)
    for _ in range(_MOST_REFUSALS):
        if record.exchange.failure is None or record.exchange.http_status not in (400, 422):
            break
        adapted = protocol.adapted(dialect, record.exchange.failure)
        if adapted is None:
            break
        dialect, record = adapted, ask(adapted, size)
    return dialect, record


def _agreeing(tokenizer: ServerTokenizer, plan: Plan, seen: Sequence[Record]) -> ServerTokenizer | None:
    """The tokenizer, if it and the usage counts differ by the same number of tokens for every prompt."""
    offsets = set()
    for record in seen:
        if record.exchange.prompt_tokens is None:
            return None
        text = prompts.text(plan.seed, record.index, Size(record.words, record.pads))
        offsets.add(tokenizer.learn(text, record.exchange.prompt_tokens))
    offset = offsets.pop()
    if offsets or offset is None:
        return None
    tokenizer.offset = offset
    return tokenizer
