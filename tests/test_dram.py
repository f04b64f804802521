"""The cost of copying a block in memory: counts and arithmetic, never a speed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvbench.tiers.dram import measure_copies, numa_nodes


@pytest.mark.parametrize("threads", [1, 3])
def test_rates_follow_from_copies(threads: int) -> None:
    cost = measure_copies(1 << 16, threads, 0.05, buffer_bytes=1 << 20)
    assert (cost.block_bytes, cost.threads) == (1 << 16, threads)
    assert cost.copies >= threads
    assert 0 < cost.p50_ns <= cost.p99_ns
    # All copies took place within the time that the rate is based on, which is at least what was asked for.
    assert cost.bytes_per_s <= cost.copies * cost.block_bytes / 0.05


def test_a_block_larger_than_the_buffer_is_copied_all_the_same() -> None:
    assert measure_copies(1 << 20, 1, 0.01, buffer_bytes=1 << 16).copies >= 1


def test_numa_nodes_are_listed_with_their_processors(tmp_path: Path) -> None:
    for node, processors in ((1, "8-15"), (0, "0-7"), (10, "16")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(f"{processors}\n")
    (tmp_path / "node3").mkdir()
    (tmp_path / "has_cpu").write_text("0\n")
    assert list(numa_nodes(tmp_path).items()) == [(0, "0-7"), (1, "8-15"), (10, "16")]
    assert numa_nodes(tmp_path / "absent") == {}
