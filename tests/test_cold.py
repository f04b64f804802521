"""Cold is proven: what is dropped, what was never written, what a link allows, and the user's own command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kvbench.commands.options import AskedLimit, limits_by_tier, parse_limit, parse_rate
from kvbench.errors import UsageError
from kvbench.run.before_read import parse_command, run_before_read, without_secrets
from kvbench.tiers import mounts
from kvbench.tiers.device import counted_device, device_facts
from kvbench.tiers.extents import unwritten_bytes
from kvbench.tiers.limits import Limit, limit_of
from kvbench.tiers.mounts import Mount, backing_of, mount_of
from kvbench.tiers.pagecache import cached_fraction, drop_cached
from tests.conftest import FakeFio, Outcome
from tests.test_environment import tree

Kvbench = Callable[..., Outcome]
Start = Callable[..., subprocess.Popen[str]]
MIB = 1 << 20
SMALL = ("--model", "qwen3-8b", "--numjobs", "1", "--runtime", "1", "--dataset", "16MiB")


def local_disk(path: Path) -> None:
    found = mounts.mount_of(path.resolve())
    if found is None or found.filesystem not in ("ext4", "xfs", "btrfs"):
        pytest.skip(f"needs a local disk file system, this is {found.filesystem if found else 'unknown'}")


def test_holes_and_fallocated_extents_are_unwritten(tmp_path: Path) -> None:
    local_disk(tmp_path)
    written, sparse, allocated = (tmp_path / name for name in ("written", "sparse", "allocated"))
    written.write_bytes(os.urandom(MIB))
    with sparse.open("wb") as file:
        file.truncate(MIB)
    with allocated.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, MIB)
    assert unwritten_bytes([written]) == 0
    assert unwritten_bytes([sparse]) == MIB
    assert unwritten_bytes([allocated]) == MIB
    with allocated.open("r+b") as file:
        file.write(os.urandom(MIB // 2))
    assert unwritten_bytes([written, sparse, allocated]) == MIB + MIB // 2
    assert unwritten_bytes([tmp_path / "gone"]) is None


def test_own_pages_are_dropped_and_the_outcome_is_said(tmp_path: Path) -> None:
    local_disk(tmp_path)
    data = tmp_path / "data"
    data.write_bytes(os.urandom(MIB))
    assert cached_fraction([data]) == 1.0
    assert drop_cached([data]) == "dropped"
    assert cached_fraction([data]) == 0.0
    assert drop_cached([tmp_path / "gone"]) == "failed: No such file or directory"


@pytest.mark.parametrize(
    ("filesystem", "source", "kind"),
    [
        ("ext4", "/dev/vda", "block"), ("xfs", "/dev/mapper/vg-lv", "block"), ("tmpfs", "tmpfs", "memory"),
        ("ceph", "10.0.0.1:6789:/a", "network"), ("nfs4", "server:/export", "network"),
        ("fuse.ceph-fuse", "ceph-fuse", "fuse"), ("fuseblk", "/dev/sdb1", "fuse"), ("overlay", "overlay", "overlay"),
        ("zfs", "tank/kv", "other"),
    ],
)  # fmt: skip
def test_kinds_of_mounts(filesystem: str, source: str, kind: str) -> None:
    assert Mount("/x", filesystem, source, "rw", "0:1").kind == kind


def test_an_overlay_is_what_its_upper_directory_is() -> None:
    lines = (
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:5 / /ram rw - tmpfs tmpfs rw\n"
        "3 1 0:9 / /both rw - overlay overlay rw,lowerdir=/lower,upperdir=/ram/up,workdir=/ram/w\n"
        "4 1 0:10 / /disk rw - overlay overlay rw,lowerdir=/lower,upperdir=/var/up,workdir=/var/w\n"
    )
    on_ram, on_disk, plain = (mount_of(Path(path), lines) for path in ("/both/x", "/disk/x", "/ram"))
    assert on_ram is not None
    assert on_disk is not None
    assert plain is not None
    assert [found and found.filesystem for found in (backing_of(on_ram, lines), backing_of(on_disk, lines))] == [
        "tmpfs", "ext4",
    ]  # fmt: skip
    assert backing_of(plain, lines) is None
    # Inside a container the upper directory is a path of the host: then nothing is said.
    assert backing_of(on_ram) is None
    assert counted_device(on_ram) == "0:9"


def disk(sys: Path, numbers: str, where: str, files: dict[str, str]) -> None:
    """A block device in a made-up /sys."""
    tree(sys / "devices" / where, files)
    (sys / "dev" / "block").mkdir(parents=True, exist_ok=True)
    (sys / "dev" / "block" / numbers).symlink_to(sys / "devices" / where)


def test_facts_of_a_device(tmp_path: Path) -> None:
    files = {"queue/scheduler": "none [mq-deadline] bfq\n", "queue/nr_requests": "1023\n",
             "queue/max_segments": "127\n", "queue/max_sectors_kb": "1280\n",
             "queue/read_ahead_kb": "128\n", "queue/rotational": "0\n", "device/model": "MODEL X \n"}  # fmt: skip
    disk(tmp_path, "259:0", "pci0/0000:01:00.0/nvme/nvme0/nvme0n1", files)
    tree(tmp_path / "devices" / "pci0/0000:01:00.0", {"numa_node": "1\n"})
    disk(tmp_path, "259:3", "pci0/0000:01:00.0/nvme/nvme0/nvme0n1/nvme0n1p3", {"partition": "3\n"})
    wanted = {"device_model": "MODEL X", "numa_node": 1, "scheduler": "mq-deadline", "queue_depth": 1023,
              "read_ahead_bytes": 131072, "rotational": "no", "max_segments": 127, "max_sectors_kb": 1280}  # fmt: skip
    for numbers, name in (("259:0", "nvme0n1"), ("259:3", "nvme0n1p3")):
        assert device_facts(Mount("/x", "xfs", "/dev/x", "rw", numbers), tmp_path) == {"device": name, **wanted}


def test_facts_of_a_network_mount_say_why_they_are_unknown(tmp_path: Path) -> None:
    tree(tmp_path, {"class/bdi/0:40/read_ahead_kb": "8192\n"})
    facts = device_facts(Mount("/x", "ceph", "mon:/", "rw", "0:40"), tmp_path)
    assert facts.pop("read_ahead_bytes") == 8 * MIB
    assert set(facts.values()) == {"unknown: ceph has no block device on this host"}
    nothing = device_facts(None, tmp_path)
    assert set(nothing.values()) == {"unknown: the system does not say what the directory is mounted from"}


def test_the_link_of_a_local_device_is_its_limit(tmp_path: Path) -> None:
    disk(tmp_path, "259:0", "pci0/0000:01:00.0/nvme/nvme0/nvme0n1", {"size": "1\n"})
    link = {"current_link_speed": "16.0 GT/s PCIe\n", "current_link_width": "4\n"}
    tree(tmp_path / "devices" / "pci0/0000:01:00.0", link)
    limit = limit_of(Mount("/x", "xfs", "/dev/nvme0n1", "rw", "259:0"), None, tmp_path)
    assert limit == Limit(7_876_923_077, "PCIe 16 GT/s x4 of nvme0n1")
    disk(tmp_path, "254:0", "virtio0/block/vda", {"size": "1\n"})
    virtual = limit_of(Mount("/x", "xfs", "/dev/vda", "rw", "254:0"), None, tmp_path)
    assert virtual == "unknown: the device is virtual or does not tell the speed of its link"


def test_the_physical_links_are_the_limit_of_a_network_mount(tmp_path: Path) -> None:
    up = {"operstate": "up\n", "speed": "25000\n"}
    for name, files in {"eth0": up, "eth1": up, "eth2": up | {"operstate": "down\n"}, "veth1": up,
                        "ens3": up | {"speed": "-1\n"}}.items():  # fmt: skip
        tree(tmp_path / "class" / "net" / name, files)
        if name != "veth1":
            (tmp_path / "class" / "net" / name / "device").mkdir()
    mount = Mount("/x", "ceph", "10.0.0.1:6789:/a", "rw", "0:40")
    assert limit_of(mount, None, tmp_path) == Limit(6_250_000_000, "eth0 25,000 Mbit/s + eth1 25,000 Mbit/s")
    here = Mount("/x", "nfs4", "127.0.0.1:/export", "rw", "0:41")
    assert limit_of(here, None, tmp_path) == "unknown: the server is on this host"
    assert str(limit_of(mount, None, tmp_path / "nothing")).startswith("unknown: no network interface")
    assert limit_of(here, 1000, tmp_path) == Limit(1000, "--limit", asked=True)
    assert str(limit_of(Mount("/x", "fuse.s3fs", "s3fs", "rw", "0:42"), None, tmp_path)).startswith(
        "unknown: fuse.s3fs"
    )
    assert str(limit_of(None, None, tmp_path)).startswith("unknown: the system does not say")


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("10GB/s", 10**10), ("1.5GB/s", 1_500_000_000), ("800MiB/s", 800 * MIB), ("25Gbit/s", 3_125_000_000),
        ("100Gbps", 12_500_000_000), ("10 GB/s", 10**10), ("1000B/s", 1000), ("800mb/s", None), ("10Gb/s", None),
        ("10GB", None), ("10", None), ("fast", None), ("10G/s", None), ("0B/s", None), ("-1GB/s", None), ("", None),
    ],
)  # fmt: skip
def test_rates(text: str, rate: int | None) -> None:
    if rate is None:
        with pytest.raises(UsageError):
            parse_rate(text)
    else:
        assert parse_rate(text) == rate


def test_limits_by_tier() -> None:
    asked = [parse_limit("1GB/s"), parse_limit("b=2GB/s")]
    assert asked == [AskedLimit(None, 10**9), AskedLimit("b", 2 * 10**9)]
    assert limits_by_tier(asked, ["a", "b"]) == {"a": 10**9, "b": 2 * 10**9}
    assert limits_by_tier(None, ["a"]) == {}
    with pytest.raises(UsageError, match="no tier is called 'c'; they are a, b"):
        limits_by_tier([parse_limit("c=1GB/s")], ["a", "b"])


def test_the_command_is_split_and_never_given_to_a_shell(tmp_path: Path) -> None:
    words = parse_command(f"{sys.executable} -c 'import sys; print(sys.argv[1:])' '$HOME' '*' ';' 'echo x'")
    hook = run_before_read(words, tmp_path)
    assert (hook.exit_code, hook.failure) == (0, None)
    assert hook.output_tail == "['$HOME', '*', ';', 'echo x']\n"
    assert (tmp_path / "before-read.log").read_text() == hook.output_tail


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ("import sys; print('no route'); sys.exit(7)", 7, "--before-read ended with exit code 7: no route"),
        ("import os; os.kill(os.getpid(), 9)", -9, "--before-read was killed by SIGKILL"),
        ("import time; print('waiting', flush=True); time.sleep(60)", None,
         "--before-read did not end within 1 s and was stopped: waiting"),
    ],
)  # fmt: skip
def test_a_command_that_fails_says_how(tmp_path: Path, script: str, code: int | None, said: str) -> None:
    hook = run_before_read((sys.executable, "-c", script), tmp_path, timeout_s=1.0)
    assert (hook.exit_code, hook.failure) == (code, said)


@pytest.mark.slow
def test_a_command_that_hangs_is_stopped_with_its_children(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, time; c = subprocess.Popen(['sleep', '600']); print(c.pid, flush=True); time.sleep(60)"
    )
    hook = run_before_read((sys.executable, "-c", script), tmp_path, timeout_s=2.0)
    child = Path(f"/proc/{hook.output_tail.strip()}/stat")
    deadline = time.monotonic() + 10
    while child.exists() and child.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    hook = run_before_read((str(tmp_path / "gone"),), tmp_path)
    assert (hook.exit_code, hook.failure) == (None, "--before-read cannot be started (No such file or directory)")


def test_secrets_of_the_environment_are_blacked_out(tmp_path: Path) -> None:
    variables = {**os.environ, "CEPH_SECRET": "AQBhush==", "API_TOKEN": "hush-token", "PATH_KEY": "/etc/keys/hush"}
    script = "import os; print(os.environ['CEPH_SECRET'], 'x', os.environ['API_TOKEN'], 'password=hush')"
    hook = run_before_read((sys.executable, "-c", script), tmp_path, environment=variables)
    assert hook.output_tail == "<removed> x <removed> password=<removed>\n"
    assert "hush" not in (tmp_path / "before-read.log").read_text()
    assert without_secrets("see /etc/keys/hush", variables) == "see /etc/keys/hush"


@pytest.mark.parametrize("text", ["", "  ", "''", '"" drop-caches', "' '"])
def test_a_command_without_a_program_is_refused_before_anything_runs(text: str) -> None:
    with pytest.raises(UsageError, match="--watch names no command"):
        parse_command(text, "--watch")


@pytest.mark.parametrize("text", ["", "  ", "echo 'open", "tool --password=hunter2", "tool --secret-key abc",
                                  "curl http://me:hunter2@host/"])  # fmt: skip
def test_commands_that_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_command(text)


def points(run_dir: Path) -> dict[str, dict[str, Any]]:
    return {point["id"]: point for point in json.loads((run_dir / "result.json").read_text())["points"]}


@pytest.mark.slow
def test_the_command_runs_before_every_read_and_mixed_round(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path
) -> None:
    script = tmp_path / "drop.py"
    script.write_text(
        f"log = open({str(fake_fio.log_file)!r}, 'a')\nlog.write('drop\\n')\nlog.close()\nprint('done')\n"
    )
    options = ("--repeat", "2", "--before-read", f"{sys.executable} {script}", "--limit", "10GB/s")
    outcome = kvbench("fio", "--tier", tier, *SMALL, *options, "-o", tmp_path / "run")
    assert outcome.code == 0, outcome.err
    steps = [line.split("-")[-2] if line.startswith("run tier") else line for line in fake_fio.log()]
    steps = [step for step in steps if step in ("drop", "read", "mixed", "write")]
    assert all(before == "drop" for before, step in pairwise(["", *steps]) if step in ("read", "mixed"))
    assert steps.count("drop") == 4
    saved = points(tmp_path / "run")
    counts = {point["mix"]: len(point["before_read"]) for point in saved.values()}
    assert counts == {"mixed": 2, "read": 2, "write": 0}
    record = saved["tier-2359296-read-j1"]["before_read"][0]
    assert (record["exit_code"], record["output_tail"], record["failure"]) == (0, "done\n", None)
    conditions = saved["tier-2359296-read-j1"]["conditions"]
    assert (conditions["limit_bytes_per_s"], conditions["limit_source"], conditions["limit_asked"]) == (
        10**10, "--limit", True,
    )  # fmt: skip


@pytest.mark.slow
def test_a_failing_command_fails_the_point_and_writes_go_on(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path
) -> None:
    outcome = kvbench("fio", "--tier", tier, *SMALL, "--before-read", "false", "-o", tmp_path / "run")
    assert outcome.code == 3
    saved = points(tmp_path / "run")
    assert [point["status"] for point in saved.values()] == ["failed", "failed", "ok"]
    assert saved["tier-2359296-read-j1"]["reason"] == "--before-read ended with exit code 1"
    assert saved["tier-2359296-read-j1"]["before_read"][0]["exit_code"] == 1
    assert fake_fio.runs() == ["layout", "tier-2359296-write-j1"]
    assert not list(tier.iterdir())


@pytest.mark.slow
def test_resume_keeps_the_command(kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    kvbench("fio", "--tier", tier, *SMALL, "--before-read", "false", "-o", run)
    other = kvbench("fio", "--tier", tier, *SMALL, "--before-read", "true", "-o", run, "--resume")
    assert (other.code, other.err.count("\n")) == (2, 1)
    assert other.err.endswith("resume with exactly --before-read false\n")


def test_a_signal_while_the_command_runs_stops_it_and_saves(
    start: Start, fake_fio: FakeFio, tier: Path, tmp_path: Path
) -> None:
    script = tmp_path / "slow.py"
    script.write_text(f"import time\nopen({str(tmp_path / 'started')!r}, 'w').close()\ntime.sleep(600)\n")
    child = start("fio", "--tier", tier, *SMALL, "--before-read", f"{sys.executable} {script}", "-o", tmp_path / "run")
    deadline = time.monotonic() + 30
    while not (tmp_path / "started").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child.send_signal(signal.SIGTERM)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "Traceback" not in err
    (point,) = points(tmp_path / "run").values()
    assert point["status"] == "interrupted"
    assert not list(tier.iterdir())


@pytest.mark.slow
def test_tier_facts_say_what_they_know(kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path) -> None:
    kvbench("fio", "--tier", tier, *SMALL, "--mix", "read", "-o", tmp_path / "run")
    facts = json.loads((tmp_path / "run" / "result.json").read_text())["tiers"]["tier"]
    expected = {"filesystem", "client", "mount_options", "device", "scheduler", "queue_depth", "read_ahead_bytes",
                "numa_node", "limit_bytes_per_s"}  # fmt: skip
    assert expected <= set(facts)
    assert not [name for name in expected if facts[name] in (None, "")]
