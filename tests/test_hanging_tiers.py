"""A tier whose calls never return: kvbench itself ends, says what hangs, and leaves nothing behind once it answers."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.test_removal import left_behind

pytestmark = pytest.mark.slow

SMALL = ("--model", "qwen3-8b", "--numjobs", "1", "--runtime", "2", "--dataset", "32MiB")
# Ten times what the machine of a test needs for all the rest; without a bound a hung call takes for ever.
_AT_MOST_S = 180


@dataclass
class Tier:
    """The mounted directory, and the switch that lets one kind of call hang."""

    directory: Path
    below: Path
    control: Path

    def hang(self, call: str, phase: str = "", how: str = "") -> None:
        self.control.write_text(f"{call} {phase or '-'} {how}")

    def hangs(self) -> bool:
        """Whether a call waits, or has."""
        return self.control.with_suffix(".hung").exists()

    def answer(self) -> None:
        self.control.write_text("")


@pytest.fixture
def tier(tmp_path: Path) -> Iterator[Tier]:
    pytest.importorskip("mfusepy")
    if not os.access("/dev/fuse", os.W_OK) or os.geteuid() != 0:
        pytest.skip("mounting a FUSE file system needs /dev/fuse and root here")
    root, mount, control = tmp_path / "below", tmp_path / "tier", tmp_path / "control"
    root.mkdir()
    mount.mkdir()
    control.write_text("")
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.hanging_fs", root, mount, control], stderr=subprocess.DEVNULL
    )
    try:
        _until(lambda: os.path.ismount(mount) or server.poll() is not None)
        if server.poll() is not None:
            pytest.skip("no FUSE file system can be mounted here")
        yield Tier(mount, root, control)
    finally:
        control.write_text("")
        _abort(mount)
        server.kill()
        server.wait()
        subprocess.run(["umount", "-l", mount], check=False, capture_output=True)


def _abort(mount: Path) -> None:
    """Let every call fail that still waits, as the kernel allows for a FUSE file system (fs/fuse/control.c)."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        minor = next(line.split()[2].split(":")[1] for line in lines if line.split()[4] == str(mount))
        Path(f"/sys/fs/fuse/connections/{minor}/abort").write_text("1")


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _AT_MOST_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def started(*arguments: object, longest_s: float = 1.5) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kvbench", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "KVBENCH_LONGEST_CALL_S": str(longest_s), "COLUMNS": "200"},
    )


def fio(tier: Tier, tmp_path: Path, *more: str) -> tuple[object, ...]:
    return ("fio", "--tier", tier.directory, *SMALL, *more, "-o", tmp_path / "run")


@pytest.mark.parametrize("command", ["doctor", "clean", "fio", "jobs"])
def test_looking_at_a_tier_that_hangs_ends(tier: Tier, tmp_path: Path, command: str) -> None:
    tier.hang("stat")
    arguments = fio(tier, tmp_path) if command == "fio" else (command, "--tier", tier.directory / "inside")
    out, err = started(*arguments).communicate(timeout=_AT_MOST_S)
    assert "the tier hangs" in err, (out, err)


def test_the_exit_code_names_a_failed_measurement(tier: Tier) -> None:
    tier.hang("stat")
    process = started("doctor", "--tier", tier.directory / "inside")
    process.communicate(timeout=_AT_MOST_S)
    assert process.returncode == 3


# What takes more than a few seconds runs where it is asked for: fio's own grace, and the guard's.
EVERY = os.environ.get("KVBENCH_TEST_EVERY_HANG")
LONG = pytest.mark.skipif(not EVERY, reason="takes minutes in all; set KVBENCH_TEST_EVERY_HANG=1")

# The calls that each driver makes in a phase, with the mix that makes them; no other one happens there.
CELLS = {
    ("replay", "start"): "stat open read write fsync unlink",
    ("replay", "layout"): "stat open write fsync rename",
    ("replay", "reading"): "stat open read write:mixed rename:mixed",
    ("replay", "removal"): "stat open unlink unlink:mixed",
    ("fio", "start"): "stat open read write fsync unlink",
    ("fio", "layout"): "stat open write fsync",
    ("fio", "reading"): "stat open read write:mixed",
    ("fio", "removal"): "stat unlink",
}
QUICK = {("replay", "start", "read"), ("replay", "reading", "open"), ("fio", "layout", "open")}


def _cells(quick: set[tuple[str, str, str]]) -> list[Any]:
    every = [(*place, cell) for place, cells in CELLS.items() for cell in cells.split()]
    return [pytest.param(*cell, marks=() if cell in quick else LONG, id="-".join(cell)) for cell in every]


@pytest.mark.parametrize(("driver", "phase", "cell"), _cells(QUICK))
def test_every_call_that_hangs_ends_the_run_and_nothing_stays(
    tier: Tier, tmp_path: Path, driver: str, phase: str, cell: str
) -> None:
    _require(driver)
    call, _, mix = cell.partition(":")
    tier.hang(call, phase if phase != "start" else "")
    process = started(*fio(tier, tmp_path, "--driver", driver, "--mix", mix or "read"))
    out, said = process.communicate(timeout=_AT_MOST_S)
    assert tier.hangs(), (out, said)
    assert process.returncode == 3, (out, said)
    if phase == "removal" and not mix:
        # All was measured, and is shown.
        assert "p99" in out
        assert [point["status"] for point in _points(tmp_path)] == ["ok"]
    assert any(words in said for words in ("the tier hangs", "removes it later")), said
    tier.answer()
    _until(lambda: not _alive(said) and _cleaned(tier))


@pytest.mark.parametrize(("driver", "phase", "cell"), _cells({("fio", "reading", "read")}))
def test_ctrl_c_is_answered_while_a_call_hangs(
    tier: Tier, tmp_path: Path, driver: str, phase: str, cell: str, record_property: Callable[[str, object], None]
) -> None:
    _require(driver)
    call, _, mix = cell.partition(":")
    tier.hang(call, phase if phase != "start" else "")
    arguments = fio(tier, tmp_path, "--driver", driver, "--mix", mix or "read")
    process = started(*arguments, longest_s=600)
    _until(lambda: tier.hangs() or process.poll() is not None)
    time.sleep(1)
    before = _read_now(process)
    process.send_signal(signal.SIGINT)
    at, said = time.monotonic(), ""
    while "SIGINT" not in said:
        said += _read_now(process)
        assert time.monotonic() < at + _AT_MOST_S, before + said
        time.sleep(0.01)
    record_property("answered_s", round(time.monotonic() - at, 2))
    process.wait(_AT_MOST_S)
    record_property("ended_s", round(time.monotonic() - at, 2))
    said += _read_now(process)
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()
    assert process.returncode == 130, before + said
    assert "the tier hangs" in said or "stopped by SIGINT" in said
    tier.answer()
    _until(lambda: not _alive(said) and _cleaned(tier))


def _read_now(process: subprocess.Popen[str]) -> str:
    """What has come on stderr, without waiting for more."""
    assert process.stderr is not None
    os.set_blocking(process.stderr.fileno(), False)
    with suppress(BlockingIOError):
        return os.read(process.stderr.fileno(), 1 << 16).decode()
    return ""


def _points(tmp_path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((tmp_path / "run" / "result.json").read_text())["points"]
    return found


def _require(driver: str) -> None:
    if driver == "fio" and shutil.which("fio") is None:
        pytest.skip("fio is not installed")


@pytest.mark.parametrize(
    ("command", "call"),
    [
        *(("doctor", call) for call in ("open", "read", "write", "fsync", "unlink")),
        *(("clean", call) for call in ("open", "read", "unlink")),
    ],
)
def test_a_command_ends_whatever_call_hangs(tier: Tier, command: str, call: str) -> None:
    if (command, call) not in {("doctor", "read"), ("clean", "unlink")} and not EVERY:
        pytest.skip("takes a while in all; set KVBENCH_TEST_EVERY_HANG=1")
    left_behind(tier.below)
    tier.hang(call)
    process = started(command, "--tier", tier.directory)
    out, err = process.communicate(timeout=_AT_MOST_S)
    assert tier.hangs(), (out, err)
    # Doctor's own probe is a child with a bound of its own, and its finding one like others.
    found = (2, "the mount hangs" in out) if command == "doctor" and call != "read" else (3, "the tier hangs" in err)
    assert (process.returncode, True) == found, (out, err)
    tier.answer()
    _until(lambda: not _alive(err) and _cleaned(tier))


def _cleaned(tier: Tier) -> bool:
    """Whether nothing of kvbench is left after a clean-up; a guard may still be at it."""
    cleaning = started("clean", "--tier", tier.directory, longest_s=30)
    cleaning.communicate(timeout=_AT_MOST_S)
    assert cleaning.returncode == 0
    # Where the marker was never written the directory stays, and no data: without it nobody can tell whose it is.
    left = [path for path in tier.below.iterdir() if path.name.startswith("kvbench-")]
    return not any(item.stat().st_size for path in left for item in path.iterdir())


def _alive(said: str) -> bool:
    """Whether the process that the sentence names is still there."""
    words = said.split("process ")
    pid = words[1].split()[0] if len(words) > 1 else ""
    return pid.isdecimal() and Path(f"/proc/{pid}").exists()


def test_a_pipe_behind_a_run_that_is_left_behind_ends_with_it(tier: Tier) -> None:
    """Who reads the output must not wait for a process that nothing can end."""
    tier.hang("stat")
    with started("doctor", "--tier", tier.directory / "inside") as process:
        assert process.stdout is not None
        process.stdout.read()
        assert process.wait(5) == 3


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_a_tier_that_is_only_slow_is_not_left(tier: Tier, tmp_path: Path) -> None:
    process = started(*fio(tier, tmp_path, "--driver", "fio", "--mix", "read"))
    out, err = process.communicate(timeout=_AT_MOST_S)
    assert "hangs" not in err
    assert process.returncode == 0, (out, err)


# What device, server, quota and administrator answer with; where, and by which call.
ERRORS = ("EIO", "ENOSPC", "EDQUOT", "EROFS", "ESTALE", "ENOTCONN")
PLACES = ("start write", "layout open", "layout write", "reading open", "reading read", "removal unlink")


def _failing(always: tuple[str, str, str]) -> list[Any]:
    every = [(driver, place, error) for driver in ("fio", "replay") for place in PLACES for error in ERRORS]
    return [pytest.param(*one, marks=() if one == always else LONG, id="-".join(one)) for one in every]


@pytest.mark.parametrize(("driver", "place", "error"), _failing(("fio", "reading read", "EIO")))
def test_a_tier_that_answers_with_an_error_costs_the_point_and_nothing_else(
    tier: Tier, tmp_path: Path, driver: str, place: str, error: str
) -> None:
    _require(driver)
    phase, call = place.split()
    tier.hang(call, phase if phase != "start" else "", error)
    process = started(*fio(tier, tmp_path, "--driver", driver, "--mix", "read"), longest_s=60)
    out, err = process.communicate(timeout=_AT_MOST_S)
    assert tier.hangs(), (out, err)
    # fio opens its files before it reads the first of them; the next one to open something is the removal.
    measured = phase == "removal" or (driver, place) == ("fio", "reading open")
    assert process.returncode in ((0,) if measured else (2, 3)), (out, err)
    assert os.strerror(getattr(errno, error)) in err
    assert "Traceback" not in out + err
    tier.answer()
    _until(lambda: _cleaned(tier))


@LONG
@pytest.mark.parametrize("driver", ["fio", "replay"])
def test_a_slow_tier_is_slow_and_not_left(tier: Tier, tmp_path: Path, driver: str) -> None:
    """Each read takes ten times what a hanging one is looked at in: no call is longer than the bound."""
    _require(driver)
    tier.hang("read", "reading", "0.5")
    process = started(*fio(tier, tmp_path, "--driver", driver, "--mix", "read"), longest_s=5)
    out, err = process.communicate(timeout=_AT_MOST_S)
    assert (process.returncode, "hangs" in err) == (0, False), (out, err)
    (point,) = _points(tmp_path)
    assert point["read"]["latency_ns"]["min"] >= 5 * 10**8


@LONG
@pytest.mark.parametrize("driver", ["fio", "replay"])
def test_a_run_directory_that_became_read_only_costs_the_running_point(tier: Tier, tmp_path: Path, driver: str) -> None:
    """Here the file system is that of the run directory, and its data lie elsewhere."""
    _require(driver)
    data = tmp_path / "data"
    data.mkdir()
    run = tier.directory / "run"
    points = ("--numjobs", "1,2", "--mix", "read", "--driver", driver)
    process = started("fio", "--tier", data, *SMALL, *points, "-o", run, longest_s=60)
    _until(lambda: any(run.glob("points/*-j2*")) or process.poll() is not None)
    tier.hang("open", "-", "EROFS")
    out, err = process.communicate(timeout=_AT_MOST_S)
    assert process.returncode in (2, 3), (out, err)
    assert "Read-only file system" in err
    assert "Traceback" not in out + err
    assert list(data.iterdir()) == []
    tier.answer()
    first, *_ = json.loads((run / "result.json").read_text())["points"]
    assert first["status"] == "ok"
    again = started("fio", "--resume", "-o", run, longest_s=60)
    out, err = again.communicate(timeout=_AT_MOST_S)
    assert again.returncode == 0, (out, err)
