"""Names that lead elsewhere while a run lasts: renamed, linked, unmounted, removed. What is not ours is not written.

The attacks happen in ``--before-read``, between the lay-out and a round, or in ``--watch``, in the middle of one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvbench.errors import MeasurementError, TierError
from kvbench.tiers import device_tier, directory
from kvbench.tiers.held import HeldDirectory, dying
from tests.conftest import Mounted, Outcome

pytestmark = pytest.mark.slow

Kvbench = Callable[..., Outcome]

ONE_POINT = (
    "--model", "qwen3-8b", "--connector", "logical", "--mix", "mixed", "--numjobs", "1",
    "--runtime", "1", "--dataset", "32MiB",
)  # fmt: skip
DRIVERS = pytest.mark.parametrize("driver", [pytest.param("fio", marks=pytest.mark.fio), "replay"])
NOBODY = 65534
PRECIOUS = b"precious" * 1000


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A place that every user may reach, as the directories of pytest are not."""
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    place = Path(tempfile.mkdtemp(prefix="kvbench-test-"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place, ignore_errors=True)


def once(folder: Path, body: str, *, user: int = 0) -> str:
    """A command that runs ``body`` as ``user`` the first time; ``{work}`` there is the directory of the run."""
    script, done = folder / "once.py", folder / "once.done"
    script.write_text(
        "import ctypes, os, shutil, subprocess\nfrom pathlib import Path\n"
        f"done, folder = Path({str(done)!r}), Path({str(folder)!r})\n"
        "if done.exists():\n    raise SystemExit\ndone.touch()\n"
        f"os.setgroups([]), os.setgid({user}), os.setuid({user})\n"
        "tier = folder / 'tier'\nwork = next(tier.glob('kvbench-*'))\n" + textwrap.dedent(body)
    )
    return f"{sys.executable} -I {script}"


def points(run: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((run / "result.json").read_text())["points"]
    return found


def driven(driver: str) -> tuple[str, ...]:
    return ("--driver", driver)


SWAP = """
    work.rename(tier / 'taken')
    work.mkdir()
    (work / 'kvbench.0').symlink_to(folder / 'precious')
"""


@DRIVERS
def test_another_user_who_swaps_the_directory_between_rounds_gains_nothing(
    kvbench: Kvbench, open_place: Path, tmp_path: Path, driver: str
) -> None:
    tier, precious = open_place / "tier", open_place / "precious"
    tier.mkdir()
    tier.chmod(0o777)
    precious.write_bytes(PRECIOUS)
    attack = once(open_place, SWAP, user=NOBODY)
    done = kvbench(
        "fio",
        "--tier",
        tier,
        *ONE_POINT,
        *driven(driver),
        "--allow-shared",
        "--before-read",
        attack,
        "-o",
        tmp_path / "r",
    )

    assert done.code == 3, done.err
    (point,) = points(tmp_path / "r")
    assert point["status"] == "failed"
    assert "kvbench-" in point["reason"]
    assert "is not the directory that it was: it was replaced" in point["reason"]
    assert precious.read_bytes() == PRECIOUS
    theirs = next(path for path in tier.iterdir() if path.name != "taken")
    assert [path.name for path in theirs.iterdir()] == ["kvbench.0"]
    assert (theirs / "kvbench.0").is_symlink()


@DRIVERS
def test_a_swap_in_the_middle_of_a_round_leads_nowhere(
    kvbench: Kvbench, open_place: Path, tmp_path: Path, driver: str
) -> None:
    """The link leads to a directory of root's; the round goes on in the directory that is held."""
    tier, precious = open_place / "tier", open_place / "precious"
    tier.mkdir()
    precious.mkdir()
    swap = "work.rename(tier / 'taken')\nwork.symlink_to(folder / 'precious')\n"
    options = (*ONE_POINT, *driven(driver), "--watch", once(open_place, swap))
    done = kvbench("fio", "--tier", tier, *options, "-o", tmp_path / "r")

    assert done.code == 0, done.err
    assert (open_place / "once.done").exists()
    assert (tier / "taken").is_dir()
    assert list(precious.iterdir()) == []
    assert [point["status"] for point in points(tmp_path / "r")] == ["ok"]


GONE = {
    "unmounted": ("subprocess.run(['umount', '-l', tier], check=True)", "is not the directory that it was"),
    "mounted over": (
        "subprocess.run(['mount', '-t', 'tmpfs', 'kvbench-test', tier], check=True)",
        "is not the directory that it was",
    ),
    "removed": ("shutil.rmtree(work)", "is gone: it was removed"),
    # A FUSE program that has died: nobody holds the other end of its mount.
    "dead": (
        """
        fuse = os.open('/dev/fuse', os.O_RDWR)
        data = f'fd={fuse},rootmode=40000,user_id=0,group_id=0'.encode()
        assert ctypes.CDLL(None).mount(b'dead', os.fsencode(tier), b'fuse', 0, data) == 0
        """,
        "cannot be reached any more (Transport endpoint is not connected)",
    ),
}


@DRIVERS
@pytest.mark.parametrize("how", GONE)
def test_a_tier_that_vanishes_fails_its_points_and_the_next_tier_is_measured(
    kvbench: Kvbench, mounted: Mounted, tmp_path: Path, how: str, driver: str
) -> None:
    if how == "dead" and not Path("/dev/fuse").exists():
        pytest.skip("this host has no /dev/fuse")
    tier, other = tmp_path / "tier", tmp_path / "other"
    tier.mkdir()
    other.mkdir()
    mounted(tier, "tmpfs", "-o", "size=256m,mode=0700")
    body, said = GONE[how]
    command = once(tmp_path, body)
    options = (*ONE_POINT, *driven(driver), "--before-read", command, "-o", tmp_path / "r")
    try:
        done = kvbench("fio", "--tier", tier, "--tier", other, *options)
    finally:
        while _top_is_another(tier):
            subprocess.run(["umount", "-l", str(tier)], check=True)

    assert done.code == 3, done.err
    lost, measured = points(tmp_path / "r")
    assert lost["status"] == "failed"
    assert said in lost["reason"]
    assert measured["status"] == "ok"
    assert list(other.iterdir()) == []
    if how in ("unmounted", "removed"):
        assert list(tier.iterdir()) == []


def _top_is_another(tier: Path) -> bool:
    """Whether more is mounted on the directory than the test's own file system."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return sum(1 for line in lines if line.split()[4] == str(tier)) > 1


@DRIVERS
def test_a_tier_that_is_another_before_its_data_is_laid_out_is_skipped(
    kvbench: Kvbench, mounted: Mounted, tmp_path: Path, driver: str
) -> None:
    """The second tier goes while the first one is measured: nothing is made below its mount point."""
    tier, other = tmp_path / "other", tmp_path / "tier"
    tier.mkdir()
    other.mkdir()
    mounted(tier, "tmpfs", "-o", "size=256m,mode=0700")
    command = once(tmp_path, f"subprocess.run(['umount', '-l', {str(tier)!r}], check=True)")
    options = (*ONE_POINT, *driven(driver), "--before-read", command, "-o", tmp_path / "r")
    done = kvbench("fio", "--tier", other, "--tier", tier, *options)

    assert done.code == 3, done.err
    measured, lost = points(tmp_path / "r")
    assert (measured["status"], lost["status"]) == ("ok", "skipped")
    assert "is not the directory that it was when this run started" in lost["reason"]
    assert list(tier.iterdir()) == []


@pytest.mark.fio
def test_a_file_system_that_shuts_down_fails_its_point_and_the_run_goes_on(
    kvbench: Kvbench, mounted: Mounted, tmp_path: Path
) -> None:
    image, tier, other = tmp_path / "image", tmp_path / "tier", tmp_path / "other"
    tier.mkdir()
    other.mkdir()
    with image.open("wb") as file:
        file.truncate(200 << 20)
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("mkfs.ext4 is not installed")
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    mounted(tier, "ext4", "-o", "loop", source=image)
    # EXT4_IOC_SHUTDOWN, without a flush of its journal: what ext4 does when its device has gone.
    shutdown = """
        import fcntl, struct
        fcntl.ioctl(os.open(tier, os.O_RDONLY), 0x8004587d, struct.pack('I', 2))
    """
    options = (*ONE_POINT, "--before-read", once(tmp_path, shutdown), "-o", tmp_path / "r")
    done = kvbench("fio", "--tier", tier, "--tier", other, *options)

    assert done.code == 3, done.err
    lost, measured = points(tmp_path / "r")
    assert (lost["status"], measured["status"]) == ("failed", "ok")
    assert "Input/output error" in lost["reason"]
    assert "Traceback" not in done.err


def test_a_full_disk_is_not_a_dying_tier() -> None:
    with pytest.raises(OSError, match="No space left"), dying("t"):
        raise OSError(28, "No space left on device")
    with (
        pytest.raises(MeasurementError, match=r"the tier t does not answer any more \(Stale file handle\)"),
        dying("t"),
    ):
        raise OSError(116, "Stale file handle")


def test_a_block_that_has_become_a_link_is_not_loaded(kvbench: Kvbench, tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    tier.mkdir()
    swap = """
        block = next(work.rglob('*.bin'))
        block.rename(block.with_suffix('.moved'))
        block.symlink_to(block.with_suffix('.moved'))
    """
    options = (*ONE_POINT, "--driver", "replay", "--before-read", once(tmp_path, swap), "--mix", "read")
    done = kvbench("fio", "--tier", tier, *options, "-o", tmp_path / "r")
    assert done.code == 3, done.err
    (point,) = points(tmp_path / "r")
    assert point["reason"].endswith(".bin is a symbolic link; nothing was written")


def _swap_for_link(path: Path) -> None:
    path.rename(path.with_name("taken"))
    path.symlink_to("taken")


def _swap_for_theirs(path: Path) -> None:
    path.rename(path.with_name("taken"))
    path.mkdir()
    os.chown(path, NOBODY, -1)


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a directory away needs root")
@pytest.mark.parametrize("swap", [_swap_for_link, _swap_for_theirs, lambda path: (path / "theirs").touch()])
def test_a_directory_that_is_swapped_as_soon_as_it_is_made_is_not_worked_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swap: Callable[[Path], None]
) -> None:
    """Somebody who is quicker than kvbench: the real mkdir, and the swap before the directory can be opened."""
    make = os.mkdir

    def make_and_swap(name: str, mode: int, *, dir_fd: int | None = None) -> None:
        make(name, mode, dir_fd=dir_fd)
        if dir_fd is not None:
            swap(tmp_path / name)

    tier = directory.inspect("t", str(tmp_path))
    monkeypatch.setattr(os, "mkdir", make_and_swap)
    with pytest.raises(TierError, match=r"somebody else changed .* while kvbench made it"), directory.workspace(tier):
        raise AssertionError("not reached")
    assert {path.name for path in tmp_path.rglob("*") if not path.is_dir()} <= {"theirs"}


@pytest.fixture
def space(tmp_path: Path) -> Iterator[directory.Workspace]:
    """A work space with two data files of 4 KiB."""
    tier = tmp_path / "tier"
    tier.mkdir()
    with directory.workspace(directory.inspect("t", str(tier))) as made:
        for name in ("kvbench.0", "kvbench.1"):
            (made.path / name).write_bytes(bytes(4096))
        assert isinstance(made.held, HeldDirectory)
        made.held.keep({"kvbench.0": 4096, "kvbench.1": 4096})
        yield made


def _replace_by_copy(path: Path) -> None:
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").rename(path)


def _replace_by_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _replace_by_link(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "symbolic link": (_replace_by_link, "is a symbolic link"),
    "hard link": (lambda path: path.with_name("second").hardlink_to(path), "has 2 names (hard links)"),
    "other file": (_replace_by_copy, "is another file than the one that was laid out"),
    "fifo": (_replace_by_fifo, "is no regular file"),
    "short": (lambda path: os.truncate(path, 4000), "has 3.906 KiB of 4 KiB"),
    "gone": (Path.unlink, "is gone"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_data_file_that_is_not_the_one_laid_out_is_named(space: directory.Workspace, change: str) -> None:
    act, said = CHANGES[change]
    act(space.path / "kvbench.1")
    with pytest.raises(MeasurementError) as refused:
        space.require_same()
    assert str(refused.value) == f"{space.path}/kvbench.1 {said}; nothing was written"


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file away needs root")
def test_a_data_file_or_directory_given_to_somebody_else_is_named(space: directory.Workspace) -> None:
    os.chown(space.path / "kvbench.0", NOBODY, -1)
    with pytest.raises(MeasurementError, match=f"belongs to user {NOBODY}"):
        space.require_same()
    os.chown(space.path, NOBODY, -1)
    with pytest.raises(MeasurementError, match="is not the directory that it was"):
        space.require_same()


def test_what_a_run_does_itself_is_no_change(space: directory.Workspace) -> None:
    (space.path / "kvbench.0").write_bytes(b"1" * 8192)
    (space.path / "kvbench.1").chmod(0o600)
    (space.path / "new").touch()
    (space.path.parent / "beside").mkdir()
    space.require_same()


def test_a_file_that_is_there_before_the_layout_is_not_written(space: directory.Workspace) -> None:
    assert isinstance(space.held, HeldDirectory)
    space.held.require_absent({"kvbench.2": 4096})
    with pytest.raises(MeasurementError, match=r"kvbench\.1 is there and this run did not make it"):
        space.held.require_absent({"kvbench.1": 4096, "kvbench.2": 4096})


def test_a_fuse_program_may_number_a_file_anew(tmp_path: Path) -> None:
    tier = directory.inspect("t", str(tmp_path))
    if tier.mount is None:
        pytest.skip("the system does not say what is mounted here")
    fuse = replace(tier, mount=replace(tier.mount, filesystem="fuse.sshfs"))
    with directory.workspace(fuse) as made:
        (made.path / "kvbench.0").write_bytes(bytes(10))
        assert isinstance(made.held, HeldDirectory)
        made.held.keep({"kvbench.0": 10})
        _replace_by_copy(made.path / "kvbench.0")
        made.require_same()
        _replace_by_link(made.path / "kvbench.0")
        with pytest.raises(MeasurementError, match="is a symbolic link"):
            made.require_same()


@pytest.fixture
def loops(tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Makes loop devices of 64 MiB of data, detached at the end."""
    if os.geteuid() != 0 or shutil.which("losetup") is None or not Path("/dev/loop-control").exists():
        pytest.skip("loop devices need root, losetup and /dev/loop-control")
    made: list[str] = []

    def make() -> str:
        image = tmp_path / f"image{len(made)}"
        image.write_bytes(os.urandom(1 << 20) * 64)
        done = subprocess.run(["losetup", "--show", "-f", str(image)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"this host gives no loop device: {done.stderr.strip()}")
        made.append(done.stdout.strip())
        return made[-1]

    yield make
    for device in made:
        subprocess.run(["losetup", "-d", device], check=False, capture_output=True)


def node(path: Path, device: str) -> Path:
    """A device node of the test's own that leads to a loop device."""
    number = Path(device).stat().st_rdev
    path.unlink(missing_ok=True)
    os.mknod(path, 0o600 | 0o060000, number)
    return path


@pytest.mark.fio
@pytest.mark.parametrize("when", ["between rounds", "in a round"])
def test_a_device_node_that_is_replaced_leads_to_no_other_device(
    kvbench: Kvbench, loops: Callable[[], str], tmp_path: Path, when: str
) -> None:
    ours, precious = loops(), loops()
    path = node(tmp_path / "node", ours)
    before = (tmp_path / "image1").read_bytes()
    number = Path(precious).stat().st_rdev
    (tmp_path / "tier" / "kvbench-x").mkdir(parents=True)
    swap = f"node = folder / 'node'\nnode.unlink()\nos.mknod(node, 0o060600, {number})\n"
    option = "--before-read" if when == "between rounds" else "--watch"
    options = (*ONE_POINT, "--allow-destroy", path, option, once(tmp_path, swap), "-o", tmp_path / "r")
    done = kvbench("fio", "--tier", path, *options)

    (point,) = points(tmp_path / "r")
    assert path.stat().st_rdev == number
    assert (tmp_path / "image1").read_bytes() == before
    if when == "between rounds":
        assert done.code == 3, done.err
        assert "is no longer the device 7:" in point["reason"]
    else:
        assert (done.code, point["status"]) == (0, "ok"), done.err


def test_consent_is_for_one_device_and_not_for_its_number(loops: Callable[[], str], tmp_path: Path) -> None:
    """The same path and the same number, but another disk behind them since."""
    first, image = loops(), tmp_path / "image0"
    tier = device_tier.inspect("t", first, [first])
    if tier.device.sequence is None:
        pytest.skip("this kernel does not count its disks (Linux 5.15)")
    with device_tier.workspace(tier, tmp_path) as space:
        space.require_same()
    other = tmp_path / "other"
    shutil.copy(image, other)
    subprocess.run(["losetup", "-d", first], check=True)
    subprocess.run(["losetup", first, str(other)], check=True)
    with (
        pytest.raises(TierError, match="is not the device that it was when this run started; nothing was touched"),
        device_tier.workspace(tier, tmp_path),
    ):
        raise AssertionError("not reached")
