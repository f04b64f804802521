"""Samples of TTFT measured live: which are doubted, when there are enough, and the log that they are kept in."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from kvbench.errors import InputFileError, UsageError
from kvbench.prefill.live import judge, log, output, plan, server
from kvbench.prefill.live.client import Exchange
from kvbench.prefill.live.log import Record
from tests.conftest import Outcome

Kvbench = Callable[..., Outcome]
KEY = "sk-this-is-a-secret-of-the-tests"

pytestmark = pytest.mark.usefixtures("no_key_and_no_proxy")


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
    return {warning.code for warning in judge.judge_length(1000, 1, records).warnings}


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


def _head_without(key: str) -> str:
    head = {"log_version": log.LOG_VERSION, "created": "now", "plan": asdict(a_plan())}
    del head[key]
    return json.dumps(head) + "\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}\n",
        _head_without("created"),
        _head_without("plan"),
        "[]\n",
        '{"log_version": 9}\n',
        "x\n",
        "\0\n",
        "[" * 100_000 + "\n",
    ],
)
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
