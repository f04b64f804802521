"""TTFT measured live: against servers that misbehave, and against llama.cpp's own with a model of random weights."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from kvbench.errors import InputFileError, Interrupted, UsageError
from kvbench.prefill.live import endpoint as endpoints
from kvbench.prefill.live import judge, log, output, plan, prompts, protocol, server
from kvbench.prefill.live.client import Client, Exchange
from kvbench.prefill.live.flights import Flights, Job
from kvbench.prefill.live.log import Record
from kvbench.prefill.live.prompts import Size
from kvbench.prefill.live.protocol import Dialect
from kvbench.prefill.samples import read_csv
from tests import bad_servers
from tests.bad_servers import MODEL, Answer, Behaviour
from tests.conftest import ROOT, Outcome
from tests.lab import llm
from tests.lab.state import LabError, LlmServer

Kvbench = Callable[..., Outcome]
KEY = "sk-this-is-a-secret-of-the-tests"


@pytest.fixture(autouse=True)
def no_key_and_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the developer's key nor a proxy that would be found in the way (nobody listens at that one)."""
    monkeypatch.delenv(endpoints.KEY_VARIABLE, raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


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


# -- judging


def record(ttft_s: float = 1.0, *, tokens: int | None = 1000, cached: int | None = 0, **changes: Any) -> Record:
    """A sample of 1000 asked tokens."""
    exchange = Exchange(
        http_status=200, ttft_ns=round(ttft_s * 1e9), total_ns=round(ttft_s * 1e9), first="content",
        prompt_tokens=tokens, cached_tokens=cached, completion_tokens=1,
    )  # fmt: skip
    return Record("sample", 0, "", 1, 1000, None, 300, 0, replace(exchange, **changes))


def codes(*records: Record) -> set[str]:
    """The codes of the warnings that these samples deserve together."""
    return {caveat.code for caveat in judge.judge_length(1000, 1, records).warnings}


def test_good_samples_deserve_nothing() -> None:
    found = judge.judge_length(1000, 1, [record(1 + n / 100) for n in range(9)])
    assert (found.warnings, found.reason, len(found.usable)) == ((), None, 9)
    assert (found.median_ns, found.low_ns, found.high_ns) == (1_040_000_000, 1_010_000_000, 1_070_000_000)


@pytest.mark.parametrize(
    ("doubtful", "code"),
    [
        (record(cached=3), "few-cached"),
        (record(first="finish"), "token-without-text"),
        (record(client_cpu_ns=80_000_000, client_wait_ns=30_000_000), "client-cpu"),
        (record(tokens=None), "length-unknown"),
        (record(tokens=979), "length-off"),
        (record(tokens=1021), "length-off"),
        (record(cached=None), "cache-unknown"),
        (record(cached=6), "refused-samples"),
        (record(failure="HTTP 429"), "refused-samples"),
    ],
)
def test_each_doubt(doubtful: Record, code: str) -> None:
    assert code in codes(doubtful)


@pytest.mark.parametrize(
    "harmless", [record(tokens=981), record(client_cpu_ns=90_000_000, client_wait_ns=None), record(first="reasoning")]
)
def test_no_doubt(harmless: Record) -> None:
    assert codes(harmless) == set()


def test_a_sample_stands_at_its_true_length() -> None:
    assert judge.judge_sample(record(tokens=479)).tokens == 479
    assert judge.judge_sample(replace(record(tokens=None), counted_tokens=990)).tokens == 990


def test_a_drop_after_the_first_sample_without_the_servers_word_spoils_the_length() -> None:
    """D13: five samples of one seed, 4.10, 0.09, 0.08, 0.08, 0.09 s."""
    found = judge.judge_length(1000, 1, [record(t, cached=None) for t in (4.10, 0.09, 0.08, 0.08, 0.09)])
    assert found.usable == ()
    assert found.reason is not None
    assert "fell from 4.10 s" in found.reason


def test_with_nothing_cached_only_the_slow_first_sample_goes() -> None:
    found = judge.judge_length(1000, 1, [record(t) for t in (4.10, 0.09, 0.08, 0.08, 0.09)])
    assert [item.ttft_ns for item in found.usable] == [90_000_000, 80_000_000, 80_000_000, 90_000_000]
    assert not judge.enough([record(4.1), *[record(0.1)] * 5], a_plan()), "one more takes its place"
    assert judge.enough([record(4.1), *[record(0.1)] * 6], a_plan())


def test_when_there_is_enough() -> None:
    wanted = a_plan()
    assert not judge.enough([record()] * 5, wanted)
    assert judge.enough([record()] * 6, wanted)
    spread = [record(1 + n % 3) for n in range(19)]
    assert not judge.enough(spread, wanted)
    assert judge.enough([*spread, record()], wanted)
    assert judge.enough([record()] + [record(failure="x")] * 3, wanted)
    assert not judge.enough([record(failure="x"), record(failure="x"), record()], wanted)


def a_plan(**changes: Any) -> plan.Plan:
    """A plan of the defaults."""
    wanted = plan.Plan(
        "http://127.0.0.1:1/v1", "m", "m", "auto", (1024, 2048), (1,), 6, 20, 0.05, 1, 600.0, plan.new_seed()
    )
    return replace(wanted, **changes)


def test_an_estimate_bounds_what_is_sent() -> None:
    found = plan.estimate(a_plan(concurrency=(1, 4)))
    assert found.fewest_requests == 2 + 2 * (1 + 6) + 2 * (1 + 4 + 6)
    assert found.most_requests == 2 + 2 * (1 + 2 + 20) + 2 * (1 + 2 + 4 + 20 + 3)
    assert plan.estimate(a_plan(warmups=5, concurrency=(16,))).fewest_requests == 2 + 2 * (5 + 16 + 6)
    assert found.fewest_tokens < found.most_tokens
    assert found.fast_s < found.slow_s


# -- the log and the files


def test_a_log_is_read_back_without_its_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    wanted, records = a_plan(), (record(), record(cached=None, failure="x"))
    written = log.Log(path)
    written.begin(wanted, "now")
    for item in records:
        written.add(item)
    with pytest.raises(UsageError, match="another kvbench"):
        log.Log(path, 10)
    written.close()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"kind": "sam')
    saved = log.load(path)
    assert (saved.plan, saved.created, saved.records, saved.complete_bytes) == (wanted, "now", records, len(whole))
    again = log.Log(path, saved.complete_bytes)
    again.add(record(2.0))
    again.close()
    assert log.load(path).records == (*records, record(2.0))


@pytest.mark.parametrize("text", ["", "{}\n", "[]\n", '{"log_version": 9}\n', "x\n", "\0\n"])
def test_a_damaged_log_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(text)
    with pytest.raises(InputFileError, match="damaged"):
        log.load(path)
    with pytest.raises(InputFileError, match="nothing to resume"):
        log.load(tmp_path / "absent.jsonl")


def test_each_concurrency_has_a_file_of_its_own() -> None:
    files = output.files_of(Path("a/ttft.csv"), (16, 1, 4))
    assert files.csv == {1: Path("a/ttft.csv"), 4: Path("a/ttft-c4.csv"), 16: Path("a/ttft-c16.csv")}
    with pytest.raises(UsageError, match="name the CSV"):
        output.files_of(Path("ttft"), (1,))


def test_counters_are_summed_over_their_labels() -> None:
    text = (
        "# HELP vllm:prefix_cache_hits_total x\n"
        'vllm:prefix_cache_hits_total{engine="0"} 10.0\nvllm:prefix_cache_hits_total{engine="1"} 2e3\n'
        'vllm:prefix_cache_hits_created{engine="0"} 1.7e9\nother_total 5\n'
    )
    before = {"vllm:prefix_cache_hits_total": 2000.0}
    assert server.read_counters(text) == {"vllm:prefix_cache_hits_total": 2010.0}
    assert server.hit_tokens(before, server.read_counters(text)) == 10
    assert server.read_counters("nothing 1\n") is None
    assert server.hit_tokens(None, before) is None


@pytest.mark.parametrize("value", ["1.2.3", "e", "1e999", "NaN", "-1"])
def test_a_counter_that_is_no_number_is_none(value: str) -> None:
    assert server.read_counters(f"vllm:prefix_cache_hits_total {value}\n") is None


def test_the_counters_of_a_server_that_was_started_again_begin_at_zero() -> None:
    before = {"vllm:prefix_cache_hits_total": 2000.0, "vllm:external_prefix_cache_hits_total": 0.0}
    assert server.hit_tokens(before, dict.fromkeys(before, 0.0)) == 0
    assert server.hit_tokens(before, {"vllm:prefix_cache_hits_total": 7.0}) == 7


# -- misbehaving servers: one exchange


def exchange(behaviour: Behaviour, timeout_s: float = 10.0) -> Exchange:
    """One request to a server of that behaviour, cut off after ``timeout_s``."""
    with bad_servers.serving(behaviour) as found:
        client = Client(endpoints.parse_url(found.url), KEY, timeout_s)
        body = protocol.body(Dialect("completions"), MODEL, "one two three", "")
        with Flights([client], timeout_s) as flights:
            flights.launch(Job("sample", 0, 1, 9, None, Size(3)), "/v1/completions", body)
            while not (landed := flights.landed()):
                pass
        client.close()
    return landed[0][1]


@pytest.mark.parametrize(
    ("behaviour", "first"),
    [
        (bad_servers.role_chunk_first, "content"),
        (bad_servers.empty_choices_first, "content"),
        (bad_servers.token_without_text, "finish"),
    ],
)
def test_the_clock_stops_at_the_token_and_not_before(behaviour: Behaviour, first: str) -> None:
    found = exchange(behaviour)
    assert (found.failure, found.first, found.prompt_tokens) == (None, first, 9)
    assert found.ttft_ns is not None
    assert found.total_ns is not None
    assert bad_servers.PAUSE_S * 1e9 <= found.ttft_ns <= found.total_ns


def test_reasoning_is_a_first_token() -> None:
    assert exchange(bad_servers.reasoning_first).first == "reasoning"


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (bad_servers.no_token, "held no token"),
        (bad_servers.dropped, "ended before its end"),
        (bad_servers.dropped_chunk, "broken off"),
        (bad_servers.too_many_requests, "HTTP 429: slow down"),
        (bad_servers.html_page, "HTTP 502: Bad Gateway, with a page for people"),
        (bad_servers.html_with_200, "the answer is text/html"),
        (bad_servers.not_streamed, "the answer is application/json"),
        (bad_servers.never_ending, "does not end"),
        (bad_servers.huge_line, "does not end"),
        (bad_servers.invalid_utf8, "not valid UTF-8"),
        (bad_servers.not_json, "is not JSON"),
        (bad_servers.error_in_stream, "the server says: out of memory"),
        (lambda answer: answer.write(b"SSH-2.0-OpenSSH_9.2\r\n"), "no HTTP"),
        (lambda answer: answer.start(401, "application/json"), "HTTP 401"),
        (lambda answer: answer.start(307, headers={"Location": "http://[::1"}), "redirects to no address"),
        (bad_servers.unprintable_error, "HTTP 403: no ? ?[31mway"),
    ],
)
def test_what_is_no_answer_says_why(behaviour: Behaviour, said: str) -> None:
    found = exchange(behaviour)
    assert found.failure is not None
    assert said in found.failure


@pytest.mark.parametrize("behaviour", [bad_servers.slow_headers, bad_servers.keep_alives_only])
def test_a_server_that_says_something_for_ever_is_cut_off(behaviour: Behaviour) -> None:
    assert exchange(behaviour, timeout_s=0.5).failure == "no complete answer within 0.5 s"


def test_a_plain_request_that_gets_a_little_for_ever_is_cut_off_too() -> None:
    with bad_servers.serving(bad_servers.slow_headers) as found:
        client = Client(endpoints.parse_url(found.url), None, 10)
        with pytest.raises((OSError, http.client.HTTPException)):
            client.ask("POST", "/v1/completions", {}, timeout_s=0.2)
        client.close()


def test_an_interruption_at_any_line_leaves_no_request_behind() -> None:
    """A signal raises Interrupted anywhere in the main thread: no line may leave a request that never ends."""
    body = protocol.body(Dialect("completions"), MODEL, "one", "")
    job = Job("sample", 0, 1, 9, None, Size(1))

    def hangs(*_: object) -> None:
        raise AssertionError(f"it hangs after an interruption at line {at}")

    earlier = signal.signal(signal.SIGALRM, hangs)
    with bad_servers.serving(bad_servers.token_without_text) as found:
        for at in itertools.count():
            client = Client(endpoints.parse_url(found.url), None, 60)
            signal.alarm(20)
            try:
                with Flights([client], 60) as flights:
                    sys.settrace(interrupting(at))
                    flights.launch(job, "/v1/completions", body)
                    flights.landed()
                    sys.settrace(None)
                    break
            except Interrupted:
                client.close()
            finally:
                sys.settrace(None)
                signal.alarm(0)
    signal.signal(signal.SIGALRM, earlier)
    client.close()
    assert at > 10, "the lines of both calls"


def interrupting(at: int) -> Callable[[FrameType, str, object], Any]:
    """A trace that raises Interrupted at that line from here on; threading's own lines are safe from signals."""
    lines = itertools.count()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename == threading.__file__:
            return None
        if event == "line" and next(lines) == at:
            sys.settrace(None)
            raise Interrupted("here")
        return trace

    return trace


def test_a_kept_open_connection_is_used_again_and_a_closed_one_is_not() -> None:
    def kept_open(answer: Answer) -> None:
        whole = b'data: {"choices": [{"text": "x", "finish_reason": "length"}]}\n\ndata: [DONE]\n\n'
        answer.start(headers={"Connection": "keep-alive", "Content-Length": str(len(whole))})
        answer.handler.close_connection = False
        answer.write(whole)

    body = protocol.body(Dialect("completions"), MODEL, "one", "")
    for behaviour, wanted in ((kept_open, ["new", "reused", "reused"]), (bad_servers.good, ["new", "new", "new"])):
        with bad_servers.serving(behaviour) as found:
            client = Client(endpoints.parse_url(found.url), None, 10)
            seen = [client.stream("/v1/completions", body) for _ in range(3)]
            client.close()
        assert [(item.failure, item.connection) for item in seen] == [(None, connection) for connection in wanted]


# -- misbehaving servers: the command


def measured(kvbench: Kvbench, url: str, target: Path, *more: str) -> Outcome:
    """``kvbench prefill`` with two short lengths."""
    return kvbench(
        "prefill", "--url", url, "--model", MODEL, "--contexts", "128,256", "--samples", "3", "-o", target, *more
    )


def written(target: Path) -> dict[str, Any]:
    """The JSON object beside a CSV."""
    data: dict[str, Any] = json.loads(target.with_suffix(".json").read_text())
    return data


def test_a_good_server_is_measured_at_exactly_the_lengths_asked_for(kvbench: Kvbench, tmp_path: Path) -> None:
    target = tmp_path / "ttft.csv"
    with bad_servers.serving(bad_servers.good) as found:
        outcome = measured(kvbench, found.url, target, "--json", "--name", "org/model")
        asked = found.prompts()
    assert outcome.code == 0, outcome.err
    assert outcome.json() == written(target)
    samples = read_csv(target)
    # On a busy machine a drop after the first sample may cost one, which another replaces.
    assert [row.prompt_tokens for row in samples.rows] in ([128] * n + [256] * m for n in (3, 4) for m in (3, 4))
    assert samples.model == "org/model"
    assert samples.source.startswith("kvbench prefill, completions at http://127.0.0.1:")
    assert len({prompt.split()[0] for prompt in asked}) == len(asked)
    requests = written(target)["requests"]
    assert (requests["calibration"], requests["failed"]) == (2, 0)
    assert requests["sample"] >= 6
    assert kvbench("crossover", "--ttft-csv", target, "--p99-ms", "5").code == 0


@pytest.mark.parametrize("more", [("--concurrency", "1"), ("--concurrency", "4"), ("--warmup", "3")])
def test_as_much_is_sent_as_a_dry_run_says(more: tuple[str, str], kvbench: Kvbench, tmp_path: Path) -> None:
    """Three samples of two lengths, as ``measured`` asks for."""
    with bad_servers.serving(bad_servers.good) as found:
        said = measured(kvbench, found.url, tmp_path / "ttft.csv", *more, "--dry-run", "--json").json()["estimate"]
        assert measured(kvbench, found.url, tmp_path / "ttft.csv", *more).code == 0
        sent = len(found.prompts())
    assert said["fewest_requests"] <= sent <= said["most_requests"]
    tokens = written(tmp_path / "ttft.csv")["requests"]["prompt_tokens"]
    assert said["fewest_tokens"] <= tokens <= said["most_tokens"]


def test_a_used_name_is_never_written_over(kvbench: Kvbench, tmp_path: Path) -> None:
    target = tmp_path / "ttft.csv"
    target.write_text("mine")
    with bad_servers.serving(bad_servers.good) as found:
        assert measured(kvbench, found.url, target).code == 2
        assert found.requests == []
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    "behaviour", [bad_servers.too_many_requests, bad_servers.html_page, bad_servers.dropped, bad_servers.no_token]
)
def test_a_server_that_cannot_be_measured_leaves_nothing(
    behaviour: Behaviour, kvbench: Kvbench, tmp_path: Path
) -> None:
    with bad_servers.serving(behaviour) as found:
        outcome = measured(kvbench, found.url, tmp_path / "ttft.csv")
        assert len(found.prompts()) == 1, "a refused request is never repeated"
    assert (outcome.code, list(tmp_path.iterdir())) == (3, [])
    assert outcome.err.startswith(f"kvbench: {found.url} cannot be measured")


def test_nobody_listens(kvbench: Kvbench, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        outcome = measured(kvbench, f"http://127.0.0.1:{taken.getsockname()[1]}", tmp_path / "ttft.csv")
    assert outcome.code == 3
    assert "nobody listens" in outcome.err


def test_a_model_that_is_not_served_is_refused(kvbench: Kvbench, tmp_path: Path) -> None:
    with bad_servers.serving(bad_servers.good, models=("other", "another")) as found:
        outcome = measured(kvbench, found.url, tmp_path / "ttft.csv")
        assert found.prompts() == []
    assert outcome.code == 2
    assert "it serves other, another" in outcome.err


def test_a_template_longer_than_a_prompt_spoils_the_longer_ones_not(kvbench: Kvbench, tmp_path: Path) -> None:
    """Every prompt gets 150 tokens of the server's own: 128 cannot be made, 256 can."""
    target = tmp_path / "ttft.csv"

    def templated(answer: Answer) -> None:
        answer.start()
        answer.text(reason="length")
        answer.usage(answer.tokens + 150)
        answer.done()

    with bad_servers.serving(templated) as found:
        assert measured(kvbench, found.url, target).code == 3
    short, long = written(target)["lengths"]
    assert "adds 150 tokens of its own" in short["reason"]
    assert long["prompt_tokens"] == {"min": 256, "max": 256}


def test_a_warm_cache_is_refused_and_ends_the_longer_lengths(kvbench: Kvbench, tmp_path: Path) -> None:
    target = tmp_path / "ttft.csv"
    with bad_servers.serving(bad_servers.warm_cache) as found:
        outcome = measured(kvbench, found.url, target)
    assert outcome.code == 3
    assert "came out of the prefix cache" in outcome.out
    assert [length["samples"] for length in written(target)["lengths"]] == [0, 0]
    assert written(target)["requests"]["sample"] == judge.UNUSABLE_IN_A_ROW
    rows = [line for line in target.read_text().splitlines() if not line.startswith("#")]
    assert len(rows) == 1, "only the header"
    assert target.read_text().count("# left out, ") == judge.UNUSABLE_IN_A_ROW


def test_prompts_that_arrive_shorter_are_plotted_where_they_are(kvbench: Kvbench, tmp_path: Path) -> None:
    target = tmp_path / "ttft.csv"
    with bad_servers.serving(bad_servers.shorter_than_asked) as found:
        outcome = measured(kvbench, found.url, target)
    assert outcome.code == 0
    assert "length-off" in outcome.out
    assert [length["prompt_tokens"] for length in written(target)["lengths"]] == [{"min": 100, "max": 100}] * 2


def test_a_server_that_counts_nothing(kvbench: Kvbench, tmp_path: Path) -> None:
    target = tmp_path / "ttft.csv"
    with bad_servers.serving(bad_servers.no_usage) as found:
        outcome = measured(kvbench, found.url, target)
    assert outcome.code == 0
    assert {"length-unknown", "cache-unknown"} <= {item["code"] for item in written(target)["lengths"][0]["warnings"]}


def test_fields_that_a_server_refuses_are_left_out_for_good(kvbench: Kvbench, tmp_path: Path) -> None:
    def picky(answer: Answer) -> None:
        for name in ("cache_salt", "stream_options"):
            if name in answer.body:
                answer.start(400, "application/json")
                answer.write(json.dumps({"error": {"message": f"unknown field {name}"}}).encode())
                return
        bad_servers.good(answer)

    with bad_servers.serving(picky, owner="vllm") as found:
        outcome = measured(kvbench, found.url, tmp_path / "ttft.csv")
        sent = [sorted(body) for path, _, body in found.requests if path.endswith("completions")]
    assert outcome.code == 0
    assert [("cache_salt" in names, "stream_options" in names) for names in sent[:3]] == [
        (True, True), (False, True), (False, False),
    ]  # fmt: skip
    assert all(names == sent[2] for names in sent[2:])


def test_a_vllm_server_gets_another_salt_with_every_prompt(kvbench: Kvbench, tmp_path: Path) -> None:
    with bad_servers.serving(bad_servers.good, owner="vllm") as found:
        assert measured(kvbench, found.url, tmp_path / "ttft.csv").code == 0
        salts = [body["cache_salt"] for path, _, body in found.requests if path.endswith("completions")]
    assert len(set(salts)) == len(salts) > 6


def test_chat_where_there_are_no_completions(kvbench: Kvbench, tmp_path: Path) -> None:
    def chat_only(answer: Answer) -> None:
        if "messages" in answer.body:
            bad_servers.good(answer)
        else:
            answer.start(404, "application/json")

    with bad_servers.serving(chat_only) as found:
        assert measured(kvbench, found.url, tmp_path / "ttft.csv").code == 0
    assert written(tmp_path / "ttft.csv")["api"] == "chat"


def test_the_key_goes_to_its_own_host_only_and_into_no_file(
    kvbench: Kvbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(endpoints.KEY_VARIABLE, KEY)
    with bad_servers.serving(bad_servers.good) as other:

        def turning(answer: Answer) -> None:
            answer.start(307, "text/plain", {"Location": f"{other.url}/v1/completions?token={KEY}"})

        with bad_servers.serving(turning) as found:
            outcome = measured(kvbench, found.url, tmp_path / "a.csv")
            assert {headers.get("Authorization") for _, headers, _ in found.requests} == {f"Bearer {KEY}"}
        assert other.requests == []
        assert measured(kvbench, other.url, tmp_path / "b.csv").code == 0

    def telling(answer: Answer) -> None:
        answer.start(403, "application/json")
        answer.write(json.dumps({"error": {"message": f"{KEY} is no key" + "." * 400}}).encode())

    with bad_servers.serving(telling) as found:
        told = measured(kvbench, found.url, tmp_path / "c.csv")
    assert (outcome.code, told.code) == (3, 3)
    assert "redirects to 127.0.0.1, which is not followed" in outcome.err
    everything = outcome.out + outcome.err + told.out + told.err
    everything += "".join(path.read_text() for path in tmp_path.iterdir())
    assert KEY not in everything


def test_failures_on_the_way_are_recorded_and_the_rest_is_kept(kvbench: Kvbench, tmp_path: Path) -> None:
    """From the second length on every request fails: it is given up after its first warm-up."""
    target = tmp_path / "ttft.csv"

    def breaking(answer: Answer) -> None:
        (bad_servers.good if answer.tokens < 200 else bad_servers.too_many_requests)(answer)

    with bad_servers.serving(breaking) as found:
        outcome = measured(kvbench, found.url, target)
    assert outcome.code == 3
    first, second = written(target)["lengths"]
    assert (first["complete"], second["samples"], second["reason"]) == (True, 0, "HTTP 429: slow down")
    again = kvbench("prefill", "--resume", "-o", target)
    assert again.code == 3, "the server is gone"
    assert written(target)["lengths"][0] == first


def test_a_dry_run_sends_nothing_and_writes_nothing(
    kvbench: Kvbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with bad_servers.serving(bad_servers.good) as found:
        shown = kvbench("prefill", "--url", found.url, "--model", "m", "--contexts", "1k,4k", "--dry-run")
        data = kvbench("prefill", "--url", found.url, "--model", "m", "--dry-run", "--json").json()
        assert found.requests == []
    assert (shown.code, list(tmp_path.iterdir())) == (0, [])
    assert "1,024, 4,096 tokens" in shown.out
    assert "16 to 48 requests" in shown.out
    assert isinstance(data["estimate"], dict)


def test_a_dry_run_says_that_an_endpoint_may_cost_money(kvbench: Kvbench) -> None:
    outcome = kvbench("prefill", "--url", "https://192.0.2.1", "--model", "m", "--dry-run")
    assert outcome.code == 0
    assert "needs --yes" in outcome.out


@pytest.mark.parametrize(
    "wrong",
    [
        ("--contexts", "0"), ("--contexts", ""), ("--contexts", "8x"), ("--concurrency", "0"), ("--api", "soap"),
        ("--samples", "0"), ("--precision", "2"), ("--timeout", "soon"), ("--timeout", "0"), ("-o", "ttft.json"),
        ("--model", "a\nb"),
    ],
)  # fmt: skip
def test_wrong_options(
    wrong: tuple[str, str], kvbench: Kvbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = kvbench("prefill", "--url", "http://127.0.0.1:9", "--model", "m", *wrong)
    assert outcome.code == 2
    assert list(tmp_path.iterdir()) == []


# -- a real server


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlmServer]:
    """llama.cpp's server over a model of random weights."""
    try:
        llm.require()
    except LabError as error:
        pytest.skip(str(error))
    with llm.serving(tmp_path_factory.mktemp("llm")) as found:
        yield found


def real_arguments(real: LlmServer, target: Path) -> list[str | Path]:
    """What measures the real server at two lengths far apart."""
    return ["prefill", "--url", real.url, "--model", real.model, "--contexts", "128,2k", "--samples", "4", "-o", target]


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_ttft_of_a_real_server_grows_with_the_prompt(
    api: str, real: LlmServer, kvbench: Kvbench, tmp_path: Path
) -> None:
    target = tmp_path / "ttft.csv"
    outcome = kvbench(*real_arguments(real, target), "--api", api)
    assert outcome.code == 0, outcome.err
    data = written(target)
    assert (data["server"]["name"], data["server"]["header"]) == ("llama.cpp", "llama.cpp")
    assert "cache_prompt" in data["method"]["optional_fields"]
    assert data["method"]["length"].endswith("/tokenize")
    short, long = data["lengths"]
    assert short["median_ns"] < long["median_ns"]
    for length, tokens in ((short, 128), (long, 2048)):
        assert (length["samples"], length["prompt_tokens"]) == (4, {"min": tokens, "max": tokens})
    before, after = (data["prefix_cache_counters"][when] for when in ("before", "after"))
    assert after["llamacpp:prompt_tokens_cached_total"] == before["llamacpp:prompt_tokens_cached_total"]
    assert kvbench("crossover", "--ttft-csv", target, "--p99-ms", "5").code == 0


def test_a_warm_prompt_is_detected(real: LlmServer) -> None:
    """The same prompt twice, with the server's prefix cache on: the second one is no sample."""
    client = Client(endpoints.parse_url(real.url), None, 60)
    body = protocol.body(Dialect("completions"), real.model, prompts.text(plan.new_seed(), 0, Size(300)), "")
    cold, warm = (client.stream("/v1/completions", body) for _ in range(2))
    client.close()
    judged = [
        judge.judge_sample(Record("sample", 0, "", 1, item.prompt_tokens, None, 300, 0, item)).refused
        for item in (cold, warm)
    ]
    assert judged[0] is None
    assert judged[1] is not None
    assert "prefix cache" in judged[1]


def test_requests_at_a_time_go_into_files_of_their_own(real: LlmServer, kvbench: Kvbench, tmp_path: Path) -> None:
    target = tmp_path / "ttft.csv"
    outcome = kvbench(*real_arguments(real, target), "--concurrency", "1,2")
    assert outcome.code == 0, outcome.err
    for path, concurrency in ((target, "1"), (tmp_path / "ttft-c2.csv", "2")):
        assert {row.extra["concurrency"] for row in read_csv(path).rows} == {concurrency}
    assert "under load: 2 requests at a time" in read_csv(tmp_path / "ttft-c2.csv").source


def test_a_prompt_beyond_the_servers_context_is_not_sent(real: LlmServer, kvbench: Kvbench, tmp_path: Path) -> None:
    target = tmp_path / "ttft.csv"
    outcome = kvbench(*real_arguments(real, target), "--contexts", f"128,{llm.CONTEXT_TOKENS}", "--samples", "1")
    assert outcome.code == 3
    short, long = written(target)["lengths"]
    assert (short["samples"], long["samples"]) == (1, 0)
    assert "longer than this server's context of 8,192 tokens" in long["reason"]


def test_a_server_that_dies_on_the_way(kvbench: Kvbench, tmp_path: Path) -> None:
    """What was measured before is kept, and goes on when the server is back at its port."""
    try:
        llm.require()
    except LabError as error:
        pytest.skip(str(error))
    target = tmp_path / "ttft.csv"
    with llm.serving(tmp_path / "llm") as found:
        arguments = [*map(str, real_arguments(found, target)), "--samples", "30"]
        child = subprocess.Popen(
            [sys.executable, "-m", "kvbench", *arguments],
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        wait_for_samples(target, 32)
    assert child.wait(60) == 3
    short, long = written(target)["lengths"]
    assert short["samples"] == 30
    assert long["refused"] >= judge.UNUSABLE_IN_A_ROW
    assert long["complete"] is False
    with llm.serving(tmp_path / "llm", int(found.url.rpartition(":")[2])):
        assert kvbench("prefill", "--resume", "-o", target).code == 0
    assert [length["samples"] for length in written(target)["lengths"]] == [30, 30]


def samples_on_disk(target: Path) -> int:
    """How many samples the log of a measurement holds."""
    path = target.with_suffix(".jsonl")
    return path.read_text().count('{"kind": "sample"') if path.exists() else 0


def wait_for_samples(target: Path, count: int) -> None:
    """Until the log holds that many."""
    deadline = time.monotonic() + 60
    while samples_on_disk(target) < count:
        assert time.monotonic() < deadline, "no samples"
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_stopped_measurement_goes_on_where_it_was(
    number: signal.Signals, real: LlmServer, kvbench: Kvbench, tmp_path: Path
) -> None:
    target = tmp_path / "ttft.csv"
    arguments = real_arguments(real, target)
    child = subprocess.Popen(
        [sys.executable, "-m", "kvbench", *map(str, arguments)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    wait_for_samples(target, 5)
    child.send_signal(number)
    _, said = child.communicate(timeout=30)
    early = log.load(target.with_suffix(".jsonl")).records
    if child.returncode == -signal.SIGKILL:
        assert not target.exists()
    elif child.returncode != 0:
        assert (child.returncode, "--resume" in said) == (130, True)
        assert written(target)["finished"] is False
        assert target.exists()
    assert kvbench(*arguments).code == 2, "without --resume it is refused"
    assert kvbench(*arguments, "--warmup", "2", "--resume").code == 2, "another measurement is refused"
    assert kvbench("prefill", "--resume", "-o", target).code == 0
    records = log.load(target.with_suffix(".jsonl")).records
    assert records[: len(early)] == early
    assert len({item.index for item in records}) == len(records), "no prompt is ever sent twice"
    assert [length["samples"] for length in written(target)["lengths"]] == [4, 4]
    assert written(target)["finished"] is True
