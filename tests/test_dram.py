"""Memory as a tier: counts, arithmetic and structure, never a speed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kvbench.record.recorder import Recorder, direction_of, histograms_of, series_of
from kvbench.tiers.dram import copy_blocks, new_pool, numa_nodes, numa_placement
from tests.conftest import Outcome

Kvbench = Callable[..., Outcome]

BLOCK = 1 << 16


@pytest.mark.parametrize("threads", [1, 3])
def test_every_copy_is_counted_once(threads: int) -> None:
    recorders = [Recorder() for _ in range(threads)]
    seconds = copy_blocks(new_pool(1 << 20), BLOCK, recorders, 0.05)
    read = direction_of(recorders, "read", seconds)
    assert direction_of(recorders, "write", seconds) is None
    assert read is not None
    assert seconds >= 0.05
    assert read.ios == histograms_of(recorders)["read"].samples >= threads
    assert read.bytes == read.ios * BLOCK
    assert read.bytes_per_s == pytest.approx(read.bytes / seconds)


def test_a_mix_reads_and_writes() -> None:
    recorders = [Recorder()]
    copy_blocks(new_pool(1 << 20), 4096, recorders, 0.2, read_percent=75)
    reads, writes = (recorders[0].sides[way].ios for way in ("read", "write"))
    assert reads > writes > 0


def test_threads_that_store_follow_those_that_read() -> None:
    recorders = [Recorder() for _ in range(4)]
    copy_blocks(new_pool(1 << 20), 4096, recorders, 0.2, read_percent=75, storers=2)
    done = [[recorder.sides[way].ios for way in ("read", "write")] for recorder in recorders]
    assert all(reads > 0 and writes == 0 for reads, writes in done[:2])
    assert all(reads == 0 for reads, _ in done[2:])
    reads, writes = (sum(column) for column in zip(*done, strict=True))
    assert 0 < writes <= reads / 3 + 1


@pytest.mark.slow
def test_an_interruption_ends_the_threads() -> None:
    recorders = [Recorder(), Recorder()]

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_blocks(new_pool(1 << 20), BLOCK, recorders, 60, on_tick=interrupt)
    counted = [recorder.sides["read"].ios for recorder in recorders]
    assert counted == [recorder.sides["read"].ios for recorder in recorders]


def test_series_adds_up_threads_and_shows_silent_seconds() -> None:
    one, other = Recorder(), Recorder()
    one.add("read", 1000, 500_000_000, 10)
    other.add("read", 3000, 900_000_000, 10)
    one.add("read", 5000, 2_500_000_000, 10)
    series = series_of([one, other], 3.2, {1: {"load_1m": 0.5}})
    assert [entry["second"] for entry in series] == [1, 2, 3]
    assert series[0] == {
        "second": 1,
        "read": {"bytes_per_s": 20, "iops": 2, "mean_latency_ns": 2000, "bins": {"1004": 1, "2992": 1}},
        "host": {"load_1m": 0.5},
    }
    assert series[1]["read"] == {"bytes_per_s": 0, "iops": 0}


@pytest.mark.slow
def test_memory_is_measured_as_a_tier_like_any_other(kvbench: Kvbench, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = kvbench(
        "fio", "--tier", "dram", "--model", "qwen3-8b", "--mix", "mixed,read", "--numjobs", "1,2", "--runtime", "1",
        "--dataset", "64MiB", "-o", str(out), "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert [point["id"] for point in result["points"]] == [
        f"dram-2359296-{mix}-j{jobs}-memory" for mix in ("mixed", "read") for jobs in (1, 2)
    ]
    for point in result["points"]:
        assert (point["driver"], point["status"]) == ("memory", "ok")
        assert point["read"]["bytes"] == point["read"]["ios"] * 2359296
        assert {warning["code"] for warning in point["warnings"]} <= {
            "few-samples",
            "cpu-steal",
            "cpu-short",
            "drift",
            "wrong-mix",
        }
        assert (out / point["histogram"]).exists()
        assert (out / point["series"]).exists()
    facts = result["tiers"]["dram"]
    assert facts["numa_placement"] == numa_placement()
    assert not [path for path in out.iterdir() if path.name.startswith("kvbench-")]


def test_a_buffer_without_room_for_a_block_is_refused(kvbench: Kvbench, tmp_path: Path) -> None:
    done = kvbench("fio", "--tier", "dram", "--model", "qwen3-8b", "--dataset", "1MiB", "-o", str(tmp_path / "run"))
    assert done.code == 2
    assert "--dataset" in done.err


def test_numa_nodes_are_listed_with_their_processors(tmp_path: Path) -> None:
    for node, processors in ((1, "8-15"), (0, "0-7"), (10, "16")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(f"{processors}\n")
    (tmp_path / "node3").mkdir()
    (tmp_path / "has_cpu").write_text("0\n")
    assert list(numa_nodes(tmp_path).items()) == [(0, "0-7"), (1, "8-15"), (10, "16")]
    assert numa_nodes(tmp_path / "absent") == {}


def test_numa_placement_is_what_the_kernel_allows(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tx\nCpus_allowed_list:\t0-7\nMems_allowed_list:\t1\n")
    assert numa_placement(status) == "memory of node 1, CPU 0-7"
    assert numa_placement(tmp_path / "absent").startswith("unknown")


@pytest.mark.slow
def test_a_long_section_has_the_batches_of_its_seconds(
    kvbench: Kvbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("record.batches", "run.runner"):
        monkeypatch.setattr(f"kvbench.{module}.SEPARATE_S", 1.0)
    options = ("--model", "qwen3-8b", "--mix", "read", "--numjobs", "1", "--dataset", "16MiB", "--runtime", "4")
    assert kvbench("fio", "--tier", "dram", *options, "-o", tmp_path / "run").code == 0
    (point,) = json.loads((tmp_path / "run" / "result.json").read_text())["points"]
    # The latencies of each second are in no file any more when the point is saved, and were counted before.
    assert point["over_time"]["read"]["batches"] >= 3
    assert point["read"]["latency_ns"]["p99_low"] is not None
    assert point["read"]["latency_ns"]["p99_low"] <= point["read"]["latency_ns"]["p99"]
