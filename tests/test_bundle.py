"""A bundle holds the run's numbers, and nothing that tells whose machine it was."""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kvbench.border.pseudonyms import Pseudonyms
from kvbench.errors import ResultFileError
from kvbench.record import results
from kvbench.record.results import Event, PointWarning, RunResult
from kvbench.run.bundle import bundle
from tests.conftest import Outcome
from tests.factories import direction, point, use

PRIVATE = (
    "node17", "acme", "ACME", "alice", "10.20.30.41", "fd00:12:34::7", "02:42:ac:11:00:02", "6f1e3c52", "tenant-blue",
    "hunter2", "kv-customer", "rack 4", "rack-4", "objects.example.com", "bob",
)  # fmt: skip
KEPT = (
    "6.18.44",
    "06:42:57",
    "127.0.0.1",
    "openai/gpt-oss-120b",
    "1,024 MB/s",
    "/dev/nvme0n1",
    "ext4",
    "p99",
    "fio-3.33",
)


def private_run(folder: Path) -> Path:
    """A run whose texts hold everything that nobody else should see."""
    warning = PointWarning(
        "few-samples",
        "node17.acme.corp (10.20.30.41, fd00:12:34::7, 02:42:ac:11:00:02) at 06:42:57, kernel 6.18.44, 1,024 MB/s",
        "ssh alice@node17, see /home/alice/kv/log; 127.0.0.1 answers; s3://kv-customer/bob/x; --password hunter2",
    )
    event = Event(1, "https://user:hunter2@objects.example.com:9000/kv-customer 6f1e3c52-aaaa-bbbb-cccc-0123456789ab")
    measured = point(id="rack-4-2359296-read-j1", tier="rack 4", read=direction(), warnings=(warning,))
    facts = {
        "path": "/mnt/tenant-blue/rack 4", "mount_point": "/mnt/tenant-blue",
        "mount_source": "10.20.30.41:6789:/volumes/acme", "filesystem": "ext4", "device": "/dev/nvme0n1",
    }  # fmt: skip
    run = RunResult(
        created="2026-01-01T00:00:00+00:00", uses=(use(),), points=(replace(measured, events=(event,)),),
        environment={"host": "node17", "fio": "fio-3.33"}, tiers={"rack 4": facts}, labels={"customer": "ACME"},
    )  # fmt: skip
    results.save(run, folder)
    (folder / "points" / "rack-4-2359296-read-j1").mkdir(parents=True)
    (folder / "points" / "rack-4-2359296-read-j1" / "command.txt").write_text(
        f"cd {folder}/points\n/usr/bin/fio job.fio\n"
    )
    (folder / "rack-4.fio").write_text("[global]\ndirectory=/mnt/tenant-blue/rack 4\n[rack-4-2359296-read-j1]\n")
    return folder


def unpacked(content: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        found = {entry.name: archive.extractfile(entry) for entry in archive}
        return {name: file.read().decode() for name, file in found.items() if file is not None}


def test_nothing_private_is_left_and_nothing_else_is_lost(tmp_path: Path) -> None:
    run_dir = private_run(tmp_path / "of-alice")
    files = unpacked(bundle(run_dir, ["ACME"]).content)
    everything = "\n".join([*files, *files.values()])
    assert [word for word in (*PRIVATE, str(tmp_path), "of-alice") if word in everything] == []
    assert [word for word in KEPT if word not in everything] == []


def test_the_bundle_is_a_run_with_the_same_numbers(tmp_path: Path) -> None:
    run_dir = private_run(tmp_path / "run")
    for name, text in unpacked(bundle(run_dir).content).items():
        path = tmp_path / "there" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    here, there = results.load(run_dir), results.load(tmp_path / "there" / "kvbench-run")
    assert [item.read for item in there.points] == [item.read for item in here.points]
    assert there.uses == here.uses
    (tier,) = there.tiers
    assert [item.tier for item in there.points] == [tier]
    assert there.points[0].id == f"{tier}-2359296-read-j1"
    assert (tmp_path / "there" / "kvbench-run" / f"{tier}.fio").is_file()
    assert there.tiers[tier]["filesystem"] == "ext4"


def test_one_name_has_one_pseudonym_in_every_file(tmp_path: Path) -> None:
    first, second = (bundle(private_run(tmp_path / name)).content for name in ("a", "b"))
    files = unpacked(first)
    (host,) = re.findall(r'"host": "(host-\d+)"', files["kvbench-run/result.json"])
    assert f"ssh user-1@{host} and" in files["kvbench-run/result.json"].replace(", see", " and")
    assert unpacked(second).keys() == files.keys()
    assert bundle(tmp_path / "a").content == first


def test_links_and_files_of_others_stay_out(tmp_path: Path) -> None:
    run_dir = private_run(tmp_path / "run")
    (tmp_path / "secret.txt").write_text("swordfish")
    (run_dir / "points" / "link.txt").symlink_to(tmp_path / "secret.txt")
    (run_dir / "points" / "dir").symlink_to(tmp_path)
    (run_dir / "notes.txt").write_text("swordfish")
    (run_dir / "points" / "core.bin").write_bytes(b"swordfish")
    (run_dir / "points" / "odd.txt").write_bytes(b"\xff\xfe swordfish")
    os.mkfifo(run_dir / "points" / "pipe.json")
    made = bundle(run_dir)
    assert "swordfish" not in "".join(unpacked(made.content).values())
    assert set(made.left_out) == {"notes.txt", "points/core.bin", "points/odd.txt"}


@pytest.mark.parametrize("name", ["read", "points", "tiers", "path", "id"])
def test_a_directory_called_like_a_word_of_the_result_does_not_damage_it(tmp_path: Path, name: str) -> None:
    run_dir = private_run(tmp_path / name)
    (run_dir / "points" / "rack-4-2359296-read-j1" / "fio.err").write_text(f"/srv/{name}/secret-place/x: no space\n")
    files = unpacked(bundle(run_dir).content)
    (tmp_path / "result.json").write_text(files["kvbench-run/result.json"])
    assert results.load(tmp_path / "result.json").points[0].read is not None
    assert "secret-place" not in "".join(files.values())


def test_a_name_inside_of_a_longer_word_stays() -> None:
    names = Pseudonyms()
    names.know("host", "alpha")
    assert names.applied("alpha alphabet ALPHA-2 xalpha alpha_1") == "host-1 alphabet host-1-2 xalpha host-1_1"


def test_the_command_says_what_it_did_and_overwrites_nothing(kvbench: Callable[..., Outcome], tmp_path: Path) -> None:
    run_dir = private_run(tmp_path / "run")
    target = tmp_path / "out.tar.gz"
    outcome = kvbench("bundle", run_dir, "--replace", "ACME", "-o", target)
    assert outcome.code == 0
    assert "replaced: " in outcome.out
    before = target.read_bytes()
    assert kvbench("bundle", run_dir, "-o", target).code == 2
    assert target.read_bytes() == before
    assert kvbench("bundle", tmp_path, "-o", tmp_path / "none.tar.gz").code == 2
    assert not (tmp_path / "none.tar.gz").exists()


def test_a_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultFileError):
        bundle(tmp_path)
