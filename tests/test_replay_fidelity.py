"""fio beside the replay: ratios with intervals, and fio's own file for each block."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvbench.commands.options import NamedTier
from kvbench.commands.planning import AskedRun, DriverOptions, MethodOptions, ModelOptions, replays_by_default
from kvbench.decide.runs import LoadedRun
from kvbench.drivers.fio.job import data_files, render_layout, render_points
from kvbench.drivers.settings import JobSettings
from kvbench.record.fidelity import compare_drivers, fidelity_json
from kvbench.record.point import Point
from kvbench.record.results import Direction, LatencyNs, PointResult, Round, RunResult
from kvbench.report.tables.comparison import short_fidelity
from kvbench.tiers.directory import DirectoryTier
from kvbench.tiers.mounts import Mount
from tests.conftest import Outcome

Kvbench = Callable[..., Outcome]
MIB = 1 << 20
SMALL = ("--model", "qwen3-8b", "--numjobs", "2", "--runtime", "1", "--dataset", "64MiB")
BLOCKS = JobSettings(2, 8 * MIB, layout="file-per-block", block_sizes=(MIB, 2 * MIB))


def measured(driver: str, rates: tuple[float, ...], p99_ns: tuple[int, ...]) -> PointResult:
    """A read point of a driver with a round for each rate."""
    rounds = tuple(
        Round(number, 5.0, read_bytes_per_s=rate, read_p99_ns=p99, read_p50_ns=p99 // 2)
        for number, (rate, p99) in enumerate(zip(rates, p99_ns, strict=True), start=1)
    )
    latency = LatencyNs(mean=1.0, p50=p99_ns[0] // 2, p99=p99_ns[0])
    read = Direction(10, 10 * MIB, 2.0, rates[0], latency)
    return PointResult(
        f"t-{driver}", "j", "s", "t", driver, MIB, "read", 16, runtime_s=5.0, read=read, rounds=rounds
    )  # fmt: skip


def test_the_ratio_is_fio_to_replay_with_the_interval_of_the_rounds() -> None:
    run = RunResult(
        "2026-11-30",
        points=(
            measured("fio", (200e6, 201e6, 199e6), (10_000, 10_100, 9_900)),
            measured("replay", (100e6, 101e6, 99e6), (10_000, 10_050, 9_950)),
        ),
    )
    p50, p99, bandwidth = fidelity_json(compare_drivers(run))
    assert [item["metric"] for item in (p50, p99, bandwidth)] == ["p50", "p99", "bandwidth"]
    assert bandwidth["ratio"] == pytest.approx(2.0, rel=1e-3)
    assert 1.9 < bandwidth["low"] < 2.0 < bandwidth["high"] < 2.1
    assert bandwidth["agreement"] == "differs"
    assert p99["agreement"] == p50["agreement"] == "within 10 %"
    assert (bandwidth["tier"], bandwidth["numjobs"], bandwidth["direction"]) == ("t", 16, "read")
    rows = short_fidelity([LoadedRun("run", Path(), run)]).texts
    assert len(rows) == 3
    assert rows[2][-1] == "differs"


def test_one_round_has_no_interval() -> None:
    run = RunResult("", points=(measured("fio", (2.0,), (10,)), measured("replay", (1.0,), (10,))))
    assert {item["agreement"] for item in fidelity_json(compare_drivers(run))} == {"cannot say"}


def test_a_wide_interval_says_nothing() -> None:
    run = RunResult("", points=(measured("fio", (1.0, 4.0), (10, 20)), measured("replay", (2.0, 1.0), (10, 20))))
    assert compare_drivers(run)[-1].agreement == "cannot say"


def test_a_driver_alone_is_not_compared() -> None:
    assert compare_drivers(RunResult("", points=(measured("fio", (1.0,), (10,)),))) == []


def test_a_file_for_each_block_is_read_as_a_whole_in_random_order() -> None:
    point = Point("t-1048576-read-j2", "t", "fio", MIB, "read", 2)
    text = render_points([point], Path("/t"), BLOCKS)
    wanted = [
        "rw=read", "bs=1048576", "filename_format=b1048576.$jobnum.$filenum", "nrfiles=4", "filesize=1048576",
        "size=4194304", "openfiles=1", "file_service_type=random", "numjobs=2", "stonewall",
    ]  # fmt: skip
    assert text.partition("[t-1048576-read-j2]\n")[2].splitlines() == wanted
    names = data_files(BLOCKS)
    assert sum(names.values()) <= BLOCKS.dataset_bytes
    assert {name.split(".")[0] for name in names} == {"b1048576", "b2097152"}
    layout = render_layout(Path("/t"), BLOCKS)
    assert re.findall(r"^\[(.*)\]$", layout, re.M) == ["layout-1048576", "layout-2097152"]
    assert "create_only" not in layout


@pytest.mark.fio
def test_fio_opens_reads_once_and_closes_every_block(tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    place = tmp_path / "data"
    place.mkdir()
    (tmp_path / "layout.fio").write_text(render_layout(place, BLOCKS))
    subprocess.run(["fio", "layout.fio"], cwd=tmp_path, check=True, capture_output=True)
    assert sorted(path.name for path in place.iterdir()) == sorted(data_files(BLOCKS))
    point = Point("p", "t", "fio", MIB, "read", 2)
    settings = JobSettings(2, 8 * MIB, 1, layout="file-per-block", block_sizes=BLOCKS.block_sizes)
    text = render_points([point], place, settings).replace("ioengine=libaio", "ioengine=psync")
    (tmp_path / "read.fio").write_text(text)
    traced = subprocess.run(
        ["strace", "-ff", "-o", "trace", "-e", "trace=openat,pread64", "fio", "read.fio"],
        cwd=tmp_path, check=False, capture_output=True, text=True,
    )  # fmt: skip
    if traced.returncode:
        pytest.skip(f"strace may not trace here: {traced.stderr[:100]}")
    lines = [line for path in tmp_path.glob("trace.*") for line in path.read_text().splitlines()]
    opens = [line for line in lines if "b1048576." in line and "O_RDONLY|O_DIRECT" in line]
    reads = [line for line in lines if "pread64(" in line and ", 1048576, 0" in line]
    assert len(opens) > 8
    # The last block of a job may be opened and not read any more.
    assert abs(len(opens) - len(reads)) <= 2


@pytest.mark.fio
def test_fidelity_measures_both_in_turns_and_says_the_ratio(kvbench: Kvbench, tier: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = kvbench("fio", "--tier", tier, *SMALL, "--mix", "read", "--fidelity", "-o", out, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert {(point["driver"], len(point["rounds"])) for point in found["points"]} == {("fio", 2), ("replay", 2)}
    assert [item["metric"] for item in found["fidelity"]] == ["p50", "p99", "bandwidth"]
    for item in found["fidelity"]:
        assert item["low"] <= item["ratio"] <= item["high"]
        assert item["ratio"] == pytest.approx(item["fio"] / item["replay"])
    assert "fio against the connector's own calls" in (out / "summary.md").read_text()
    assert list(tier.iterdir()) == []
    assert kvbench("report", out).code == 0
    page = (out / "report.html").read_text()
    assert "fio / replay" in page
    assert "Calls that move no data" in page


@pytest.mark.fio
def test_fio_can_measure_a_file_for_each_block(kvbench: Kvbench, tier: Path, tmp_path: Path) -> None:
    options = (*SMALL, "--fio-layout", "file-per-block", "--mix", "read,write", "-o", tmp_path / "run", "--json")
    done = kvbench("fio", "--tier", tier, *options)
    assert done.code == 0, done.err
    read, write = json.loads(done.out)["points"]
    assert read["conditions"]["access"] == "random"
    assert read["conditions"]["unwritten_bytes"] in (0, None)
    assert read["conditions"]["dataset_bytes"] == 2 * 14 * 2359296
    assert write["write"]["ios"] > 0
    assert list(tier.iterdir()) == []


def test_jobs_prints_the_layout_that_was_asked_for(kvbench: Kvbench, tier: Path) -> None:
    done = kvbench("jobs", "--tier", tier, *SMALL, "--runtime", "1", "--fio-layout", "file-per-block")
    assert done.code == 0
    assert "file_service_type=random" in done.out
    assert kvbench("jobs", "--tier", tier, *SMALL, "--fio-layout", "tiny").code == 2


@pytest.mark.parametrize(
    ("filesystem", "changes", "replays"),
    [
        ("ceph", {}, True),
        ("fuse.ceph-fuse", {}, True),
        ("nfs4", {}, True),
        ("ext4", {}, False),
        ("tmpfs", {}, False),
        ("ceph", {"models": ModelOptions(connector="logical")}, False),
        ("ceph", {"models": ModelOptions(connector="lmcache-disk")}, False),
        ("ceph", {"method": MethodOptions(published=True)}, False),
        ("ceph", {"drivers": DriverOptions(driver="fio")}, False),
        ("ceph", {"method": MethodOptions(layout="file-per-block")}, False),
        ("ceph", {"method": MethodOptions(access="sequential")}, False),
    ],
)
def test_replay_is_the_default_where_a_server_answers_every_open(
    filesystem: str, changes: dict[str, Any], replays: bool
) -> None:
    source = "/dev/vda" if filesystem == "ext4" else "server:/path"
    tier = DirectoryTier("t", Path("/t"), Mount("/t", filesystem, source, "rw", "0:39"), 1 << 40)
    assert replays_by_default(tier, AskedRun([NamedTier("t", "/t")], **changes)) is replays
