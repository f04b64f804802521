"""A prefill curve from serving results: what counts, what is left out and said, and the commands that take it."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvbench.errors import InputFileError
from kvbench.formats.serving.record import ServedRequest, ServingRun, ServingSummary
from kvbench.prefill.curve import fit
from kvbench.prefill.imported import read_serving
from kvbench.prefill.occupancy import occupancies
from kvbench.prefill.samples import MOST_SAMPLES
from kvbench.prefill.selection import take
from kvbench.prefill.warnings import warnings_about
from kvbench.record.results import RunResult, save
from tests.conftest import Outcome
from tests.factories import DATA, SHIPPED_CSV, direction, latency, point, shared_data, use, write_json

Kvbench = Callable[..., Outcome]
SAMPLES = DATA / "serving"
VLLM = json.loads((SAMPLES / "vllm" / "detailed.json").read_text())
LENGTHS = (1024, 4096, 16384, 65536)


def seconds(tokens: int) -> float:
    """TTFT of a server that prefills 20,000 tokens/s after 10 ms."""
    return 0.01 + tokens / 20_000


def vllm(path: Path, lengths: tuple[int, ...] = LENGTHS, **changes: Any) -> Path:
    """A detailed result of ``vllm bench serve`` with one request after the other."""
    starts = [100.0 * at for at in range(len(lengths))]
    lists = {
        "input_lens": list(lengths), "output_lens": [1] * len(lengths), "ttfts": [seconds(one) for one in lengths],
        "itls": [[]] * len(lengths), "errors": [""] * len(lengths), "start_times": starts,
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_json(path, {**VLLM, **lists, "model_id": "openai/gpt-oss-120b", **changes})


def average(path: Path, tokens: int, **changes: Any) -> Path:
    """A plain result of ``vllm bench serve``: averages of two prompts of that length."""
    plain = {key: value for key, value in VLLM.items() if not isinstance(value, list)}
    means = {"total_input_tokens": 2 * tokens, "completed": 2, "mean_ttft_ms": 1000 * seconds(tokens)}
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_json(path, {**plain, **means, "model_id": "openai/gpt-oss-120b", **changes})


def run_of(*requests: ServedRequest, **changes: Any) -> ServingRun:
    """A run of those requests, of whose load the file says nothing."""
    empty = ServingRun("tool", None, None, "x.json", ServingSummary(), requests)
    return replace(empty, **changes)


def served(tokens: int = 1000, ttft_s: float = 1.0, **changes: Any) -> ServedRequest:
    """A request that went well."""
    return replace(ServedRequest(tokens, ttft_s), **changes)


def run_dir(tmp_path: Path) -> Path:
    """A run of one tier that restores 16,000 tokens/s at 16 jobs."""
    read = direction(60_000, 1000.0, latency_ns=latency(16e6))
    points = (point(id="nvme-1179648-mixed-j16", mix="mixed", numjobs=16, read=read, write=None),)
    save(RunResult("2026-01-02T03:04:05+00:00", uses=(use(),), points=points), tmp_path / "run")
    return tmp_path / "run"


def test_the_curve_is_the_servers(tmp_path: Path) -> None:
    samples = read_serving([vllm(tmp_path / "a.json")])
    curve = fit(samples)
    assert curve.coefficients == pytest.approx([0.01, 1 / 20_000, 0], abs=1e-9)
    assert (curve.model, curve.source) == ("openai/gpt-oss-120b", "vLLM bench serve, a.json")
    assert curve.notes == samples.notes
    assert samples.skipped_rows == 0


def test_failed_cached_and_warm_up_requests_are_left_out_and_counted() -> None:
    samples = read_serving([SAMPLES / "aiperf"])
    assert [row.prompt_tokens for row in samples.rows] == [1000, 4000, 16000]
    assert samples.skipped_rows == 3
    lost = "of the TTFT results were left out: 1 of the warm-up, 1 answered partly from a prefix cache, 1 that failed"
    assert lost in samples.notes


def test_nothing_but_cached_requests_is_refused_with_their_number() -> None:
    with pytest.raises(InputFileError, match="left out 4 answered partly from a prefix cache; measure prompts of sev"):
        read_serving([SAMPLES / "aiperf" / "profile_export_aiperf.json"])


def test_a_hit_rate_of_the_whole_run_disqualifies_it(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "inference_perf" / "stages", tmp_path / "s")
    seen = tmp_path / "s" / "stage_0_prometheus_metrics.json"
    seen.write_text(seen.read_text().replace('"mean": 0.0', '"mean": 12.5'))
    samples = read_serving([tmp_path / "s"])
    assert [row.prompt_tokens for row in samples.rows] == [4000, 16000]
    assert "of the TTFT results were left out: 5 answered partly from a prefix cache" in samples.notes


def test_a_cache_that_would_not_show_is_said(tmp_path: Path) -> None:
    notes = read_serving([vllm(tmp_path / "a.json")]).notes
    assert "nothing in a.json says whether a prefix cache answered part of a prompt" in notes
    assert not any("nothing in" in note for note in read_serving([SAMPLES / "sglang" / "details.jsonl"]).notes)


def test_requests_and_an_average_in_other_units_are_refused(tmp_path: Path) -> None:
    times = [seconds(length) for length in LENGTHS]
    mean_ms = 1000 * sum(times) / len(times)
    assert read_serving([vllm(tmp_path / "fits.json", mean_ttft_ms=mean_ms)]).rows
    other = vllm(tmp_path / "other.json", ttfts=[1000 * time for time in times], mean_ttft_ms=mean_ms)
    with pytest.raises(InputFileError, match="one of them is in another unit"):
        read_serving([other])


def test_requests_that_waited_are_refused_unless_allowed(tmp_path: Path) -> None:
    path = vllm(tmp_path / "a.json", max_concurrency=8, start_times=[0.0] * 4)
    with pytest.raises(InputFileError, match=r"left out 4 that shared the server with others; .* --allow-queued"):
        read_serving([path])
    samples = read_serving([path], allow_queued=True)
    assert samples.source == "vLLM bench serve, a.json (requests waited for each other)"
    assert samples.notes[0] == "the TTFT includes waiting for other requests, so recomputing looks slower than it is"


def test_only_the_runs_at_one_request_are_used(tmp_path: Path) -> None:
    vllm(tmp_path / "r" / "alone.json")
    vllm(tmp_path / "r" / "busy.json", ttfts=[9.0] * 4, max_concurrency=8, start_times=None)
    samples = read_serving([tmp_path / "r"])
    assert max(row.ttft_s for row in samples.rows) == pytest.approx(seconds(65536))
    assert "of the TTFT results were left out: 4 that shared the server with others" in samples.notes
    with pytest.raises(InputFileError, match="mixes runs at concurrency 1 and concurrency 8; name the files of one lo"):
        read_serving([tmp_path / "r"], allow_queued=True)


def test_the_start_times_say_who_ran_alone() -> None:
    requests = (
        served(start_s=0.0, e2e_s=5.0),
        served(start_s=4.0, e2e_s=2.0),  # begins while the first one still decodes
        served(start_s=10.0, e2e_s=2.0),
        served(start_s=11.5, e2e_s=2.0),  # after the third one's first token, before its end
        served(start_s=20.0, e2e_s=2.0),
        served(start_s=20.995, e2e_s=2.0),  # touches the fifth's TTFT for less than what clocks tell
    )
    assert occupancies(run_of(*requests, concurrency=4)) == ("alone", "shared", "alone", "shared", "alone", "shared")
    assert occupancies(run_of(*reversed(requests), concurrency=4)) == (
        "shared",
        "alone",
        "shared",
        "alone",
        "shared",
        "alone",
    )


def test_a_failed_request_is_load_too() -> None:
    failed = served(start_s=0.5, e2e_s=9.0, ok=False)
    assert occupancies(run_of(served(start_s=0.0, e2e_s=2.0), failed))[0] == "shared"


@pytest.mark.parametrize(
    ("changes", "load"),
    [
        ({"concurrency": 1}, "alone"),
        ({"concurrency": 1, "request_rate": math.inf}, "alone"),
        ({"concurrency": 2}, "shared"),
        ({"request_rate": math.inf}, "shared"),
        ({"summary": ServingSummary(requests_per_s=0.01, e2e_mean_s=2.0)}, "alone"),
        ({"summary": ServingSummary(requests_per_s=1.0, e2e_mean_s=2.0)}, "shared"),
        ({"summary": ServingSummary(e2e_mean_s=2.0), "request_rate": 0.01}, "alone"),
        ({"request_rate": 1.0}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_the_load_without_start_times(changes: dict[str, Any], load: str) -> None:
    assert occupancies(run_of(served(), served(), **changes)) == (load, load)


def test_an_unknown_load_is_said(tmp_path: Path) -> None:
    path = vllm(tmp_path / "a.json", max_concurrency=None, request_rate=0.1, start_times=None,
                max_concurrent_requests=5, request_throughput=None, itls=None, latencies=None)  # fmt: skip
    notes = read_serving([path]).notes
    assert "the TTFT results do not say how many requests ran at once, so waiting may be in the TTFT" in notes


def test_averages_are_said_wherever_the_curve_goes(tmp_path: Path) -> None:
    for tokens in LENGTHS:
        average(tmp_path / "r" / f"{tokens}.json", tokens)
    samples = read_serving([tmp_path / "r"])
    assert [(row.prompt_tokens, row.ttft_s) for row in samples.rows] == [(one, seconds(one)) for one in LENGTHS]
    assert samples.source == "vLLM bench serve, 4 runs in r (averages only)"
    assert any(note.startswith("the TTFT results hold averages only") for note in samples.notes)


def test_averages_give_way_to_requests(tmp_path: Path) -> None:
    average(tmp_path / "r" / "average.json", 2048, mean_ttft_ms=9e6)
    vllm(tmp_path / "r" / "requests.json")
    samples = read_serving([tmp_path / "r"])
    assert [row.prompt_tokens for row in samples.rows] == list(LENGTHS)
    assert "of the TTFT results were left out: 2 known by their average only" in samples.notes


def test_an_average_over_many_lengths_is_said() -> None:
    run = run_of(summary=ServingSummary(prompt_tokens_mean=1000, prompt_tokens_min=10, prompt_tokens_max=4000,
                                        ttft_mean_s=1.0), concurrency=1)  # fmt: skip
    taken = take([run, replace(run, summary=replace(run.summary, prompt_tokens_mean=2000))], allow_queued=False)
    notes = list(warnings_about(taken.rows, taken))
    assert "x.json averages over prompts of 10 to 4,000 tokens" in notes


def test_the_same_average_from_two_tools_counts_once() -> None:
    summary = ServingSummary(prompt_tokens_mean=1000, ttft_mean_s=1.0)
    runs = [run_of(summary=summary, concurrency=1), run_of(summary=summary, concurrency=1, tool="other")]
    assert len(take(runs, allow_queued=False).rows) == 1


def test_a_whole_answers_time_is_no_ttft() -> None:
    taken = take([run_of(served(), served(2000), concurrency=1, streamed=False)], allow_queued=True)
    assert taken.rows == []
    assert taken.lost() == "2 that were not streamed, so that their TTFT is the time of the whole answer"


def test_a_drop_after_the_first_prompt_is_said() -> None:
    """Five times the same prompt: 4.10, 0.09, 0.08, 0.08 and 0.09 s, of which the cache gave the last four."""
    times = (4.10, 0.09, 0.08, 0.08, 0.09)
    taken = take([run_of(*(served(8000, one) for one in times), served(16000, 8.0), concurrency=1)], allow_queued=False)
    notes = list(warnings_about(taken.rows, taken))
    assert (
        "in x.json the first prompt of 8,000 tokens took 4.1 s and the later ones 0.085 s, as with a warm prefix cache "
        "or a cold start" in notes
    )
    steady = take(
        [run_of(*(served(8000, 1.0) for _ in range(5)), served(16000, 8.0), concurrency=1)], allow_queued=False
    )
    assert not any("first prompt" in note for note in warnings_about(steady.rows, steady))


def test_an_impossible_speed_is_said(tmp_path: Path) -> None:
    notes = read_serving([vllm(tmp_path / "a.json", ttfts=[1e-4, 0.3, 0.9, 3.4])]).notes
    assert any(note.startswith("1 of 4 TTFT samples are faster than 500,000 tokens/s") for note in notes)


def test_one_length_is_doubted_and_several_files_help(tmp_path: Path) -> None:
    one, two = vllm(tmp_path / "a" / "x.json", (2048,)), vllm(tmp_path / "b" / "x.json", (8192,))
    assert any("one prompt length only" in note for note in fit(read_serving([one])).notes)
    samples = read_serving([one, two])
    assert [row.prompt_tokens for row in samples.rows] == [2048, 8192]
    assert len(read_serving([tmp_path]).rows) == 2


def test_models_are_not_mixed(tmp_path: Path) -> None:
    paths = [vllm(tmp_path / "a.json", (2048, 4096)), vllm(tmp_path / "b.json", (8192,), model_id="Qwen/Qwen3-8B")]
    with pytest.raises(InputFileError, match="holds runs of Qwen/Qwen3-8B and openai/gpt-oss-120b; name the files of"):
        read_serving(paths)
    assert read_serving(paths, model="mine").model == "mine"


SNAPSHOT = "/data/hub/models--openai--gpt-oss-120b/snapshots/b5c939de8f754692c1647ca79fbf85e8c1e70f8a/"


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("/models/Qwen3-8B/", "Qwen3-8B"),
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        (SNAPSHOT, "openai/gpt-oss-120b"),
        ("models--Qwen--Qwen3-8B/snapshots/main", "Qwen/Qwen3-8B"),
        ("/models/models-of-mine/Qwen3-8B", "Qwen3-8B"),
    ],
)
def test_a_path_names_the_model_by_its_last_part(tmp_path: Path, written: str, name: str) -> None:
    assert read_serving([vllm(tmp_path / "a.json", model_id=written)]).model == name


@pytest.mark.slow
def test_many_samples_are_thinned_evenly(tmp_path: Path) -> None:
    lengths = tuple(range(1000, 13_000))
    samples = read_serving([vllm(tmp_path / "a.json", lengths, start_times=None)])
    assert len(samples.rows) == MOST_SAMPLES
    assert (samples.rows[0].prompt_tokens, samples.rows[-1].prompt_tokens) == (1000, 12_999)
    assert "the curve uses 2,000 of 12,000 TTFT samples, evenly selected" in samples.notes


def test_crossover_answers_from_a_serving_result(kvbench: Kvbench, tmp_path: Path) -> None:
    run, path = run_dir(tmp_path), vllm(tmp_path / "a.json")
    outcome = kvbench("crossover", run, "--ttft-from", path, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    prefill: Any = outcome.json()["prefill"]
    assert (prefill["samples"], prefill["model"], prefill["left_out"]) == (4, "openai/gpt-oss-120b", 0)
    assert prefill["source"] == "vLLM bench serve, a.json"
    assert prefill["notes"] == [note for note in outcome.json()["notes"] if note in prefill["notes"]]
    results: Any = outcome.json()["results"]
    assert [one["request"]["kind"] for one in results] != ["unknown"]
    shown = kvbench("crossover", run, "--ttft-from", path).out
    assert "Note: the prompt lengths are the client's count, not the server's." in shown


def test_the_curve_answers_only_for_its_model(kvbench: Kvbench, tmp_path: Path) -> None:
    run, path = run_dir(tmp_path), vllm(tmp_path / "a.json", model_id="Qwen/Qwen3-8B")
    results: Any = kvbench("crossover", run, "--ttft-from", path, "--json").json()["results"]
    assert results[0]["verdict_reason"].startswith("the TTFT samples are of Qwen/Qwen3-8B")
    named = kvbench("crossover", run, "--ttft-from", path, "--ttft-model", "openai/gpt-oss-120b", "--json")
    again: Any = named.json()["results"]
    assert again[0]["request"]["kind"] != "unknown"


def test_the_verdict_notes_carry_the_waiting(kvbench: Kvbench, tmp_path: Path) -> None:
    run, path = run_dir(tmp_path), vllm(tmp_path / "a.json", max_concurrency=4, start_times=None)
    refused = kvbench("crossover", run, "--ttft-from", path)
    assert (refused.code, refused.out) == (2, "")
    assert "4 that shared the server with others" in refused.err
    outcome = kvbench("crossover", run, "--ttft-from", path, "--allow-queued", "--json")
    notes: Any = outcome.json()["notes"]
    assert "the TTFT includes waiting for other requests, so recomputing looks slower than it is" in notes


@pytest.mark.slow
@pytest.mark.parametrize("command", ["report", "gate"])
def test_report_and_gate_take_it_too(kvbench: Kvbench, tmp_path: Path, command: str) -> None:
    run, path = run_dir(tmp_path), vllm(tmp_path / "a.json", max_concurrency=4, start_times=None)
    outcome = kvbench(command, run, "--ttft-from", path, "--allow-queued")
    assert outcome.code in (0, 1, 3)
    assert "TTFT: the TTFT includes waiting for other requests" in outcome.err
    if command == "report":
        assert "requests waited for each other" in (run / "report.html").read_text()


def test_the_published_figure_takes_it(kvbench: Kvbench, tmp_path: Path) -> None:
    outcome = kvbench("crossover", "--p99-ms", "5", "--ttft-from", vllm(tmp_path / "a.json"), "--json")
    assert outcome.code == 0
    prefill: Any = outcome.json()["prefill"]
    assert prefill["samples"] == 4


@pytest.mark.parametrize("command", ["crossover", "report", "gate"])
def test_one_source_of_ttft_only(kvbench: Kvbench, tmp_path: Path, command: str) -> None:
    outcome = kvbench(command, run_dir(tmp_path), "--ttft-csv", SHIPPED_CSV, "--ttft-from", SAMPLES / "aiperf")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        "kvbench: --ttft-csv and --ttft-from both say how fast the GPUs recompute; give one of them.\n"
    )


def test_a_csv_file_belongs_to_the_other_option(kvbench: Kvbench) -> None:
    outcome = kvbench("crossover", "--p99-ms", "5", "--ttft-from", SHIPPED_CSV)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.endswith("is a CSV file; give prompt_tokens and ttft_s of your own with --ttft-csv.\n")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "is empty"),
        ("{", "ends in the middle"),
        ("{}", "is of no known format"),
        ("prompt_tokens,ttft_s\n", "JSON"),
    ],
)
def test_a_bad_file_is_a_sentence(kvbench: Kvbench, tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "x.json").write_text(content)
    for path in (tmp_path / "x.json", tmp_path / "absent"):
        outcome = kvbench("crossover", "--p99-ms", "5", "--ttft-from", path)
        assert (outcome.code, outcome.out) == (2, "")
        assert "Traceback" not in outcome.err
        assert sentence in outcome.err or path.name == "absent"


# Nobody says how many requests ran at once.
RATED: dict[str, Any] = {"max_concurrency": None, "max_concurrent_requests": None, "duration": None, "latencies": None}


@pytest.mark.parametrize(
    ("changes", "load"),
    [
        ({"requests_per_s": 2.0, "ttft_mean_s": 1.0}, "shared"),
        ({"requests_per_s": 1.0, "ttft_mean_s": 1.0}, "unknown"),
        ({"requests_per_s": 1.0, "ttft_mean_s": 1.0, "per_token_s": 0.01, "output_tokens_mean": 101.0}, "shared"),
        ({"requests_per_s": 1.0, "ttft_mean_s": 1.0, "per_token_s": 0.01, "output_tokens_mean": 2.0}, "unknown"),
        ({"requests_per_s": 1.0, "e2e_mean_s": 1.0}, "unknown"),
        ({"completed": 20, "duration_s": 10.0, "ttft_mean_s": 1.0}, "shared"),
        ({"in_flight": 3.0}, "shared"),
        ({"in_flight": 1.0}, "unknown"),
    ],
)
def test_requests_in_flight_come_from_whatever_is_there(changes: dict[str, Any], load: str) -> None:
    """Little's law; a client that waits for each answer has one in flight and is not taken for a crowd."""
    assert occupancies(run_of(summary=ServingSummary(**changes))) == (load,)


def test_arrivals_at_a_rate_meet_each_other() -> None:
    summary = ServingSummary(requests_per_s=0.5, e2e_mean_s=1.0)
    assert occupancies(run_of(summary=summary, request_rate=0.5)) == ("shared",)
    assert occupancies(run_of(summary=summary)) == ("unknown",)


def test_one_at_a_time_that_cannot_be_is_said(tmp_path: Path) -> None:
    crowded = average(tmp_path / "a.json", 4096, max_concurrency=1, request_throughput=20.0, mean_e2el_ms=200.0)
    assert any("one request ran at a time, but requests/s times" in note for note in read_serving([crowded]).notes)
    alone = average(tmp_path / "b.json", 4096, max_concurrency=1, request_throughput=4.0, mean_e2el_ms=200.0)
    assert not any("in the server" in note for note in read_serving([alone]).notes)


def test_runs_at_different_rates_are_no_curve(tmp_path: Path) -> None:
    """The same where nobody knows whether they waited."""
    for tokens, rate in ((1024, 0.8), (4096, 0.4)):
        average(tmp_path / "r" / f"{tokens}.json", tokens, request_rate=rate, request_throughput=rate, **RATED)
    with pytest.raises(InputFileError, match=r"mixes runs at 0\.4 requests/s and 0\.8 requests/s"):
        read_serving([tmp_path / "r"], allow_queued=True)
    average(tmp_path / "r" / "1024.json", 1024, request_rate=0.4, request_throughput=0.4, **RATED)
    assert len(read_serving([tmp_path / "r"], allow_queued=True).rows) == 2


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({"dataset_name": "generated-shared-prefix", "gsp_system_prompt_len": 900}, 0),
        ({"dataset_name": "prefix_repetition"}, 0),
        ({"dataset_name": "random"}, 4),
        ({"dataset_name": "generated-shared-prefix", "cached_tokens": [0, 0, 0, 0]}, 4),
    ],
)
def test_a_data_set_of_shared_prefixes_is_named(tmp_path: Path, changes: dict[str, Any], kept: int) -> None:
    path = vllm(tmp_path / "a.json", **changes)
    if kept:
        assert len(read_serving([path]).rows) == kept
        return
    with pytest.raises(InputFileError, match=f"4 of the data set {changes['dataset_name']}.*share their beginnings"):
        read_serving([path])


def aiperf(folder: Path, turns: list[tuple[str, int, int]], hits: int | None = None, **more: Any) -> Path:
    """AIPerf's records of prompts (conversation, turn, tokens), one after the other, with the server's own counters."""
    folder.mkdir(parents=True)
    lines = []
    for at, (conversation, turn, tokens) in enumerate(turns):
        start = 10**18 + at * 10**10
        about = {"conversation_id": conversation, "turn_index": turn, "request_start_ns": start,
                 "request_end_ns": start + 9 * 10**9, "benchmark_phase": "profiling"}  # fmt: skip
        metrics = {"time_to_first_token": {"value": 1000 * seconds(tokens), "unit": "ms"},
                   "input_sequence_length": {"value": tokens, "unit": "tokens"}, **more}  # fmt: skip
        lines.append(json.dumps({"metadata": about, "metrics": metrics, "error": None}))
    (folder / "profile_export.jsonl").write_text("\n".join(lines) + "\n")
    if hits is not None:
        counters = {"vllm:prefix_cache_hits": hits, "vllm:prefix_cache_queries": 10_000}
        metrics = {
            name: {"type": "counter", "series": [{"stats": {"total": total}}]} for name, total in counters.items()
        }
        write_json(folder / "server_metrics_export.json", {"schema_version": "1.1", "metrics": metrics})
    return folder / "profile_export.jsonl"


def test_only_first_turns_are_uncached(tmp_path: Path) -> None:
    turns = [("a", 0, 1000), ("a", 1, 9000), ("a", 2, 17000), ("b", 0, 2000), ("c", 0, 4000), ("a", 0, 1000)]
    samples = read_serving([aiperf(tmp_path / "x", turns)])
    assert [row.prompt_tokens for row in samples.rows] == [1000, 2000, 4000]
    lost = "3 of a later turn or a prompt sent before, which a prefix cache may have answered"
    assert f"of the TTFT results were left out: {lost}" in samples.notes


@pytest.mark.parametrize(("hits", "more"), [(0, {}), (None, {"usage_prompt_cache_read_tokens": {"value": 0}})])
def test_later_turns_count_where_nothing_was_cached(tmp_path: Path, hits: int | None, more: dict[str, Any]) -> None:
    path = aiperf(tmp_path / "x", [("a", 0, 1000), ("a", 1, 9000), ("b", 0, 2000)], hits, **more)
    assert len(read_serving([path]).rows) == 3


@pytest.mark.parametrize(("hits", "kept"), [(9300, 0), (51, 0), (49, 3), (0, 3)])
def test_the_servers_own_counters_are_believed(tmp_path: Path, hits: int, kept: int) -> None:
    """Half a percent is the beginning that all prompts share, such as a chat's template."""
    path = aiperf(tmp_path / "x", [("a", 0, 1000), ("b", 0, 4000), ("c", 0, 9000)], hits)
    if kept:
        samples = read_serving([path])
        assert len(samples.rows) == kept
        assert not any("prefix cache answered" in note for note in samples.notes)
        return
    with pytest.raises(InputFileError, match="left out 3 answered partly from a prefix cache"):
        read_serving([path])


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"metrics": {"vllm:prefix_cache_hits": {"series": [7, {}]}}}'])
def test_odd_server_metrics_say_nothing(tmp_path: Path, content: str) -> None:
    path = aiperf(tmp_path / "x", [("a", 0, 1000), ("b", 0, 4000)])
    (tmp_path / "x" / "server_metrics_export.json").write_text(content)
    assert len(read_serving([path]).rows) == 2


@pytest.mark.parametrize("changes", [{"start_time": 1e9 + 30.0}, {"warmup_duration": 30.0}])
def test_guidellm_warm_up_and_what_came_after_are_left_out(tmp_path: Path, changes: dict[str, float]) -> None:
    """Requests that began before the benchmark did, as the report keeps them (vllm-project/guidellm#1078)."""
    rows = [
        {"prompt_tokens": 1000 * (at + 1), "request_latency": 1.0, "time_to_first_token_ms": 100.0 * (at + 1),
         "info": {"timings": {"request_start": 1e9 + 10.0 * at}}}
        for at in range(6)
    ]  # fmt: skip
    benchmark = {"config": {"strategy": {"type_": "synchronous"}}, "metrics": {}, "requests": {"successful": rows},
                 "start_time": 1e9, "end_time": 1e9 + 45.0, **changes}  # fmt: skip
    report = {"metadata": {"guidellm_version": "0.5.4"}, "args": {"model": "m"}, "benchmarks": [benchmark]}
    samples = read_serving([write_json(tmp_path / "a.json", report)])
    assert [row.prompt_tokens for row in samples.rows] == [4000, 5000]
    assert "of the TTFT results were left out: 4 of the warm-up" in samples.notes
    benchmark |= {"start_time": 1e9, "warmup_duration": 0.0, "end_time": 1e9 + 99.0}
    assert len(read_serving([write_json(tmp_path / "b.json", report)]).rows) == 6


@pytest.mark.parametrize(
    ("factor", "asks"), [(1000, "is the TTFT 1,000 times too long"), (0.001, "is another unit, an empty")]
)
@pytest.mark.parametrize("command", ["crossover", "report", "gate"])
def test_averages_in_another_unit_are_refused(
    kvbench: Kvbench, tmp_path: Path, command: str, factor: float, asks: str
) -> None:
    """Where every number of a file is off alike, only the model's own speed tells."""
    for tokens in LENGTHS:
        average(tmp_path / "r" / f"{tokens}.json", tokens, mean_ttft_ms=factor * 1000 * seconds(tokens))
    outcome = kvbench(command, run_dir(tmp_path), "--ttft-from", tmp_path / "r")
    assert (outcome.code, outcome.out) == (2, "")
    assert asks in outcome.err


def test_the_field_cases_say_what_is_right() -> None:
    """Shapes of files that people published, each with the answer that was wrong before."""
    field = shared_data("field")
    with pytest.raises(InputFileError, match="left out 600 that shared the server"):
        read_serving([field / "vllm_fixed_rate"])
    with pytest.raises(InputFileError, match=r"mixes runs at 0\.9 requests/s and 1\.8 requests/s and 6 requests/s"):
        read_serving([field / "vllm_fixed_rate"], allow_queued=True)
    with pytest.raises(InputFileError, match="left out 16 answered partly from a prefix cache"):
        read_serving([field / "aiperf_server_metrics_hits"])
    with pytest.raises(InputFileError, match="generated-shared-prefix, 16,384 tokens each"):
        read_serving([field / "sglang_gsp.jsonl"])
    assert read_serving([field / "vllm_hub_snapshot_path.json"]).model == "openai/gpt-oss-120b"
    warm = read_serving([field / "guidellm_warmup.json"])
    assert (len(warm.rows), warm.skipped_rows) == (6, 6)
    assert 16384 / fit(warm).seconds(16384)[0] == pytest.approx(28_500, rel=0.02)
