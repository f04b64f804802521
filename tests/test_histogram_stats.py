"""Percentiles, their exact merge and their order-statistics intervals."""

from __future__ import annotations

import json
import math
import subprocess
from fractions import Fraction
from functools import reduce
from math import comb
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.record.histogram import Histogram, merge, nearest_rank
from kvbench.record.stats import interval_ranks, percentile_interval_ns, samples_needed
from tests.factories import DATA

COUNTS = st.dictionaries(st.integers(1, 10**12), st.integers(1, 10**6), min_size=1, max_size=40)
ALPHA = Fraction(1, 40)


def recorded_latencies(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Every latency of a fio document that has both bins and percentiles."""
    return [
        job[side][kind]
        for job in document["jobs"]
        for side in ("read", "write")
        for kind in ("lat_ns", "clat_ns")
        if job[side][kind].get("bins") and job[side][kind].get("percentile")
    ]


def assert_equal_to_fio(document: dict[str, Any]) -> int:
    """Compare every percentile that fio printed with ours; returns how many were compared."""
    compared = 0
    for latency in recorded_latencies(document):
        histogram = Histogram.from_counts({int(ns): count for ns, count in latency["bins"].items()})
        assert histogram.samples == latency["N"]
        for percent, ns in latency["percentile"].items():
            assert histogram.percentile(float(percent)) == ns, percent
            compared += 1
    return compared


def test_percentiles_equal_those_of_a_recorded_fio_run() -> None:
    document = json.loads((DATA / "fio" / "fio-3.33_json-plus.json").read_text())
    # Three entries, two directions, lat percentiles only (lat_percentiles=1 silences clat's), 17 percentiles each.
    assert assert_equal_to_fio(document) >= 3 * 2 * 17


@pytest.mark.fio
def test_percentiles_equal_those_of_fio_now(tmp_path: Path) -> None:
    options = ["--name=a", "--ioengine=null", "--rw=randrw", "--bs=64k", "--size=64m", "--numjobs=2", "--thread",
               "--group_reporting", "--lat_percentiles=1", "--percentile_list=1:25:50:90:95:99:99.9:99.99",
               "--output-format=json+"]  # fmt: skip
    answer = subprocess.run(["fio", *options], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert assert_equal_to_fio(json.loads(answer.stdout)) >= 2 * 8


@given(COUNTS, st.floats(0.001, 100))
def test_percentile_is_the_smallest_latency_that_covers_the_share(counts: dict[int, int], percent: float) -> None:
    histogram = Histogram.from_counts(counts)
    found = histogram.percentile(percent)
    share = Fraction(str(percent)) / 100 * histogram.samples
    assert sum(count for ns, count in counts.items() if ns <= found) >= share
    assert sum(count for ns, count in counts.items() if ns < found) < share


@given(st.lists(COUNTS, min_size=1, max_size=5))
def test_merge_is_exact_and_associative(parts: list[dict[int, int]]) -> None:
    histograms = [Histogram.from_counts(part) for part in parts]
    whole = merge(histograms)
    assert whole == reduce(lambda one, other: merge([one, other]), histograms, Histogram(()))
    assert whole == merge(reversed(histograms))
    assert whole.samples == sum(part.samples for part in histograms)
    samples = {ns: sum(part.get(ns, 0) for part in parts) for ns in set().union(*parts)}
    assert dict(whole.bins) == samples
    assert list(whole.bins) == sorted(whole.bins)


def test_merging_is_not_averaging() -> None:
    fast, slow = Histogram(((1, 990),)), Histogram(((1, 10), (100, 10)))
    assert merge([fast, slow]).percentile(99) == 1
    assert (fast.percentile(99) + slow.percentile(99)) / 2 > 50


def test_ranks_outside_are_refused() -> None:
    histogram = Histogram.from_counts({5: 2, 7: 0, 9: 1})
    assert histogram.bins == ((5, 2), (9, 1))
    assert [histogram.at_rank(rank) for rank in (1, 2, 3)] == [5, 5, 9]
    for rank in (0, 4):
        with pytest.raises(ValueError, match=r"is outside 1\.\.3"):
            histogram.at_rank(rank)
    with pytest.raises(ValueError, match="at least one sample"):
        Histogram(()).percentile(50)


@pytest.mark.parametrize(
    ("samples", "percent", "rank"),
    [(1, 99, 1), (100, 99, 99), (101, 99, 100), (1000, 99.9, 999), (10, 50, 5), (11, 50, 6), (7, 100, 7), (5, 0, 1)],
)
def test_nearest_rank(samples: int, percent: float, rank: int) -> None:
    assert nearest_rank(samples, percent) == rank


def exact_ranks(samples: int, quantile: Fraction) -> tuple[int | None, int | None]:
    """The definition: the largest l with P(B < l) <= alpha/2 and the smallest u with P(B < u) >= 1 - alpha/2."""
    pmf = [comb(samples, k) * quantile**k * (1 - quantile) ** (samples - k) for k in range(samples + 1)]
    below = [sum(pmf[:rank], Fraction(0)) for rank in range(samples + 2)]
    low = max((rank for rank in range(1, samples + 1) if below[rank] <= ALPHA), default=None)
    high = min((rank for rank in range(1, samples + 1) if below[rank] >= 1 - ALPHA), default=None)
    return low, high


@pytest.mark.slow
@pytest.mark.parametrize("percent", ["50", "75", "90", "95", "99", "99.9"])
def test_interval_ranks_against_exact_arithmetic(percent: str) -> None:
    quantile = Fraction(percent) / 100
    for samples in range(1, 61):
        assert interval_ranks(samples, float(percent)) == exact_ranks(samples, quantile), samples


@given(st.integers(1, 3000), st.sampled_from([50.0, 90.0, 95.0, 99.0, 99.9]))
def test_interval_covers_with_95_percent_and_no_more_than_it_must(samples: int, percent: float) -> None:
    low, high = interval_ranks(samples, percent)
    quantile = percent / 100
    pmf = [1.0]  # P(B = k) by recurrence, scaled at the end
    for k in range(samples):
        pmf.append(pmf[-1] * (samples - k) / (k + 1) * quantile / (1 - quantile))
        if pmf[-1] > 1e250:
            pmf = [value * 1e-250 for value in pmf]
    total = sum(pmf)
    if low is not None:
        assert sum(pmf[:low]) / total <= 0.025 + 1e-9
    if high is not None:
        assert sum(pmf[high:]) / total <= 0.025 + 1e-9
    if low is not None and high is not None:
        assert sum(pmf[low:high]) / total >= 0.95 - 1e-9
        assert low <= nearest_rank(samples, percent) <= high


def test_few_samples_cannot_bound_a_tail() -> None:
    # 0.99^367 = 0.02501 > 2.5 %: with 367 samples all may lie below the true p99; with 368 not.
    assert interval_ranks(367, 99)[1] is None
    assert interval_ranks(368, 99)[1] == 368
    few = Histogram.from_counts({10: 50, 20: 1})
    low, high = percentile_interval_ns(few, 99)
    assert high is None
    assert low == 10
    assert percentile_interval_ns(Histogram(()), 99) == (None, None)
    assert percentile_interval_ns(Histogram(((7, 1),)), 50) == (None, None)


def test_a_large_number_of_samples_is_narrow() -> None:
    low, high = interval_ranks(10_000_000, 99)
    assert low is not None
    assert high is not None
    # 1.96 standard deviations of Binomial(1e7, 0.99) are 616.7.
    assert 9_900_000 - low == pytest.approx(617, abs=2)
    assert high - 9_900_000 == pytest.approx(617, abs=2)


@pytest.mark.parametrize("samples", [3_000_000_000, 10**12])
def test_more_samples_than_32_bits_count(samples: int) -> None:
    low, high = interval_ranks(samples, 50)
    assert low is not None
    assert high is not None
    # The normal distribution is off by less than a rank there.
    reach = NormalDist().inv_cdf(0.975) * math.sqrt(samples / 4)
    assert samples / 2 - low == pytest.approx(reach, abs=2)
    assert high - samples / 2 == pytest.approx(reach, abs=2)
    assert low + high == samples + 1


@pytest.mark.parametrize(("percent", "needed"), [(50, 20), (90, 100), (95, 200), (99, 1000), (99.9, 10_000)])
def test_samples_needed(percent: float, needed: int) -> None:
    assert samples_needed(percent) == needed
