"""A directory as a tier: refused with a reason, worked in safely, left as it was."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kvbench.errors import TierError
from kvbench.tiers import device, directory, mounts
from kvbench.tiers.pagecache import cached_fraction, direct_write_error
from kvbench.tiers.removal import MARKER_NAME
from tests.conftest import FakeFio, Mounted, Outcome

Kvbench = Callable[..., Outcome]
ARGUMENTS = ("--model", "qwen3-8b", "--dataset", "64MiB")

MOUNTINFO = r"""
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro
42 27 0:39 / /mnt/ceph\040fs rw,nosuid,nodev,relatime - fuse.ceph-fuse ceph-fuse rw,user_id=0,group_id=0,allow_other
43 27 0:40 / /mnt/kernel rw,relatime shared:3 master:2 - ceph 10.0.0.1:6789:/a rw,name=admin,secret=AQBsecret==,acl
44 27 0:41 / /mnt/cifs rw - cifs //server/share rw,username=u,password=hunter2,vers=3.0
45 21 0:50 / /data rw - tmpfs tmpfs rw
46 21 259:3 / /data rw,noatime - xfs /dev/nvme0n1p3 rw,attr2
"""


@pytest.mark.parametrize(
    ("path", "filesystem", "source"),
    [
        ("/home/x", "ext4", "/dev/vda"),
        ("/mnt/ceph fs/deep", "fuse.ceph-fuse", "ceph-fuse"),
        ("/mnt/ceph", "ext4", "/dev/vda"),
        ("/data/kv", "xfs", "/dev/nvme0n1p3"),
    ],
)
def test_the_mount_of_a_path_is_the_longest_and_latest(path: str, filesystem: str, source: str) -> None:
    mount = mounts.mount_of(Path(path), MOUNTINFO)
    assert mount is not None
    assert (mount.filesystem, mount.source) == (filesystem, source)


@pytest.mark.parametrize(("path", "secret"), [("/mnt/kernel", "AQBsecret"), ("/mnt/cifs", "hunter2")])
def test_credentials_in_mount_options_are_removed(path: str, secret: str) -> None:
    mount = mounts.mount_of(Path(path), MOUNTINFO)
    assert mount is not None
    assert secret not in mount.options
    assert "<removed>" in mount.options


def test_device_counters_are_bytes() -> None:
    diskstats = " 254       0 vda 100 5 2000 7 300 9 4000 11 0 1 2 0 0 0 0 3 4\n"
    assert mounts.device_counters("254:0", diskstats) == mounts.DeviceCounters(2000 * 512, 4000 * 512, 100, 300)
    assert mounts.device_counters("0:39", diskstats) is None


# sysstat/sysstat#341: with native multipath the namespace counts nothing, and its hidden paths do.
MULTIPATH = """\
   0       0 nvme0c0n1 10 0 4000 7 5 0 2000 11 0 1 2
   0       0 nvme0c1n1 10 0 1000 7 5 0 500 11 0 1 2
   0       0 nvme0c1n2 99 0 9999 7 9 0 9999 11 0 1 2
   0       0 nvme10c1n1 99 0 9999 7 9 0 9999 11 0 1 2
 259       1 nvme0n1 {own} 11 0 1 2
 259       2 nvme0n1p1 0 0 0 0 0 0 0 0 0 0 0
"""


@pytest.mark.parametrize("numbers", ["259:1", "259:2"])
def test_the_paths_of_an_nvme_namespace_count_for_it(numbers: str) -> None:
    diskstats = MULTIPATH.format(own="0 0 0 0 0 0 0")
    assert mounts.device_counters(numbers, diskstats) == mounts.DeviceCounters(5000 * 512, 2500 * 512, 20, 10)


def test_a_namespace_that_counts_itself_is_not_counted_twice() -> None:
    diskstats = MULTIPATH.format(own="20 0 5000 14 10 0 2500")
    assert mounts.device_counters("259:1", diskstats) == mounts.DeviceCounters(5000 * 512, 2500 * 512, 20, 10)


@pytest.mark.parametrize(
    ("iostats", "before", "after", "counted"),
    [
        ("1", (0, 0), (0, 0), None),  # in use, and nothing counted since boot
        ("0", (500, 10), (500, 10), None),
        ("1", (500, 10), (500, 10), (0, 0)),  # it counts: nothing was read
        ("0", (500, 10), (700, 10), (200, 0)),
        ("1", (500, 10), (700, 40), (200, 30)),
    ],
)
def test_counters_that_stand_still_for_good_prove_nothing(
    tmp_path: Path, iostats: str, before: tuple[int, int], after: tuple[int, int], counted: tuple[int, int] | None
) -> None:
    disk = tmp_path / "devices" / "vda"
    for folder in (disk / "queue", disk / "vda1", tmp_path / "dev" / "block"):
        folder.mkdir(parents=True)
    (disk / "queue" / "iostats").write_text(f"{iostats}\n")
    (disk / "vda1" / "partition").write_text("1\n")
    (tmp_path / "dev" / "block" / "254:1").symlink_to(disk / "vda1")
    mount = mounts.Mount("/x", "ext4", "/dev/vda1", "rw", "254:1")
    readings = (mounts.DeviceCounters(*before), mounts.DeviceCounters(*after))
    found = device.counted_since(*readings, mount, tmp_path)
    assert found == (None if counted is None else mounts.DeviceCounters(*counted))
    assert device.counted_since(None, readings[1], mount, tmp_path) is None


def test_a_missing_directory_is_refused(kvbench: Kvbench, fake_fio: FakeFio, tmp_path: Path) -> None:
    outcome = kvbench("fio", "--tier", tmp_path / "absent", *ARGUMENTS)
    assert outcome.code == 2
    assert outcome.err == f"kvbench: the tier directory {tmp_path}/absent does not exist; create it or name another.\n"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("/dev/null", "is a character device; name a directory on the tier, or a block device"),
        ("gs://bucket/prefix", "kvbench measures directories, block devices, dram and s3://"),
        (__file__, "is not a directory; name a directory on the tier"),
    ],
)
def test_what_is_no_directory_is_refused(kvbench: Kvbench, fake_fio: FakeFio, target: str, said: str) -> None:
    outcome = kvbench("fio", "--tier", target, *ARGUMENTS)
    assert outcome.code == 2
    assert said in outcome.err


def test_too_little_space_is_refused_with_the_numbers(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path
) -> None:
    outcome = kvbench("fio", "--tier", tier, "--model", "qwen3-8b", "--dataset", "900TiB", "-o", tmp_path / "run")
    assert outcome.code == 2
    assert "free and the data set needs 945 TiB" in outcome.err
    assert list(tier.iterdir()) == []


def test_a_data_set_smaller_than_a_block_for_each_job_is_refused(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path
) -> None:
    outcome = kvbench("fio", "--tier", tier, "--model", "qwen3-8b", "--dataset", "16MiB", "--numjobs", "16")
    assert outcome.code == 2
    assert "use --dataset 50331648 (48 MiB) or more" in outcome.err
    assert kvbench("fio", "--tier", tier, "--model", "qwen3-8b", "--dataset", "50331648", "--dry-run").code == 0


def test_a_read_only_directory_is_refused(tier: Path, mounted: Mounted) -> None:
    mounted(tier, "tmpfs", "-o", "ro")
    with (
        pytest.raises(
            TierError, match=r"cannot create a sub-directory in .* \(Read-only file system\); mount it read-write"
        ),
        directory.workspace(directory.inspect("t", str(tier))),
    ):
        raise AssertionError("not reached")


def test_a_file_system_that_refuses_o_direct_is_named(monkeypatch: pytest.MonkeyPatch, tier: Path) -> None:
    monkeypatch.setattr(directory, "direct_write_error", lambda path, size: 22)
    found = directory.inspect("t", str(tier))
    with directory.workspace(found) as space:
        with pytest.raises(TierError, match=r"refuses O_DIRECT \(Invalid argument\), so its page cache"):
            found.require_direct_io(space, [4096])
        with pytest.raises(TierError, match=r"refuses O_DIRECT with 4608 bytes .* not a multiple of its sector size"):
            found.require_direct_io(space, [4608])


def test_the_workspace_is_marked_and_removed_with_everything_in_it(tier: Path) -> None:
    (tier / "mine").write_text("keep")
    with directory.workspace(directory.inspect("t", str(tier))) as space:
        owner = json.loads((space.path / MARKER_NAME).read_text())
        assert (owner["pid"], owner["token"]) == (os.getpid(), space.token)
        (space.path / "deep").mkdir()
        (space.path / "deep" / "data").write_text("x")
    assert [path.name for path in tier.iterdir()] == ["mine"]


def test_the_workspace_is_removed_after_an_error(tier: Path) -> None:
    with pytest.raises(ZeroDivisionError), directory.workspace(directory.inspect("t", str(tier))):
        _ = 1 / 0
    assert list(tier.iterdir()) == []


def marked(path: Path, **changes: object) -> Path:
    path.mkdir()
    owner = {**directory.this_machine(), "pid": 2**22 + 1, "token": path.name.removeprefix("kvbench-"), **changes}
    (path / MARKER_NAME).write_text(json.dumps(owner))
    return path


def test_what_a_dead_kvbench_left_is_removed_and_nothing_else(tier: Path) -> None:
    dead = marked(tier / "kvbench-dead")
    living = marked(tier / "kvbench-living", pid=os.getpid())
    elsewhere = marked(tier / "kvbench-elsewhere", host="another-pod")
    namespace = marked(tier / "kvbench-namespace", pid_namespace="pid:[1]")
    unmarked = tier / "kvbench-unmarked"
    unmarked.mkdir()
    damaged = tier / "kvbench-damaged"
    damaged.mkdir()
    (damaged / MARKER_NAME).write_text("{")

    assert directory.remove_leftovers(tier) == [dead]
    assert sorted(tier.iterdir()) == sorted([living, elsewhere, namespace, unmarked, damaged])


def test_a_zombie_does_not_keep_its_directory(tier: Path) -> None:
    with subprocess.Popen(["true"]) as child:
        stat, deadline = Path(f"/proc/{child.pid}/stat"), time.monotonic() + 60
        while stat.read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        left = marked(tier / "kvbench-zombie", pid=child.pid)
        assert directory.remove_leftovers(tier) == [left]


def test_default_data_set_is_4_gib_or_a_quarter_of_the_free_space() -> None:
    def tier_with(free: int) -> directory.DirectoryTier:
        return directory.DirectoryTier("t", Path("/"), None, free)

    assert tier_with(1 << 40).default_dataset_bytes() == 4 << 30
    assert tier_with(1 << 30).default_dataset_bytes() == 256 << 20
    assert tier_with((1 << 30) + 5).default_dataset_bytes() == 256 << 20


def test_the_page_cache_is_seen_after_buffered_writes_and_not_after_direct_ones(tmp_path: Path) -> None:
    found = mounts.mount_of(tmp_path.resolve())
    if found is None or found.filesystem not in ("ext4", "xfs", "btrfs"):
        pytest.skip(f"needs a local disk file system, this is {found.filesystem if found else 'unknown'}")
    assert direct_write_error(tmp_path / "direct", 1 << 20) is None
    assert not (tmp_path / "direct").exists()
    buffered = tmp_path / "buffered"
    buffered.write_bytes(os.urandom(1 << 20))
    assert cached_fraction([buffered]) == 1.0
    descriptor = os.open(buffered, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    assert cached_fraction([buffered]) == 0.0


def test_an_unaligned_direct_write_reports_the_errno(tmp_path: Path) -> None:
    found = mounts.mount_of(tmp_path.resolve())
    if found is None or found.filesystem not in ("ext4", "xfs"):
        pytest.skip("only these are known to refuse it")
    assert direct_write_error(tmp_path / "direct", 1000) == 22
    assert not (tmp_path / "direct").exists()
