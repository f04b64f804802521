"""kvbench doctor: names what a tier is, tries it out below its own sub-directory, and says what to do next."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvbench.host import environment
from kvbench.run import doctor
from kvbench.tiers import endpoint, filesystems, memory, probe
from kvbench.tiers.mounts import Mount
from tests.conftest import FakeFio, Outcome

Kvbench = Callable[..., Outcome]


def examined(outcome: Outcome) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The only tier of ``doctor --json``, and its findings by name."""
    tiers: list[dict[str, Any]] = outcome.json()["tiers"]
    (tier,) = tiers
    return tier, {finding["check"]: finding for finding in tier["findings"]}


@pytest.mark.slow
def test_a_directory_is_named_tried_out_and_left_as_it_was(kvbench: Kvbench, fake_fio: FakeFio, tier: Path) -> None:
    (tier / "mine").write_text("x")
    outcome = kvbench("doctor", "--tier", f"t={tier}", "--json")

    found, findings = examined(outcome)
    assert (found["name"], found["target"], found["facts"]["path"]) == ("t", str(tier), str(tier))
    assert {"free space", "sub-directory", "O_DIRECT", "fio libaio", "fio io_uring", "fio psync"} <= set(findings)
    assert findings["sub-directory"]["status"] == "ok"
    assert fake_fio.runs() == ["doctor", "doctor", "doctor"]
    assert [path.name for path in tier.iterdir()] == ["mine"]


def test_the_host_is_always_examined(kvbench: Kvbench, fake_fio: FakeFio) -> None:
    outcome = kvbench("doctor", "--json")
    host: list[dict[str, Any]] = outcome.json()["host"]
    shared = next(finding for finding in host if finding["check"] == "/dev/shm")
    assert "shmem_enabled" in shared["observed"] or shared["status"] == "note"
    assert [finding["check"] for finding in host] == [
        *("fio", "libaio slots", "io_uring", "cache drop", "memory", "/dev/shm"),
    ]
    assert host[0]["observed"] == "fio-3.33"
    assert outcome.json()["tiers"] == []


@pytest.mark.slow
def test_every_problem_and_note_has_a_next_step(kvbench: Kvbench, fake_fio: FakeFio, tier: Path) -> None:
    fake_fio.on("doctor", errno.EINVAL)
    outcome = kvbench("doctor", "--tier", tier, "--tier", "x=/nowhere", "--tier", "n=/dev/null", "--json")
    assert outcome.code == 2
    tiers: list[dict[str, Any]] = outcome.json()["tiers"]
    unhappy = [item for one in tiers for item in one["findings"] if item["status"] != "ok"]
    assert {"fio libaio", "tier"} <= {item["check"] for item in unhappy}
    assert all(item["next_step"] for item in unhappy)


@pytest.mark.slow
def test_an_engine_that_fails_is_named_with_fios_reason(kvbench: Kvbench, fake_fio: FakeFio, tier: Path) -> None:
    fake_fio.on("doctor", errno.EPERM)
    _, findings = examined(kvbench("doctor", "--tier", tier, "--json"))
    assert (findings["fio libaio"]["status"], findings["fio libaio"]["observed"]) == (
        "problem",
        "Operation not permitted",
    )
    assert findings["fio io_uring"]["status"] == "note"


@pytest.mark.slow
def test_an_engine_that_is_not_there_is_reported_in_fios_words(kvbench: Kvbench, fake_fio: FakeFio, tier: Path) -> None:
    fake_fio.on("doctor", "silent")
    _, findings = examined(kvbench("doctor", "--tier", tier, "--json"))
    assert findings["fio libaio"]["observed"] == "fio: engine libaio not loadable"


def test_tables_show_the_next_step(kvbench: Kvbench, fake_fio: FakeFio) -> None:
    outcome = kvbench("doctor", "--tier", "x=/nowhere")
    assert outcome.code == 2
    assert "the tier directory /nowhere does not exist; create it or name another." in outcome.out


def test_without_fio_the_rest_is_examined(kvbench: Kvbench, tier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    outcome = kvbench("doctor", "--tier", tier, "--json")
    _, findings = examined(outcome)
    assert outcome.code == 2
    assert findings["sub-directory"]["status"] == "ok"
    assert "fio libaio" not in findings
    assert "fio is not installed" in str(outcome.json()["host"])


def test_a_directory_that_takes_no_sub_directory_is_a_problem(kvbench: Kvbench, fake_fio: FakeFio) -> None:
    # /proc is a directory nobody may create anything in, whatever the user.
    _, findings = examined(kvbench("doctor", "--tier", "p=/proc", "--json"))
    assert findings["sub-directory"]["status"] == "problem"
    assert "mount it read-write" in findings["sub-directory"]["next_step"]


def test_a_path_that_fio_cannot_express_is_a_problem(kvbench: Kvbench, fake_fio: FakeFio, tmp_path: Path) -> None:
    target = tmp_path / "with#hash"
    target.mkdir()
    _, findings = examined(kvbench("doctor", "--tier", target, "--json"))
    assert findings["path"]["status"] == "problem"
    assert list(target.iterdir()) == []


def test_a_mistyped_device_is_no_directory(kvbench: Kvbench, fake_fio: FakeFio) -> None:
    _, findings = examined(kvbench("doctor", "--tier", "/dev/no-such-disk", "--json"))
    assert "'lsblk' lists the block devices" in findings["tier"]["next_step"]
    assert not Path("/dev/no-such-disk").exists()


def test_too_few_libaio_slots_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "aio_slots_free", lambda: 3)
    finding = next(item for item in doctor.examine_host() if item.check == "libaio slots")
    assert (finding.status, finding.observed) == ("problem", "3 left of fs.aio-max-nr, 16 jobs need 16")


def test_blocked_io_uring_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "io_uring_error", lambda: errno.EPERM)
    finding = next(item for item in doctor.examine_host() if item.check == "io_uring")
    assert (finding.status, finding.observed) == ("note", "refused (Operation not permitted)")
    assert "seccomp" in str(finding.next_step)


def test_a_mount_that_hangs_is_reported_and_not_touched(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "answers", lambda path: False)
    found, findings = examined(kvbench("doctor", "--tier", tier, "--json"))
    assert found["kind"] == "a mount that hangs"
    assert findings["answers"]["status"] == "problem"


def test_what_answers_is_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert probe.answers(tmp_path)
    assert probe.answers(Path())
    assert list(tmp_path.iterdir()) == []
    # A refusal is an answer.
    assert probe.answers(tmp_path / "absent")
    assert probe.answers(Path("/dev/null"))


@pytest.mark.slow
def test_a_path_that_does_not_answer_is_given_up_and_cleaned_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The file takes long to open, as on a mount whose server is away.
    slow = "import builtins, time; now = open; builtins.open = lambda *words: (time.sleep(1), now(*words))[1]\n"
    monkeypatch.setattr(probe, "_WRITE_AND_REMOVE", slow + probe._WRITE_AND_REMOVE)
    assert not probe.answers(tmp_path, seconds=0.01)
    probe._LEFT_ALONE[-1].wait(60)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("filesystem", "source", "options", "said"),
    [
        ("fuse.ceph-fuse", "ceph-fuse", "rw", "CephFS through ceph-fuse"),
        ("ceph", "10.0.0.1:6789:/a", "rw", "CephFS, kernel client"),
        ("nfs4", "filer:/export", "rw", "NFS from filer:/export"),
        ("fuse.s3fs", "s3fs", "rw", "an object store mounted with s3fs (s3fs)"),
        ("fuse.rclone", "remote:bucket", "rw", "an object store mounted with rclone (remote:bucket)"),
        ("fuse", "mountpoint-s3", "rw", "an object store mounted with Mountpoint for S3 (mountpoint-s3)"),
        ("fuse.sshfs", "host:", "rw", "fuse.sshfs (host:), a FUSE program"),
        ("tmpfs", "tmpfs", "rw", "tmpfs: memory, not storage"),
        ("overlay", "overlay", "rw,upperdir=/nowhere/at/all", "an overlay (a container's root file system)"),
        ("lustre", "10.0.0.1@tcp:/fs", "rw", "lustre from 10.0.0.1@tcp:/fs"),
        ("xfs", "/dev/some-disk", "rw", "local xfs on /dev/some-disk"),
        ("zfs", "pool/kv", "rw", "zfs from pool/kv"),
    ],
)
def test_every_kind_of_mount_has_a_name(filesystem: str, source: str, options: str, said: str) -> None:
    assert filesystems.describe(Mount("/mnt", filesystem, source, options, "0:999")) == said


@pytest.mark.parametrize(
    ("filesystem", "source", "part"),
    [
        ("fuse.ceph-fuse", "ceph-fuse", "128 KiB"),
        ("fuse.rclone", "remote:", "measure s3://bucket/prefix"),
        ("tmpfs", "tmpfs", "memory"),
        ("overlay", "overlay", "volume"),
        ("nfs4", "filer:/x", "above its memory"),
        ("fuse.sshfs", "host:", "own counters"),
    ],
)
def test_what_limits_a_measurement_is_said_with_a_next_step(filesystem: str, source: str, part: str) -> None:
    said = filesystems.warning(Mount("/mnt", filesystem, source, "rw", "0:999"))
    assert said is not None
    assert part in said
    assert "; " in said


def test_a_local_disk_needs_no_warning() -> None:
    assert filesystems.warning(Mount("/mnt", "xfs", "/dev/sda1", "rw", "8:1")) is None
    assert filesystems.warning(None) is None
    assert filesystems.describe(None).startswith("a directory")


def test_the_endpoint_comes_from_the_aws_settings(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text("[profile lab]\nendpoint_url = http://lab:7480\nregion = eu-west-1\n")
    (tmp_path / ".aws" / "credentials").write_text("[lab]\naws_access_key_id = AKIDHERE\naws_secret_access_key = s\n")
    found = endpoint.from_environment({"AWS_PROFILE": "lab"}, tmp_path)
    assert found == endpoint.S3Endpoint("http://lab:7480", "eu-west-1", has_keys=True)
    assert "AKIDHERE" not in repr(found)


def test_variables_win_over_files_and_amazon_is_the_default(tmp_path: Path) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    given = {**keys, "AWS_ENDPOINT_URL": "http://x:1", "AWS_ENDPOINT_URL_S3": "https://y", "AWS_REGION": "r"}
    assert endpoint.from_environment(given, tmp_path) == endpoint.S3Endpoint("https://y", "r", has_keys=True)
    bare = endpoint.from_environment({}, tmp_path)
    assert bare == endpoint.S3Endpoint(
        "https://s3.us-east-1.amazonaws.com", "us-east-1", has_keys=False, virtual_hosted=True
    )


@pytest.mark.parametrize("url", ["nonsense", "ftp://host", "http://"])
def test_a_bad_endpoint_is_a_problem(
    url: str, kvbench: Kvbench, fake_fio: FakeFio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    _, findings = examined(kvbench("doctor", "--tier", "s=s3://bucket/prefix", "--json"))
    assert "AWS_ENDPOINT_URL" in findings["endpoint"]["next_step"]


def test_credentials_in_the_endpoint_are_refused_and_never_shown(
    kvbench: Kvbench, fake_fio: FakeFio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://someone:hunter2@127.0.0.1:1")
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    outcome = kvbench("doctor", "--tier", "s=s3://bucket/prefix", "--json")
    assert "hunter2" not in outcome.out + outcome.err
    assert outcome.code == 2


@pytest.mark.slow
def test_dram_is_described_with_the_cost_of_a_copy(
    kvbench: Kvbench, fake_fio: FakeFio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_COPY_S", 0.01)
    found, findings = examined(kvbench("doctor", "--tier", "dram", "--json"))
    assert found["kind"] == "memory of this host"
    assert {"copy, 1 thread", "copy, 16 threads"} <= set(findings)
    assert findings["copy, 1 thread"]["observed"].startswith("1.125 MiB in ")
    assert found["facts"]["memory_bytes"] == environment.memory_bytes()
