"""Where is measured, and how: what is not mounted, how a round began and ended, waiting for a CPU, sectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvbench.checks import judge
from kvbench.errors import TierError
from kvbench.host import environment
from kvbench.record.quarters import with_quarters
from kvbench.record.results import Round
from kvbench.run import doctor
from kvbench.tiers import device, directory, mounts
from kvbench.tiers.unmounted import unmounted
from tests.conftest import FakeFio, Outcome
from tests.factories import conditions, point

Kvbench = Callable[..., Outcome]
MOUNTED = """
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
42 21 0:39 / /mnt/cephfs rw - ceph 10.0.0.1:6789:/ rw
43 21 259:3 / /srv/tank rw - xfs /dev/nvme0n1p1 rw
44 21 0:41 / /media rw - tmpfs tmpfs rw
"""
FSTAB = """
# <file system> <mount point> <type>
UUID=1 / ext4 defaults 0 1
UUID=2 none swap sw 0 0
/dev/nvme0n1p1 /srv/tank xfs defaults 0 0
/dev/nvme1n1p1 /srv/tank/deep xfs noauto 0 0
#/dev/nvme2n1p1 /opt/kv xfs defaults 0 0
server:/kv /opt/kv\\040store nfs defaults 0 0
"""


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (
            "/mnt/nvme/kv",
            "/mnt/nvme looks like a mount point and is none: it lies on the ext4 of /, the root file system",
        ),
        ("/mnt/nvme", "/mnt/nvme looks like"),
        ("/run/media/me/disk/x", "/run/media/me/disk looks like"),
        ("/data", "/data looks like"),
        ("/data2/kv", "/data2 looks like"),
        ("/cephfs-ssd/kv", "/cephfs-ssd looks like"),
        ("/opt/kv store/x", "/opt/kv store is listed in /etc/fstab and not mounted: it lies on the ext4 of /"),
        ("/srv/tank/deep/x", "/srv/tank/deep is listed in /etc/fstab and not mounted: it lies on the xfs of /srv/tank"),
    ],
)
def test_a_directory_that_looks_like_a_mount_point(path: str, said: str) -> None:
    assert (unmounted(Path(path), MOUNTED, FSTAB) or "").startswith(said)


@pytest.mark.parametrize(
    "path",
    [
        "/mnt/cephfs/kv", "/srv/tank/kv", "/media/disk/kv", "/mnt", "/run/media/me", "/tmp/data", "/home/me/mnt/nvme",
        "/opt/kv", "/database/kv", "/datafiles", "/srv/nvme/kv", "/ssds", "/", "/var/lib/kubelet",
    ],
)  # fmt: skip
def test_near_misses_are_no_mount_points(path: str) -> None:
    """Mounted, below something mounted, the folder of mount points itself, or no such name at the root."""
    assert unmounted(Path(path), MOUNTED, FSTAB) is None


def test_where_the_system_says_nothing_nothing_is_said() -> None:
    assert unmounted(Path("/mnt/nvme"), "", FSTAB) is None


@pytest.fixture
def unmounted_tier(tier: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tier's directory, as if it were listed in /etc/fstab; the rest is the real one."""
    fstab = f"/dev/x {tier} xfs defaults 0 0\n"
    monkeypatch.setattr("kvbench.tiers.unmounted._text", lambda path: fstab)
    return tier


SMALL = ("--model", "qwen3-8b", "--dataset", "64MiB", "--mix", "read", "--numjobs", "1", "--runtime", "1")


@pytest.mark.slow
def test_it_is_said_by_doctor_before_the_run_and_in_the_result(
    kvbench: Kvbench, fake_fio: FakeFio, unmounted_tier: Path, tmp_path: Path
) -> None:
    said = f"{unmounted_tier} is listed in /etc/fstab and not mounted"
    (found,) = kvbench("doctor", "--tier", unmounted_tier, "--json").json()["tiers"]
    (finding,) = [item for item in found["findings"] if item["check"] == "mount point"]
    assert (finding["status"], finding["observed"].startswith(said)) == ("note", True)
    dry = kvbench("fio", "--tier", f"t={unmounted_tier}", *SMALL, "--dry-run")
    assert f"t: {said}" in dry.err
    run = kvbench("fio", "--tier", f"t={unmounted_tier}", *SMALL, "-o", tmp_path / "run", "--json")
    assert run.err.index(f"t: {said}") < run.err.index("run directory")
    (measured,) = run.json()["points"]
    assert [item["code"] for item in measured["warnings"]].count("not-mounted") == 1
    assert measured["conditions"]["unmounted"].startswith(said)


@pytest.mark.slow
def test_a_tier_that_is_where_it_should_be_is_not_talked_about(kvbench: Kvbench, fake_fio: FakeFio, tier: Path) -> None:
    assert "mount" not in kvbench("fio", "--tier", f"t={tier}", *SMALL, "--dry-run").err
    assert doctor.is_sound(list(doctor.examine_tier("t", str(tier)).findings))


# How a round began and ended


def seconds(*rates: int, way: str = "read", number: int = 1) -> list[dict[str, Any]]:
    """A series of seconds with these rates of operations, each of 1 MB."""
    return [
        {"second": at, "round": number, way: {"iops": rate, "bytes_per_s": rate * 10**6}}
        for at, rate in enumerate(rates, 1)
    ]


def test_quarters_of_a_round() -> None:
    """The first and the last second are left out: 4 quarters of 4 seconds each."""
    series = seconds(0, *[400] * 8, *[200] * 8, 0)
    (found,) = with_quarters([Round(1, 18.0)], series)
    assert (found.read_quarters_bytes_per_s, found.write_quarters_bytes_per_s) == ((400e6, 200e6), None)
    drifted = judge(point(rounds=(found,)))
    assert [warning.code for warning in drifted.warnings] == ["drift"]
    # Without a number it is the only round; of another round it is not this one's.
    unnumbered = [{key: value for key, value in entry.items() if key != "round"} for entry in series]
    assert with_quarters([Round(1, 18.0)], unnumbered) == (found,)
    first, second = with_quarters([Round(1, 18.0), Round(1, 18.0)], seconds(0, *[400] * 8, *[200] * 8, 0, number=2))
    assert (first.read_quarters_bytes_per_s, second.read_quarters_bytes_per_s) == (None, (400e6, 200e6))


@pytest.mark.parametrize(
    "rates",
    [
        pytest.param([0, *[400] * 7, *[200] * 4, 0], id="too short"),
        pytest.param([0, *[9] * 8, *[5] * 8, 0], id="36 and 20 operations are chance"),
        pytest.param([0, *[0] * 8, *[200] * 8, 0], id="nothing at first has no ratio"),
        pytest.param([], id="no series"),
    ],
)
def test_what_says_nothing_about_drift(rates: list[int]) -> None:
    (found,) = with_quarters([Round(1, 18.0)], seconds(*rates))
    assert found.read_quarters_bytes_per_s is None


# Waiting for a CPU


def host(root: Path, some_us: int, group_us: int, delay_ns: int) -> environment.CpuWaits:
    """The waits that a host with these counters shows; the control group is /pod."""
    for name, text in {
        "proc/pressure/cpu": f"some avg10=1.00 avg60=1.00 avg300=1.00 total={some_us}\nfull avg10=0.00 total=0\n",
        "proc/self/cgroup": "0::/pod\n",
        "sys/fs/cgroup/pod/cpu.pressure": f"some avg10=1.00 avg60=1.00 avg300=1.00 total={group_us}\n",
        "proc/schedstat": "version 15\n"
        + "".join(f"cpu{at} 0 0 0 0 0 0 7 {delay_ns} 9\ndomain0 3 1\n" for at in (0, 1)),
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return environment.cpu_waits(root)


def test_pressure_and_run_queue_over_a_round(tmp_path: Path) -> None:
    """Ten seconds: the host stalled for 2.5 of them, the pod for 6; on each of two CPUs tasks waited 15 s in all."""
    before = replace(host(tmp_path, 1_000_000, 2_000_000, 10**9), at_s=100.0)
    after = replace(host(tmp_path, 3_500_000, 8_000_000, 16 * 10**9), at_s=110.0)
    assert environment.stalled_percent(before, after) == 60.0
    assert environment.waiting_tasks(before, after) == 3.0


def test_a_host_that_tells_nothing(tmp_path: Path) -> None:
    nothing = environment.cpu_waits(tmp_path)
    later = replace(nothing, at_s=nothing.at_s + 1)
    assert (environment.stalled_percent(nothing, later), environment.waiting_tasks(nothing, later)) == (None, None)
    assert judge(point(conditions=conditions(cpu_stalled_percent=None, cpu_waiting=None))).warnings == ()


# Sectors, before anything is written


def on(filesystem: str, sector: int | None, monkeypatch: pytest.MonkeyPatch) -> directory.DirectoryTier:
    """A directory on such a file system, on a device with such sectors."""
    monkeypatch.setattr(directory, "sector_bytes", lambda mount: sector)
    mount = mounts.Mount("/", filesystem, "/dev/x", "rw", "254:0")
    return directory.DirectoryTier("t", Path("/tier"), mount, 1 << 40)


@pytest.mark.parametrize("filesystem", ["ext4", "xfs"])
def test_parts_of_a_sector_are_refused_without_trying(filesystem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TierError, match="sectors of 4096 bytes and refuses O_DIRECT with 1124352 bytes"):
        on(filesystem, 4096, monkeypatch).require_aligned([4096, 1124352])
    on(filesystem, 512, monkeypatch).require_aligned([512, 1124352])
    on(filesystem, None, monkeypatch).require_aligned([1000])


@pytest.mark.parametrize("filesystem", ["btrfs", "ceph", "fuse.s3fs", "tmpfs"])
def test_file_systems_that_take_any_size_are_asked_when_it_matters(
    filesystem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(filesystem, 4096, monkeypatch).require_aligned([1000])


def test_the_sectors_of_a_partition_are_its_disks(tmp_path: Path) -> None:
    disk = tmp_path / "devices" / "nvme0n1"
    (disk / "queue").mkdir(parents=True)
    (disk / "queue" / "logical_block_size").write_text("4096\n")
    (disk / "nvme0n1p1").mkdir()
    (disk / "nvme0n1p1" / "partition").write_text("1\n")
    (tmp_path / "dev" / "block").mkdir(parents=True)
    (tmp_path / "dev" / "block" / "259:1").symlink_to(disk / "nvme0n1p1")
    (tmp_path / "dev" / "block" / "259:0").symlink_to(disk)
    for numbers, sector in (("259:1", 4096), ("259:0", 4096), ("0:39", None)):
        assert device.sector_bytes(mounts.Mount("/", "xfs", "/dev/x", "rw", numbers), tmp_path) == sector
    assert device.sector_bytes(None, tmp_path) is None


@pytest.mark.parametrize("command", [("jobs",), ("fio", "--dry-run")])
def test_jobs_and_a_dry_run_refuse_what_the_run_would(
    command: tuple[str, ...], kvbench: Kvbench, fake_fio: FakeFio, tier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "sector_bytes", lambda mount: 4096)
    inspected = directory.inspect("t", str(tier))
    if inspected.mount is None or inspected.mount.filesystem not in ("ext4", "xfs"):
        pytest.skip("the tests do not run on ext4 or XFS")
    size = ("--model", "deepseek-v3", "--connector", "logical")
    refused = kvbench(*command, "--tier", tier, *size)
    assert (refused.code, refused.out) == (2, "")
    assert "refuses O_DIRECT with 1124352 bytes" in refused.err
    monkeypatch.setattr(directory, "sector_bytes", lambda mount: 512)
    assert kvbench(*command, "--tier", tier, *size).code == 0
