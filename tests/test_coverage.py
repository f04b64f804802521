"""The simulation behind the coverage figures: its truth is the analytic one, and it asks kvbench's own functions."""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.record.histogram import Histogram, bin_of
from kvbench.record.results import LatencyNs, Observation, OverTime
from tests.factories import ROOT, direction, point

pytestmark = pytest.mark.slow


def script(name: str) -> Any:
    """The module of a file in benchmarks/, which is no package."""
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


simulated, on_disk = script("coverage"), script("coverage_real")
Process = simulated.Process


@given(st.lists(st.integers(1, 10**11), min_size=1, max_size=30))
def test_many_latencies_fall_into_the_bins_of_each(latencies_ns: list[int]) -> None:
    found = simulated.binned(np.array(latencies_ns) / 1e9)
    one_by_one: dict[int, int] = {}
    for ns in latencies_ns:
        one_by_one[bin_of(ns)] = one_by_one.get(bin_of(ns), 0) + 1
    assert found == Histogram.from_counts(one_by_one)


def test_the_truth_of_independent_operations_is_the_analytic_one() -> None:
    truth = simulated.truth_of(Process(0.0, 1.0, "exponential", 200.0))
    assert truth.read.iops == pytest.approx(200.0, rel=1e-9)
    assert truth.histogram is not None
    assert truth.histogram.percentile(99) == pytest.approx(simulated.JOBS / 200 * 1e9 * -math.log(0.01), rel=0.015)


def test_a_tier_spends_its_time_as_a_closed_loop_does() -> None:
    process = Process(0.3, 0.5, "lognormal", 200.0)
    item = simulated.Tier(process, np.random.default_rng(3)).measure(0.0, 2000, "read")
    truth = simulated.truth_of(process)
    read = item.point.read
    assert read is not None
    assert read.latency_ns is not None
    assert read.latency_ns.mean is not None
    # Little's law: the jobs are busy all the time.
    assert read.iops * read.latency_ns.mean / 1e9 == pytest.approx(simulated.JOBS, rel=0.01)
    # 2,000 s are 2,000 independent states of 1 s: the rate is known to 0.7 %.
    assert read.iops == pytest.approx(truth.read.iops, rel=0.03)
    assert item.histograms["read"].percentile(99) == pytest.approx(truth.read.latency_ns.p99, rel=0.05)


def test_points_in_turn_are_far_apart_and_a_point_alone_is_not() -> None:
    process, generator = Process(0.0, 1.0, "exponential", 200.0), np.random.default_rng(1)
    together, seconds = simulated.measured(process, 6, generator, "read", None)
    begun = [item.began_s for item in together.point.rounds]
    assert np.diff([at for at in begun if at is not None]).tolist() == pytest.approx([21.0] * (len(begun) - 1))
    assert together.point.over_time["read"].batches == len(begun) >= 6
    assert seconds == 3.0 * len(begun)
    alone, longer = simulated.measured(process, 1, generator, "read", None)
    assert alone.point.over_time["read"].batches < len(alone.point.rounds)
    assert longer >= 51.0


def test_the_same_seed_is_the_same_answer() -> None:
    process = Process(0.2, 2.0, "exponential", 100.0)
    assert simulated.simulate(process, 6, (1, 2)) == simulated.simulate(process, 6, (1, 2))


@pytest.mark.parametrize(
    ("options", "said"),
    [(("--sd", "-1"), "-1 is below 0"), (("--tau", "0"), "0 is not above 0"), (("--rate", "1"), "1 is below 10")],
)
def test_odd_options_of_the_simulation_are_refused(options: tuple[str, str], said: str) -> None:
    call = [sys.executable, str(ROOT / "benchmarks" / "coverage.py"), *options]
    answer = subprocess.run(call, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert said in answer.stderr


def test_the_json_of_the_simulation() -> None:
    call = [sys.executable, str(ROOT / "benchmarks" / "coverage.py"), "--sd", "0", "--runs", "2", "--json"]
    data = json.loads(subprocess.run(call, capture_output=True, text=True, check=True).stdout)
    assert list(data) == [
        "p99_coverage", "restore_coverage", "crossover_coverage", "wrong_verdicts", "cannot_say", "seconds_per_point",
        "processes",
    ]  # fmt: skip
    assert [part["process"] for part in data["processes"]] == ["lognormal, independent"]
    assert 18 <= data["seconds_per_point"] <= 60


def real(p99_ms: int, rate: float, interval: tuple[int | None, int | None], error: float | None) -> Any:
    """A measurement with that p99 and rate, and what it says about them."""
    ns = p99_ms * 10**6
    latency = LatencyNs(p99=ns, p99_low=interval[0], p99_high=interval[1])
    known = {} if error is None else {"read": OverTime(6, error)}
    measured_once = point(read=direction(1000, rate, latency_ns=latency), over_time=known)
    item = Observation(measured_once, {"read": Histogram(((ns, 1000),))})
    return on_disk.Measured((item,), item, 20.0)


def test_an_interval_is_held_against_all_other_measurements() -> None:
    ms = 10**6
    found = [
        real(10, 100.0, (9 * ms, 12 * ms), 0.05),
        real(10, 104.0, (11 * ms, 12 * ms), 0.0),
        real(10, 96.0, (None, 12 * ms), None),
    ]
    assert on_disk.holding(found, on_disk.p99_holds) == 1
    assert on_disk.holding(found, on_disk.rate_holds) == 1
    assert on_disk.single_rounds_holding(found) == (3, 3)
    other = replace(found[0], rounds=real(20, 1.0, (0, 0), None).rounds)
    assert on_disk.single_rounds_holding([*found[1:], other]) == (0, 3)
