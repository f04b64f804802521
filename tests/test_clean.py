"""kvbench clean: what a dead run left goes, everything else stays."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kvbench.errors import UsageError
from kvbench.tiers.directory import inspect, workspace
from kvbench.tiers.removal import MARKER_NAME
from kvbench.tiers.upkeep import parse_age
from tests.conftest import Outcome

Kvbench = Callable[..., Outcome]

# No process has this id: the largest that Linux gives is 4,194,304.
NO_PROCESS = 4_194_305


def left_behind(tier: Path, name: str, **changes: object) -> Path:
    """What a run of this host leaves when even its guard was killed."""
    with workspace(inspect("t", str(tier))) as space:
        owner = json.loads((space.path / MARKER_NAME).read_text())
    path = tier / f"kvbench-{name}"
    (path / "abc" / "de_g0").mkdir(parents=True)
    (path / "abc" / "de_g0" / "block.bin").write_bytes(bytes(100))
    (path / MARKER_NAME).write_text(json.dumps({**owner, "pid": NO_PROCESS, "token": name, **changes}))
    return path


def test_what_a_dead_run_left_is_listed_and_then_removed(kvbench: Kvbench, tier: Path) -> None:
    dead = left_behind(tier, "dead")
    listed = kvbench("clean", "--tier", tier, "--dry-run")
    assert (listed.code, listed.out) == (0, f"would remove {dead}\n")
    assert dead.is_dir()
    assert kvbench("clean", "--tier", tier).out == f"removed {dead}\n"
    assert list(tier.iterdir()) == []
    assert kvbench("clean", "--tier", tier).out == f"{tier}: kvbench left nothing here\n"


@pytest.mark.slow
def test_everything_else_stays(kvbench: Kvbench, tier: Path, tmp_path: Path) -> None:
    (tier / "model_0123456789ab_r0").mkdir()
    (tier / "kvbench-without-marker").mkdir()
    (tier / "kvbench-file").write_text("mine")
    elsewhere = left_behind(tmp_path, "elsewhere")
    (tier / "kvbench-link").symlink_to(elsewhere)
    living = left_behind(tier, "living", pid=os.getpid())
    other = left_behind(tier, "other", host="another-host")
    (broken := left_behind(tier, "broken")).joinpath(MARKER_NAME).write_text("{")
    before = sorted(tier.rglob("*"))
    done = kvbench("clean", "--tier", tier, "--json")
    assert done.code == 0
    (found,) = json.loads(done.out)["tiers"]
    assert found["removed"] == []
    assert dict(found["kept"]) == {
        str(living): f"process {os.getpid()} is still at work",
        str(other): "made on another-host, by a process that cannot be asked from here",
        str(broken): "its marker cannot be read",
    }
    assert sorted(tier.rglob("*")) == before
    assert elsewhere.is_dir()


def test_another_hosts_leftovers_go_by_age_only(kvbench: Kvbench, tier: Path) -> None:
    old, new = (left_behind(tier, name, host="another-host") for name in ("old", "new"))
    living = left_behind(tier, "living", pid=os.getpid())
    two_days_ago = time.time() - 2 * 86_400
    for path in (old, living):
        os.utime(path / MARKER_NAME, (two_days_ago, two_days_ago))
    assert kvbench("clean", "--tier", tier, "--older-than", "1d").code == 0
    assert not old.exists()
    assert new.exists()
    assert living.exists()


def test_a_run_does_not_remove_what_cannot_be_asked(tier: Path) -> None:
    other = left_behind(tier, "other", host="another-host")
    with workspace(inspect("t", str(tier))):
        assert other.exists()


@pytest.mark.parametrize(("text", "seconds"), [("30m", 1800), ("12h", 43_200), ("7d", 604_800)])
def test_ages(text: str, seconds: int) -> None:
    assert parse_age(text) == seconds


@pytest.mark.parametrize("text", ["", "7", "7w", "-1d", "1.5h"])
def test_no_ages(text: str) -> None:
    with pytest.raises(UsageError, match="--older-than"):
        parse_age(text)


def test_a_tier_that_is_not_there_is_told(kvbench: Kvbench, tmp_path: Path) -> None:
    done = kvbench("clean", "--tier", tmp_path / "nowhere")
    assert done.code == 2
    assert "does not exist" in done.err
