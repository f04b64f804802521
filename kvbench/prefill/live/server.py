"""What a server says about itself: name, version, models, and its prefix-cache counters. Nothing here is timed."""

from __future__ import annotations

import http.client
import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kvbench.errors import UsageError
from kvbench.prefill.live.client import Client
from kvbench.prefill.live.endpoint import KEY_VARIABLE, Endpoint
from kvbench.prefill.live.protocol import one_line

# vLLM 0.33, SGLang 0.5 and llama.cpp of 2026; the suffix _total comes and goes with the exporter.
_COUNTERS = re.compile(
    r"(?:vllm:(?:external_)?prefix_cache_(?:queries|hits)|vllm:prompt_tokens(?:_cached)?|sglang:(?:cached|prompt)_tokens"
    r"|llamacpp:prompt_tokens(?:_cached)?)(?:_total)?"
)
_SAMPLE = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)(?:\{.*\})?\s+([0-9.eE+]+)(?:\s+[0-9]+)?")
_HITS = ("prefix_cache_hits", "prompt_tokens_cached", "cached_tokens")


@dataclass(frozen=True, slots=True)
class Server:
    """Name (``unknown`` when it does not tell) and version, the Server header, the models that it serves, and the
    longest context of the one that was asked for.
    """

    name: str
    version: str | None
    header: str | None
    models: tuple[str, ...]
    max_model_tokens: int | None


def look(client: Client, endpoint: Endpoint, model: str) -> Server:
    """What the server says of itself; fields that it does not tell are None or empty.

    UsageError when it wants a key, or lists its models and ``model`` is not one: llama.cpp answers to any name.
    """
    status, header, data = _json(client, f"{endpoint.prefix}/models")
    if status in (401, 403):
        raise UsageError(
            f"{endpoint.url} refuses this user (HTTP {status}); set {KEY_VARIABLE} to a key of that server."
        )
    entries = [entry for entry in _list(data, "data") if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
    models = tuple(entry["id"] for entry in entries)
    if models and model not in models:
        known = ", ".join(one_line(name, 200) for name in models[:10])
        raise UsageError(f"{endpoint.url} does not serve {model!r}; it serves {known}.")
    mine = next((entry for entry in entries if entry["id"] == model), {})
    name = _name(str(mine.get("owned_by") or ""), header)
    return Server(name, _version(client, endpoint, name), header or None, models, _longest(mine))


def counters(client: Client, endpoint: Endpoint) -> dict[str, float] | None:
    """Prefix-cache and prompt-token counters of ``/metrics``, summed over their labels; None where there are none."""
    try:
        status, _, body = client.ask("GET", f"{root(endpoint)}/metrics")
    except (OSError, http.client.HTTPException):
        return None
    return read_counters(body.decode(errors="replace")) if status == 200 else None


def read_counters(text: str) -> dict[str, float] | None:
    """The counters in a Prometheus text, summed over their labels; None when it has none of them."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        sample = _SAMPLE.fullmatch(line.strip())
        if sample is None or not _COUNTERS.fullmatch(sample[1]):
            continue
        with suppress(ValueError):
            found[sample[1]] = found.get(sample[1], 0.0) + float(sample[2])
    return {name: value for name, value in found.items() if math.isfinite(value)} or None


def hit_tokens(before: Mapping[str, float] | None, after: Mapping[str, float] | None) -> float | None:
    """Tokens that the server found in a cache between two readings, whoever asked for them; None when not known.

    A counter that is smaller than before began again at zero with its server.
    """
    if before is None or after is None:
        return None
    pairs = [(before.get(name, 0.0), now) for name, now in after.items() if any(part in name for part in _HITS)]
    return max((now if now < then else now - then for then, now in pairs), default=None)


def root(endpoint: Endpoint) -> str:
    """The path below which servers keep what is not OpenAI's: /version, /metrics, /tokenize."""
    return endpoint.prefix.removesuffix("/v1")


def _name(owner: str, header: str) -> str:
    known = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama.cpp", "llama.cpp": "llama.cpp"}
    return known.get(owner.lower()) or known.get(header.lower()) or "unknown"


def _version(client: Client, endpoint: Endpoint, name: str) -> str | None:
    places = {"sglang": ("get_server_info", "version"), "llama.cpp": ("props", "build_info")}
    path, key = places.get(name, ("version", "version"))
    _, _, data = _json(client, f"{root(endpoint)}/{path}")
    found = data.get(key) if isinstance(data, dict) else None
    return one_line(found, 80) if isinstance(found, str) else None


def _longest(entry: Mapping[str, Any]) -> int | None:
    meta = entry.get("meta")
    inner = meta.get("n_ctx") if isinstance(meta, dict) else None
    found = entry.get("max_model_len") or inner
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else None


def _json(client: Client, path: str) -> tuple[int | None, str, Any]:
    try:
        status, header, body = client.ask("GET", path)
    except (OSError, http.client.HTTPException):
        return None, "", None
    try:
        return status, header, json.loads(body) if status == 200 else None
    except (ValueError, RecursionError):
        return status, header, None


def _list(data: object, key: str) -> Sequence[Any]:
    found = data.get(key) if isinstance(data, dict) else None
    return found if isinstance(found, list) else ()
