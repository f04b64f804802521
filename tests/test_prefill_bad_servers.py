"""TTFT measured live against servers that misbehave: one exchange, and the whole command."""

from __future__ import annotations

import http.client
import itertools
import json
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from kvbench.errors import Interrupted
from kvbench.prefill.live import endpoint as endpoints
from kvbench.prefill.live import judge, protocol
from kvbench.prefill.live.client import Client, Exchange
from kvbench.prefill.live.flights import Flights, Job
from kvbench.prefill.live.prompts import Size
from kvbench.prefill.live.protocol import Dialect
from kvbench.prefill.samples import read_csv
from tests import bad_servers
from tests.bad_servers import MODEL, Answer, Behaviour
from tests.conftest import Outcome

Kvbench = Callable[..., Outcome]
KEY = "sk-this-is-a-secret-of-the-tests"

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("no_key_and_no_proxy")]


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


@pytest.mark.slow
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


@pytest.mark.slow
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
