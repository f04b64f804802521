"""What is sent to an endpoint, and what its answers mean: URLs, the key, prompts of a length, lines of a stream."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvbench.errors import UsageError
from kvbench.prefill.live import endpoint as endpoints
from kvbench.prefill.live import prompts, protocol
from kvbench.prefill.live.prompts import Size
from kvbench.prefill.live.protocol import Dialect
from tests.conftest import Outcome

Kvbench = Callable[..., Outcome]
KEY = "sk-this-is-a-secret-of-the-tests"

pytestmark = pytest.mark.usefixtures("no_key_and_no_proxy")


# -- the endpoint


@pytest.mark.parametrize(
    ("text", "url", "api"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1", None),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1", None),
        ("https://host/openai/v1/", "https://host:443/openai/v1", None),
        ("http://host/v1/completions", "http://host:80/v1", "completions"),
        ("http://host/v1/chat/completions", "http://host:80/v1", "chat"),
        ("http://[::1]:8000", "http://[::1]:8000/v1", None),
    ],
)
def test_what_a_url_means(text: str, url: str, api: str | None) -> None:
    found = endpoints.parse_url(text)
    assert (found.url, found.api) == (url, api)
    assert endpoints.parse_url(found.url).url == url


@pytest.mark.parametrize(
    "text",
    ["http://user:pa55@host", "http://pa55@host", "http://host/v1?key=pa55", "http://host#pa55", "", "host:8000",
     "ftp://host", "http://", "http://host:99999", "http://[::1", "http://ho\tst", "http://h ost"],
)  # fmt: skip
def test_a_url_that_is_none_or_holds_a_secret_is_refused_without_repeating_it(text: str, kvbench: Kvbench) -> None:
    outcome = kvbench("prefill", "--url", text, "--model", "m", "--dry-run")
    assert outcome.code == 2
    assert "pa55" not in outcome.out + outcome.err


@pytest.mark.parametrize(
    ("host", "near"),
    [
        ("127.0.0.1", True), ("localhost", True), ("0.0.0.0", True), ("10.1.2.3", True), ("192.168.7.7", True),
        ("172.31.0.1", True), ("172.32.0.1", False), ("100.64.0.9", True), ("::1", True), ("fd00::1", True),
        ("::ffff:10.0.0.1", True), ("::ffff:8.8.8.8", False), ("8.8.8.8", False), ("192.0.2.1", False),
        ("203.0.113.9", False), ("2001:db8::1", False), ("224.0.0.1", False),
    ],
)  # fmt: skip
def test_whose_addresses_are_private(host: str, near: bool) -> None:
    found = endpoints.Endpoint("http", host, 80, "/v1")
    assert endpoints.is_nearby(found) is near
    if not near:
        with pytest.raises(UsageError, match="--yes"):
            endpoints.require_nearby(found, yes=False)
        endpoints.require_nearby(found, yes=True)


def test_a_public_endpoint_is_not_measured_without_yes(kvbench: Kvbench, tmp_path: Path) -> None:
    outcome = kvbench("prefill", "--url", "http://192.0.2.1", "--model", "m", "-o", tmp_path / "t.csv")
    assert (outcome.code, list(tmp_path.iterdir())) == (2, [])
    assert "--yes" in outcome.err


# -- the key


@pytest.mark.parametrize("value", ["two words", "new\nline", "schlüssel"])
def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(value: str) -> None:
    with pytest.raises(UsageError) as caught:
        endpoints.key_of({endpoints.KEY_VARIABLE: value})
    assert value not in str(caught.value)
    assert endpoints.key_of({endpoints.KEY_VARIABLE: " \n"}) is None


@pytest.mark.parametrize("said", [f"no such key {KEY}!", f"key {KEY[:20]}", f"key {KEY[-18:]}", f"cut {KEY[:6]}"])
def test_a_key_that_a_server_repeats_is_blacked_out(said: str) -> None:
    shown = endpoints.redact(said, KEY)
    assert "***" in shown
    assert KEY[:6] not in shown
    assert KEY[-6:] not in shown


# -- prompts and lengths


def test_prompts_of_one_length_hold_the_same_words_and_open_differently() -> None:
    found = [prompts.text("seed", index, Size(50, 2)).split() for index in range(2000)]
    assert len({" ".join(words[:2]) for words in found}) == len(found)
    assert len({words[0] for words in found[:900]}) == 900
    assert len({tuple(sorted(words[prompts.OPENING_WORDS :])) for words in found}) == 1
    assert prompts.text("seed", 7, Size(50, 2)).split() == found[7]
    assert prompts.text("other", 7, Size(50, 2)).split()[1:] != found[7][1:]


@pytest.mark.parametrize(("base", "per_word"), [(0, 3.0), (70, 2.5), (1, 4.0)])
def test_a_gauge_finds_the_line_through_two_counts(base: int, per_word: float) -> None:
    line = prompts.gauge([(n, round(base + (n + prompts.OPENING_WORDS) * per_word)) for n in (24, 160)])
    size = line.size(1000)
    assert size is not None
    assert base + (size.words + prompts.OPENING_WORDS) * per_word == pytest.approx(1000, abs=per_word + 1)
    assert line.size(base + 3) is None


@pytest.mark.parametrize("missing", [-700, -4, -1, 0, 1, 2, 5, 90])
def test_a_corrected_size_has_the_missing_tokens(missing: int) -> None:
    line, size = prompts.Gauge(0, 3.0), Size(300, 1)
    found = line.corrected(size, missing)
    assert 3 * found.words + found.pads == 3 * size.words + size.pads + missing
    assert found.pads < 3


# -- the protocol


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ({"choices": [{"text": "a"}]}, "content"),
        ({"choices": [{"text": " "}]}, "content"),
        ({"choices": [{"delta": {"content": "a"}}]}, "content"),
        ({"choices": [{"delta": {"reasoning_content": "a"}}]}, "reasoning"),
        ({"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f"}}]}}]}, "tool call"),
        ({"choices": [{"delta": {"content": None, "function_call": {"name": "f"}}}]}, "tool call"),
        ({"choices": [{"delta": {"role": "assistant", "content": "", "tool_calls": []}}]}, None),
        ({"choices": [{"delta": {"reasoning": "a", "content": None}}]}, "reasoning"),
        ({"choices": [{"delta": {"role": "assistant", "content": ""}}]}, None),
        ({"choices": [{"text": ""}]}, None),
        ({"choices": []}, None),
        ({"choices": None, "usage": {"prompt_tokens": 3}}, None),
        ({"choices": ["x"]}, None),
        ({"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": ""}]}, None),
        ({}, None),
    ],
)
def test_what_counts_as_the_first_token(line: dict[str, Any], first: str | None) -> None:
    event = protocol.read_line(b"data: " + json.dumps(line).encode())
    assert event is not None
    assert (event.first, event.finish_reason) == (first, None)


@pytest.mark.parametrize(
    ("usage", "cached"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 5}}, 5),
        ({"prompt_tokens_details": None, "prompt_cache_hit_tokens": 4}, 4),
        ({"prompt_tokens_details": {"cached_tokens": None}}, None),
        ({"prompt_tokens_details": {"cached_tokens": -1}}, None),
        ({"prompt_tokens_details": {"cached_tokens": True}}, None),
        (None, None),
    ],
)
def test_where_servers_say_what_was_cached(usage: object, cached: int | None) -> None:
    event = protocol.read_line(b"data:" + json.dumps({"usage": usage}).encode())
    assert event is not None
    assert event.cached_tokens == cached


def test_a_refused_field_is_left_out_and_a_foreign_one_is_not() -> None:
    dialect = Dialect("chat", ("stream_options", "temperature"))
    assert protocol.adapted(dialect, "Unrecognized argument: stream_options") == Dialect("chat", ("temperature",))
    swapped = protocol.adapted(dialect, "'max_tokens' is not supported, use 'max_completion_tokens'")
    assert swapped == replace(dialect, limit_field="max_completion_tokens")
    assert protocol.adapted(dialect, "the prompt is too long") is None
    sent = json.loads(protocol.body(Dialect("chat", ("cache_salt",), "max_completion_tokens"), "m", "p", "salt"))
    assert sent == {
        "model": "m", "messages": [{"role": "user", "content": "p"}], "max_completion_tokens": 1, "stream": True,
        "cache_salt": "salt",
    }  # fmt: skip


@pytest.mark.parametrize("line", [b"", b": comment", b"event: x", b"id: 3", b"retry: 1"])
def test_lines_that_are_no_event(line: bytes) -> None:
    assert protocol.read_line(line) is None


@pytest.mark.parametrize("line", [b"data: {", b'data: "\xff"', b"data: []", b"data: 3", b"data:" + b"[" * 100_000])
def test_lines_that_are_junk(line: bytes) -> None:
    with pytest.raises(protocol.BadEvent):
        protocol.read_line(line)


@pytest.mark.parametrize("count", [-1, True, 1.5, 10**13, 10**400])
def test_a_count_that_is_none(count: float) -> None:
    event = protocol.read_line(b"data: " + json.dumps({"usage": {"prompt_tokens": count}}).encode())
    assert event is not None
    assert event.prompt_tokens is None
