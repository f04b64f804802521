"""Serving results of every known tool: one format each, the same numbers from all of them, and hostile files."""

from __future__ import annotations

import copy
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvbench.errors import InputFileError
from kvbench.formats import serving
from kvbench.formats.serving import documents, read_file
from kvbench.formats.serving.folder import collect
from kvbench.formats.serving.record import ServingRun
from kvbench.prefill.selection import take
from tests.factories import DATA, shared_data

SAMPLES = DATA / "serving"
FILES = sorted(path for path in SAMPLES.rglob("*") if path.is_file())
# What tools leave beside their results; profile_export.json of GenAI-Perf has times without token counts.
NO_RESULTS = {"phase_manifest.json", "profile_export.json", "run=0.failure.json"}
RESULTS = [path for path in FILES if path.name not in NO_RESULTS]
TTFT_S = {1000: 0.06, 4000: 0.21, 16000: 0.81}
TOOLS = {
    "aiperf": "AIPerf",
    "genai_perf": "GenAI-Perf",
    "guidellm": "GuideLLM",
    "inference_perf": "inference-perf",
    "llmd": "llm-d-benchmark report",
    "sglang": "SGLang bench_serving",
    "vllm": "vLLM bench serve",
}


def name(path: Path) -> str:
    """The sample's path for test ids."""
    return path.relative_to(SAMPLES).as_posix()


def accepting(path: Path) -> list[str]:
    """The names of all formats that accept a file."""
    found = documents.load(path)
    return [name for name, one in serving.FORMATS.items() if one.accepts(found)]


def edited(path: Path, folder: Path, change: Any) -> Path:
    """A copy whose documents went through ``change``, with the files beside it."""
    shutil.copytree(path.parent, folder, dirs_exist_ok=True)
    found = [change(copy.deepcopy(document)) for document in documents.load(path)]
    copied = folder / path.name
    dump = yaml.safe_dump_all(found) if path.suffix == ".yaml" else "\n".join(json.dumps(item) for item in found)
    copied.write_text(dump)
    return copied


@pytest.mark.parametrize("path", RESULTS, ids=name)
def test_exactly_one_format_accepts_a_sample(path: Path) -> None:
    folder = name(path).partition("/")[0].partition("-")[0]
    assert accepting(path) == [TOOLS[folder]]


def test_every_format_has_a_sample() -> None:
    assert {one for path in RESULTS for one in accepting(path)} == set(serving.FORMATS)


@pytest.mark.parametrize("path", [path for path in FILES if path.name in NO_RESULTS], ids=name)
def test_what_lies_beside_results_is_no_result(path: Path) -> None:
    with pytest.raises(InputFileError, match="is of no known format; kvbench reads results of AIPerf, GenAI-Perf"):
        read_file(path)


def test_recorded_files_have_one_format_or_none() -> None:
    root = shared_data("serving")
    wanted = {
        "aiperf/art1/profile_export.jsonl": "AIPerf",
        "aiperf/art1/profile_export_aiperf.json": "AIPerf",
        "guidellm/g0.2.1.json": "GuideLLM",
        "guidellm/g054.json": "GuideLLM",
        "guidellm/g081.json": "GuideLLM",
        "inference-perf/stage_0_lifecycle_metrics.json": "inference-perf",
        "inference-perf/summary_prometheus_metrics.json": "inference-perf",
        "llm-d/br_v0_1_example.yaml": "llm-d-benchmark report",
        "llm-d/br_v0_2_1_example.yaml": "llm-d-benchmark report",
        "llm-d/guidellm_report_v2.json": "GuideLLM",
        "vllm/detailed.json": "vLLM bench serve",
    }
    found = {
        path.relative_to(root).as_posix(): accepting(path)
        for path in sorted(root.rglob("*"))
        if path.suffix in documents.SUFFIXES
    }
    assert all(len(one) <= 1 for one in found.values())
    assert {path: found[path] for path in wanted} == {path: [tool] for path, tool in wanted.items()}
    for path in wanted:
        assert read_file(root / path)


WHOLE = [
    "aiperf", "aiperf-0.2", "genai_perf", "guidellm/0.2.1.json", "guidellm/0.4.0.json", "guidellm/0.8.1.json",
    "inference_perf/new", "inference_perf/old", "inference_perf/stages", "llmd", "llmd-0.2", "sglang/details.jsonl",
    "sglang/plain.jsonl", "vllm/appended.json", "vllm/detailed-rate.json", "vllm/detailed.json", "vllm-sweep",
]  # fmt: skip


@pytest.mark.parametrize("path", WHOLE)
def test_every_tool_gives_the_same_lengths_and_seconds(path: str) -> None:
    taken = take(collect([SAMPLES / path]).runs, allow_queued=False)
    assert [row.prompt_tokens for row in taken.rows] == list(TTFT_S)
    assert [row.ttft_s for row in taken.rows] == pytest.approx(list(TTFT_S.values()), rel=1e-9)
    models = {usable.run.model for usable in taken.runs}
    assert models == ({None} if path == "inference_perf/stages" else {"org/model-8b"})


def only(path: str) -> ServingRun:
    """The first run of a sample."""
    return read_file(SAMPLES / path)[0]


SUMMARIES = {
    "vllm/detailed.json": {"requests_per_s": 2.0, "ttft_mean_s": 0.36, "e2e_mean_s": 0.37,
                           "completed": 3, "failed": 1, "duration_s": 1.5},
    "sglang/details.jsonl": {"requests_per_s": 2.0, "ttft_mean_s": 0.36, "e2e_mean_s": 0.37, "hit_rate": 0.1587},
    "guidellm/0.2.1.json": {"requests_per_s": 2.0, "ttft_mean_s": 0.36, "e2e_mean_s": 0.37, "completed": 3},
    "guidellm/0.8.1.json": {"ttft_mean_s": 0.36, "e2e_mean_s": 0.37, "prompt_tokens_mean": 7000.0},
    "aiperf/profile_export_aiperf.json": {"requests_per_s": 2.0, "ttft_mean_s": 0.36, "prompt_tokens_mean": 7000.0,
                                          "hit_rate": 0.432},
    "genai_perf-0.0.8/profile_export_genai_perf.json": {"ttft_mean_s": 0.21, "prompt_tokens_mean": 4000.0},
    "inference_perf/stages/stage_1_lifecycle_metrics.json": {"ttft_mean_s": 0.21, "e2e_mean_s": 0.22,
                                                             "requests_per_s": 0.05, "completed": 5},
    "inference_perf/stages/stage_0_lifecycle_metrics.json": {"ttft_mean_s": 0.06, "hit_rate": 0.0},
    "llmd/0.1-ms.yaml": {"ttft_mean_s": 0.06, "e2e_mean_s": 0.07, "requests_per_s": 1.0, "duration_s": 5.0},
    "llmd-0.2/stage-16000-hits.yaml": {"ttft_mean_s": 0.81, "external_hit_rate": 0.429},
}  # fmt: skip


@pytest.mark.parametrize("path", SUMMARIES)
def test_summaries_are_in_seconds_and_shares(path: str) -> None:
    summary = only(path).summary
    assert {key: getattr(summary, key) for key in SUMMARIES[path]} == pytest.approx(SUMMARIES[path], rel=1e-9)


LOADS = {
    "vllm/detailed.json": (1, math.inf),
    "vllm/detailed-rate.json": (None, 1.0),
    "vllm/benchmark-serving-0.6.json": (None, math.inf),
    "sglang/plain.jsonl": (1, math.inf),
    "guidellm/0.2.1.json": (1, None),
    "guidellm/0.4.0.json": (1, None),
    "aiperf/profile_export.jsonl": (1, None),
    "aiperf-0.2/mean_1000/profile_export_aiperf.json": (1, None),
    "genai_perf/1000/profile_export_genai_perf.json": (1, None),
    "genai_perf-0.0.8/profile_export_genai_perf.json": (1, None),
    "inference_perf/stages/stage_0_lifecycle_metrics.json": (None, 0.05),
    "llmd/0.1-s.json": (1, math.inf),
    "llmd-0.2/stage-1000.json": (1, None),
}  # fmt: skip


@pytest.mark.parametrize("path", LOADS)
def test_the_load_is_read(path: str) -> None:
    run = only(path)
    assert (run.concurrency, run.request_rate) == LOADS[path]


def test_versions_and_who_counted() -> None:
    assert [run.tool_version for run in read_file(SAMPLES / "guidellm/0.8.1.json")] == ["0.8.1", "0.8.1"]
    assert only("aiperf/profile_export.jsonl").tool_version == "0.13.0"
    assert only("sglang/details.jsonl").tool_version == "0.5.23"
    assert only("llmd-0.2/stage-1000.json").tool_version == "inference-perf 0.3.0"
    assert (only("aiperf/profile_export.jsonl").lengths_from, only("vllm/detailed.json").lengths_from) == (
        "server",
        "client",
    )


def inference_perf_requests(folder: Path, change: Any) -> ServingRun:
    """The run of three of inference-perf's requests, each of them changed."""
    path = SAMPLES / "inference_perf/new/per_request_lifecycle_metrics.json"
    return read_file(edited(path, folder, lambda document: [change(item) for item in document[:3]]))[0]


def test_a_role_chunk_of_inference_perf_is_no_first_token(tmp_path: Path) -> None:
    def chat(item: Any) -> Any:
        """A role 0.03 s before the reasoning; the tokens that the tool saw begin with the answer."""
        response = item["info"]["response_metrics"]
        first, last = response["output_token_times"]
        deltas = ({"role": "assistant", "content": ""}, {"reasoning_content": "a"}, {"content": "b"})
        response["response_chunks"] = [json.dumps({"choices": [{"delta": delta}]}) for delta in deltas]
        response |= {"chunk_times": [first - 0.03, first, last], "output_token_times": [last]}
        return item

    run = inference_perf_requests(tmp_path, chat)
    assert [request.ttft_s for request in run.requests] == pytest.approx(list(TTFT_S.values()))

    def without_chunks(item: Any) -> Any:
        del item["info"]["response_metrics"]["output_token_times"]
        return item

    assert [one.ttft_s for one in inference_perf_requests(tmp_path, without_chunks).requests] == [None] * 3


def test_inference_perf_without_the_mirrored_length_or_with_computed_metrics_only(tmp_path: Path) -> None:
    def newer(item: Any) -> Any:
        del item["info"]["input_tokens"], item["info"]["response_metrics"]["server_usage"]
        return item

    run = inference_perf_requests(tmp_path, newer)
    assert [request.prompt_tokens for request in run.requests] == [1005, 4005, 16005]

    def computed(item: Any) -> Any:
        ttft_s = item["info"]["response_metrics"]["output_token_times"][0] - item["start_time"]
        metrics = {"time_to_first_token": ttft_s, "input_tokens": item.pop("info")["input_tokens"]}
        return item | {"computed_metrics": metrics}

    run = inference_perf_requests(tmp_path, computed)
    assert [request.prompt_tokens for request in run.requests] == [1005, 4005, 16005]
    assert [request.ttft_s for request in run.requests] == pytest.approx(list(TTFT_S.values()))


@pytest.mark.parametrize(("cached", "hit_rate"), [(0.0, None), (250.0, 0.25)])
def test_no_cached_tokens_in_a_summary_of_inference_perf_is_no_word(
    cached: float, hit_rate: float | None, tmp_path: Path
) -> None:
    """It adds up 0 for every request of which the server did not say what was cached."""

    def counted(document: Any) -> Any:
        document["successes"]["prompt_tokens"] = {"total": 1000.0, "cached": cached, "mean": 1000.0}
        return document

    path = edited(SAMPLES / "inference_perf/stages/stage_1_lifecycle_metrics.json", tmp_path, counted)
    assert read_file(path)[0].summary.hit_rate == hit_rate


def test_a_summary_is_read_where_only_prometheus_wrote_stages(tmp_path: Path) -> None:
    shutil.copy(
        SAMPLES / "inference_perf/stages/stage_1_lifecycle_metrics.json", tmp_path / "summary_lifecycle_metrics.json"
    )
    shutil.copy(SAMPLES / "inference_perf/stages/stage_0_prometheus_metrics.json", tmp_path)
    assert "summary_lifecycle_metrics.json" in [run.source for run in collect([tmp_path]).runs]


def test_the_tags_of_the_first_aiperf_stand_below_records() -> None:
    run = only("aiperf-0.1/profile_export_aiperf.json")
    assert (run.tool, run.model, run.summary.ttft_mean_s) == ("AIPerf", "org/model-8b", 0.21)


def test_the_warm_up_phase_is_no_result() -> None:
    with pytest.raises(InputFileError, match="is of the warm-up phase; name the folder above 'phases'"):
        read_file(SAMPLES / "aiperf/phases/warmup/profile_export_aiperf.json")
    assert len(collect([SAMPLES / "aiperf"]).runs) == 2


def test_aiperfs_raw_records_are_no_second_copy_of_its_requests(tmp_path: Path) -> None:
    """``--export-level raw`` writes bodies and answers into a file of its own, failed requests with their error."""
    shutil.copytree(SAMPLES / "aiperf", tmp_path, dirs_exist_ok=True)
    raw = {"metadata": {"request_start_ns": 1}, "payload": {}, "responses": [], "error": {"message": "timeout"}}
    (tmp_path / "profile_export_raw.jsonl").write_text(json.dumps(raw) + "\n")
    assert collect([tmp_path]).runs == collect([SAMPLES / "aiperf"]).runs


def test_a_run_in_several_files_counts_once() -> None:
    assert len(collect([SAMPLES / "vllm-sweep"]).runs) == 3
    assert len(collect([SAMPLES / "vllm-sweep", SAMPLES / "vllm-sweep/summary.json"]).runs) == 3
    assert [run.source for run in collect([SAMPLES / "inference_perf/stages"]).runs] == [
        "stage_0_lifecycle_metrics.json", "stage_0_prometheus_metrics.json", "stage_1_lifecycle_metrics.json",
        "stage_2_lifecycle_metrics.json",
    ]  # fmt: skip


def test_a_unit_is_never_guessed(tmp_path: Path) -> None:
    def minutes(document: Any) -> Any:
        document["metrics"]["latency"]["time_to_first_token"]["units"] = "min"
        return document

    with pytest.raises(InputFileError, match="gives a latency in min, but the report's schema knows ms and s"):
        read_file(edited(SAMPLES / "llmd/0.1-s.json", tmp_path, minutes))

    def nameless(document: Any) -> Any:
        document["time_to_first_token"]["unit"] = "ticks"
        return document

    found = read_file(edited(SAMPLES / "aiperf/profile_export_aiperf.json", tmp_path, nameless))
    assert found[0].summary.ttft_mean_s is None


def test_lists_of_different_lengths_are_refused(tmp_path: Path) -> None:
    def shorter(document: Any) -> Any:
        return document | {"ttfts": document["ttfts"][:-1]}

    with pytest.raises(InputFileError, match="has 4 input_lens and 3 ttfts; name a file as the tool wrote it"):
        read_file(edited(SAMPLES / "vllm/detailed.json", tmp_path, shorter))


BROKEN = {
    b"": "is empty; name the result file of a serving benchmark",
    b" \n": "is empty",
    b"{": "ends in the middle of a value; copy the file again",
    b'{"a": "b': "ends in the middle of a value",
    b'{"a": 1}\n{"a": ': "ends in the middle of a value",
    b'{"a": 1} nonsense': "is no JSON at line 1",
    b"\xff\xfe": "it is not UTF-8 text; unpack it first if it is compressed",
    b"[" * 100_000: "holds what no serving benchmark writes",
    b"1" * 10_000: "holds what no serving benchmark writes",
    b"[]": "is of no known format",
    b"null": "is of no known format",
    b'{"benchmarks": []}': "holds no benchmark; run GuideLLM again",
}


@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
def test_broken_files_are_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(InputFileError, match=BROKEN[content]):
        read_file(path)


def test_broken_yaml_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: [1, 2\nb: }")
    with pytest.raises(InputFileError, match=r"\(it is no YAML\); copy the file again"):
        read_file(path)


def test_a_folder_passes_over_damaged_files_and_says_so(tmp_path: Path) -> None:
    shutil.copy(SAMPLES / "vllm/appended.json", tmp_path)
    (tmp_path / "b.json").write_text("{")
    (tmp_path / "notes.txt").write_text("{")
    found = collect([tmp_path])
    assert len(found.runs) == 3
    assert [text.partition(" ends")[0] for text in found.damaged] == [str(tmp_path / "b.json")]
    (tmp_path / "appended.json").unlink()
    with pytest.raises(InputFileError, match="ends in the middle"):
        collect([tmp_path])
    (tmp_path / "b.json").unlink()
    with pytest.raises(InputFileError, match="holds no result that kvbench knows; it reads results of AIPerf"):
        collect([tmp_path])


@pytest.mark.parametrize("path", RESULTS, ids=name)
def test_a_file_cut_anywhere_is_read_or_refused(path: Path, tmp_path: Path) -> None:
    text = path.read_text()
    cut = tmp_path / path.name
    for at in range(0, len(text), max(1, len(text) // 40)):
        cut.write_text(text[:at])
        read_or_refuse(cut)


ODD: list[Any] = [None, "x", True, -1, 0, math.nan, math.inf, [], {}, [None], {"a": "b"}, 10**30]
ONE_EACH = [
    "vllm/detailed.json", "sglang/details.jsonl", "guidellm/0.2.1.json", "guidellm/0.8.1.json",
    "aiperf/profile_export.jsonl",
    "aiperf/profile_export_aiperf.json", "genai_perf/1000/profile_export_genai_perf.json", "llmd/0.1-s.json",
    "inference_perf/new/per_request_lifecycle_metrics.json", "llmd-0.2/stage-1000.json",
    "inference_perf/stages/stage_0_lifecycle_metrics.json", "llmd-0.2/stage-16000-hits.yaml",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("path", ONE_EACH)
def test_a_value_of_any_kind_anywhere_is_read_or_refused(path: str, tmp_path: Path) -> None:
    """Every place of a file, once with each odd value: numbers stay sane or the file is refused, never a crash."""
    original = documents.load(SAMPLES / path)[:2]
    target = tmp_path / "copy.json"
    for keys in places(list(original)):
        for value in ODD:
            changed = copy.deepcopy(list(original))
            inner: Any = changed
            for key in keys[:-1]:
                inner = inner[key]
            inner[keys[-1]] = value
            reader = serving.format_of(tuple(changed))
            if reader is None:
                continue
            try:
                runs = reader.read(tuple(changed), target)
            except InputFileError:
                continue
            for usable in take(runs, allow_queued=True).runs:
                assert all(row.prompt_tokens >= 1 and 0 < row.ttft_s < math.inf for row in usable.samples)


def places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value inside, the values of long lists only once."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*before, key)
        yield from places(inner, (*before, key))


def read_or_refuse(path: Path) -> None:
    """No other exception than a refusal comes out of a file, and runs that do come out are some."""
    try:
        runs = read_file(path)
    except InputFileError:
        return
    assert runs
