"""The replay on CephFS: what lookups, opens and renames cost there, and fio beside it in turns."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.state import Ceph
from tests.tiers.conftest import Run

OPTIONS = ("--model", "gpt-oss-120b", "--numjobs", "4", "--dataset", "64MiB")


@pytest.fixture
def folder(ceph: Ceph) -> Path:
    return Path(ceph.mount)


@pytest.mark.parametrize("version", ["0.24", "0.33"])
def test_the_calls_that_move_no_data_are_a_line_of_their_own(folder: Path, run_fio: Run, version: str) -> None:
    measured = run_fio("--tier", f"cephfs={folder}", *OPTIONS, "--driver", "replay", "--engine-version", version)
    assert measured.code == 0, measured.err
    mixed, read, write = measured.points()
    assert [point["mix"] for point in (mixed, read, write)] == ["mixed", "read", "write"]
    assert set(read["metadata"]) == {"lookup", "open", "close"}
    assert set(write["metadata"]) == {"check", "directories", "create", "close", "rename"}
    for point in (mixed, read, write):
        assert point["conditions"]["ioengine"].startswith(f"calls of vLLM {version}")
        for calls in point["metadata"].values():
            assert calls["count"] > 0
            assert calls["latency_ns"]["mean"] > 0
    # A rename is answered by the metadata server, not from this host's memory.
    assert write["metadata"]["rename"]["latency_ns"]["p50"] > read["metadata"]["close"]["latency_ns"]["min"]


def test_fio_and_the_replay_alternate_on_the_same_tier(folder: Path, run_fio: Run) -> None:
    measured = run_fio("--tier", f"cephfs={folder}", *OPTIONS, "--mix", "read", "--fidelity")
    assert measured.code == 0, measured.err
    assert {(point["driver"], len(point["rounds"])) for point in measured.points()} == {("fio", 2), ("replay", 2)}
    assert "fio / replay" in measured.out
