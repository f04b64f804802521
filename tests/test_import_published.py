"""The published files carry exactly the warnings that they deserve; the list was written from the rules, then held.

Rules, applied by hand to the options and counts in the files (read-me of each code: docs/warnings.md):

- ``few-samples``: a direction with fewer than 1000 operations.
- ``sequential``: pure reads with rw=read over a file of many blocks (the study calls them reads, others random reads).
- ``re-read``: bytes read / distinct bytes > 2. Distinct bytes: 225 MiB for each job (CephFS, 3.6 GB at 16 jobs); on the
  block device 225 MiB, or 3.6 GB with offset_increment, which the 16-job mixed jobs lack.
- ``hot-object``: S3 reads of one object per job; their writes stand in the same file, so the objects exist.
- Writes of few bytes over and over, and mixes within three standard errors of 75 %, deserve nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kvbench.checks import VOIDING
from kvbench.record import results
from tests.conftest import Outcome
from tests.factories import shared_data

Run = Callable[..., Outcome]
NAMES = ("cephfs", "rgw-s3", "vpc-block", "vpc-block-probe")
MIB = 1 << 20

PURE_READ = ["re-read", "sequential"]
DESERVED: dict[str, list[str]] = {
    "cephfs-qwen8b-write-j1": [],
    "cephfs-qwen8b-write-j16": [],
    "cephfs-gpt120b-write-j1": [],
    "cephfs-gpt120b-write-j16": [],
    "cephfs-fp8-70b-write-j1": [],
    "cephfs-fp8-70b-write-j16": [],
    "cephfs-qwen8b-read-j1": PURE_READ,
    "cephfs-qwen8b-read-j16": PURE_READ,
    "cephfs-qwen8b-mixed-j16": ["re-read"],
    "cephfs-gpt120b-read-j1": PURE_READ,
    "cephfs-gpt120b-read-j16": PURE_READ,
    "cephfs-gpt120b-mixed-j16": ["re-read"],
    "cephfs-fp8-70b-read-j1": PURE_READ,
    "cephfs-fp8-70b-read-j16": PURE_READ,
    "cephfs-fp8-70b-mixed-j16": ["re-read", "few-samples"],  # 663 writes
    "rgw-s3-qwen8b-s3-write-j1": [],
    "rgw-s3-qwen8b-s3-write-j16": [],
    "rgw-s3-gpt120b-s3-write-j1": [],
    "rgw-s3-gpt120b-s3-write-j16": [],
    "rgw-s3-fp8-70b-s3-write-j1": ["few-samples"],  # 570 writes
    "rgw-s3-fp8-70b-s3-write-j16": [],
    "rgw-s3-qwen8b-s3-read-j1": ["hot-object"],
    "rgw-s3-qwen8b-s3-read-j16": ["hot-object"],
    "rgw-s3-gpt120b-s3-read-j1": ["hot-object"],
    "rgw-s3-gpt120b-s3-read-j16": ["hot-object"],
    "rgw-s3-fp8-70b-s3-read-j1": ["hot-object"],
    "rgw-s3-fp8-70b-s3-read-j16": ["hot-object"],
    "vpc-block-qwen8b-blk-write-j1": [],
    "vpc-block-qwen8b-blk-read-j1": PURE_READ,
    "vpc-block-qwen8b-blk-write-j16": [],
    "vpc-block-qwen8b-blk-read-j16": PURE_READ,
    "vpc-block-qwen8b-blk-mixed-j16": ["re-read"],
    "vpc-block-gpt120b-blk-write-j1": [],
    "vpc-block-gpt120b-blk-read-j1": PURE_READ,
    "vpc-block-gpt120b-blk-write-j16": [],
    "vpc-block-gpt120b-blk-read-j16": PURE_READ,
    "vpc-block-gpt120b-blk-mixed-j16": ["re-read"],
    "vpc-block-fp8-70b-blk-write-j1": [],
    "vpc-block-fp8-70b-blk-read-j1": PURE_READ,
    "vpc-block-fp8-70b-blk-write-j16": [],
    "vpc-block-fp8-70b-blk-read-j16": PURE_READ,
    "vpc-block-fp8-70b-blk-mixed-j16": ["re-read"],
    "vpc-block-probe-probe-write-j1": [],
    "vpc-block-probe-probe-read-j1": PURE_READ,
}


def imported(kvbench: Run, run_dir: Path, *options: str) -> results.RunResult:
    folder = shared_data("published")
    outcome = kvbench("import", *(folder / f"{name}.json" for name in NAMES), "--tp", "2", "-o", run_dir, *options)
    assert outcome.code == 0, outcome.err
    return results.load(run_dir)


@pytest.mark.slow
def test_every_flag_is_deserved_and_none_is_missing(kvbench: Run, tmp_path: Path) -> None:
    run = imported(kvbench, tmp_path / "run")
    found = {point.id: sorted(warning.code for warning in point.warnings) for point in run.points}
    assert found == {name: sorted(codes) for name, codes in DESERVED.items()}
    assert {point.conditions.cache_state for point in run.points} == {"unknown"}


@pytest.mark.slow
def test_the_flags_carry_their_numbers(kvbench: Run, tmp_path: Path) -> None:
    run = imported(kvbench, tmp_path / "run")

    def values(point_id: str, code: str) -> dict[str, results.Value]:
        point = run.point(point_id)
        assert point is not None
        return next(warning.values for warning in point.warnings if warning.code == code)

    # 5491 reads of 2304 KiB over 16 files of 225 MiB; 15031 over one of 225 MiB; 6735 over 16 objects.
    assert values("cephfs-qwen8b-read-j16", "re-read") == {
        "re_read_factor": round(5491 * 2.25 / 3600, 2), "dataset_bytes": 3600 * MIB, "memory_bytes": None,
    }  # fmt: skip
    assert values("vpc-block-qwen8b-blk-mixed-j16", "re-read")["re_read_factor"] == round(15031 * 2.25 / 225, 2)
    assert values("vpc-block-qwen8b-blk-read-j16", "re-read")["dataset_bytes"] == 3600 * MIB
    assert values("rgw-s3-qwen8b-s3-read-j16", "hot-object") == {
        "re_read_factor": round(6735 / 16, 2), "distinct_blocks": 16, "dataset_bytes": 16 * 2304 * 1024,
    }  # fmt: skip


@pytest.mark.slow
def test_a_provisioned_rate_catches_what_bursts_above_it(kvbench: Run, tmp_path: Path) -> None:
    """The volume gives 800 MB/s; 799.5 is possible, the probe's 812.7 is not."""
    run = imported(kvbench, tmp_path / "run", "--limit", "vpc-block=800MB/s", "--limit", "vpc-block-probe=800MB/s")
    flagged = {point.id for point in run.points for warning in point.warnings if warning.code == "line-rate"}
    assert flagged == {"vpc-block-probe-probe-read-j1"}


@pytest.mark.slow
def test_strict_is_exit_3(kvbench: Run, tmp_path: Path) -> None:
    source = shared_data("published") / "cephfs.json"
    assert kvbench("import", source, "--tp", "2", "-o", tmp_path / "run", "--strict").code == 3
    codes = {warning.code for point in results.load(tmp_path / "run").points for warning in point.warnings}
    assert not codes & VOIDING
    again = ("import", source, "--tp", "2", "-o")
    assert kvbench(*again, tmp_path / "all", "--strict-except", ",".join(sorted(codes))).code == 0
    assert kvbench(*again, tmp_path / "most", "--strict-except", ",".join(sorted(codes)[1:])).code == 3
