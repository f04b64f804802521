"""TTFT measured live against llama.cpp's own server with a model of random weights."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvbench.prefill.live import endpoint as endpoints
from kvbench.prefill.live import judge, log, plan, prompts, protocol
from kvbench.prefill.live.client import Client
from kvbench.prefill.live.log import Record
from kvbench.prefill.live.prompts import Size
from kvbench.prefill.live.protocol import Dialect
from kvbench.prefill.samples import read_csv
from tests.conftest import ROOT, Outcome
from tests.lab import llm
from tests.lab.state import LabError, LlmServer
from tests.test_prefill_bad_servers import written

Kvbench = Callable[..., Outcome]
KEY = "sk-this-is-a-secret-of-the-tests"

pytestmark = pytest.mark.usefixtures("no_key_and_no_proxy")


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


@pytest.mark.slow
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
