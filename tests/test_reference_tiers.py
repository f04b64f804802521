"""The published reference tiers: complete, consistent in themselves, and honest about what is not."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from kvbench.decide.reference_tiers import ReferencePoint, ReferenceTier, matching, read_tier, reference_tiers
from kvbench.errors import InputFileError
from tests.conftest import SHARED_DATA

TIERS = {tier.id: tier for tier in reference_tiers()}
GPT_OSS, QWEN3_8B, LLAMA_70B = 1179648, 2359296, 5242880


def test_the_four_tiers_of_the_study_are_shipped() -> None:
    assert set(TIERS) >= {"micron-7450-nvme", "cephfs", "rgw-s3", "vpc-block"}


@pytest.mark.parametrize("tier", TIERS.values(), ids=lambda tier: tier.id)
def test_every_tier_names_its_source_and_method_and_uses_the_studys_sizes(tier: ReferenceTier) -> None:
    assert "read 2026-11" in tier.source
    assert tier.method.startswith("fio")
    assert {point.io_bytes for point in tier.points} == {GPT_OSS, QWEN3_8B, LLAMA_70B}
    keys = [(point.io_bytes, point.mix, point.direction, point.numjobs) for point in tier.points]
    assert len(keys) == len(set(keys))
    assert all(point.p50_ns <= point.p99_ns for point in tier.points)


def in_flight(tier: ReferenceTier, point: ReferencePoint) -> float:
    """Operations under way according to Little's law, both directions of a mix together."""
    same = [
        other
        for other in tier.points
        if (other.io_bytes, other.mix, other.numjobs) == (point.io_bytes, point.mix, point.numjobs)
    ]
    return sum(other.iops * (other.mean_ns or 0) / 1e9 for other in same)


@pytest.mark.parametrize("tier", [TIERS["cephfs"], TIERS["rgw-s3"], TIERS["vpc-block"]], ids=lambda tier: tier.id)
def test_jobs_follow_from_rate_and_mean_latency(tier: ReferenceTier) -> None:
    for point in tier.points:
        assert point.warning is None
        assert in_flight(tier, point) == pytest.approx(point.numjobs, rel=0.02), point


def test_the_qwen_read_row_of_the_nvme_contradicts_itself_and_says_so() -> None:
    nvme = TIERS["micron-7450-nvme"]
    ((_, row),) = matching((nvme,), QWEN3_8B, "read", "read", 16)
    # 16 jobs at 6,227 MB/s and 2,250,000 bytes (as published): 2,768 IOPS, so 5.78 ms on average; the median is 1.4 ms.
    assert row.numjobs / (row.bytes_per_s / 2_250_000) == pytest.approx(5.78e-3, rel=0.001)
    assert row.p50_ns == 1_400_000
    assert "Little's law" in str(row.warning)


def test_every_doubtful_row_is_marked_and_no_other() -> None:
    doubtful = {
        (point.io_bytes, point.mix) for tier in TIERS.values() for point in tier.points if point.warning is not None
    }
    assert doubtful == {(QWEN3_8B, "read"), (QWEN3_8B, "write"), (QWEN3_8B, "mixed"), (LLAMA_70B, "mixed")}
    for point in TIERS["micron-7450-nvme"].points:
        if point.mix != "mixed" and point.warning is None:
            # The mean is not published; it lies near the median of a saturated drive.
            assert point.iops * point.p50_ns / 1e9 == pytest.approx(point.numjobs, rel=0.1)


def test_the_figures_are_those_of_the_published_files() -> None:
    source = SHARED_DATA / "published" / "expected.tsv"
    if not source.exists():
        pytest.skip("the published files are not part of this checkout")
    sizes = {"1152k": GPT_OSS, "2304k": QWEN3_8B, "5m": LLAMA_70B}
    with source.open() as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if row["tier"] in TIERS]
    assert len(rows) == sum(len(TIERS[name].points) for name in ("cephfs", "rgw-s3", "vpc-block"))
    for row in rows:
        mix = "mixed" if "mixed" in row["job"] else row["direction"]
        ((_, point),) = matching(
            (TIERS[row["tier"]],),
            sizes[row["bs"]],
            mix,  # type: ignore[arg-type]
            row["direction"],
            int(row["numjobs"]),
        )
        assert point.bytes_per_s == int(row["bw_bytes_per_s"])
        assert (point.p50_ns, point.p99_ns) == tuple(round(float(row[key]) * 1e6) for key in ("p50_ms", "p99_ms"))


def test_only_the_same_io_matches() -> None:
    tiers = reference_tiers()
    assert {tier.id for tier, _ in matching(tiers, GPT_OSS, "read", "read", 16)} == set(TIERS)
    assert matching(tiers, GPT_OSS, "read", "read", 8) == []
    assert matching(tiers, 4096, "read", "read", 16) == []


GOOD = """\
name: n
kind: k
source: s
method: fio
points:
  - {io_bytes: 4096, mix: read, direction: read, numjobs: 1, bytes_per_s: 4096, p50_ms: 1.0, p99_ms: 2.0}
"""


def test_a_minimal_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(GOOD)
    (point,) = read_tier(path).points
    assert (point.p50_ns, point.p99_ns, point.mean_ns, point.warning, point.iops) == (10**6, 2 * 10**6, None, None, 1.0)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("kind: k", "kid: k", "kind: Field required"),
        ("numjobs: 1", "numjobs: 0", "points.0.numjobs"),
        ("mix: read", "mix: both", "points.0.mix"),
        ("name: n", "name: [", "cannot be read as YAML"),
        ("method: fio", "method: fio\nextra: 1", "extra: Extra inputs"),
    ],
)
def test_a_damaged_file_is_refused_with_the_place(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(InputFileError, match=said):
        read_tier(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="cannot be read"):
        read_tier(tmp_path / "absent.yaml")
