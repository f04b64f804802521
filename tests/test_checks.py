"""Every check fires on a point that deserves it, with the numbers in its values, and is silent on a clean one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kvbench.checks import CHECKS, VOIDING, judge, voiding
from kvbench.checks.speed import cpu_short, drift
from kvbench.checks.tails import impossible_mean
from kvbench.record.results import Event, PointResult, Round, Value
from kvbench.record.stats import FIO_LAST_BIN_NS
from tests.factories import GPT_OSS_BLOCK, conditions, direction, latency, mixed_point, point

GIB = 1 << 30
CLEAN = point()
NO_LATENCY = direction(latency_ns=None)
UNPROVEN = {"filesystem": "ceph", "device_read_bytes": None, "cached_fraction": None}
SLOW_ONE = direction(latency_ns=latency(10e6, max=13_000_000_000))
SAME_BLOCK = direction(3000, 100, 1000, latency_ns=latency(10e6))

# For each code: a point that triggers it, its exact values, and a near miss that stays silent.
CASES: dict[str, tuple[PointResult, Mapping[str, Value], PointResult]] = {
    "short-runtime": (
        point(runtime_s=56.9), {"runtime_s": 56.9, "requested_runtime_s": 60.0}, point(runtime_s=57.0)
    ),
    "stalled": (
        point(runtime_s=73.1, read=SLOW_ONE),
        {"runtime_s": 73.1, "requested_runtime_s": 60.0, "max_ns": 13_000_000_000},
        point(runtime_s=73.0, read=SLOW_ONE),
    ),
    "clock-went-on": (
        point(runtime_s=73.1),
        {"runtime_s": 73.1, "requested_runtime_s": 60.0, "max_ns": 20_000_000}, point(runtime_s=73.1, read=SLOW_ONE),
    ),
    "saturated": (
        point(read=direction(latency_ns=latency(10e6, p99_9=17_112_760_320))),
        {"histogram_end_ns": 17_112_760_320}, point(read=direction(latency_ns=latency(10e6, p99_9=16_978_542_592))),
    ),
    "drift": (
        point(rounds=(Round(1, 5.0, 300e6), Round(1, 5.0, 250e6), Round(1, 5.0, 199e6))),
        {"first_bytes_per_s": 300_000_000, "last_bytes_per_s": 199_000_000, "rounds": 3},
        point(rounds=(Round(1, 5.0, 300e6), Round(1, 5.0, 201e6))),
    ),
    "requests-by-round": (
        point(rounds=tuple(Round(1, 5.0, 300e6, read_requests_each=each) for each in (1.02, 3.1, None, 1.4))),
        {"direction": "read", "lowest": 1.02, "highest": 3.1, "rounds": 3},
        point(rounds=tuple(Round(1, 5.0, 300e6, read_requests_each=each) for each in (1.0, 1.25))),
    ),
    "events": (
        point(events=(Event(5, "no reads for 4 s"), Event(9, "up -> down"))),
        {"events": 2, "first_second": 5}, point(events=()),
    ),
    "other-runs": (
        point(conditions=conditions(other_runs=2)), {"other_runs": 2},
        point(conditions=conditions(other_runs=0)),
    ),
    "failed-operations": (
        point(conditions=conditions(failed_ios=3)), {"failed_ios": 3}, CLEAN
    ),
    "memory-filesystem": (
        point(conditions=conditions(filesystem="tmpfs")), {"filesystem": "tmpfs"},
        point(conditions=conditions(filesystem=None)),
    ),
    "buffered": (
        point(conditions=conditions(direct=False)), {}, point(conditions=conditions(direct=None))
    ),
    "page-cache": (
        point(conditions=conditions(cached_fraction=0.0123456)), {"cached_fraction": 0.0123},
        point(conditions=conditions(cached_fraction=0.01)),
    ),
    "reads-not-from-device": (
        point(read=direction(1000, 100, 1000), conditions=conditions(device_read_bytes=899_999)),
        {"read_bytes": 1_000_000, "device_read_bytes": 899_999},
        point(read=direction(1000, 100, 1000), conditions=conditions(device_read_bytes=900_000)),
    ),
    "unwritten-data": (
        point(conditions=conditions(unwritten_bytes=4096)),
        {"unwritten_bytes": 4096, "dataset_bytes": 64 * GIB}, point(conditions=conditions(unwritten_bytes=0)),
    ),
    "not-mounted": (
        point(conditions=conditions(unmounted="/mnt/x is no mount point")), {},
        point(conditions=conditions(unmounted=None)),
    ),
    "cache-state-unknown": (
        point(conditions=conditions(filesystem="ceph", device_read_bytes=None, cached_fraction=None)),
        {"filesystem": "ceph"},
        point(conditions=conditions(filesystem=None, device_read_bytes=None, cached_fraction=None)),
    ),
    "ceph-fuse": (
        point(conditions=conditions(filesystem="fuse.ceph-fuse")),
        {"request_bytes": 131072, "io_bytes": CLEAN.io_bytes}, point(conditions=conditions(filesystem="ceph")),
    ),
    "fits-memory": (
        point(conditions=conditions(**UNPROVEN, dataset_bytes=32 * GIB)),
        {"dataset_bytes": 32 * GIB, "memory_bytes": 32 * GIB},
        point(conditions=conditions(dataset_bytes=32 * GIB)),
    ),
    "objects-not-proven": (
        point(conditions=conditions(objects_written=False)), {"read_ios": 6000},
        point(conditions=conditions(objects_written=True)),
    ),
    "hot-object": (
        point(read=SAME_BLOCK, io_bytes=1000, numjobs=2, conditions=conditions(dataset_bytes=2000, ioengine="http")),
        {"re_read_factor": 1500.0, "distinct_blocks": 2, "dataset_bytes": 2000},
        point(read=direction(2, 100, 1000), io_bytes=1000, conditions=conditions(dataset_bytes=1000)),
    ),
    "re-read": (
        point(read=direction(3000, 100, 1 << 20), conditions=conditions(dataset_bytes=1000 << 20)),
        {"re_read_factor": 3.0, "dataset_bytes": 1000 << 20, "memory_bytes": 32 * GIB},
        point(read=direction(2000, 100, 1 << 20), conditions=conditions(dataset_bytes=1000 << 20)),
    ),
    "sequential": (
        point(conditions=conditions(access="sequential")), {"access": "sequential"},
        point(conditions=conditions(access="random")),
    ),
    "line-rate": (
        point(read=direction(6000, 100, 1000),
              conditions=conditions(limit_bytes_per_s=99_000, limit_source="--limit", limit_asked=True)),
        {"direction": "read", "bytes_per_s": 100_000, "limit_bytes_per_s": 99_000},
        point(read=direction(6000, 100, 1000),
              conditions=conditions(limit_bytes_per_s=99_100, limit_source="--limit", limit_asked=True)),
    ),
    "above-link": (
        point(read=direction(6000, 100, 1000), conditions=conditions(limit_bytes_per_s=99_000, limit_source="eth0")),
        {"direction": "read", "bytes_per_s": 100_000, "limit_bytes_per_s": 99_000},
        point(read=direction(6000, 100, 1000), conditions=conditions(limit_bytes_per_s=99_100, limit_source="eth0")),
    ),
    "too-fast": (
        point(read=direction(latency_ns=latency(10e6, p50=1999))),
        {"direction": "read", "p50_ns": 1999, "io_bytes": GPT_OSS_BLOCK},
        point(read=direction(latency_ns=latency(10e6, p50=12_000))),
    ),
    "littles-law": (
        point(read=direction(6000, 100, latency_ns=latency(10.6e6))),
        {"in_flight": 1.06, "expected": 1}, point(read=direction(6000, 100, latency_ns=latency(10.5e6))),
    ),
    "impossible-mean": (
        # 0.5 x 10 + 0.4 x 10 + 0.05 x 10 + 0.04 x 10 + 0.009 x 10 + 0.001 x 1,000 ms, and 2 % for the bins.
        point(read=direction(latency_ns=replace(latency(10e6, max=1_000_000_000), mean=11.3e6))),
        {"direction": "read", "mean_ns": 11_300_000, "lowest_ns": 7_500_000, "highest_ns": 10_990_000},
        point(read=direction(latency_ns=replace(latency(10e6, max=1_000_000_000), mean=11.2e6))),
    ),
    "paced": (
        point(conditions=conditions(paced="rate_iops=50")), {"option": "rate_iops=50"}, CLEAN
    ),
    "wrong-mix": (
        mixed_point(5000, 5000), {"read_percent": 50.0, "rwmixread": 75}, mixed_point(7320, 2680)
    ),
    "queue-depth": (
        point(conditions=conditions(iodepth=8, iodepth_reached=False)), {"iodepth": 8},
        point(conditions=conditions(iodepth=8, iodepth_reached=True)),
    ),
    "few-samples": (
        mixed_point(3000, 999), {"write_ios": 999, "needed": 1000}, mixed_point(3000, 1000)
    ),
    "completion-latency": (
        point(latency_source="clat", conditions=conditions(submission_ns=7e3)),
        {"ioengine": "libaio", "submission_ns": 7e3},
        point(latency_source="clat", conditions=conditions(ioengine="psync")),
    ),
    "no-latency": (point(read=NO_LATENCY), {}, point(read=None)),
    "cpu-steal": (
        point(conditions=conditions(cpu_steal_percent=10.0)), {"cpu_steal_percent": 10.0},
        point(conditions=conditions(cpu_steal_percent=9.9)),
    ),
    "cpu-short": (
        point(conditions=conditions(cpu_stalled_percent=30.0, cpu_waiting=0.4)),
        {"cpu_stalled_percent": 30.0, "cpu_waiting": 0.4},
        point(conditions=conditions(cpu_stalled_percent=29.9, cpu_waiting=9.0)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("code", CHECKS)
def test_every_check_has_a_case_that_fires_and_one_that_does_not(code: str) -> None:
    check, (guilty, values, innocent) = CHECKS[code], CASES[code]
    warning = check(guilty)
    assert warning is not None
    assert (warning.code, warning.values) == (code, values)
    assert warning.message
    assert warning.hint
    assert "nan" not in warning.message.lower().split()
    assert check(innocent) is None
    assert check(CLEAN) is None


def test_no_case_is_left_over_and_no_check_twice() -> None:
    assert list(CHECKS) == list(CASES)
    assert len(set(CHECKS.values())) == len(CHECKS)


def test_idle_jobs_is_the_other_half_of_littles_law() -> None:
    lazy = judge(point(read=direction(6000, 100, latency_ns=latency(7.9e6))))
    assert [(warning.code, warning.values) for warning in lazy.warnings] == [
        ("idle-jobs", {"in_flight": 0.79, "expected": 1})
    ]
    assert judge(point(read=direction(6000, 100, latency_ns=latency(8e6)))).warnings == ()


def test_drift_within_one_round_is_drift_with_one_round_as_well() -> None:
    """First against last quarter; between 1/1.5 and 1.5 it is a noisy machine."""
    found = drift(point(rounds=(Round(1, 60.0, 250e6, read_quarters_bytes_per_s=(300e6, 199e6)),)))
    assert found is not None
    assert found.values == {"first_bytes_per_s": 300_000_000, "last_bytes_per_s": 199_000_000, "rounds": 1}
    assert found.message.startswith("reads went from 286.1 MiB/s in the first quarter to 189.8 MiB/s in the last of")
    assert drift(point(rounds=(Round(1, 60.0, 250e6, read_quarters_bytes_per_s=(300e6, 201e6)),))) is None
    assert drift(point(rounds=(Round(1, 60.0, 250e6),))) is None


def test_run_queue_delay_tells_where_there_is_no_pressure_information() -> None:
    found = cpu_short(point(conditions=conditions(cpu_waiting=1.0)))
    assert found is not None
    assert "1.0 tasks waited" in found.message
    assert cpu_short(point(conditions=conditions(cpu_waiting=0.9))) is None


def test_a_mean_below_what_the_percentiles_allow_and_a_histogram_that_ended_early() -> None:
    low = impossible_mean(point(read=direction(latency_ns=replace(latency(10e6), mean=7.3e6))))
    assert low is not None
    assert "at least 7.50 ms" in low.message
    # Every operation took 25 s, and fio's histogram says 17.1 s.
    end = FIO_LAST_BIN_NS
    every = dict.fromkeys(("p50", "p90", "p95", "p99", "p99_9"), end)
    saturated = latency(25e9, min=24 * 10**9, max=26 * 10**9, **every)
    assert impossible_mean(point(read=direction(latency_ns=saturated))) is not None
    # Some did: the tail is unknown, and the mean can be true.
    some = latency(0.15e9, min=10**6, max=26 * 10**9, p50=10**7, p90=10**7, p95=10**7, p99=10**7, p99_9=end)
    assert impossible_mean(point(read=direction(latency_ns=some))) is None
    assert impossible_mean(point(read=direction(latency_ns=replace(latency(1e6, max=None), mean=1e9)))) is None


def test_littles_law_adds_both_directions() -> None:
    busy = mixed_point(4500, 1500)
    assert judge(busy).warnings == ()
    assert busy.write is not None
    half = replace(busy, write=replace(busy.write, latency_ns=None))
    assert [warning.code for warning in judge(half).warnings] == ["no-latency"]


def test_a_capped_queue_keeps_one_operation_in_flight() -> None:
    """axboe/fio#1388: iodepth=64 with psync is depth 1, whatever was asked for."""
    capped = judge(point(conditions=conditions(iodepth=64, iodepth_reached=False, ioengine="psync")))
    assert [warning.code for warning in capped.warnings] == ["queue-depth"]


def test_blocking_submission_is_no_idle_job() -> None:
    """libaio on ceph-fuse: clat 9 us, the other 99 ms are spent in io_submit (fio 3.33)."""
    read = direction(6000, 100, latency_ns=latency(9e3))
    seen = judge(point(read=read, latency_source="clat", conditions=conditions(submission_ns=9.99e6)))
    assert [warning.code for warning in seen.warnings] == ["too-fast", "completion-latency"]
    assert voiding(seen) == ["too-fast"]


def test_without_submission_clat_is_the_latency() -> None:
    assert judge(point(latency_source="clat", conditions=conditions(submission_ns=0.0))).warnings == ()


def test_one_block_for_each_job_is_neither_re_read_nor_sequential() -> None:
    seen = conditions(dataset_bytes=1000, access="sequential", memory_bytes=None)
    codes = [warning.code for warning in judge(point(read=SAME_BLOCK, io_bytes=1000, conditions=seen)).warnings]
    assert codes == ["hot-object"]


def test_an_overlay_on_tmpfs_is_memory() -> None:
    seen = judge(point(conditions=conditions(filesystem="overlay", backing_filesystem="tmpfs")))
    assert [warning.code for warning in seen.warnings] == ["memory-filesystem"]
    assert "overlay on tmpfs" in seen.warnings[0].message
    assert seen.conditions.cache_state == "cached"


def test_the_impossible_published_row_is_caught() -> None:
    """Qwen3-8B on NVMe: 16 jobs at 2,768 operations/s must take 5.78 ms on average, 1.4 ms was printed as p50."""
    read = direction(2768 * 60, 2768.0, 2_359_296, latency_ns=latency(1.4e6))
    codes = [warning.code for warning in judge(point(numjobs=16, read=read)).warnings]
    assert "idle-jobs" in codes


def test_rereads_need_a_data_set_that_could_be_cached() -> None:
    read = direction(3000, 100, 1 << 20)
    for changes in ({"dataset_bytes": None}, {"dataset_bytes": 1000 << 20, "memory_bytes": 999 << 20}):
        assert judge(point(read=read, conditions=conditions(**changes))).warnings == ()
    unknown = judge(point(read=read, conditions=conditions(dataset_bytes=1000 << 20, memory_bytes=None)))
    assert "may fit into memory" in unknown.warnings[0].message
    assert unknown.warnings[0].values["memory_bytes"] is None


@pytest.mark.parametrize("filesystem", ["ceph", "nfs4", "fuse.sshfs"])
def test_memory_of_this_host_says_nothing_about_a_server(filesystem: str) -> None:
    seen = conditions(filesystem=filesystem, dataset_bytes=1000 << 20, memory_bytes=1 << 20)
    (warning,) = judge(point(read=direction(3000, 100, 1 << 20), conditions=seen)).warnings
    assert (warning.code, warning.values["memory_bytes"]) == ("re-read", None)


def test_small_mixes_may_stray_by_chance() -> None:
    # 75 of 100 were asked for: 3 standard errors are 12.99 points, 2 more are allowed.
    assert "wrong-mix" not in [warning.code for warning in judge(mixed_point(61, 39)).warnings]
    assert "wrong-mix" in [warning.code for warning in judge(mixed_point(60, 40)).warnings]


def test_judge_keeps_the_order_of_checks_and_drops_earlier_ones() -> None:
    worst = point(
        runtime_s=10.0,
        read=direction(10, 100, latency_ns=latency(1e6)),
        latency_source="clat",
        warnings=CASE_WARNINGS,
        conditions=conditions(direct=False, filesystem="tmpfs", cpu_steal_percent=50.0, failed_ios=1),
    )
    codes = [warning.code for warning in judge(worst).warnings]
    assert codes == [
        "short-runtime", "failed-operations", "memory-filesystem", "buffered", "idle-jobs", "few-samples",
        "completion-latency", "cpu-steal",
    ]  # fmt: skip
    assert judge(judge(worst)) == judge(worst)


CASE_WARNINGS = judge(point(runtime_s=1.0)).warnings


@pytest.mark.parametrize("status", ["failed", "skipped"])
def test_points_without_numbers_carry_no_warnings(status: str) -> None:
    assert judge(point(status=status, runtime_s=1.0, warnings=CASE_WARNINGS)).warnings == ()


def test_interrupted_points_are_judged() -> None:
    assert [warning.code for warning in judge(point(status="interrupted", runtime_s=1.0)).warnings] == ["short-runtime"]


def test_a_clean_point_has_none() -> None:
    assert judge(CLEAN).warnings == ()
    assert judge(point(read=None)).warnings == ()


def test_voiding_names_only_codes_that_forbid_a_verdict() -> None:
    assert {*CHECKS, "block-size"} >= VOIDING  # the importer's code is no check of a point
    doubted = point(warnings=judge(point(runtime_s=1.0, conditions=conditions(direct=False))).warnings)
    assert [warning.code for warning in doubted.warnings] == ["short-runtime", "buffered"]
    assert voiding(doubted) == ["buffered"]
    assert voiding(CLEAN) == []


def test_single_rounds_that_stray_are_no_drift() -> None:
    strays = [300e6, 190e6, 250e6, 240e6, 210e6, 260e6]
    assert drift(point(rounds=tuple(Round(1, 3.0, rate) for rate in strays))) is None
    falls = [300e6, 280e6, 250e6, 240e6, 190e6, 180e6]
    found = drift(point(rounds=tuple(Round(1, 3.0, rate) for rate in falls)))
    assert found is not None
    assert found.message == "reads went from 276.4 MiB/s in the first 2 rounds to 176.4 MiB/s in the last 2 of 6"
