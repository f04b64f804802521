"""Rounds: pooling is exact, stopping follows the rule, and a run does what they say."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.errors import Interrupted
from kvbench.record import results
from kvbench.record.histogram import Histogram, merge
from kvbench.record.latency import latency_of
from kvbench.record.results import Conditions, Direction, LatencyNs, Observation, PointResult, Round, SideSummary
from kvbench.record.rounds import LOOKS, StopRule, next_round_s, pool, spread, widest_p99
from kvbench.record.stats import FIO_LAST_BIN_NS, relative_half_width
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
# A p99 that ten times the time would bring within 10 %, and one that a little more time would.
APART_S = 30.0


def visits(count: int, counts: dict[int, int], apart_s: float = APART_S, **changes: Any) -> list[Observation]:
    """Rounds of 3 s, each ``apart_s`` after the one before."""
    return [begun(observed(counts, 3.0, **changes), number * apart_s) for number in range(count)]


def begun(item: Observation, at_s: float) -> Observation:
    """The same round, begun then."""
    return replace(item, point=replace(item.point, rounds=(replace(item.point.rounds[0], began_s=at_s),)))


@pytest.mark.parametrize(
    ("rule", "rounds", "expected"),
    [
        (StopRule(auto=False, max_s=60), [], 60),
        (StopRule(auto=False, max_s=60), [observed(LOOSE, 60)], None),
        (AUTO, [], 3),
        (StopRule(auto=True, max_s=2), [], 2),
        # However narrow it is, one round is one state of the tier, and so are rounds in a row.
        (AUTO, visits(1, TIGHT), 3),
        (AUTO, visits(5, TIGHT), 3),
        (AUTO, visits(6, TIGHT), None),
        (AUTO, visits(12, TIGHT, apart_s=3.0), 3),
        # What is left is one round and not two short ones.
        (AUTO, [observed(LOOSE, 55)], 5),
        (AUTO, [observed(LOOSE, 58)], 2),
        (AUTO, [observed(LOOSE, 60)], None),
        # With 18 samples nothing bounds the p99: only time can help.
        (AUTO, visits(6, {1000: 3}), 3),
        (AUTO, visits(6, TIGHT, status="failed"), None),
    ],
)
def test_the_stopping_rule(rule: StopRule, rounds: list[Observation], expected: int | None) -> None:
    assert next_round_s(rule, rounds) == expected


def unsteady(step: int) -> list[Observation]:
    """Six visits whose tails lie ``step`` ns apart."""
    return [begun(observed({1000: 940, 5000 + step * n: 60}, 3.0), n * APART_S) for n in range(6)]


def test_a_point_ends_early_where_its_time_cannot_reach_the_precision() -> None:
    width = {step: widest_p99(pool(unsteady(step)).point) for step in (200, 400, 1000)}
    # After 18 of 60 s the half-width can still shrink by the root of 60 / 18.
    assert width[200] < 0.10 < width[400] < 0.10 * math.sqrt(60 / 18) < width[1000]
    assert {step: next_round_s(AUTO, unsteady(step)) for step in width} == {200: None, 400: 3, 1000: None}


@pytest.mark.slow
@given(st.lists(histograms, min_size=1, max_size=4), st.integers(1, 70))
@settings(max_examples=60)
def test_a_point_never_gets_more_than_its_time(parts: list[Histogram], runtime_s: int) -> None:
    rounds = [observed(dict(part.bins), float(runtime_s)) for part in parts]
    following = next_round_s(AUTO, rounds)
    spent = runtime_s * len(parts)
    assert following is None or (following >= 1 and spent + following <= AUTO.max_s)


@pytest.mark.parametrize(("answer", "expected"), [(True, None), (None, None), (False, 3)])
def test_a_verdict_that_cannot_flip_ends_the_point_at_a_look(answer: bool | None, expected: int | None) -> None:
    assert next_round_s(AUTO, visits(6, {1000: 3}), lambda _: answer) == expected


@given(st.booleans(), st.integers(1, 19))
def test_the_verdict_is_asked_only_at_the_looks(answer: bool, count: int) -> None:
    asked: list[int] = []

    def decided(pooled: Observation) -> bool:
        asked.append(len(pooled.point.rounds))
        return answer

    following = next_round_s(AUTO, visits(count, TIGHT), decided)
    assert asked == ([count] if count in LOOKS else [])
    assert (following is None) == (answer and count in LOOKS)


def test_the_widest_direction_counts() -> None:
    tight, loose = pool(visits(6, TIGHT)).point, observed({1000: 3}).point
    assert widest_p99(tight) == 0.0
    assert widest_p99(replace(tight, write=loose.read)) == math.inf


def points(run_dir: Path) -> dict[str, dict[str, Any]]:
    return {point["id"]: point for point in json.loads((run_dir / "result.json").read_text())["points"]}


ONE = ("--model", "qwen3-8b", "--mix", "read", "--numjobs", "1", "--dataset", "16MiB")


def no_time(monkeypatch: pytest.MonkeyPatch, apart_s: float) -> None:
    """Let every round begin ``apart_s`` after the one before."""
    clock = itertools.count()
    monkeypatch.setattr("kvbench.run.runner.time.time", lambda: 1e9 + next(clock) * apart_s)


@pytest.mark.slow
def test_auto_stops_after_six_separate_rounds_when_the_tail_is_known(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_time(monkeypatch, 11.0)
    assert kvbench("fio", "--tier", tier, *ONE, "-o", tmp_path / "run").code == 0
    point = points(tmp_path / "run")["tier-2359296-read-j1"]
    assert (point["runtime_s"], len(point["rounds"])) == (18.0, 6)
    assert [item["began_s"] for item in point["rounds"]] == [1e9 + 11.0 * n for n in range(6)]
    assert point["over_time"] == {"read": {"batches": 6, "relative_error": 0.0}}
    assert (tmp_path / "run" / point["source"] / "round-1" / "fio.json").exists()


@pytest.mark.slow
def test_rounds_in_a_row_go_on_to_60_s(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_time(monkeypatch, 0.0)
    assert kvbench("fio", "--tier", tier, *ONE, "-o", tmp_path / "run").code == 0
    point = points(tmp_path / "run")["tier-2359296-read-j1"]
    assert [item["runtime_s"] for item in point["rounds"]] == [3.0] * 20
    assert point["over_time"] == {}
    assert (point["read"]["latency_ns"]["p99_low"], point["read"]["latency_ns"]["p99_high"]) == (None, None)


@pytest.mark.slow
def test_auto_goes_on_to_60_s_and_pools_every_round(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_time(monkeypatch, 11.0)
    fake_fio.on("read-j1", "few")
    assert kvbench("fio", "--tier", tier, *ONE, "-o", tmp_path / "run").code == 0
    point = points(tmp_path / "run")["tier-2359296-read-j1"]
    # 450 samples are the first look that bounds a p99: below 368 nothing does.
    assert point["runtime_s"] == 45.0
    assert point["read"]["ios"] == 30 * len(point["rounds"])
    assert "few-samples" in [warning["code"] for warning in point["warnings"]]


@pytest.mark.slow
def test_points_are_visited_in_turn(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_time(monkeypatch, 6.0)
    options = ("--model", "qwen3-8b", "--mix", "read,write", "--numjobs", "1", "--dataset", "16MiB")
    outcome = kvbench("fio", "--tier", tier, *options, "-o", tmp_path / "run")
    assert outcome.code == 0
    order = [name.split("-")[2] for name in fake_fio.runs()[1:]]
    assert order == ["read", "write"] * 6
    assert {point["status"] for point in points(tmp_path / "run").values()} == {"ok"}
    # In a log every point is named once, and its outcome says whose it is.
    assert [outcome.err.count(f"point {number} of 2: ") for number in (1, 2)] == [1, 1]
    assert [outcome.err.count(f"tier {mix} 2.25 MiB x 1 job: {mix} ") for mix in ("read", "write")] == [1, 1]


@pytest.mark.slow
def test_a_killed_run_goes_on_with_the_rounds_that_it_has(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_time(monkeypatch, 11.0)
    run = ("fio", "--tier", tier, *ONE, "-o", tmp_path / "run")
    kept: list[dict[str, Any]] = []
    save = results.save

    def save_and_die(result: results.RunResult, run_dir: Path) -> None:
        save(result, run_dir)
        kept.extend(json.loads((run_dir / "result.json").read_text())["points"])
        if len(kept) == 4:
            raise Interrupted("killed;")

    monkeypatch.setattr("kvbench.record.results.save", save_and_die)
    assert kvbench(*run).code == 130
    assert [(point["status"], len(point["rounds"])) for point in kept] == [("interrupted", n) for n in range(1, 5)]
    assert kept[-1]["reason"] == "more rounds were to come; continue with --resume"
    assert kept[-1]["read"]["ios"] == 4 * 3000
    monkeypatch.setattr("kvbench.record.results.save", save)
    fake_fio.log_file.unlink()

    assert kvbench(*run, "--resume").code == 0
    assert fake_fio.runs() == ["layout"] + ["tier-2359296-read-j1"] * 2
    point = points(tmp_path / "run")["tier-2359296-read-j1"]
    assert (point["status"], len(point["rounds"]), point["read"]["ios"]) == ("ok", 6, 6 * 3000)


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_a_round_gives_its_sides() -> None:
    found = Round(1, 3.0, 5.0, read_p50_ns=1, read_p99_ns=2, read_quarters_bytes_per_s=(6.0, 4.0), write_p99_ns=7)
    assert found.side("read") == SideSummary(5.0, 1, 2, (6.0, 4.0))
    assert found.side("write") == SideSummary(p99_ns=7)


def test_a_direction_in_short_is_unknown_where_it_was_not_recorded() -> None:
    whole = Direction(10, 40, 2.0, 8.0, LatencyNs(p50=3, p99=4))
    assert SideSummary.of(whole) == SideSummary(8.0, 3, 4)
    assert SideSummary.of(replace(whole, latency_ns=None)) == SideSummary(8.0)
    assert SideSummary.of(None) == SideSummary()
