"""What a CephFS mount says about itself, from the texts that Ceph 16.2 prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvbench.tiers import ceph
from kvbench.tiers.ceph import FileLayout
from kvbench.tiers.mounts import Mount

TEXT = "stripe_unit=4194304 stripe_count=1 object_size=4194304 pool=cephfs_data"
LAYOUT = FileLayout("cephfs_data", 4 << 20, 1, 4 << 20)
DUMP: dict[str, Any] = {
    "fsid": "dc77dc88",
    "pools": [
        {"pool_name": "cephfs_data", "type": 1, "size": 3},
        {"pool_name": "wide", "type": 3, "size": 6},
        {"pool_name": "odd", "type": 1},
    ],
    "osds": [{"osd": 0, "up": 1}, {"osd": 1, "up": 0}, {"osd": 2, "up": 1}],
}


def mount(filesystem: str) -> Mount:
    return Mount("/mnt/cephfs", filesystem, "source", "rw", "0:40")


@pytest.mark.parametrize(
    ("filesystem", "client"),
    [("ceph", "kernel"), ("fuse.ceph-fuse", "ceph-fuse"), ("fuse.s3fs", None), ("ext4", None)],
)
def test_the_client_is_told_from_the_type_of_the_mount(filesystem: str, client: str | None) -> None:
    assert ceph.client_of(mount(filesystem)) == client


def test_only_ceph_fuse_carries_a_warning() -> None:
    assert "128 KiB" in str(ceph.warning_of("ceph-fuse"))
    assert ceph.warning_of("kernel") is None
    assert ceph.warning_of(None) is None


def test_other_file_systems_have_no_ceph_facts() -> None:
    assert ceph.facts(Path("/"), mount("ext4"), lambda name: TEXT) == {}
    assert ceph.facts(Path("/"), None, lambda name: TEXT) == {}


@pytest.mark.parametrize(
    ("text", "pool"), [(TEXT, "cephfs_data"), (None, "unknown: the mount does not say")], ids=["file", "nothing"]
)
def test_where_no_directory_shows_a_layout_a_new_file_does(
    text: str | None, pool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    asked: list[str] = []

    def new_file_attribute(name: str) -> str | None:
        asked.append(name)
        return text

    assert ceph.facts(tmp_path, mount("ceph"), new_file_attribute)["ceph_pool"] == pool
    assert asked == ["ceph.file.layout"]


def test_a_layout_is_read() -> None:
    assert ceph.parse_layout(TEXT) == LAYOUT
    assert ceph.parse_layout(TEXT + " pool_namespace=ns") == LAYOUT
    assert ceph.parse_layout("nonsense stripe_unit=x") == FileLayout(None, None, None, None)


@pytest.mark.parametrize("own", ["/mnt/cephfs/a/b", "/mnt/cephfs/a", "/mnt/cephfs"])
def test_a_directory_without_a_layout_inherits_the_nearest(own: str) -> None:
    asked: list[str] = []

    def read(path: Path, name: str) -> str | None:
        asked.append(str(path))
        return TEXT if str(path) == own else None

    assert ceph.layout_of(Path("/mnt/cephfs/a/b"), Path("/mnt/cephfs"), read) == LAYOUT
    assert asked[-1] == own


def test_nothing_above_the_mount_point_is_asked() -> None:
    asked: list[str] = []

    def read(path: Path, name: str) -> None:
        asked.append(str(path))

    assert ceph.layout_of(Path("/mnt/cephfs/a"), Path("/mnt/cephfs"), read) == FileLayout(None, None, None, None)
    assert asked == ["/mnt/cephfs/a", "/mnt/cephfs"]


@pytest.mark.parametrize(
    ("pool", "copies"),
    [
        ("cephfs_data", 3),
        ("wide", "erasure coded over 6 chunks"),
        ("odd", "unknown: the pool says no size"),
        ("absent", "unknown: the pool is not listed"),
        (None, "unknown: the mount does not name its pool"),
    ],
)
def test_copies_come_from_the_pool(pool: str | None, copies: int | str) -> None:
    assert ceph.redundancy(DUMP, "dc77dc88", pool) == {"ceph_copies": copies, "ceph_osds_up": 2}


@pytest.mark.parametrize("fsid", [None, "another"])
def test_another_cluster_is_not_believed(fsid: str | None) -> None:
    assert "another cluster" in str(ceph.redundancy(DUMP, fsid, "cephfs_data")["ceph_copies"])


def test_no_answer_is_unknown_with_the_reason() -> None:
    assert ceph.redundancy("the ceph program is not installed here", "dc77dc88", "cephfs_data") == {
        "ceph_copies": "unknown: the ceph program is not installed here",
        "ceph_osds_up": "unknown: the ceph program is not installed here",
    }


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ('echo \'{"fsid": "x"}\'', {"fsid": "x"}),
        ("echo '[]'", None),
        ("echo no json", None),
        ("exit 1", None),
    ],
)
def test_the_ceph_program_is_asked(
    script: str, answer: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ceph"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = ceph.ask_cluster()
    assert found == answer if answer else "does not answer" in str(found)


def test_a_host_without_the_ceph_program_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert ceph.ask_cluster() == "the ceph program is not installed here"
