"""Removal of what kvbench made, against real mounts, attributes, links, owners and forged markers."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kvbench.border.escaping import escaped
from kvbench.errors import TierError
from kvbench.tiers import directory, removal
from kvbench.tiers.guard import Guard
from kvbench.tiers.removal import MARKER_NAME, Kept, Marker, Rule
from tests.conftest import ROOT, FakeFio, Outcome

# Most wait for a guard or mount something.
pytestmark = pytest.mark.slow

Kvbench = Callable[..., Outcome]
Start = Callable[..., subprocess.Popen[str]]

# No process has this id: the largest that Linux gives is 4,194,304.
NO_PROCESS = 4_194_305
TOKEN = "0123456789abcdef"
STRANGER = 1001

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: mounts, owners and attributes of files")


def left_behind(tier: Path, token: str = TOKEN, **changes: Any) -> Path:
    """What a dead run of this host leaves: data two levels down, and the marker."""
    path = tier / f"kvbench-{token}"
    (path / "abc" / "de_g0").mkdir(parents=True)
    (path / "abc" / "de_g0" / "block.bin").write_bytes(bytes(100))
    (path / "data.0").write_bytes(bytes(100))
    said = {**directory.this_machine(), "pid": NO_PROCESS, "token": token, **changes}
    (path / MARKER_NAME).write_text(json.dumps(said))
    return path


def precious(place: Path) -> Path:
    """A directory of somebody else with a file in it."""
    place.mkdir()
    (place / "thesis.txt").write_text("years of work")
    return place


def is_whole(place: Path) -> bool:
    """Whether a ``precious`` directory is as it was."""
    return [path.name for path in place.iterdir()] == ["thesis.txt"] and (
        place / "thesis.txt"
    ).read_text() == "years of work"


def cleaned(kvbench: Kvbench, tier: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Exit code of ``clean``, and what it says of the tier."""
    done = kvbench("clean", "--tier", tier, "--json", *options)
    (found,) = json.loads(done.out)["tiers"]
    return done.code, {**found, "kept": dict(found["kept"])}


def contents(path: Path) -> list[str]:
    """Everything below a directory, by name."""
    return sorted(str(item.relative_to(path)) for item in path.rglob("*"))


@contextmanager
def mounted(*arguments: str | Path) -> Iterator[None]:
    """A mount for as long as the block runs; skips where the host allows none."""
    done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(arguments[-1])], check=True)


@contextmanager
def attribute(path: Path, letter: str) -> Iterator[Callable[[], None]]:
    """A chattr attribute until the block ends or what it yields is called; skips where there are none."""
    if subprocess.run(["chattr", f"+{letter}", str(path)], capture_output=True, check=False).returncode != 0:
        pytest.skip("this file system knows no attributes (chattr)")

    def take_off() -> None:
        subprocess.run(["chattr", f"-{letter}", str(path)], capture_output=True, check=False)

    try:
        yield take_off
    finally:
        take_off()


@contextmanager
def loop_mounted(image: Path, point: Path, *options: str) -> Iterator[None]:
    """An ext4 of its own on a loop device."""
    with image.open("wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True, capture_output=True)
    with mounted("-o", ",".join(["loop", *options]), image, point):
        yield


def mount_inside(kind: str, stack: ExitStack, point: Path, others: Path, tmp_path: Path) -> None:
    if kind == "bind":
        stack.enter_context(mounted("--bind", others, point))
        return
    if kind == "loop":
        stack.enter_context(loop_mounted(tmp_path / "image", point))
    else:
        stack.enter_context(mounted("-t", "tmpfs", "tmpfs", point))
    (point / "thesis.txt").write_text("years of work")


@pytest.mark.slow
@as_root
@pytest.mark.parametrize("name", ["mnt", "a b\nc\\d"])
@pytest.mark.parametrize("kind", ["bind", "tmpfs", "loop"])
def test_a_directory_with_a_mount_inside_is_not_touched(
    kvbench: Kvbench, tier: Path, tmp_path: Path, kind: str, name: str
) -> None:
    left, others = left_behind(tier), precious(tmp_path / "others")
    point = left / "abc" / name
    point.mkdir()
    with ExitStack() as stack:
        mount_inside(kind, stack, point, others, tmp_path)
        before = contents(left)
        code, found = cleaned(kvbench, tier)
        assert (code, found["removed"], found["stuck"]) == (3, [], [str(left)])
        assert found["kept"][str(left)].startswith("something is mounted inside it, on ")
        assert kvbench("clean", "--tier", tier).out.count("\n") == 1
        assert contents(left) == before
        assert (point / "thesis.txt").read_text() == "years of work"
        with directory.workspace(directory.inspect("t", str(tier))):
            assert contents(left) == before
    assert is_whole(others)
    assert cleaned(kvbench, tier)[:1] == (0,)
    assert list(tier.iterdir()) == []


@as_root
@pytest.mark.parametrize("target", ["data.0", MARKER_NAME])
def test_a_file_that_something_is_mounted_on_stops_it_too(
    kvbench: Kvbench, tier: Path, tmp_path: Path, target: str
) -> None:
    left, others = left_behind(tier), precious(tmp_path / "others")
    with mounted("--bind", others / "thesis.txt", left / target):
        before = contents(left)
        assert cleaned(kvbench, tier)[0] == 3
        assert contents(left) == before
    assert is_whole(others)
    assert cleaned(kvbench, tier)[1]["removed"] == [str(left)]


@as_root
@pytest.mark.parametrize("same_file_system", [True, False])
def test_a_directory_that_something_is_mounted_on_is_not_looked_into(
    kvbench: Kvbench, tier: Path, tmp_path: Path, same_file_system: bool
) -> None:
    """What is mounted there even carries a marker that is right."""
    (tmp_path / "elsewhere").mkdir()
    point, source = tier / f"kvbench-{TOKEN}", left_behind(tmp_path / "elsewhere")
    point.mkdir()
    with ExitStack() as stack:
        if same_file_system:
            stack.enter_context(mounted("--bind", source, point))
        else:
            stack.enter_context(mounted("-t", "tmpfs", "tmpfs", point))
            (point / MARKER_NAME).write_text((source / MARKER_NAME).read_text())
        before = contents(point)
        code, found = cleaned(kvbench, tier)
        assert (code, found["kept"]) == (3, {str(point): "something is mounted on it; unmount that first"})
        assert contents(point) == before


@as_root
def test_a_tier_that_is_a_mount_itself_is_cleaned(kvbench: Kvbench, tier: Path, tmp_path: Path) -> None:
    """The near miss: mounts around the directory are the tier's own, and a neighbour's name may begin like its own."""
    with mounted("-t", "tmpfs", "tmpfs", tier):
        left, neighbour = left_behind(tier), tier / f"kvbench-{TOKEN}-other"
        neighbour.mkdir()
        with mounted("--bind", precious(tmp_path / "others"), neighbour):
            code, found = cleaned(kvbench, tier)
            assert found["removed"] == [str(left)]
            assert (code, found["stuck"]) == (3, [str(neighbour)])


@as_root
def test_what_is_mounted_after_the_look_is_not_crossed(tier: Path) -> None:
    left = left_behind(tier)
    point = left / "abc" / "de_g0"
    with ExitStack() as stack:

        def mount_now(_: Marker) -> None:
            if not point.is_mount():
                stack.enter_context(mounted("-t", "tmpfs", "tmpfs", point))
                (point / "thesis.txt").write_text("years of work")

        kept = removal.remove(left, Rule(None, mount_now), pauses_s=())
        assert kept == Kept("abc/de_g0 could not be removed (another file system)", "stuck")
        assert (point / "thesis.txt").read_text() == "years of work"
        assert (left / MARKER_NAME).is_file()


@as_root
def test_layers_of_an_overlay_are_one_file_system(kvbench: Kvbench, tmp_path: Path) -> None:
    """A container's own file system: what lies in a lower layer and what is new in the upper one goes together."""
    lower, other, point = (tmp_path / name for name in ("lower", "other", "point"))
    for folder in (lower, other, point):
        folder.mkdir()
    left = point / left_behind(lower).name
    with mounted("-t", "tmpfs", "tmpfs", other):
        upper, work = other / "upper", other / "work"
        upper.mkdir()
        work.mkdir()
        layers = f"lowerdir={lower},upperdir={upper},workdir={work}"
        with mounted("-t", "overlay", "-o", layers, "overlay", point):
            (left / "abc" / "new").mkdir()
            (left / "abc" / "new" / "x").write_text("x")
            assert cleaned(kvbench, point)[1]["removed"] == [str(left)]
            assert not left.exists()


def test_what_takes_the_name_after_the_look_stays(tier: Path, tmp_path: Path) -> None:
    left, moved = left_behind(tier), tier / "moved"
    others = precious(tmp_path / "others")

    def replace(_: Marker) -> None:
        if not moved.exists():
            left.rename(moved)
            others.rename(left)

    kept = removal.remove(left, Rule(None, replace), pauses_s=())
    assert kept is not None
    assert kept.kind == "stuck"
    assert "another took its name meanwhile" in kept.why
    assert is_whole(left)
    # What was looked at is what was emptied.
    assert contents(moved) == [MARKER_NAME]


def test_a_directory_below_that_becomes_a_link_is_not_followed(
    tier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, others = left_behind(tier), precious(tmp_path / "others")
    listed = removal._listed

    def list_and_replace(folder: int) -> list[tuple[str, bool]]:
        found = listed(folder)
        if ("abc", True) in found and not (left / "abc").is_symlink():
            (left / "abc").rename(left / "moved")
            (left / "abc").symlink_to(others)
        return found

    monkeypatch.setattr(removal, "_listed", list_and_replace)
    kept = removal.remove(left, Rule(None, lambda _: None), pauses_s=())
    assert kept is not None
    assert "abc could not be removed (Not a directory)" in kept.why
    assert is_whole(others)
    # The next try removes the link as a link.
    assert removal.remove(left, Rule(None, lambda _: None)) is None
    assert is_whole(others)


def test_links_inside_are_removed_as_links(kvbench: Kvbench, tier: Path, tmp_path: Path) -> None:
    left, others = left_behind(tier), precious(tmp_path / "others")
    (left / "folder").symlink_to(others)
    (left / "abc" / "file").symlink_to(others / "thesis.txt")
    (left / "hard").hardlink_to(others / "thesis.txt")
    assert cleaned(kvbench, tier)[1]["removed"] == [str(left)]
    assert not left.exists()
    assert is_whole(others)


def test_a_link_with_our_name_is_named_and_stays(kvbench: Kvbench, tier: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target, link = left_behind(tmp_path / "elsewhere"), tier / f"kvbench-{TOKEN}"
    link.symlink_to(target)
    before = contents(target)
    code, found = cleaned(kvbench, tier)
    assert (code, found["kept"]) == (0, {str(link): "it is a link"})
    assert (link.is_symlink(), contents(target)) == (True, before)


def test_what_has_no_marker_is_named_when_the_name_is_ours(kvbench: Kvbench, tier: Path) -> None:
    ours, users = tier / f"kvbench-{TOKEN}", tier / "kvbench-results"
    for path in (ours, users):
        (path / "deep").mkdir(parents=True)
    code, found = cleaned(kvbench, tier)
    assert (code, found["kept"]) == (0, {str(ours): "it has no marker of kvbench"})
    assert (contents(ours), contents(users)) == (["deep"], ["deep"])


DEEP = "[" * 2000 + "]" * 2000
WRONG = {
    "Infinity": {"pid": float("inf")},
    "NaN elsewhere": {"more": float("nan")},
    "a process id of 400 digits": {"pid": 10**400},
    "a process id in text": {"pid": str(NO_PROCESS)},
    "a process id of 1.5": {"pid": 1.5},
    "True": {"pid": True},
    "process 0": {"pid": 0},
    "process -1": {"pid": -1},
    "process 2^31": {"pid": 2**31},
    "a list for the host": {"host": ["x"]},
    "no boot": {"boot": None},
    "a number for the token": {"token": 5},
}


@pytest.mark.parametrize("changes", WRONG.values(), ids=WRONG)
def test_a_marker_that_kvbench_would_not_write_is_kept(kvbench: Kvbench, tier: Path, changes: dict[str, Any]) -> None:
    left = left_behind(tier, **changes)
    before = contents(left)
    code, found = cleaned(kvbench, tier)
    assert (code, found["kept"]) == (0, {str(left): "its marker cannot be read"})
    assert contents(left) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [DEEP.encode(), b'{"pid": ' + DEEP.encode() + b"}", b"", b"\xff\xfe", b"7", b"[]", b'{"pid": 1e999}'],
    ids=["nested", "nested inside", "empty", "no text", "a number", "a list", "a number without end"],
)
def test_a_marker_that_is_no_marker_is_kept(kvbench: Kvbench, tier: Path, content: bytes) -> None:
    left = left_behind(tier)
    (left / MARKER_NAME).write_bytes(content)
    assert cleaned(kvbench, tier)[1]["kept"] == {str(left): "its marker cannot be read"}
    with directory.workspace(directory.inspect("t", str(tier))):
        assert left.is_dir()


@pytest.mark.parametrize(
    ("age_s", "beside", "name", "goes"),
    [
        (130, (), "kvbench-0123456789abcdef", True),
        (110, (), "kvbench-0123456789abcdef", False),
        (130, ("data.0",), "kvbench-0123456789abcdef", False),
        (130, (), "kvbench-results", False),
    ],
    ids=["given up", "just made", "with data", "a name of somebody's"],
)
def test_what_a_run_left_that_hung_at_its_marker_goes(
    kvbench: Kvbench, tier: Path, age_s: int, beside: tuple[str, ...], name: str, goes: bool
) -> None:
    left = tier / name
    left.mkdir()
    for file in (MARKER_NAME, *beside):
        (left / file).touch()
    made_s = time.time() - age_s
    os.utime(left / MARKER_NAME, (made_s, made_s))
    assert cleaned(kvbench, tier)[1]["removed"] == ([str(left)] if goes else [])
    assert left.exists() != goes


def forged_file(marker: Path, size: int, start: bytes = b"") -> None:
    with marker.open("wb") as file:
        file.write(start)
        file.truncate(size)


def forged(kind: str, left: Path, tmp_path: Path) -> str:
    """Replace a marker that is right; what ``clean`` says of it."""
    marker = left / MARKER_NAME
    right = marker.read_bytes()
    marker.unlink()
    if kind.startswith("link"):
        target = tmp_path / "target"
        target.write_bytes(right)
        if kind == "link to a fifo":
            target = tmp_path / "fifo"
            os.mkfifo(target)
        marker.symlink_to(target)
    elif kind == "fifo":
        os.mkfifo(marker)
    elif kind == "directory":
        marker.mkdir()
    elif kind == "device":
        os.mknod(marker, stat.S_IFCHR | 0o600, os.makedev(5, 0))
    elif kind == "8 GiB":
        forged_file(marker, 8 << 30, right)
        return f"its marker has {8 << 30} bytes, more than kvbench writes"
    elif kind == "100,000 nested lists":
        marker.write_bytes(b"[" * 100_000)
        return "its marker has 100000 bytes, more than kvbench writes"
    return "its marker is no regular file"


@pytest.mark.parametrize(
    "kind",
    [
        "link",
        "link to a fifo",
        "fifo",
        "directory",
        "8 GiB",
        "100,000 nested lists",
        pytest.param("device", marks=as_root),
    ],
)
def test_a_forged_marker_hangs_nobody_and_is_kept(
    start: Start, fake_fio: FakeFio, tier: Path, tmp_path: Path, kind: str
) -> None:
    left = left_behind(tier)
    said, before = forged(kind, left, tmp_path), contents(left)
    child = start("clean", "--tier", tier)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err) == (0, f"kept {left}: {said}\n", "")
    least = ("--connector", "logical", "--mix", "read", "--numjobs", "1", "--runtime", "1", "--dataset", "64MiB")
    child = start("fio", "--tier", tier, "--model", "qwen3-8b", *least, "-o", "run")
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    assert f"kvbench: {left} stays: {said}.\n" in err
    assert contents(left) == before


def test_a_marker_that_its_owner_holds_with_a_lease_keeps_nobody_waiting(kvbench: Kvbench, tier: Path) -> None:
    left = left_behind(tier)
    holder = (
        "import fcntl, os, signal, sys\n"
        "signal.signal(signal.SIGIO, signal.SIG_IGN)\n"
        "held = os.open(sys.argv[1], os.O_RDWR)\n"
        "fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", holder, str(left / MARKER_NAME)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        if child.stdout.readline() != b"held\n":
            pytest.skip("this file system gives no leases")
        try:
            assert cleaned(kvbench, tier)[1]["kept"] == {
                str(left): "its marker is held by another (Resource temporarily unavailable)"
            }
        finally:
            child.kill()
    assert cleaned(kvbench, tier)[1]["removed"] == [str(left)]


def test_many_forged_markers_are_three_lines_at_a_start(tier: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for number in range(8):
        left_behind(tier, f"{number:016x}", pid=float("inf"))
    with directory.workspace(directory.inspect("t", str(tier))):
        pass
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 4
    assert lines[-1] == f"kvbench: 5 more stay; 'kvbench clean --tier {tier}' names them."


def test_a_token_that_is_not_the_names_is_kept(kvbench: Kvbench, tier: Path) -> None:
    other, right = left_behind(tier, token=TOKEN), left_behind(tier, token="fedcba9876543210")
    (other / MARKER_NAME).write_bytes((right / MARKER_NAME).read_bytes())
    code, found = cleaned(kvbench, tier)
    assert (code, found["removed"]) == (0, [str(right)])
    assert found["kept"] == {str(other): "its marker is that of another directory"}
    assert (other / "data.0").is_file()


@as_root
def test_other_users_directories_go_only_when_that_is_asked_for(kvbench: Kvbench, tier: Path) -> None:
    theirs, ours = left_behind(tier), left_behind(tier, "fedcba9876543210")
    for path in (theirs, theirs / MARKER_NAME):
        os.chown(path, STRANGER, STRANGER)
    code, found = cleaned(kvbench, tier)
    assert (code, found["removed"]) == (0, [str(ours)])
    assert found["kept"] == {str(theirs): f"it belongs to user {STRANGER}; add --any-owner for those of others"}
    with directory.workspace(directory.inspect("t", str(tier))):
        assert (theirs / "data.0").is_file()
    assert cleaned(kvbench, tier, "--any-owner")[1]["removed"] == [str(theirs)]


@as_root
@pytest.mark.parametrize("of_directory", [True, False])
def test_a_marker_of_another_owner_than_its_directory_is_kept(kvbench: Kvbench, tier: Path, of_directory: bool) -> None:
    left = left_behind(tier)
    os.chown(left if of_directory else left / MARKER_NAME, STRANGER, STRANGER)
    _, found = cleaned(kvbench, tier, "--any-owner")
    assert found["kept"] == {str(left): f"its marker belongs to user {0 if of_directory else STRANGER}"}
    assert (left / "data.0").is_file()


@as_root
def test_any_owner_is_no_leave_to_end_the_living_or_cross_mounts(kvbench: Kvbench, tier: Path, tmp_path: Path) -> None:
    living, crossed = left_behind(tier, pid=os.getpid()), left_behind(tier, "fedcba9876543210")
    for path in (living, living / MARKER_NAME, crossed, crossed / MARKER_NAME):
        os.chown(path, STRANGER, STRANGER)
    with mounted("--bind", precious(tmp_path / "others"), crossed / "abc"):
        code, found = cleaned(kvbench, tier, "--any-owner")
        assert (code, found["removed"], found["stuck"]) == (3, [], [str(crossed)])
    assert is_whole(tmp_path / "others")


@pytest.mark.slow
@as_root
def test_what_cannot_be_removed_is_named_and_found_again(kvbench: Kvbench, tier: Path) -> None:
    left = left_behind(tier)
    with attribute(left / "abc" / "de_g0" / "block.bin", "i"):
        for _ in range(2):
            code, found = cleaned(kvbench, tier)
            assert (code, found["removed"], found["stuck"]) == (3, [], [str(left)])
            why = "abc/de_g0/block.bin could not be removed (Operation not permitted)"
            assert found["kept"] == {str(left): why}
            # Everything else is gone; the marker is what the second round finds it by.
            assert contents(left) == [MARKER_NAME, "abc", "abc/de_g0", "abc/de_g0/block.bin"]
    assert cleaned(kvbench, tier) == (0, {"tier": str(tier), "removed": [str(left)], "kept": {}, "stuck": []})


@pytest.mark.slow
@as_root
def test_removal_is_tried_again_for_a_while(tier: Path) -> None:
    left = left_behind(tier)
    with attribute(left / "data.0", "i") as take_off:
        later = threading.Timer(0.4, take_off)
        later.start()
        assert removal.remove(left, Rule(None, lambda _: None), pauses_s=(0.1,) * 100) is None
        later.join()
    assert not left.exists()


@pytest.mark.slow
@as_root
def test_the_marker_comes_back_when_the_directory_cannot_go(kvbench: Kvbench, tier: Path) -> None:
    left = left_behind(tier)
    marker = left / MARKER_NAME
    os.utime(marker, (time.time() - 9000, time.time() - 9000))
    before = (marker.read_bytes(), marker.stat().st_mtime_ns)
    with attribute(tier, "a"):
        code, found = cleaned(kvbench, tier)
        assert (code, found["kept"]) == (3, {str(left): "it could not be removed (Operation not permitted)"})
        assert contents(left) == [MARKER_NAME]
        assert (marker.read_bytes(), marker.stat().st_mtime_ns) == before
    assert cleaned(kvbench, tier)[1]["removed"] == [str(left)]


@pytest.mark.slow
@as_root
def test_a_tier_that_became_read_only_keeps_everything_findable(kvbench: Kvbench, tier: Path) -> None:
    with mounted("-t", "tmpfs", "tmpfs", tier):
        left = left_behind(tier)
        before = contents(left)
        subprocess.run(["mount", "-o", "remount,ro", str(tier)], check=True)
        code, found = cleaned(kvbench, tier)
        assert (code, found["stuck"]) == (3, [str(left)])
        assert "(Read-only file system)" in found["kept"][str(left)]
        assert contents(left) == before
        subprocess.run(["mount", "-o", "remount,rw", str(tier)], check=True)
        assert cleaned(kvbench, tier)[1]["removed"] == [str(left)]


# include/uapi/linux/fs.h of XFS, taken over by ext4: every request from then on gives EIO.
_SHUTDOWN = 0x8004587D


@pytest.mark.slow
@as_root
def test_a_tier_that_answers_eio_is_said_and_cleaned_once_it_is_back(
    kvbench: Kvbench, tier: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    image = tmp_path / "image"
    with loop_mounted(image, tier), directory.workspace(directory.inspect("t", str(tier))) as space:
        (space.path / "data.0").write_bytes(bytes(100))
        os.sync()
        descriptor = os.open(tier, os.O_RDONLY)
        try:
            # 0 writes everything out first.
            fcntl.ioctl(descriptor, _SHUTDOWN, b"\0\0\0\0")
        except OSError as error:
            pytest.skip(f"ext4 of this kernel cannot be shut down: {error.strerror}")
        finally:
            os.close(descriptor)
    err = capfd.readouterr().err
    assert err.startswith(f"kvbench: {space.path} was not removed: ")
    assert f"'kvbench clean --tier {tier}' removes it later." in err
    assert "(Input/output error)" in err
    with mounted("-o", "loop", image, tier):
        (left,) = tier.glob("kvbench-*")
        assert left == space.path
        assert (left / MARKER_NAME).is_file()
        # The run that made it is this process: by age, as that of another host would.
        marker = json.loads((left / MARKER_NAME).read_text())
        (left / MARKER_NAME).write_text(json.dumps({**marker, "pid": NO_PROCESS}))
        assert cleaned(kvbench, tier)[1]["removed"] == [str(left)]


@pytest.mark.slow
@as_root
def test_the_run_says_what_it_could_not_remove(tier: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with directory.workspace(directory.inspect("t", str(tier))) as space:
        stuck = space.path / "data.0"
        stuck.write_text("x")
        (space.path / "data.1").write_text("x")
        taken = attribute(stuck, "i")
        taken.__enter__()
    try:
        assert capfd.readouterr().err == (
            f"kvbench: {space.path} was not removed: data.0 could not be removed (Operation not permitted); "
            f"'kvbench clean --tier {tier}' removes it later.\n"
        )
        assert contents(space.path) == [MARKER_NAME, "data.0"]
    finally:
        taken.__exit__(None, None, None)


def test_a_work_directory_that_somebody_moved_is_said(tier: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with directory.workspace(directory.inspect("t", str(tier))) as space:
        space.path.rename(tier / "moved")
    assert "somebody moved it, removed it or unmounted the tier" in capfd.readouterr().err
    assert contents(tier / "moved") == [MARKER_NAME]


def test_a_directory_that_took_the_place_of_ours_stays(
    tier: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    others = precious(tmp_path / "others")
    with directory.workspace(directory.inspect("t", str(tier))) as space:
        space.path.rename(tier / "moved")
        others.rename(space.path)
    assert "was not removed: it has no marker of kvbench" in capfd.readouterr().err
    assert is_whole(space.path)


def guard_of(token: str) -> int:
    """Process id of the guard that a token's command line names; it may be about to start."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                line = (entry / "cmdline").read_bytes().split(b"\0")
                if token.encode() in line and any(part.endswith(b"guard.py") for part in line):
                    return int(entry.name)
        time.sleep(0.01)
    raise AssertionError("no guard")


def test_a_guard_that_was_killed_is_started_again(tier: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with directory.workspace(directory.inspect("t", str(tier))) as space:
        (space.path / "data.0").write_text("x")
        os.kill(guard_of(space.token), signal.SIGKILL)
    assert list(tier.iterdir()) == []
    assert capfd.readouterr().err == ""


def test_what_run_and_guard_left_when_both_were_killed_is_found(kvbench: Kvbench, tier: Path) -> None:
    body = (
        "import sys, time\n"
        "from kvbench.tiers.directory import inspect, workspace\n"
        "with workspace(inspect('t', sys.argv[1])) as space:\n"
        "    (space.path / 'data.0').write_text('x')\n"
        "    print(space.token, flush=True)\n"
        "    time.sleep(300)\n"
    )
    command = [sys.executable, "-c", body, str(tier)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None
        token = child.stdout.readline().strip()
        left = tier / f"kvbench-{token}"
        _, found = cleaned(kvbench, tier)
        assert found["kept"] == {str(left): f"process {child.pid} is still at work"}
        os.kill(guard_of(token), signal.SIGKILL)
        child.kill()
        child.wait()
    assert contents(left) == [MARKER_NAME, "data.0"]
    assert cleaned(kvbench, tier)[1]["removed"] == [str(left)]


def test_the_guard_follows_the_rule_too(tier: Path) -> None:
    """Its own directory with the marker of another, and one of another owner than it was told, stay."""
    left = left_behind(tier, token="fedcba9876543210")
    other = left.rename(tier / f"kvbench-{TOKEN}")
    assert Guard(TOKEN, other).release() == "its marker is that of another directory"
    (other / MARKER_NAME).write_text((other / MARKER_NAME).read_text().replace("fedcba9876543210", TOKEN))
    said = Guard(TOKEN, other, os.geteuid() + 1).release()
    assert said is not None
    assert said.startswith(f"it belongs to user {os.geteuid()}")
    assert (other / "data.0").is_file()
    assert Guard(TOKEN, other).release() is None
    assert not other.exists()


@pytest.mark.slow
@pytest.mark.parametrize("token", ["\x1b[31m", "a\nb", "‮gpj", "\udcff\udcfe"], ids=ascii)
def test_names_do_not_steer_the_terminal(kvbench: Kvbench, tier: Path, token: str) -> None:
    left = left_behind(tier, token)
    host = left_behind(tier, host="\x1b]0;title\x07\nremoved /home")
    with attribute_if_root(left / "data.0"):
        done = kvbench("clean", "--tier", tier)
    assert done.out.count("\n") == 2
    assert all(letter.isprintable() or letter == "\n" for letter in done.out)
    assert f"kept {host}: made on \\x1b]0;title\\x07\\nremoved /home, by a process that cannot" in done.out
    assert escaped(str(left)) in done.out
    kvbench("clean", "--tier", tier)
    assert not left.exists()


@contextmanager
def attribute_if_root(path: Path) -> Iterator[None]:
    """An immutable file where that can be had, so that its name is said with a reason too."""
    if os.geteuid() != 0:
        yield
        return
    with attribute(path, "i"):
        yield


def test_an_escape_leaves_what_can_be_read_alone() -> None:
    assert escaped("/mnt/kv tier/ünï/日本") == "/mnt/kv tier/ünï/日本"
    assert escaped("a\x1b\x07\x9b\u2028\u202e\udcffb") == "a\\x1b\\x07\\x9b\\u2028\\u202e\\udcffb"


@pytest.fixture
def deep_tier() -> Iterator[Path]:
    """A directory outside of those of pytest, whose removal recurses: a killed session would break the next one."""
    path = Path(tempfile.mkdtemp(prefix="kvbench-test-"))
    yield path
    subprocess.run(["rm", "-rf", str(path)], check=True)


@pytest.mark.parametrize(("levels", "goes"), [(28, True), (60, False), (1500, False)])
def test_a_tree_deeper_than_ours_stays_in_part(deep_tier: Path, levels: int, goes: bool) -> None:
    left = left_behind(deep_tier)
    folder = os.open(left, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=folder)
        deeper = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = deeper
    os.close(folder)
    kept = removal.remove(left, Rule(None, lambda _: None), pauses_s=())
    assert (kept is None) == goes
    if kept is not None:
        assert kept.why.endswith("(deeper than kvbench makes directories)")
        assert (left / MARKER_NAME).is_file()


def test_two_that_remove_the_same_directory_do_not_disturb_each_other(tier: Path) -> None:
    left = left_behind(tier)
    for number in range(600):
        (left / f"d{number % 20}").mkdir(exist_ok=True)
        (left / f"d{number % 20}" / f"{number}.bin").write_bytes(b"")
    outcomes: list[Kept | None] = []
    threads = [
        threading.Thread(target=lambda: outcomes.append(removal.remove(left, Rule(None, lambda _: None))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [None] * 4
    assert not left.exists()


@as_root
def test_where_a_server_maps_users_a_start_removes_what_is_ours(tier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS with root_squash shows root's files as another user's: a directory that is made now tells as whose."""
    left, mkdir, mark = left_behind(tier), os.mkdir, removal.mark
    for path in (left, left / MARKER_NAME):
        os.chown(path, STRANGER, STRANGER)

    def mapped_directory(name: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        mkdir(name, mode, dir_fd=dir_fd)
        os.chown(name, STRANGER, STRANGER, dir_fd=dir_fd)

    def mapped_marker(made: int, said: dict[str, object]) -> os.stat_result:
        mark(made, said)
        os.chown(MARKER_NAME, STRANGER, STRANGER, dir_fd=made)
        return os.stat(MARKER_NAME, dir_fd=made)

    monkeypatch.setattr(os, "mkdir", mapped_directory)
    monkeypatch.setattr(removal, "mark", mapped_marker)
    with directory.workspace(directory.inspect("t", str(tier))) as space:
        assert [path.name for path in tier.iterdir()] == [space.path.name]
    assert list(tier.iterdir()) == []


def test_a_marker_that_does_not_fit_leaves_no_directory(tier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a full file system")
    with mounted("-t", "tmpfs", "-o", "size=4k", "tmpfs", tier):
        (tier / "full").write_bytes(bytes(4096))
        with (
            pytest.raises(TierError, match=r"cannot create a sub-directory in .* \(No space left on device\)"),
            directory.workspace(directory.inspect("t", str(tier))),
        ):
            raise AssertionError("not reached")
        assert [path.name for path in tier.iterdir()] == ["full"]
