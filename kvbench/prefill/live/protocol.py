"""OpenAI's completions and chat completions, as far as one streamed token needs them: bodies out, events in.

Field names: the OpenAI API reference; ``cache_salt`` and ``/tokenize`` are vLLM's (docs, Automatic Prefix Caching),
``cache_prompt`` and ``timings`` llama.cpp's (tools/server/README.md); ``reasoning_content`` and ``reasoning`` are what
vLLM, SGLang and llama.cpp call the text of a thinking model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kvbench.formats.chunks import first_choice, text_in
from kvbench.prefill.live.endpoint import Api

First = Literal["content", "reasoning", "tool call", "finish"]

# A larger count is nonsense, and no float.
MOST_TOKENS = 10**12


@dataclass(frozen=True, slots=True)
class Dialect:
    """How this server is spoken to: the API, the optional fields that it takes, and its word for the token limit."""

    api: Api
    fields: tuple[str, ...] = ("stream_options", "temperature")
    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """What one ``data:`` line says. ``first`` names the kind of text in it, None when it holds none."""

    first: First | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    error: str | None = None
    done: bool = False


class BadEvent(Exception):
    """A ``data:`` line that is not what the API promises; the text says what it is."""


def body(dialect: Dialect, model: str, prompt: str, salt: str) -> bytes:
    """The request for one streamed token after ``prompt``."""
    data: dict[str, Any] = {"model": model}
    if dialect.api == "chat":
        data["messages"] = [{"role": "user", "content": prompt}]
    else:
        data["prompt"] = prompt
    data |= {dialect.limit_field: 1, "stream": True}
    values = {
        "stream_options": {"include_usage": True},
        "cache_salt": salt,
        "cache_prompt": False,
        "temperature": 0,
    }
    return json.dumps(data | {name: values[name] for name in dialect.fields}).encode()


def adapted(dialect: Dialect, refusal: str) -> Dialect | None:
    """The dialect without the field that the server's refusal names, or None when it names none of ours."""
    if dialect.limit_field == "max_tokens" and "max_completion_tokens" in refusal:
        return Dialect(dialect.api, dialect.fields, "max_completion_tokens")
    for name in dialect.fields:
        if name in refusal:
            return Dialect(dialect.api, tuple(other for other in dialect.fields if other != name), dialect.limit_field)
    return None


def read_line(line: bytes) -> StreamEvent | None:
    """The event of one line of the stream, None for a comment, an empty line or another field; BadEvent for junk."""
    if not line.startswith(b"data:"):
        return None
    payload = line[5:].strip()
    if payload == b"[DONE]":
        return StreamEvent(done=True)
    try:
        data = json.loads(payload)
    except UnicodeDecodeError:
        raise BadEvent("the stream is not valid UTF-8") from None
    except (ValueError, RecursionError):
        raise BadEvent("a line of the stream is not JSON") from None
    if not isinstance(data, dict):
        raise BadEvent("a line of the stream is no JSON object")
    if data.get("error") or data.get("object") == "error":
        return StreamEvent(error=error_text(data))
    first, finish_reason = _choice(data.get("choices"))
    return StreamEvent(first, finish_reason, *_usage(data))


def error_text(data: object) -> str:
    """What a server's error object says, in one short line."""
    found = data.get("error", data) if isinstance(data, dict) else data
    message = found.get("message", found) if isinstance(found, dict) else found
    return one_line(str(message), 300)


def one_line(text: str, longest: int) -> str:
    """A server's text, cut, on one line: control characters would steer a terminal, lone surrogates fit no file."""
    return "".join(character if character.isprintable() else "?" for character in " ".join(text.split()))[:longest]


def _choice(choices: object) -> tuple[First | None, str | None]:
    choice = first_choice(choices)
    reason = choice.get("finish_reason")
    # Some gateways write "" for "not yet", in the role chunk too.
    return text_in(choice), reason if isinstance(reason, str) and reason else None


def _usage(data: Mapping[str, Any]) -> tuple[int | None, int | None, int | None]:
    usage, timings = _object(data, "usage"), _object(data, "timings")
    # OpenAI's place, DeepSeek's, and llama.cpp's own count.
    places = (
        _object(usage, "prompt_tokens_details").get("cached_tokens"),
        usage.get("prompt_cache_hit_tokens"),
        timings.get("cache_n"),
    )
    cached = next((count for place in places if (count := _count(place)) is not None), None)
    return _count(usage.get("prompt_tokens")), cached, _count(usage.get("completion_tokens"))


def _object(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = data.get(name)
    return found if isinstance(found, dict) else {}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS else None
