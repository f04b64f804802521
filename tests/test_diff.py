"""Two runs side by side: ratios, intervals, and the courage to say that they cannot be told apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kvbench.record import results
from kvbench.record.comparison import compare, ratio_interval
from kvbench.record.results import Round, RunResult
from tests.conftest import Outcome
from tests.factories import point

Kvbench = Callable[..., Outcome]
ENVIRONMENT = {"kernel": "6.1", "cpus": 8, "fio": "fio-3.33", "host": "a", "load_1m": 0.1}


def run_of(rates: Sequence[float], tier: str = "nvme", **environment: object) -> RunResult:
    """A run of one read point whose rounds had these bandwidths; p99 moves the other way."""
    rounds = tuple(Round(1, 5.0, rate, None, round(1e15 / rate), None) for rate in rates)
    measured = point(tier=tier, rounds=rounds, id=f"{tier}-1179648-read-j1")
    return RunResult("now", points=(measured,), environment={**ENVIRONMENT, **environment})


def outcomes(a: Sequence[float], b: Sequence[float]) -> list[str]:
    return [item.outcome for item in compare(run_of(a), run_of(b))]


def test_clear_differences_are_named_from_bs_side() -> None:
    assert outcomes([100e6, 101e6, 99e6], [200e6, 202e6, 198e6]) == ["faster", "faster"]
    assert outcomes([200e6, 202e6, 198e6], [100e6, 101e6, 99e6]) == ["slower", "slower"]


def test_noise_cannot_be_told_apart() -> None:
    assert outcomes([100e6, 140e6, 90e6], [120e6, 80e6, 130e6]) == ["cannot tell apart"] * 2


def test_one_round_says_so() -> None:
    assert outcomes([100e6], [200e6, 202e6]) == ["one round only"] * 2


def test_rounds_that_followed_each_other_at_once_count_as_one() -> None:
    def rates(apart_s: float) -> list[float]:
        """Ratios of a run of six rounds, twice as quick in the last three, to itself."""
        rounds = tuple(
            Round(1, 3.0, rate, None, round(1e15 / rate), began_s=1e9 + number * apart_s)
            for number, rate in enumerate([100e6, 101e6, 99e6, 200e6, 202e6, 198e6])
        )
        run = replace(run_of([]), points=(point(rounds=rounds, id="one"),))
        return [item.a for item in compare(run, run) if item.metric == "bandwidth"] + [
            item.spread_a or 0.0 for item in compare(run, run) if item.metric == "bandwidth"
        ]

    assert rates(30.0) == pytest.approx([(100 * 101 * 99 * 200 * 202 * 198) ** (1 / 6) * 1e6, 202 / 99 - 1], rel=1e-6)
    # Four of them begin within the first 10 s.
    first, second = (100 * 101 * 99 * 200) ** (1 / 4), (202 * 198) ** (1 / 2)
    assert rates(3.0) == pytest.approx([math.sqrt(first * second) * 1e6, second / first - 1], rel=1e-6)


def test_the_interval_is_welchs_on_logarithms() -> None:
    interval = ratio_interval([1.0, math.e], [math.e, math.e**2, math.e**3])
    assert interval is not None
    # means 0.5 and 2, variances 0.5 and 1, error sqrt(0.25 + 1/3), freedom (7/12)^2 / (0.0625 + 0.0556) = 2.882
    middle, error = 1.5, math.sqrt(0.25 + 1 / 3)
    assert math.log(interval[0]) + math.log(interval[1]) == pytest.approx(2 * middle)
    reach = (math.log(interval[1]) - math.log(interval[0])) / 2
    assert 3.2 < reach / error < 3.3  # t(0.975, 2.882), between 3.182 (df 3) and 4.303 (df 2)


def test_equal_runs_are_told_apart_in_five_percent_of_cases() -> None:
    generator = np.random.default_rng(11)
    wrong = 0
    for _ in range(600):
        a, b = generator.lognormal(0, 0.2, 4), generator.lognormal(0, 0.2, 4)
        interval = ratio_interval(list(a), list(b))
        assert interval is not None
        wrong += not interval[0] <= 1 <= interval[1]
    # 5 % of 600 with four standard errors (0.9 % each) to spare.
    assert wrong / 600 <= 0.05 + 4 * 0.009


def test_tiers_of_other_names_pair_when_each_run_has_one() -> None:
    (bandwidth, _) = compare(run_of([1e8, 1e8], "nvme"), run_of([2e8, 2e8], "cephfs"))
    assert (bandwidth.tier_a, bandwidth.tier_b) == ("nvme", "cephfs")
    assert bandwidth.ratio == pytest.approx(2.0)


def test_points_of_two_drivers_are_not_mixed_up() -> None:
    """A run with --fidelity has every kind of point twice; against itself nothing differs."""

    def run(**rates: float) -> RunResult:
        parts = [run_of([rate, rate]).points[0] for rate in rates.values()]
        points = (replace(part, driver=driver) for part, driver in zip(parts, rates, strict=True))
        return RunResult("now", points=tuple(points), environment=ENVIRONMENT)

    def ratios(a: RunResult, b: RunResult) -> list[float]:
        return [item.ratio for item in compare(a, b) if item.metric == "bandwidth"]

    both = run(fio=1e8, replay=2e8)
    assert ratios(both, both) == [1.0, 1.0]
    assert ratios(both, run(fio=3e8)) == pytest.approx([3.0])
    assert ratios(run(replay=3e8), both) == pytest.approx([2 / 3])
    assert ratios(both, run(s3=3e8)) == []
    # Runs of one driver each pair as before: a bucket is compared with a directory.
    assert ratios(run(fio=1e8), run(s3=3e8)) == pytest.approx([3.0])


def save(tmp_path: Path, name: str, run: RunResult) -> Path:
    (tmp_path / name).mkdir()
    results.save(run, tmp_path / name)
    return tmp_path / name


def test_the_command_prints_ratio_interval_and_word(kvbench: Kvbench, tmp_path: Path) -> None:
    a = save(tmp_path, "a", run_of([100e6, 101e6, 99e6]))
    b = save(tmp_path, "b", run_of([200e6, 202e6, 198e6], host="b"))
    outcome = kvbench("diff", a, b)
    assert outcome.code == 0
    assert "B against A" in outcome.out
    assert "faster" in outcome.out
    data = kvbench("diff", a, b, "--json").json()
    assert data["environment"] == []
    first = data["differences"][0]
    assert (first["metric"], first["outcome"]) == ("bandwidth", "faster")
    assert first["low"] < first["ratio"] < first["high"]


def test_other_environments_are_refused_or_named(kvbench: Kvbench, tmp_path: Path) -> None:
    a = save(tmp_path, "a", run_of([1e8, 1.1e8]))
    b = save(tmp_path, "b", run_of([1e8, 1.1e8], kernel="6.2"))
    refused = kvbench("diff", a, b)
    assert refused.code == 2
    assert "the runs are of different environments (kernel: 6.1 and 6.2)" in refused.err
    allowed = kvbench("diff", a, b, "--allow-different")
    assert allowed.code == 0
    assert "different kernel: 6.1 and 6.2" in allowed.out


def test_runs_without_a_common_point_are_an_error(kvbench: Kvbench, tmp_path: Path) -> None:
    other = run_of([1e8, 1e8])
    other = replace(other, points=(replace(other.points[0], io_bytes=4096),))
    outcome = kvbench("diff", save(tmp_path, "a", run_of([1e8, 1e8])), save(tmp_path, "b", other))
    assert outcome.code == 2
    assert "no point in common" in outcome.err
