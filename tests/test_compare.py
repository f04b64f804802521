"""Serving runs side by side: ratios with intervals, and what must not be compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvbench.errors import InputFileError
from kvbench.formats.metrics import ranges, snapshots
from kvbench.formats.serving.record import ServedRequest, ServingRun, ServingSummary
from kvbench.serving.arm import ArmRun, ClientLoad, Configuration
from kvbench.serving.comparing import compare
from kvbench.serving.server import ServerState, state_of
from tests.conftest import Outcome
from tests.factories import ROOT, serving_result

SERVING = ROOT.parent / "shared" / "data" / "serving"
Run = Callable[..., Outcome]
needs_data = pytest.mark.skipif(not SERVING.is_dir(), reason="the data folder ../shared/data is not there")


def arm(
    ttfts: Any = (1.0,) * 40,
    *,
    concurrency: int | None = 8,
    hits: float | None = 1e6,
    filesystem: Mapping[str, str] | None = None,
    **changes: Any,
) -> ArmRun:
    """A run whose requests follow each other, one each second, and end a second after their first token."""
    requests = tuple(
        ServedRequest(prompt_tokens=1000, ttft_s=float(ttft), e2e_s=float(ttft) + 1, start_s=float(at))
        for at, ttft in enumerate(ttfts)
    )
    known: dict[str, Any] = {
        "tool": "x", "tool_version": "1", "model": "m", "source": "f", "summary": ServingSummary(duration_s=len(ttfts)),
        "requests": requests, "concurrency": concurrency, "workload": (("seed", "1"),),
    }  # fmt: skip
    state = ServerState(external_tokens=hits, external_hit_rate=None if hits is None else min(1.0, hits / 2e6))
    return ArmRun(ServingRun(**(known | changes)), state, filesystem)


def control(ttfts: Any = (2.0,) * 40, **changes: Any) -> ArmRun:
    return arm(ttfts, **({"hits": 0.0} | changes))


def codes(control_run: ArmRun, run: ArmRun) -> dict[str, bool]:
    """What is said of the second run: the codes, and whether each refuses."""
    found = compare([Configuration("none", (control_run,)), Configuration("cpu", (run,))], "none")
    return {one.problem.code: one.problem.refuses for one in found.problems}


def test_a_ratio_is_the_arm_over_the_control() -> None:
    found = compare([Configuration("none", (control(),)), Configuration("cpu", (arm(),))], "none")
    ttft = found.speedup("cpu", ClientLoad(concurrency=8), "ttft_mean")
    assert ttft is not None
    assert (ttft.ratio, ttft.low, ttft.high, ttft.outcome) == (0.5, 0.5, 0.5, "better")
    assert found.problems == ()


@pytest.mark.slow
def test_requests_of_one_run_have_an_interval_that_holds() -> None:
    """Requests that resemble their neighbours: the truth lies in the interval at least as often as one promises."""
    held = 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        # Slow drifts of 20 %, shared by about ten requests in a row, over noise of 10 %.
        runs = [2.0 * np.exp(np.repeat(random.normal(0, 0.2, 20), 10) + random.normal(0, 0.1, 200)) for _ in range(2)]
        found = compare([Configuration("a", (control(runs[0]),)), Configuration("b", (arm(runs[1]),))], "a")
        ttft = found.speedup("b", ClientLoad(concurrency=8), "ttft_mean")
        assert ttft is not None
        assert ttft.low is not None
        assert ttft.high is not None
        held += ttft.low <= 1 <= ttft.high
    assert held >= 32


def test_repeats_are_the_sample_where_there_are_any() -> None:
    """Each run by itself is sure of its ratio, but the runs differ: between runs is what counts."""
    controls = tuple(control((value,) * 40) for value in (1.0, 2.0, 3.0))
    arms = tuple(arm((value,) * 40) for value in (0.9, 1.9, 2.9))
    found = compare([Configuration("none", controls), Configuration("cpu", arms)], "none")
    ttft = found.speedup("cpu", ClientLoad(concurrency=8), "ttft_mean")
    assert ttft is not None
    assert ttft.ratio == pytest.approx(0.95)
    assert ttft.outcome == "within noise"


@pytest.mark.parametrize("requests", [1, 4])
def test_without_a_spread_nothing_is_claimed(requests: int) -> None:
    found = compare(
        [Configuration("none", (control((2.0,) * requests),)), Configuration("cpu", (arm((1.0,) * requests),))], "none"
    )
    ttft = found.speedup("cpu", ClientLoad(concurrency=8), "ttft_mean")
    assert ttft is not None
    assert (ttft.ratio, ttft.low, ttft.outcome) == (0.5, None, "one run only")


def failing(share: float) -> tuple[ServedRequest, ...]:
    """A hundred requests of which a share failed."""
    return tuple(
        ServedRequest(prompt_tokens=1000, ttft_s=1.0, e2e_s=2.0, start_s=float(at), ok=at >= share * 100)
        for at in range(100)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("control_run", "run", "code", "refuses"),
    [
        (control(), arm(model="other"), "different-model", True),
        (control(), arm(model=None), None, False),
        (control(), arm(tool="other"), "different-tool", True),
        (control(), arm(tool_version="2"), "different-version", False),
        (control(), arm(workload=(("seed", "2"),)), "different-workload", True),
        (control(), arm(workload=(("data", "x"),)), None, False),
        (control(), arm(requests=failing(0.06)), "failed-requests", True),
        (control(), arm(requests=failing(0.04)), "failed-requests", False),
        (control(), arm(hits=0.0), "never-engaged", True),
        (control(), arm(hits=None), "engagement-unknown", False),
        (control(hits=1.0), arm(), "control-offloads", True),
        (control(), arm(filesystem={"target": "/", "source": "overlay", "fstype": "overlay"}), "not-mounted", True),
        (control(), arm(filesystem={"target": "/mnt/ceph", "source": "x", "fstype": "ceph"}), None, False),
        (control(filesystem={"target": "/", "source": "overlay", "fstype": "overlay"}), arm(), None, False),
        (control(), arm([*(0.5,) * 20, *(2.0,) * 20]), "saturated", False),
        (control(), arm([*(0.5,) * 20, *(0.7,) * 20]), None, False),
        (control(), arm((1.0,) * 80, summary=ServingSummary(duration_s=80)), "different-amount", False),
        (control(), arm((1.0,) * 80, summary=ServingSummary(duration_s=40)), None, False),
        (control(), arm(summary=ServingSummary(duration_s=10)), None, False),
        (control(), arm(concurrency=16), "no-control", True),
    ],
)  # fmt: skip
def test_what_is_not_comparable(control_run: ArmRun, run: ArmRun, code: str | None, refuses: bool) -> None:
    assert codes(control_run, run) == ({} if code is None else {code: refuses})


def test_what_is_refused_has_no_ratio_and_the_other_loads_have() -> None:
    runs = (arm(hits=0.0), arm(concurrency=16))
    found = compare([Configuration("none", (control(), control(concurrency=16))), Configuration("cpu", runs)], "none")
    assert {one.load.concurrency for one in found.speedups} == {16}
    assert [one.problem.code for one in found.refused("cpu")] == ["never-engaged"]


def test_repeats_of_the_control_are_of_one_thing() -> None:
    def found(**changes: Any) -> tuple[int, set[str]]:
        runs = Configuration("none", (control(), control(**changes)))
        one = compare([runs, Configuration("cpu", (arm(),))], "none")
        return len(one.speedups), {item.problem.code for item in one.refused("none")}

    assert found() == (4, set())
    assert found(model="other") == (0, {"different-model"})
    assert found(workload=(("seed", "2"),)) == (0, {"different-workload"})


def test_a_control_that_offloads_has_no_ratios_at_that_load() -> None:
    found = compare([Configuration("none", (control(hits=5.0),)), Configuration("cpu", (arm(),))], "none")
    assert found.speedups == ()


def test_prompts_of_other_lengths() -> None:
    def long(tokens: int) -> ArmRun:
        requests = tuple(ServedRequest(prompt_tokens=tokens, ttft_s=1.0, e2e_s=2.0, start_s=at) for at in range(40))
        return arm(requests=requests)

    assert codes(control(), long(1040)) == {}
    assert codes(control(), long(1200)) == {"different-lengths": False}
    assert codes(control(), long(2000)) == {"different-lengths": True}


def test_gpu_memory_as_the_limit() -> None:
    full = ServerState(external_tokens=10.0, external_hit_rate=0.02, kv_usage_highest=0.99, preemptions=12)
    run = ArmRun(arm().run, full)
    assert codes(control(), run) == {"gpu-memory-bound": False}
    assert codes(control(), ArmRun(arm().run, ServerState(external_tokens=10.0, kv_usage_highest=0.99))) == {}


@pytest.mark.slow
def test_an_open_loop_that_falls_behind() -> None:
    def sent(rate: float, hits: float) -> ArmRun:
        summary = ServingSummary(requests_per_s=1.0, duration_s=40)
        return arm(concurrency=None, request_rate=rate, summary=summary, hits=hits)

    assert codes(sent(1.02, 0.0), sent(1.02, 1.0)) == {}
    assert codes(sent(2.0, 0.0), sent(2.0, 1.0)) == {"saturated": False}
    assert codes(sent(float("inf"), 0.0), sent(float("inf"), 1.0)) == {}


BEFORE = """# TYPE vllm:external_prefix_cache_hits counter
vllm:external_prefix_cache_hits_total{engine="0",model_name="m"} 100.0
vllm:external_prefix_cache_queries_total{engine="0",model_name="m"} 1000.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:kv_offload_tiering_read_bytes_total{tier="fs"} 5e6
"""
AFTER = """# TYPE vllm:external_prefix_cache_hits counter
vllm:external_prefix_cache_hits_total{engine="0",model_name="m"} 400.0
vllm:external_prefix_cache_hits_total{engine="1",model_name="m"} 100.0
vllm:external_prefix_cache_queries_total{engine="0",model_name="m"} 2000.0
vllm:kv_offload_tiering_read_bytes_total{tier="fs"} 3e6
vllm:kv_offload_tiering_read_bytes_total{tier="obj"} 1e6
"""


def test_counters_between_two_snapshots(tmp_path: Path) -> None:
    """A new series began at 0, a smaller counter was reset, and a gauge of one moment is no measurement."""
    for name, text in (("before", BEFORE), ("after", AFTER)):
        (tmp_path / name).write_text(text)
    found = snapshots.between(tmp_path / "before", tmp_path / "after")
    state = state_of(found)
    assert (state.external_tokens, state.external_hit_rate) == (400.0, 0.4)
    assert state.read_bytes == {"fs": 3e6, "obj": 1e6}
    assert state.kv_usage_highest is None


def test_a_range_export(tmp_path: Path) -> None:
    def series(name: str, values: list[float | str], **labels: str) -> dict[str, Any]:
        return {"metric": {"__name__": name, **labels}, "values": [[at, str(value)] for at, value in enumerate(values)]}

    result = [
        series("vllm:num_preemptions_total", [5, 9, 2, 4]),
        series("vllm:kv_cache_usage_perc", [0.2, 1.0, "NaN", 0.6]),
        series("DCGM_FI_DEV_GPU_UTIL", [50, 100], gpu="0"),
        series("DCGM_FI_DEV_GPU_UTIL", [0, 50], gpu="1"),
    ]
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}))
    state = state_of(ranges.read(path))
    assert (state.preemptions, state.kv_usage_highest, state.gpu_utilization) == (8.0, 1.0, 0.5)
    assert state.kv_usage_mean == pytest.approx(0.6)


@pytest.mark.parametrize("text", ["", "no metrics here\n", "a{b=} 1\n", "x 1\n", 'x{a="b} 1\n', "\x00\xff"])
def test_what_is_no_page_of_metrics_is_a_sentence(tmp_path: Path, text: str) -> None:
    for name in ("before", "after"):
        (tmp_path / name).write_text(text)
    with pytest.raises(InputFileError, match=r"metrics|counter"):
        snapshots.between(tmp_path / "before", tmp_path / "after")


# The command, on files as vLLM's benchmark writes them.


@pytest.fixture
def arms(tmp_path: Path) -> Callable[[str, float, int], Path]:
    """A folder of a configuration with one result and the server's pages beside it."""

    def make(name: str, ttft_s: float, hits: int) -> Path:
        folder = serving_result(tmp_path / name / "c8" / "result.json", ttft_s).parent
        for when, found, asked in (("before", 0, 0), ("after", hits, 1000)):
            metric = "vllm:external_prefix_cache"
            page = f"{metric}_hits_total {found}\n{metric}_queries_total {asked}\n"
            (folder / f"metrics_{when}.txt").write_text(page)
        return folder.parent

    return make


def test_the_command_as_json(kvbench: Run, arms: Callable[[str, float, int], Path]) -> None:
    outcome = kvbench("compare", f"none={arms('none', 2.0, 0)}", f"cpu={arms('cpu', 1.0, 600)}", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    data = json.loads(outcome.out)
    assert [one["name"] for one in data["configurations"]] == ["none", "cpu"]
    run = data["configurations"][1]["runs"][0]
    assert (run["concurrency"], run["ttft_s"], run["external_hit_rate"]) == (8, {"mean": 1.0, "p95": 1.0}, 0.6)
    assert run["e2e_s"] == {"mean": 2.0, "p95": 2.0}
    ratios = {one["metric"]: (one["ratio"], one["outcome"]) for one in data["speedups"]}
    assert ratios["requests_per_s"] == (2.0, "better")
    assert ratios["ttft_p95"] == (0.5, "better")
    assert data["configurations"][1]["refused"] == []


def test_an_arm_whose_tier_was_never_used_is_refused(kvbench: Run, arms: Callable[[str, float, int], Path]) -> None:
    outcome = kvbench("compare", f"none={arms('none', 2.0, 0)}", f"cpu={arms('cpu', 1.0, 0)}")
    assert outcome.code == 2
    assert "refused: never-engaged" in outcome.out
    assert "0.5 (" not in outcome.out


def test_metrics_of_a_folder_with_two_runs_are_of_neither(
    kvbench: Run, arms: Callable[[str, float, int], Path]
) -> None:
    none, cpu = arms("none", 2.0, 0), arms("cpu", 1.0, 600)
    serving_result(cpu / "c8" / "other.json", 1.5, concurrency=16)
    outcome = kvbench("compare", f"none={none}", f"cpu={cpu}", "--json")
    assert "holds several runs" in outcome.err
    runs = json.loads(outcome.out)["configurations"][1]["runs"]
    assert [run["external_hit_rate"] for run in runs] == [None, None]


def test_a_snapshot_alone_is_refused(kvbench: Run, arms: Callable[[str, float, int], Path]) -> None:
    none, cpu = arms("none", 2.0, 0), arms("cpu", 1.0, 600)
    (cpu / "c8" / "metrics_after.txt").unlink()
    outcome = kvbench("compare", f"none={none}", f"cpu={cpu}")
    assert outcome.code == 2
    assert "metrics_after.txt" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("none",), "write NAME=PATH"),
        (("none=x", "=y"), "write NAME=PATH"),
        (("none=nowhere",), "nothing to be compared with"),
        (("none=nowhere", "cpu=nowhere"), "nowhere"),
        (("none=nowhere", "cpu=nowhere", "--control", "gpu"), "--control gpu"),
    ],
)
def test_bad_arguments(kvbench: Run, arguments: tuple[str, ...], said: str) -> None:
    outcome = kvbench("compare", *arguments)
    assert outcome.code == 2
    assert said in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize(
    "path", ["aiperf/art1", "vllm/detailed.json", "guidellm/g0.2.1.json", "guidellm/g054.json", "guidellm/g081.json",
             "inference-perf", "llm-d/br_v0_2_1_example.yaml", "llm-d/br_v0_1_example.yaml"],
)  # fmt: skip
def test_a_recorded_run_equals_itself(kvbench: Run, path: str) -> None:
    """Every ratio of a file with itself is 1, whatever the tool, and AIPerf's two files are one run."""
    outcome = kvbench("compare", f"a={SERVING / path}", f"b={SERVING / path}", "--json")
    data = json.loads(outcome.out)
    refused = [one["code"] for one in data["configurations"][1]["refused"]]
    assert set(refused) <= {"never-engaged", "failed-requests", "control-offloads"}
    assert {one["ratio"] for one in data["speedups"]} <= {1.0}
    loads = [(run["concurrency"], run["request_rate"]) for run in data["configurations"][0]["runs"]]
    assert len(loads) == len(set(loads))
