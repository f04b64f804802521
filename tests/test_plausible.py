"""Whether a prefill speed can be: what a model computes for a token, and what commands make of a unit that slips."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvbench.decide import decision
from kvbench.errors import InputFileError
from kvbench.layout import read_layout
from kvbench.layout.models import find_config, work_of_name
from kvbench.layout.work import Work, WorkBounds, bounds_of, work_of
from kvbench.prefill.curve import PrefillCurve, fit
from kvbench.prefill.plausible import speed_warning
from kvbench.prefill.samples import Sample, Samples
from kvbench.record.results import RunResult, save
from tests.conftest import Outcome
from tests.factories import direction, latency, point, shared_data, use

Kvbench = Callable[..., Outcome]
LENGTHS = (1024, 4096, 16384, 65536)
BOUNDS = WorkBounds(7e9, 7e9, 0, "7 billion active parameters")


def curve(tokens_per_s: float, column: str | None = "ttft_s", *, any_speed: bool = False) -> PrefillCurve:
    """A server of that speed at every length."""
    rows = tuple(Sample(tokens, tokens / tokens_per_s) for tokens in LENGTHS)
    return fit(Samples(rows, None, "a test", ttft_column=column, any_speed=any_speed))


def csv(path: Path, tokens_per_s: float, column: str = "ttft_s", factor: float = 1.0, model: str = "") -> Path:
    """A CSV of that server, its times multiplied by a factor that a slip would have."""
    lines = [f"{tokens},{factor * tokens / tokens_per_s:.9g}" for tokens in LENGTHS]
    path.write_text("\n".join([*([f"# model: {model}"] if model else []), f"prompt_tokens,{column}", *lines]) + "\n")
    return path


def run_dir(path: Path, **uses: Any) -> Path:
    """A run of one tier that restores 16,000 tokens/s at 16 jobs, for Llama-3.1-8B unless another use is given."""
    read = direction(60_000, 1000.0, latency_ns=latency(16e6))
    points = (point(id="nvme-1179648-mixed-j16", mix="mixed", numjobs=16, read=read, write=None),)
    wanted = {"model": "meta-llama/Llama-3.1-8B", "tp": 1, **uses}
    save(RunResult("2026-01-02T03:04:05+00:00", uses=(use(**wanted),), points=points), path)
    return path


@pytest.mark.parametrize(
    ("model", "billions"),
    [
        # The models' own cards: "Number of Parameters (Non-Embedding)".
        ("Qwen/Qwen3-0.6B", 0.44), ("Qwen/Qwen3-8B", 6.95), ("Qwen/Qwen3-14B", 13.2), ("Qwen/Qwen3-32B", 31.2),
        ("Qwen/Qwen2.5-14B", 13.1),
        # Active parameters of the cards, less the embedding or the output layer that some of them count.
        ("meta-llama/Llama-3.1-8B", 8.03 - 2 * 0.525), ("meta-llama/Llama-3.1-70B", 70.6 - 2 * 1.05),
        ("mistralai/Mixtral-8x7B-v0.1", 12.9 - 2 * 0.131), ("deepseek-ai/DeepSeek-V3", 37 - 0.93),
        ("openai/gpt-oss-120b", 5.13 - 0.58), ("openai/gpt-oss-20b", 3.61 - 0.58), ("Qwen/Qwen3-30B-A3B", 3.3 - 0.62),
        ("zai-org/GLM-4.5", 32), ("MiniMaxAI/MiniMax-M2.5", 10), ("moonshotai/Kimi-K2-Instruct", 32 - 1.17),
    ],
)  # fmt: skip
def test_active_parameters_are_the_published_ones(model: str, billions: float) -> None:
    work = work_of_name(model)
    assert work is not None
    assert work.parameters / 1e9 == pytest.approx(billions, rel=0.05)


def test_the_count_by_hand() -> None:
    """32 layers of q and o 4096², k and v 4096 x 1024, three of 4096 x 14336; 2 x 32 heads x (128 + 128)."""
    work = work_of_name("meta-llama/Llama-3.1-8B")
    assert work == Work(32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336), 32 * 2 * 32 * 256)


def test_the_name_of_a_file_is_its_hub_id() -> None:
    assert work_of_name("meta-llama__Meta-Llama-3.1-8B") == work_of_name("meta-llama/Llama-3.1-8B")
    assert work_of_name("someone__Meta-Llama-9-8B") is None


def test_profiles_count_as_the_whole_config_does() -> None:
    for path in sorted(shared_data("model-configs").glob("*.json")):
        found = work_of_name(path.stem)
        if found is not None:
            read = read_layout(find_config(str(path)).config)
            assert work_of(read.text, read.model_type, read.layout) == found, path.name


def test_a_trimmed_mixture_is_not_taken_for_a_dense_model() -> None:
    config = {"model_type": "mixtral", "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32,
              "hidden_size": 4096, "intermediate_size": 14336, "sliding_window": None}  # fmt: skip
    experts = {"num_local_experts": 8, "num_experts_per_tok": 2}
    for data, known in ((config, False), (config | experts, True)):
        read = read_layout(data)
        assert (work_of(read.text, read.model_type, read.layout) is not None) is known


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("org/Model-30B-A3B", 2.1e9, 3.9e9), ("mine-70b-instruct", 1.75e9, 91e9), ("org/moe-8x7B", 4.9e9, 56e9),
        ("org/small-8b", 1e9, 10.4e9), ("org/nothing", 0.1e9, 405e9), ("llama3.1", 0.1e9, 405e9), (None, 0.1e9, 405e9),
    ],
)  # fmt: skip
def test_a_name_bounds_what_is_not_known(name: str | None, least: float, most: float) -> None:
    bounds = bounds_of(None, name)
    assert (bounds.least_parameters, bounds.most_parameters) == pytest.approx((least, most))
    assert ("not known" in bounds.source) is (least == 0.1e9)


@pytest.mark.parametrize("real", [700.0, 5_000.0, 40_000.0])
@pytest.mark.parametrize(("slip", "asks"), [(1000.0, "ttft_s"), (0.001, "ttft_ms")])
def test_a_thousandfold_slip_is_seen_either_way(real: float, slip: float, asks: str) -> None:
    assert speed_warning(curve(real), BOUNDS, 1) is None
    doubt = speed_warning(curve(real * slip, "ttft_ms" if slip > 1 else "ttft_s"), BOUNDS, 1)
    assert doubt is not None
    assert doubt.text.endswith(f"did you mean {asks}?")
    assert "7 billion active parameters" in doubt.text


def test_the_arithmetic_is_shown() -> None:
    doubt = speed_warning(curve(5_000_000.0, "ttft_ms"), BOUNDS, 1)
    assert doubt is not None
    assert doubt.degree == "impossible"
    # 2 x 7e9 x 5e6 = 7e16.
    assert doubt.text == (
        "the TTFT means 5,000,000 tokens/s at 1,024 tokens, which with 7 billion active parameters (2 FLOP for each of "
        "them and token, and attention) is at least 70 PFLOP/s on one accelerator (TP 1), where the fastest computes "
        "50 PFLOP/s (NVIDIA Rubin, dense FP4); did you mean ttft_s?"
    ).replace("at 1,024", f"at {doubt.text.split(' at ')[1].split(' ')[0]}")


def test_more_accelerators_compute_more_and_a_promise_ends_the_doubt() -> None:
    fast = curve(1_000_000.0)  # 14 PFLOP/s
    assert getattr(speed_warning(fast, BOUNDS, 1), "degree", None) == "doubtful"
    assert speed_warning(fast, BOUNDS, 4) is None
    assert speed_warning(replace(fast, any_speed=True), BOUNDS, 1) is None


def test_attention_counts_at_long_prompts() -> None:
    """221,000 tokens/s of a 70B at 128k on 8 accelerators: 3.4 PFLOP/s each without attention, 8.1 with it."""
    lengths = (1024, 4096, 16384, 65536, 131072)
    rows = tuple(Sample(tokens, tokens / 221_000 * stray) for tokens in lengths for stray in (0.995, 1.005))
    found, work = fit(Samples(rows, None, "a test")), work_of_name("meta-llama/Llama-3.1-70B")
    assert work is not None
    assert speed_warning(found, bounds_of(Work(work.parameters, 0), None), 8) is None
    doubt = speed_warning(found, bounds_of(work, None), 8)
    assert doubt is not None
    assert "at 131,072 tokens" in doubt.text


@pytest.mark.slow
@pytest.mark.parametrize("command", ["crossover", "report", "gate"])
@pytest.mark.parametrize(
    ("tokens_per_s", "column", "factor", "asks"),
    [(20_000, "ttft_ms", 1.0, "ttft_s"), (20_000, "ttft_s", 1000.0, "ttft_ms"), (33, "ttft_s", 1.0, "ttft_ms")],
)
def test_every_command_refuses_what_cannot_be(
    kvbench: Kvbench, tmp_path: Path, command: str, tokens_per_s: float, column: str, factor: float, asks: str
) -> None:
    run = run_dir(tmp_path / "run")
    slipped = csv(tmp_path / "slipped.csv", tokens_per_s, column, factor)
    outcome = kvbench(command, run, "--ttft-csv", slipped)
    assert (outcome.code, outcome.out) == (2, "")
    assert f"did you mean {asks}? Correct the samples" in outcome.err
    vouched = kvbench(command, run, "--ttft-csv", slipped, "--any-speed")
    assert "did you mean" not in vouched.out + vouched.err


def test_a_right_unit_is_no_doubt(kvbench: Kvbench, tmp_path: Path) -> None:
    run = run_dir(tmp_path / "run")
    for name, column, factor in (("s", "ttft_s", 1.0), ("ms", "ttft_ms", 1000.0)):
        outcome = kvbench("gate", run, "--ttft-csv", csv(tmp_path / f"{name}.csv", 4_000, column, factor))
        assert (outcome.code, outcome.err) == (0, "")


def test_a_doubtful_speed_decides_nothing(kvbench: Kvbench, tmp_path: Path) -> None:
    path = csv(tmp_path / "fast.csv", 1_000_000)
    found: Any = kvbench("crossover", run_dir(tmp_path / "run"), "--ttft-csv", path, "--json").json()["results"]
    assert found[0]["verdict"] == "cannot say"
    assert found[0]["verdict_reason"].startswith("the prefill speed is doubtful: the TTFT means 1,000,000 tokens/s")
    more: Any = kvbench("crossover", run_dir(tmp_path / "tp", tp=8), "--ttft-csv", path, "--json").json()["results"]
    assert "doubtful" not in more[0]["verdict_reason"]


def test_what_the_run_stored_comes_before_the_name(kvbench: Kvbench, tmp_path: Path) -> None:
    path = csv(tmp_path / "x.csv", 20_000)
    known = run_dir(tmp_path / "known", model="mine", active_parameters=10**12, pair_flop=0)
    assert kvbench("gate", known, "--ttft-csv", path).code == 3
    unknown = run_dir(tmp_path / "unknown", model="mine")
    assert "doubtful" not in kvbench("gate", unknown, "--ttft-csv", path).out


def test_the_published_figure_is_not_drawn_through_it_either(kvbench: Kvbench, tmp_path: Path) -> None:
    path = csv(tmp_path / "x.csv", 20_000_000, model="meta-llama/Llama-3.1-8B")
    assert kvbench("crossover", "--p99-ms", "5", "--ttft-csv", path).code == 2
    assert kvbench("crossover", "--p99-ms", "5", "--ttft-csv", csv(path, 20_000)).code == 0


@pytest.mark.slow
def test_samples_of_no_model_are_not_given_to_several(kvbench: Kvbench, tmp_path: Path) -> None:
    path, run = csv(tmp_path / "x.csv", 4_000), run_dir(tmp_path / "run")
    read = direction(60_000, 1000.0, latency_ns=latency(16e6))
    points = (point(id="nvme-1179648-mixed-j16", mix="mixed", numjobs=16, read=read, write=None),)
    uses = (use(model="meta-llama/Llama-3.1-8B", tp=1), use(model="Qwen/Qwen3-8B", tp=1))
    two = tmp_path / "two"
    save(RunResult("2026-01-02T03:04:05+00:00", uses=uses, points=points), two)
    said = "do not name a model ('# model: NAME' in the CSV, or --ttft-model) and are given to 2 (Qwen/Qwen3-8B, meta-"
    assert said in " ".join(kvbench("crossover", two, "--ttft-csv", path).out.split())
    assert said in kvbench("report", two, "--ttft-csv", path).out
    refused = kvbench("gate", two, "--ttft-csv", path)
    assert (refused.code, refused.out) == (2, "")
    assert "name it with --ttft-model, or judge one model with --model" in refused.err
    assert kvbench("gate", two, "--ttft-csv", path, "--model", "Qwen/Qwen3-8B").code == 0
    assert kvbench("gate", run, "--ttft-csv", path).code == 0


def test_fio_refuses_it_before_it_measures(kvbench: Kvbench, tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    tier.mkdir()
    outcome = kvbench(
        "fio", "--tier", tier, "--model", "meta-llama/Llama-3.1-8B", "--dataset", "64MiB", "--ttft-csv",
        csv(tmp_path / "x.csv", 20_000, "ttft_ms"), "-o", tmp_path / "run",
    )  # fmt: skip
    assert (outcome.code, outcome.out) == (2, "")
    assert "did you mean ttft_s?" in outcome.err
    assert not (tmp_path / "run").exists()
    assert list(tier.iterdir()) == []


def test_one_of_several_models_may_be_the_right_one(kvbench: Kvbench, tmp_path: Path) -> None:
    """300,000 tokens/s of samples without a model: a 0.6B may be that fast, a 405B may not."""
    small, large = use(model="Qwen/Qwen3-0.6B", tp=1), use(model="meta-llama/Llama-3.1-405B", tp=1)
    fast = curve(300_000.0)
    said = decision.doubted_speed(fast, [small, large])
    assert said is not None
    assert "402 billion" in said
    with pytest.raises(InputFileError, match="402 billion"):
        decision.doubted_speed(fast, [large])
    assert decision.doubted_speed(fast, [small]) is None


def test_another_deployment_keeps_the_prefill_that_was_measured(kvbench: Kvbench, tmp_path: Path) -> None:
    path = csv(tmp_path / "x.csv", 500)
    found = kvbench("crossover", run_dir(tmp_path / "run"), "--ttft-csv", path, "--what-if", "tp=8", "--json").json()
    asked: Any = found["what_if"]
    assert "doubtful" not in asked[0]["verdict_reason"]


def test_a_measurement_is_told_before_it_starts() -> None:
    with pytest.raises(InputFileError, match="did you mean ttft_s"):
        decision.doubted_speed(curve(20_000_000.0, "ttft_ms"), [use(model="meta-llama/Llama-3.1-8B", tp=1)])
    assert decision.doubted_speed(curve(20_000.0), [use(model="meta-llama/Llama-3.1-8B", tp=1)]) is None
    assert len(np.unique(curve(20_000.0).coefficients)) > 1
