"""A tier whose calls never return: kvbench itself ends, says what hangs, and leaves nothing behind once it answers."""

from __future__ import annotations

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

import pytest

from kvbench.host.stuck import waiting_for_files

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

    def hang(self, call: str) -> None:
        self.control.write_text(call)

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
LONG = pytest.mark.skipif(not EVERY, reason="takes half a minute and more; set KVBENCH_TEST_EVERY_HANG=1")


@pytest.mark.parametrize(
    ("driver", "call"),
    [
        ("replay", "write"),
        ("replay", "read"),
        ("replay", "rename"),
        ("fio", "write"),
        pytest.param("replay", "open", marks=LONG),
        pytest.param("replay", "unlink", marks=LONG),
        pytest.param("fio", "open", marks=LONG),
        pytest.param("fio", "read", marks=LONG),
        pytest.param("fio", "unlink", marks=LONG),
    ],
)
def test_every_call_that_hangs_ends_the_run_and_nothing_stays(
    tier: Tier, tmp_path: Path, driver: str, call: str
) -> None:
    process = started(*fio(tier, tmp_path, "--driver", driver, "--mix", "mixed" if call == "rename" else "read"))
    said = ""
    if call in ("read", "unlink"):
        said = _read_until(process, "point 1 of")
    tier.hang(call)
    out, err = process.communicate(timeout=_AT_MOST_S)
    said += err
    # All was measured when only the removal hangs; that it stays is said.
    assert process.returncode in ((0, 3) if call == "unlink" else (3,)), (out, said)
    assert any(words in said for words in ("the tier hangs", "did not end", "removes it later")), said
    tier.answer()
    _until(lambda: not _alive(said) and _cleaned(tier))


def _read_until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stderr is not None
    said = ""
    while words not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    return said


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


@pytest.mark.parametrize("call", ["stat", "read"])
def test_ctrl_c_is_answered_while_a_call_hangs(tier: Tier, tmp_path: Path, call: str) -> None:
    if call == "stat":
        tier.hang("stat")
    process = started(*fio(tier, tmp_path, "--driver", "replay", "--mix", "read"), longest_s=600)
    if call == "read":
        _read_until(process, "point 1 of")
        tier.hang("read")
    _until(lambda: _waits(process.pid))
    process.send_signal(signal.SIGINT)
    said = _read_until(process, "SIGINT")
    assert "waiting for a call on" in said or "stopped by SIGINT" in said
    _, err = process.communicate(timeout=_AT_MOST_S)
    assert process.returncode == 130
    assert "the tier hangs" in err


def _waits(started: int) -> bool:
    """Whether a call of the process that does the work has been there for a while."""
    working = Path(f"/proc/{started}/task/{started}/children").read_text().split()
    calls = waiting_for_files(int(working[0])) if working else frozenset()
    time.sleep(1)
    return bool(calls) and not calls.isdisjoint(waiting_for_files(int(working[0])))


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
