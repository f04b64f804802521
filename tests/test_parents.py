"""Directories that others can rename in: named with the reason, refused without consent; all others are fine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvbench.tiers.mounts import mount_of
from kvbench.tiers.parents import shared_by
from tests.conftest import ROOT, FakeFio, Mounted, Outcome

Kvbench = Callable[..., Outcome]

SMALL = ("--model", "qwen3-8b", "--mix", "read", "--numjobs", "1", "--runtime", "1", "--dataset", "16MiB")
NOBODY = 65534
# A group without an entry, as a pod's fsGroup is.
NO_GROUP = 54321

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="giving a directory away needs root")


def shared(path: Path) -> str | None:
    return shared_by(path.resolve(), mount_of(path.resolve()))


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o1777, 0o1757, 0o1775])
def test_nobody_else_renames_in_our_own_or_in_a_sticky_directory(tier: Path, mode: int) -> None:
    tier.chmod(mode)
    assert shared(tier) is None


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o703, 0o2777])
def test_everybody_renames_where_everybody_writes(tier: Path, mode: int) -> None:
    tier.chmod(mode)
    assert shared(tier) == f"{tier.resolve()} may be written by everybody and has no sticky bit"


def test_a_parent_counts_and_a_directory_of_ours_below_it_does_not_help(tier: Path) -> None:
    ours = tier / "team" / "ours"
    ours.mkdir(parents=True)
    assert shared(ours) is None
    tier.chmod(0o777)
    assert shared(ours) == f"{tier.resolve()} may be written by everybody and has no sticky bit"


def test_what_is_above_a_mount_point_does_not_count(tier: Path, mounted: Mounted) -> None:
    volume = tier / "volume"
    volume.mkdir()
    tier.chmod(0o777)
    mounted(volume, "tmpfs", "-o", "mode=0755")
    assert shared(volume) is None
    volume.chmod(0o777)
    assert shared(volume) == f"{volume.resolve()} may be written by everybody and has no sticky bit"


@needs_root
def test_a_group_counts_unless_it_is_ours_alone(tier: Path) -> None:
    tier.chmod(0o775)
    assert shared(tier) is None
    os.chown(tier, -1, NO_GROUP)
    assert shared(tier) == f"{tier.resolve()} may be written by its group {NO_GROUP} and has no sticky bit"
    os.chown(tier, -1, NOBODY)
    assert str(shared(tier)).endswith("may be written by its group nogroup and has no sticky bit")
    tier.chmod(0o755)
    assert shared(tier) is None


@needs_root
def test_a_group_without_an_entry_that_this_process_is_in_is_ours(tier: Path) -> None:
    os.chown(tier, -1, NO_GROUP)
    tier.chmod(0o2775)
    code = (
        "import sys; from pathlib import Path; from kvbench.tiers.mounts import mount_of\n"
        "from kvbench.tiers.parents import shared_by\np = Path(sys.argv[1]).resolve(); print(shared_by(p, mount_of(p)))"
    )
    for groups, said in (([NO_GROUP], "None"), ([], f"{tier.resolve()} may be written by its group {NO_GROUP}")):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tier)],
            capture_output=True,
            text=True,
            extra_groups=groups,
            cwd=ROOT,
            check=True,
        )
        assert done.stdout.startswith(said)


@needs_root
def test_the_owner_of_a_directory_renames_in_it_even_if_it_is_sticky(tier: Path) -> None:
    os.chown(tier, NOBODY, -1)
    tier.chmod(0o1777)
    assert shared(tier) == f"{tier.resolve()} belongs to user nobody"


@pytest.mark.slow
def test_a_shared_directory_needs_consent_and_gets_along_with_it(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path
) -> None:
    tier.chmod(0o777)
    refused = kvbench("fio", "--tier", tier, *SMALL, "-o", tmp_path / "run")
    assert refused.code == 2
    assert refused.err == (
        f"kvbench: others could rename what kvbench makes on tier: {tier} may be written by everybody and has no "
        "sticky bit. Nothing was written; name a directory that only you may write to, have its owner set the sticky "
        "bit (chmod +t), or repeat with --allow-shared: kvbench then holds its own directory open, and a point fails "
        "when its name is changed.\n"
    )
    assert not (tmp_path / "run").exists()
    assert list(tier.iterdir()) == []

    assert kvbench("fio", "--tier", tier, *SMALL, "--allow-shared", "-o", tmp_path / "run").code == 0
    assert list(tier.iterdir()) == []
    tier.chmod(0o1777)
    assert kvbench("fio", "--tier", tier, *SMALL, "-o", tmp_path / "sticky").code == 0


def test_a_dry_run_says_that_consent_is_needed(kvbench: Kvbench, fake_fio: FakeFio, tier: Path) -> None:
    said = "tier needs --allow-shared: others could rename what kvbench makes there"
    assert said not in kvbench("fio", "--tier", tier, *SMALL, "--dry-run").out
    assert kvbench("fio", "--tier", tier, *SMALL, "--dry-run", "--json").json()["needs_allow_shared"] == []
    tier.chmod(0o777)
    told = kvbench("fio", "--tier", tier, *SMALL, "--dry-run")
    assert told.code == 0
    assert f"{said} ({tier} may be written by everybody and has no sticky bit)" in told.out
    assert kvbench("fio", "--tier", tier, *SMALL, "--dry-run", "--json").json()["needs_allow_shared"] == ["tier"]


@pytest.mark.slow
def test_a_resumed_run_asks_again(kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path) -> None:
    fake_fio.on("read", 5)
    assert kvbench("fio", "--tier", tier, *SMALL, "-o", tmp_path / "run").code == 3
    fake_fio.on("read", "ok")
    tier.chmod(0o777)
    again = kvbench("fio", "--resume", "-o", tmp_path / "run")
    assert (again.code, "--allow-shared" in again.err) == (2, True)
    assert kvbench("fio", "--resume", "-o", tmp_path / "run", "--allow-shared").code == 0
