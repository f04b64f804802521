"""One-second series: fio's logs added up, host counters beside them, rounds joined."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kvbench.drivers.fio.series import log_file_names, log_options, series_of
from kvbench.host.environment import HostWatch
from tests.conftest import Outcome

Kvbench = Callable[..., Outcome]

# Two jobs, as fio 3.33 writes them with per_job_logs=0: one job after the other, KiB/s, ns, direction 0 is read.
BANDWIDTH = "1000, 1024, 0, 0, 0\n1000, 512, 1, 0, 0\n2001, 2048, 0, 0, 0\n999, 1024, 0, 0, 0\n1999, 1024, 0, 0, 0\n"
IOPS = "1000, 10, 0, 0, 0\n1000, 5, 1, 0, 0\n2001, 20, 0, 0, 0\n999, 10, 0, 0, 0\n1999, 10, 0, 0, 0\n"
LATENCY = "1006, 1000, 0, 0, 0\n998, 3000, 0, 0, 0\n2000, 5000, 0, 0, 0\n2500, 9000, 0, 0, 0\n3000, 1, 0, 0, 0\n"


def test_jobs_add_up_second_by_second() -> None:
    found = series_of({"bw": BANDWIDTH, "iops": IOPS, "lat": LATENCY}, {1: {"load_1m": 0.5}, 7: {"load_1m": 9.0}})
    assert found == [
        {
            "second": 1,
            "read": {"bytes_per_s": 2048 * 1024, "iops": 20, "mean_latency_ns": 2000},
            "write": {"bytes_per_s": 512 * 1024, "iops": 5},
            "host": {"load_1m": 0.5},
        },
        {"second": 2, "read": {"bytes_per_s": 3072 * 1024, "iops": 30, "mean_latency_ns": 7000}, "host": {}},
    ]


@pytest.mark.parametrize("text", ["", "nonsense", "1000, x, 0", "a, 1, 0, 0", "1000, 1, 9, 0"])
def test_lines_that_are_none_are_left_out(text: str) -> None:
    assert series_of({"bw": text}, {}) == []


def test_every_file_that_the_options_make_is_known() -> None:
    assert {f"{value}_x" for key, value in log_options().items() if key.endswith("_log")} == {"series_x"}
    assert log_file_names() == [
        "series_bw.log",
        "series_iops.log",
        "series_lat.log",
        "series_slat.log",
        "series_clat.log",
    ]


def test_the_host_watch_counts_from_second_one() -> None:
    watch = HostWatch()
    watch.sample()
    assert set(watch.by_second()) == {1}


@pytest.mark.fio
def test_a_real_run_keeps_one_series_over_its_rounds(kvbench: Kvbench, tier: Path, tmp_path: Path) -> None:
    options = ("--model", "qwen3-8b", "--mix", "mixed", "--numjobs", "2", "--runtime", "2", "--repeat", "2")
    run = tmp_path / "run"
    assert kvbench("fio", "--tier", tier, *options, "--dataset", "64MiB", "-o", run).code == 0
    (point,) = json.loads((run / "result.json").read_text())["points"]
    entries = json.loads((run / point["series"]).read_text())
    assert [entry["second"] for entry in entries] == list(range(1, len(entries) + 1))
    assert sorted({entry["round"] for entry in entries}) == [1, 2]
    assert all(entry["read"]["iops"] >= 0 for entry in entries)
    assert not list(run.glob("points/*/round-*/series_*.log"))
