"""Jobs for block devices: which ranges they touch, and that fio is kept from writing where nobody allowed it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kvbench.drivers import Site
from kvbench.drivers.fio import data
from kvbench.drivers.fio.job import render_layout, render_points
from kvbench.drivers.settings import JobSettings
from kvbench.errors import TierError, UsageError
from kvbench.record.point import Point
from kvbench.record.results import Mix
from kvbench.tiers import device_tier
from kvbench.tiers.block import BlockDevice
from kvbench.tiers.consent import require_consent
from kvbench.tiers.device_tier import DeviceSpace, DeviceTier
from kvbench.tiers.directory import DirectoryTier, Workspace
from kvbench.tiers.tier import DeviceUse
from tests.conftest import FakeFio, Outcome

Kvbench = Callable[..., Outcome]

DEVICE = BlockDevice(Path("/dev/nvme1n1"), "nvme1n1", 1 << 30, 4096, 4096, None, read_only=False)
MIB = 1 << 20
SPACE = Workspace(Path("/run"), "token")


def tier(*, writable: bool = False) -> DeviceTier:
    return DeviceTier("blk", DEVICE, "259:7", writable)


def point(mix: Mix, numjobs: int) -> Point:
    return Point(f"blk-{mix}-j{numjobs}", "blk", "fio", 2359296, mix, numjobs)


def settings(device: DeviceUse | None = "write") -> JobSettings:
    return JobSettings(files=4, file_bytes=16 * MIB, device=device)


def options(text: str) -> list[str]:
    return text.splitlines()


def test_each_job_of_the_largest_count_has_a_range_of_its_own() -> None:
    lines = options(render_points([point("mixed", 4)], DEVICE.path, settings()))
    assert {"filename=/dev/nvme1n1", "allow_file_create=0", "direct=1"} <= set(lines)
    assert {"offset_increment=16777216", f"size={7 * 2359296}", "numjobs=4", "rw=randrw"} <= set(lines)
    assert not [line for line in lines if line.startswith(("directory", "filename_format"))]


def test_fewer_jobs_roam_over_the_whole_data_set() -> None:
    lines = options(render_points([point("read", 1)], DEVICE.path, settings("read")))
    assert {f"size={4 * 7 * 2359296}", "numjobs=1", "rw=randread"} <= set(lines)
    assert not [line for line in lines if line.startswith("offset_increment")]


def test_the_layout_writes_every_range_and_not_a_byte_more() -> None:
    lines = options(render_layout(DEVICE.path, settings()))
    assert {"filename=/dev/nvme1n1", "allow_file_create=0", "rw=write"} <= set(lines)
    assert {"numjobs=4", "size=16777216", "offset_increment=16777216"} <= set(lines)


def test_directories_are_laid_out_as_ever() -> None:
    text = render_layout(Path("/mnt/tier"), settings(None))
    assert "directory=/mnt/tier\n" in text
    assert "filename_format=kvbench.$jobnum\n" in text
    assert "offset_increment" not in text
    assert "allow_file_create" not in text


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("writable", [True, False])
@pytest.mark.parametrize("use", ["read", "write"])
def test_fio_may_write_to_a_device_only_where_everything_says_so(
    writes: bool, writable: bool, use: DeviceUse, tmp_path: Path
) -> None:
    device = tier(writable=writable)
    site = Site(device, DeviceSpace(tmp_path, "token", tier=device), settings(use))
    assert data.is_read_only(site, writes=writes) == (not (writes and writable and use == "write"))
    assert data.place_of(site) == DEVICE.path


def test_directories_are_never_read_only(tmp_path: Path) -> None:
    space = Workspace(tmp_path / "work", "token")
    site = Site(DirectoryTier("d", tmp_path, None, 1 << 30), space, settings(None))
    assert not data.is_read_only(site, writes=False)
    assert data.place_of(site) == space.path


def test_consent_is_asked_for_devices_that_are_written_only(tmp_path: Path) -> None:
    folder = DirectoryTier("d", tmp_path, None, 1 << 30)
    require_consent([(folder, True), (tier(), False)], [])
    require_consent([(tier(), True)], ["/dev/nvme1n1"])
    with pytest.raises(TierError, match="--allow-destroy /dev/nvme1n1"):
        require_consent([(folder, True), (tier(), True)], [])


def test_consent_for_no_tier_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="none is a block device"):
        require_consent([(DirectoryTier("d", tmp_path, None, 1), True)], ["/dev/nvme1n1"])
    with pytest.raises(UsageError, match=r"--allow-destroy /dev/sdb is not the resolved path .* \(/dev/nvme1n1\)"):
        require_consent([(tier(), False)], ["/dev/sdb"])


def test_a_directory_run_refuses_consent_for_a_device(kvbench: Kvbench, fake_fio: FakeFio, tmp_path: Path) -> None:
    (tmp_path / "tier").mkdir()
    outcome = kvbench("fio", "--tier", tmp_path / "tier", "--dry-run", "--allow-destroy", "/dev/nvme1n1")
    assert outcome.code == 2
    assert "is not the resolved path of a tier of this run" in outcome.err


def test_sizes_follow_sectors_and_the_end_of_the_device() -> None:
    tier().require_direct_io(SPACE, [1179648, 2359296])
    with pytest.raises(TierError, match="sectors of 4096 bytes and refuses O_DIRECT with 1124352 bytes"):
        tier().require_direct_io(SPACE, [1179648, 1124352])
    tier().require_space(1 << 30)
    with pytest.raises(TierError, match="use a smaller --dataset"):
        tier().require_space((1 << 30) + 1)
    assert tier().default_dataset_bytes() == 1 << 30


def test_an_empty_device_shows_in_a_sample_and_data_does_not(tmp_path: Path) -> None:
    """A file stands in for a device here: the same reads."""
    path = tmp_path / "device"
    stand_in = DeviceTier("blk", BlockDevice(path, "x", 8 * MIB, 512, 512, None, read_only=True), "7:0", False)
    path.write_bytes(b"\1" * (8 * MIB))
    found = device_tier.unwritten_estimate(stand_in, 8 * MIB)
    if found is None:
        pytest.skip("this file system refuses O_DIRECT")
    assert found == 0
    path.write_bytes(bytes(8 * MIB))
    assert device_tier.unwritten_estimate(stand_in, 8 * MIB) == 8 * MIB
    assert device_tier.unwritten_estimate(stand_in, 0) is None
