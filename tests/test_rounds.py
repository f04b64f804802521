"""Rounds: pooling is exact, stopping follows the rule, and a run does what they say."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.record.histogram import Histogram, merge
from kvbench.record.latency import latency_of
from kvbench.record.results import Conditions, Direction, Observation, PointResult, Round
from kvbench.record.rounds import StopRule, next_round_s, pool, spread, widest_p99
from kvbench.record.stats import FIO_LAST_BIN_NS, dispersion_of, percentile_interval_ns, relative_half_width
from tests.conftest import FakeFio, Outcome

Kvbench = Callable[..., Outcome]
AUTO = StopRule(auto=True, max_s=60)

histograms = st.dictionaries(st.integers(1, 10**10), st.integers(1, 10**4), min_size=1, max_size=30).map(
    Histogram.from_counts
)


def observed(counts: dict[int, int], runtime_s: float = 5.0, status: str = "ok", repeat: int = 1) -> Observation:
    """A pure read round with that histogram of latencies."""
    histogram = Histogram.from_counts(counts)
    total = sum(ns * count for ns, count in histogram.bins)
    latency = latency_of(
        [histogram],
        mean_ns=total / histogram.samples,
        min_ns=histogram.bins[0][0],
        max_ns=histogram.bins[-1][0],
    )
    ios = histogram.samples
    read = Direction(ios, ios * 4096, ios / runtime_s, ios * 4096 / runtime_s, latency)
    point = PointResult(
        id="p", job="p", source="", tier="t", driver="fio", io_bytes=4096, mix="read", numjobs=1,
        runtime_s=runtime_s, latency_source="lat", status=status, read=read,  # type: ignore[arg-type]
        conditions=Conditions(requested_runtime_s=runtime_s, device_read_bytes=ios * 4096, cpu_steal_percent=runtime_s),
        rounds=(Round(repeat, runtime_s),),
    )  # fmt: skip
    return Observation(point, {"read": histogram})


@given(st.lists(histograms, min_size=1, max_size=6))
def test_pooling_equals_all_samples_together(parts: list[Histogram]) -> None:
    rounds = [observed(dict(part.bins)) for part in parts]
    pooled = pool(rounds)
    together = merge(parts)
    assert pooled.histograms["read"] == together
    read = pooled.point.read
    assert read is not None
    assert read.latency_ns is not None
    assert (read.ios, read.bytes) == (together.samples, together.samples * 4096)
    assert read.iops == pytest.approx(together.samples / (5.0 * len(parts)))
    assert read.latency_ns.mean == pytest.approx(sum(ns * n for ns, n in together.bins) / together.samples)
    assert read.latency_ns.p99 == together.percentile(99)
    assert (read.latency_ns.min, read.latency_ns.max) == (together.bins[0][0], together.bins[-1][0])
    assert pooled.point.runtime_s == pytest.approx(5.0 * len(parts))
    assert len(pooled.point.rounds) == len(parts)


@given(histograms, histograms, histograms)
def test_merging_is_associative_and_order_does_not_matter(a: Histogram, b: Histogram, c: Histogram) -> None:
    assert merge([merge([a, b]), c]) == merge([a, merge([b, c])]) == merge([c, b, a])


@given(histograms)
def test_percentiles_rise_and_never_leave_the_observed_range(histogram: Histogram) -> None:
    values = [histogram.percentile(percent) for percent in (0.1, 50, 90, 95, 99, 99.9, 100)]
    assert values == sorted(values)
    assert histogram.bins[0][0] <= values[0]
    assert values[-1] == histogram.bins[-1][0]


def test_conditions_pool_to_sums_and_worst_cases() -> None:
    pooled = pool([observed({10: 5}, 5.0), observed({10: 7}, 11.0)]).point.conditions
    assert (pooled.requested_runtime_s, pooled.device_read_bytes, pooled.cpu_steal_percent) == (16.0, 12 * 4096, 11.0)


def test_a_failed_round_decides_the_point() -> None:
    bad = observed({10: 5})
    bad = replace(bad, point=replace(bad.point, status="failed", reason="no space"))
    pooled = pool([observed({10: 5}), bad]).point
    assert (pooled.status, pooled.reason, len(pooled.rounds)) == ("failed", "no space", 2)


def test_intervals_cover_at_the_stated_rate_on_independent_samples() -> None:
    generator = np.random.default_rng(7)
    truth = -math.log(0.01) * 1e6
    hits = 0
    for _ in range(400):
        values = np.sort(generator.exponential(1e6, 2000)).astype(int) + 1
        histogram = Histogram.from_counts(
            {int(v): int(n) for v, n in zip(*np.unique(values, return_counts=True), strict=True)}
        )
        low, high = percentile_interval_ns(histogram, 99)
        hits += low is not None and high is not None and low <= truth <= high
    # 95 % of 400 with four standard errors (1.1 % each) to spare.
    assert hits / 400 >= 0.95 - 4 * 0.011


def test_rounds_that_disagree_widen_the_interval() -> None:
    calm = {1000: 990, 5000: 10}
    rounds = [Histogram.from_counts(calm)] * 4
    assert dispersion_of(rounds, 99) == 1.0
    stormy = [Histogram.from_counts({1000: 1000 - n, 5000: n}) for n in (0, 0, 0, 80)]
    assert dispersion_of(stormy, 97) > 10
    narrow = percentile_interval_ns(merge(stormy), 97)
    wide = percentile_interval_ns(merge(stormy), 97, dispersion_of(stormy, 97))
    assert wide[0] is not None
    assert narrow[0] is not None
    assert wide[0] <= narrow[0]
    assert wide[1] is None or narrow[1] is None or wide[1] >= narrow[1]


def test_relative_half_width() -> None:
    assert relative_half_width(100, 90, 120) == 0.15
    assert relative_half_width(100, None, 120) == math.inf
    assert relative_half_width(100, 90, None) == math.inf


def test_spread() -> None:
    assert spread([100.0, 150.0, 120.0]) == 0.5
    assert spread([100.0]) is None


def test_the_end_of_fios_histogram() -> None:
    # fio 3.33 stat.c plat_idx_to_val(29 * 64 - 1): error bits (1855 >> 6) - 1 = 27, base 2^33, plus 63.5 bins of 2^27.
    assert 2**33 + int(63.5 * 2**27) == FIO_LAST_BIN_NS


TIGHT = {1000: 5000}
LOOSE = {1000: 985, 5000: 10, 9000: 5}


@pytest.mark.parametrize(
    ("rule", "rounds", "expected"),
    [
        (StopRule(auto=False, max_s=60), [], 60),
        (StopRule(auto=False, max_s=60), [observed(LOOSE, 60)], None),
        (AUTO, [], 5),
        (StopRule(auto=True, max_s=3), [], 3),
        (AUTO, [observed(TIGHT)], None),
        (AUTO, [observed(LOOSE, 58)], 2),
        (AUTO, [observed(LOOSE, 60)], None),
        (AUTO, [observed({1000: 3})], 5),
        (AUTO, [observed({1000: 3}, 20)], 20),
        (AUTO, [observed({1000: 3}, 40)], 20),
        (AUTO, [observed(LOOSE, status="failed")], None),
    ],
)
def test_the_stopping_rule(rule: StopRule, rounds: list[Observation], expected: int | None) -> None:
    assert next_round_s(rule, rounds) == expected


@given(st.lists(histograms, min_size=1, max_size=4), st.integers(1, 70))
@settings(max_examples=60)
def test_a_point_never_gets_more_than_its_time(parts: list[Histogram], runtime_s: int) -> None:
    rounds = [observed(dict(part.bins), float(runtime_s)) for part in parts]
    following = next_round_s(AUTO, rounds)
    spent = runtime_s * len(parts)
    assert following is None or (following >= 1 and spent + following <= AUTO.max_s)


@pytest.mark.parametrize(("answer", "expected"), [(True, None), (None, None), (False, 5)])
def test_a_verdict_that_cannot_flip_ends_the_point(answer: bool | None, expected: int | None) -> None:
    assert next_round_s(AUTO, [observed({1000: 3})], lambda _: answer) == expected


def test_the_widest_direction_counts() -> None:
    tight, loose = observed(TIGHT).point, observed({1000: 3}).point
    assert widest_p99(tight) == 0.0
    assert widest_p99(replace(tight, write=loose.read)) == math.inf


def points(run_dir: Path) -> dict[str, dict[str, Any]]:
    return {point["id"]: point for point in json.loads((run_dir / "result.json").read_text())["points"]}


ONE = ("--model", "qwen3-8b", "--mix", "read", "--numjobs", "1", "--dataset", "16MiB")


def test_auto_stops_after_one_round_when_the_tail_is_known(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path
) -> None:
    assert kvbench("fio", "--tier", tier, *ONE, "-o", tmp_path / "run").code == 0
    point = points(tmp_path / "run")["tier-2359296-read-j1"]
    assert (point["runtime_s"], len(point["rounds"])) == (5.0, 1)
    assert (tmp_path / "run" / point["source"] / "round-1" / "fio.json").exists()


def test_auto_goes_on_to_60_s_and_pools_every_round(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path
) -> None:
    fake_fio.on("read-j1", "few")
    assert kvbench("fio", "--tier", tier, *ONE, "-o", tmp_path / "run").code == 0
    point = points(tmp_path / "run")["tier-2359296-read-j1"]
    assert point["runtime_s"] == 60.0
    assert point["read"]["ios"] == 30 * len(point["rounds"])
    assert [item["runtime_s"] for item in point["rounds"]] == [5.0, 5.0, 10.0, 20.0, 20.0]
    assert "few-samples" in [caveat["code"] for caveat in point["warnings"]]


def test_repeats_are_shuffled_paired_and_pooled(kvbench: Kvbench, fake_fio: FakeFio, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    tiers = ("--tier", tmp_path / "a", "--tier", tmp_path / "b")
    options = ("--model", "qwen3-8b", "--mix", "read,write", "--numjobs", "1", "--dataset", "16MiB", "--runtime", "1")
    assert kvbench("fio", *tiers, *options, "--repeat", "2", "-o", tmp_path / "run").code == 0

    assert fake_fio.runs()[:2] == ["layout", "layout"]
    order = [name[0] for name in fake_fio.runs()[2:]]
    assert order == ["a", "b", "a", "b", "b", "a", "b", "a"]
    saved = points(tmp_path / "run")
    assert len(saved) == 4
    for point in saved.values():
        assert [item["repeat"] for item in point["rounds"]] == [1, 2]
        side = point["read"] or point["write"]
        assert point["runtime_s"] == 2.0
        assert side["ios"] == (6000 if point["read"] else 2000)
    assert [path.name for path in sorted((tmp_path / "a").iterdir())] == []


def test_resume_continues_within_the_repeats(kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path) -> None:
    run = ("fio", "--tier", tier, *ONE, "--runtime", "1", "--repeat", "3", "-o", tmp_path / "run")
    assert kvbench(*run).code == 0
    saved = json.loads((tmp_path / "run" / "result.json").read_text())
    saved["points"][0]["rounds"] = saved["points"][0]["rounds"][:2]
    (tmp_path / "run" / "result.json").write_text(json.dumps(saved))
    rounds = tmp_path / "run" / "points" / "tier-2359296-read-j1" / "rounds.json"
    rounds.write_text(json.dumps(json.loads(rounds.read_text())[:2]))
    fake_fio.log_file.unlink()

    assert kvbench(*run, "--resume").code == 0
    assert fake_fio.runs() == ["layout", "tier-2359296-read-j1"]
    point = points(tmp_path / "run")["tier-2359296-read-j1"]
    assert ([item["repeat"] for item in point["rounds"]], point["read"]["ios"]) == ([1, 2, 3], 9000)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--runtime", "0", "--runtime '0': write whole seconds from 1, or auto."),
        ("--runtime", "fast", "--runtime 'fast': write whole seconds from 1, or auto."),
        ("--precision", "0%", "--precision '0%': write a share between 0 and 100 %, like 10%."),
        ("--precision", "x", "--precision 'x': write a share between 0 and 100 %, like 10%."),
    ],
)
def test_odd_options_are_refused(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, option: str, value: str, said: str
) -> None:
    outcome = kvbench("fio", "--tier", tier, *ONE, option, value)
    assert (outcome.code, outcome.err) == (2, f"kvbench: {said}\n")
