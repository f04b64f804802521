"""Did it come true: a simulation's configurations beside the serving runs of the same names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Outcome
from tests.factories import ROOT, SHIPPED_CSV, serving_result

Run = Callable[..., Outcome]
TOKENS = 40 * 1000


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    """No offload, and a CPU tier with a disk behind it that halves the TTFT; 40 prompts of 1000 tokens each."""
    named = []
    for name, ttft_s, hits in (("none", 2.0, 0), ("cpu+nvme", 1.0, 600)):
        folder = serving_result(tmp_path / name / "result.json", ttft_s).parent
        for when, share in (("before", 0), ("after", 1)):
            page = f"vllm:external_prefix_cache_hits_total {hits * share}\n"
            page += f"vllm:external_prefix_cache_queries_total {1000 * share}\n"
            if hits:
                page += f'vllm:kv_offload_tiering_read_bytes_total{{tier="fs"}} {TOKENS * 300 * share}\n'
            (folder / f"metrics_{when}.txt").write_text(page)
        named.append(f"{name}={folder}")
    return named


def tier(name: str, hit_rate: float, read_bytes: int = 0) -> dict[str, Any]:
    return {"name": name, "hit_rate": hit_rate, "read_bytes": read_bytes}


def predicted(path: Path, **changes: Any) -> Path:
    """A simulation of 10,000 prompt tokens: 0.5 from tiers, 400 bytes a token from the disk, a quarter of the TTFT."""
    cpu = {
        "name": "cpu+nvme",
        "external_hit_rate": 0.5,
        "tiers": [tier("gpu", 0.0), tier("cpu", 0.3, 10**9), tier("nvme", 0.2, 4 * 10**6)],
    }
    times = {"requests_per_s_ratio": 4.0, "ttft_mean_ratio": 0.25, "ttft_p95_ratio": 0.5}
    document = {
        "trace": {"prompt_tokens": 10_000},
        "configurations": [{"name": "none", "external_hit_rate": 0.0, "tiers": [tier("gpu", 0.0)]}, cpu],
        "predicted": [
            {"name": "none", "requests_per_s_ratio": 1.0, "ttft_mean_ratio": 1.0, "ttft_p95_ratio": 1.0},
            {"name": "cpu+nvme", **times},
        ],
    }
    path.write_text(json.dumps(document | changes))
    return path


def held(
    kvbench: Run, runs: list[str], file: Path, *more: str
) -> dict[tuple[str, str], tuple[float, float, float | None]]:
    outcome = kvbench("compare", *runs, "--predicted", file, "--json", *more)
    found = json.loads(outcome.out)["predictions"]
    return {(one["configuration"], one["metric"]): (one["predicted"], one["observed"], one["ratio"]) for one in found}


@pytest.mark.slow
def test_each_number_that_both_say(kvbench: Run, runs: list[str], tmp_path: Path) -> None:
    assert held(kvbench, runs, predicted(tmp_path / "p.json")) == {
        ("none", "external_hit_rate"): (0.0, 0.0, None),
        ("cpu+nvme", "external_hit_rate"): (0.5, 0.6, 1.2),
        ("cpu+nvme", "tier_read_bytes_per_token"): (400.0, 300.0, 0.75),
        ("cpu+nvme", "requests_per_s_ratio"): (4.0, 2.0, 0.5),
        ("cpu+nvme", "ttft_mean_ratio"): (0.25, 0.5, 2.0),
        ("cpu+nvme", "ttft_p95_ratio"): (0.5, 0.5, 1.0),
    }


def test_ratios_over_another_control_are_not_compared(kvbench: Run, runs: list[str], tmp_path: Path) -> None:
    found = held(kvbench, runs, predicted(tmp_path / "p.json"), "--control", "cpu+nvme")
    assert {metric for _, metric in found} == {"external_hit_rate", "tier_read_bytes_per_token"}


def test_a_simulation_without_times(kvbench: Run, runs: list[str], tmp_path: Path) -> None:
    found = held(kvbench, runs, predicted(tmp_path / "p.json", predicted=[]))
    assert {metric for _, metric in found} == {"external_hit_rate", "tier_read_bytes_per_token"}


@pytest.mark.slow
def test_the_table(kvbench: Run, runs: list[str], tmp_path: Path) -> None:
    out = kvbench("compare", *runs, "--predicted", predicted(tmp_path / "p.json")).out
    assert "Did it come true" in out
    assert "Did it come true" not in kvbench("compare", *runs).out


def test_what_workingset_prints(kvbench: Run, runs: list[str], tmp_path: Path) -> None:
    """The real output, with times: its configurations are called as the runs are."""
    trace = ROOT / "tests" / "data" / "traces" / "mooncake.jsonl"
    engine = ("--gpu", "2GiB", "--cpu", "4GiB", "--tier", "nvme=100GiB", "--ttft-csv", SHIPPED_CSV)
    rates = ("--read-rate", "nvme=3GiB/s")
    simulated = kvbench("workingset", trace, "--model", "gpt-oss-120b", *engine, *rates, "--json")
    assert simulated.code == 0
    (tmp_path / "p.json").write_text(simulated.out)
    found = held(kvbench, runs, tmp_path / "p.json")
    assert {metric for name, metric in found if name == "cpu+nvme"} == {
        "external_hit_rate", "tier_read_bytes_per_token", "requests_per_s_ratio", "ttft_mean_ratio", "ttft_p95_ratio",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "workingset --json"),
        ("[]", "workingset --json"),
        ('{"trace": {"prompt_tokens": 0}, "configurations": []}', "workingset --json"),
        ('{"trace": {"prompt_tokens": NaN}, "configurations": []}', "workingset --json"),
        (
            '{"trace": {"prompt_tokens": 1}, "configurations": [{"name": "none", "external_hit_rate": 0, "tiers": '
            '[{"name": "nvme", "hit_rate": 0, "read_bytes": 1' + "0" * 400 + "}]}]}",
            "workingset --json",
        ),
        (None, "cannot be read"),
    ],
)
def test_what_is_no_prediction(kvbench: Run, runs: list[str], tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "p.json").write_text(text)
    outcome = kvbench("compare", *runs, "--predicted", tmp_path / "p.json")
    assert (outcome.code, said in outcome.err) == (2, True)


@pytest.mark.slow
def test_a_prediction_of_other_configurations(kvbench: Run, runs: list[str], tmp_path: Path) -> None:
    other = [{"name": "x", "external_hit_rate": 0.0, "tiers": [tier("gpu", 0.0)]}]
    outcome = kvbench("compare", *runs, "--predicted", predicted(tmp_path / "p.json", configurations=other))
    assert outcome.code == 2
    assert "the prediction is of x" in outcome.err
