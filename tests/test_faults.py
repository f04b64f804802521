"""What goes wrong around a run, for real: nothing but the running point is lost, and the tier is left as it was."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, Mounted, Outcome

pytestmark = pytest.mark.slow

Kvbench = Callable[..., Outcome]

EVERY = os.environ.get("KVBENCH_TEST_EVERY_FAULT")
LONG = pytest.mark.skipif(not EVERY, reason="takes minutes in all; set KVBENCH_TEST_EVERY_FAULT=1")
_FIO = pytest.param("fio", marks=pytest.mark.fio)
BOTH = pytest.mark.parametrize("driver", [_FIO, "replay"])
# The other driver goes the same ways, and is tried where all are asked for.
REPLAY_ALWAYS = pytest.mark.parametrize("driver", [pytest.param("fio", marks=(pytest.mark.fio, LONG)), "replay"])
FIO_ALWAYS = pytest.mark.parametrize("driver", [_FIO, pytest.param("replay", marks=LONG)])
_AT_MOST_S = 120.0
_POINTS = ("--model", "qwen3-8b", "--numjobs", "1,2", "--runtime", "2", "--dataset", "32MiB")


@dataclass
class Run:
    """A run of two points, and how it ended."""

    child: subprocess.Popen[str]
    run_dir: Path
    tier: Path

    def wait_for_second_point(self) -> None:
        """Return while the second point runs; the first one is on disk then."""
        until(lambda: self.child.poll() is not None or any(self.run_dir.glob("points/*-j2*")), "the second point")
        assert self.child.poll() is None, self.child.communicate()
        time.sleep(0.4)

    def end(self) -> str:
        """What it said; never a traceback."""
        out, err = self.child.communicate(timeout=_AT_MOST_S)
        assert "Traceback" not in out + err, err
        return err

    @property
    def worker(self) -> int:
        """The process that does the work of kvbench."""
        return int(Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children").read_text().split()[0])

    def statuses(self) -> list[str]:
        return [point["status"] for point in self.points()]

    def points(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads((self.run_dir / "result.json").read_text())["points"]
        return found


Begin = Callable[..., Run]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Starts a run of two points; whatever is left is killed at the end."""
    begun: list[Run] = []

    def start(driver: str, tier: Path, *more: str, run_dir: Path | None = None, **process: Any) -> Run:
        where = run_dir or tmp_path / "run"
        line = [sys.executable, "-m", "kvbench", "fio", "--tier", str(tier), *_POINTS, "--driver", driver]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **process.pop("env", {})}
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        mix = () if "--mix" in more else ("--mix", "read")
        child = subprocess.Popen(
            [*line, *mix, *more, "-o", str(where)], cwd=tmp_path, env=environment, **{**streams, **process}
        )
        begun.append(Run(child, where, tier))
        return begun[-1]

    yield start
    for run in begun:
        with suppress(ProcessLookupError):
            run.child.send_signal(signal.SIGCONT)
            run.child.kill()
        run.child.communicate()


def until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _AT_MOST_S
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def left_on(tier: Path) -> list[str]:
    return sorted(path.name for path in tier.iterdir() if path.name != "lost+found")


def resumed(kvbench: Kvbench, run: Run) -> list[str]:
    """The statuses after --resume, when the fault is gone."""
    outcome = kvbench("fio", "--resume", "-o", run.run_dir)
    assert outcome.code == 0, outcome.err
    return run.statuses()


def fio_of(run: Run) -> int:
    """The process of fio that measures now."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            program = (entry / "cmdline").read_bytes().split(b"\0")[0]
            if program.endswith(b"/fio") and str(run.run_dir) in str((entry / "cwd").readlink()):
                return int(entry.name)
    raise AssertionError("no fio")


# -- processes


@FIO_ALWAYS
def test_a_run_that_is_stopped_and_continued_ends_whole_and_shows_the_standstill(
    begin: Begin, tier: Path, driver: str
) -> None:
    run = begin(driver, tier, "--runtime", "4")
    run.wait_for_second_point()
    time.sleep(1.2)
    stopped = fio_of(run) if driver == "fio" else run.worker
    os.kill(stopped, signal.SIGSTOP)
    time.sleep(2.5)
    os.kill(stopped, signal.SIGCONT)
    run.end()
    assert (run.child.returncode, run.statuses(), left_on(tier)) == (0, ["ok", "ok"], [])
    # No latency may hide it: the operations that were under way took that long.
    assert run.points()[1]["read"]["latency_ns"]["max"] > 2 * 10**9


@LONG
@BOTH
def test_stopping_the_process_that_was_started_stops_nothing_else(begin: Begin, tier: Path, driver: str) -> None:
    run = begin(driver, tier)
    run.wait_for_second_point()
    run.child.send_signal(signal.SIGSTOP)
    time.sleep(4)
    run.child.send_signal(signal.SIGCONT)
    run.end()
    assert (run.child.returncode, run.statuses(), left_on(tier)) == (0, ["ok", "ok"], [])


@REPLAY_ALWAYS
def test_a_terminal_that_closes_ends_the_run_and_what_finished_is_saved(
    begin: Begin, kvbench: Kvbench, tier: Path, driver: str
) -> None:
    ours, theirs = pty.openpty()

    def take() -> None:
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    run = begin(driver, tier, stdin=theirs, stdout=theirs, stderr=theirs, text=False, preexec_fn=take)
    os.close(theirs)
    os.set_blocking(ours, False)

    def read_until_second() -> bool:
        with suppress(BlockingIOError):
            os.read(ours, 1 << 16)
        return any(run.run_dir.glob("points/*-j2*"))

    until(read_until_second, "the second point")
    time.sleep(0.4)
    os.close(ours)
    assert run.child.wait(_AT_MOST_S) in (74, 130)
    assert (run.statuses()[0], left_on(tier)) == ("ok", [])
    assert resumed(kvbench, run) == ["ok", "ok"]


@LONG
@BOTH
def test_two_signals_in_a_row_save_what_finished(begin: Begin, kvbench: Kvbench, tier: Path, driver: str) -> None:
    run = begin(driver, tier)
    run.wait_for_second_point()
    for number in (signal.SIGINT, signal.SIGTERM):
        run.child.send_signal(number)
    run.end()
    assert (run.child.returncode, run.statuses()[0], left_on(tier)) == (130, "ok", [])
    assert resumed(kvbench, run) == ["ok", "ok"]


@LONG
@BOTH
def test_a_guard_that_is_killed_during_a_run_is_replaced(begin: Begin, tier: Path, driver: str) -> None:
    run = begin(driver, tier)
    run.wait_for_second_point()
    token = left_on(tier)[0].removeprefix("kvbench-")
    guards = [
        int(entry.name)
        for entry in Path("/proc").glob("[0-9]*")
        if {b"guard.py", token.encode()} <= {part.rpartition(b"/")[2] for part in _command_line(entry)}
    ]
    assert len(guards) == 1
    os.kill(guards[0], signal.SIGKILL)
    run.end()
    assert (run.child.returncode, run.statuses(), left_on(tier)) == (0, ["ok", "ok"], [])


def _command_line(process: Path) -> list[bytes]:
    with suppress(OSError):
        return (process / "cmdline").read_bytes().split(b"\0")
    return []


@LONG
@BOTH
def test_a_second_run_in_one_directory_is_refused_and_disturbs_nothing(
    begin: Begin, kvbench: Kvbench, tier: Path, driver: str
) -> None:
    run = begin(driver, tier)
    run.wait_for_second_point()
    second = kvbench("fio", "--resume", "-o", run.run_dir)
    assert second.code == 2
    assert second.err.count("\n") == 1
    run.end()
    assert (run.child.returncode, run.statuses(), left_on(tier)) == (0, ["ok", "ok"], [])


@LONG
@BOTH
def test_two_runs_on_one_tier_say_so_and_clean_up_their_own(
    begin: Begin, tmp_path: Path, tier: Path, driver: str
) -> None:
    runs = [begin(driver, tier, run_dir=tmp_path / name) for name in "ab"]
    said = [run.end() for run in runs]
    assert [run.child.returncode for run in runs] == [0, 0]
    assert any("at work on this tier" in text for text in said), said
    assert left_on(tier) == []


# -- the run directory


@pytest.fixture
def small_run_dir(tmp_path: Path, mounted: Mounted) -> Path:
    """The place of a run directory on a file system of its own, with little room."""
    place = tmp_path / "results"
    place.mkdir()
    mounted(place, "tmpfs", "-o", "size=4m")
    return place


@FIO_ALWAYS
@pytest.mark.parametrize("fault", ["removed", pytest.param("full", marks=LONG)])
def test_a_run_directory_that_can_no_longer_be_written_costs_the_running_point(
    begin: Begin, kvbench: Kvbench, tier: Path, small_run_dir: Path, driver: str, fault: str
) -> None:
    run = begin(driver, tier, run_dir=small_run_dir / "run")
    run.wait_for_second_point()
    filler = small_run_dir / "filler"
    if fault == "removed":
        shutil.rmtree(run.run_dir)
    else:
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
    said = run.end()
    assert run.child.returncode in (2, 3), said
    assert left_on(tier) == []
    if fault == "removed":
        assert "was removed or replaced" in said or "does not exist" in said or "No such file" in said, said
        return
    filler.unlink(missing_ok=True)
    assert run.statuses()[0] == "ok"
    assert resumed(kvbench, run) == ["ok", "ok"]


# -- the tier


def _full(tier: Path) -> None:
    with suppress(OSError), (tier / "others").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))


def _removed(tier: Path) -> None:
    for work in tier.glob("kvbench-*"):
        shutil.rmtree(work, ignore_errors=True)


def _read_only(tier: Path) -> None:
    # A tmpfs with files open for writing is busy: by its mount, as an administrator would.
    subprocess.run(["mount", "-o", "remount,bind,ro", str(tier)], check=True)


def _unmounted(tier: Path) -> None:
    subprocess.run(["umount", "-l", str(tier)], check=True)


def _no_inodes(tier: Path) -> None:
    folder = tier / "others"
    folder.mkdir()
    with suppress(OSError):
        for number in range(1 << 20):
            (folder / str(number)).touch()


FAULTS: dict[str, Callable[[Path], None]] = {
    "full": _full, "removed": _removed, "read-only": _read_only, "unmounted": _unmounted, "no-inodes": _no_inodes,
}  # fmt: skip


@REPLAY_ALWAYS
@pytest.mark.parametrize("fault", [name if name == "unmounted" else pytest.param(name, marks=LONG) for name in FAULTS])
def test_what_happens_to_a_tier_costs_the_running_point(
    begin: Begin, kvbench: Kvbench, tier: Path, mounted: Mounted, driver: str, fault: str
) -> None:
    mounted(tier, "tmpfs", "-o", "size=200m,nr_inodes=2000,mode=0700")
    run = begin(driver, tier, "--mix", "mixed")
    run.wait_for_second_point()
    FAULTS[fault](tier)
    said = run.end()
    # What fio has laid out needs neither room nor names any more.
    assert run.child.returncode in ((0, 3) if fault in ("full", "no-inodes", "unmounted") else (3,)), said
    assert run.statuses()[0] == "ok"
    if fault == "unmounted":
        assert left_on(tier) == []
        return
    if fault == "read-only":
        subprocess.run(["mount", "-o", "remount,bind,rw", str(tier)], check=True)
    others = tier / "others"
    if others.is_dir():
        shutil.rmtree(others)
    others.unlink(missing_ok=True)
    assert kvbench("clean", "--tier", tier).code == 0
    assert left_on(tier) == []
    assert resumed(kvbench, run) == ["ok", "ok"]


@LONG
@BOTH
@pytest.mark.parametrize("fault", ["inodes", "quota"])
def test_a_tier_that_takes_no_more_files_or_bytes_is_said(
    begin: Begin, tier: Path, mounted: Mounted, tmp_path: Path, driver: str, fault: str
) -> None:
    """Out of inodes, or over quota, while the data set is written."""
    if fault == "inodes":
        mounted(tier, "tmpfs", "-o", "size=200m,nr_inodes=8,mode=0700")
        words = ["No space left on device"]
    else:
        _quota_of_16_mib(tier, mounted, tmp_path)
        words = ["Disk quota exceeded"]
    run = begin(driver, tier)
    said = run.end()
    if fault == "inodes" and driver == "fio":
        # One file for each job, which fits.
        assert run.child.returncode == 0, said
    else:
        assert run.child.returncode in (2, 3), said
        assert any(word in said for word in words), said
    assert left_on(tier) == []


def _quota_of_16_mib(tier: Path, mounted: Mounted, tmp_path: Path) -> None:
    if shutil.which("mkfs.btrfs") is None or shutil.which("btrfs") is None:
        pytest.skip("a quota needs btrfs-progs here: this kernel has no quota format for ext4 and XFS")
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(400 << 20)
    subprocess.run(["mkfs.btrfs", "-q", str(image)], check=True, capture_output=True)
    mounted(tier, "btrfs", "-o", "loop", source=image)
    for line in (("quota", "enable", str(tier)), ("qgroup", "limit", "16M", "0/5", str(tier))):
        done = subprocess.run(["btrfs", *line], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"btrfs of this kernel has no quota: {done.stderr.strip()}")


# -- the clock


# libfaketime 0.9.10 makes every time.sleep() of Python end with EINVAL.
_CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long jump(void) {
    char text[32] = {0};
    int file = open(getenv("KVBENCH_TEST_CLOCK"), O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    long got = read(file, text, sizeof text - 1);
    close(file);
    return got > 0 ? atol(text) : 0;
}
int clock_gettime(clockid_t clock, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(clock, at);
    if (clock == CLOCK_REALTIME) at->tv_sec += jump();
    return code;
}
int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""


@pytest.fixture
def settable_clock(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A file with the seconds by which the clock of the wall is wrong, and the environment that obeys it."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler is installed")
    source, library, clock = tmp_path / "clock.c", tmp_path / "clock.so", tmp_path / "clock"
    source.write_text(_CLOCK)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True, capture_output=True)
    clock.write_text("0")
    return clock, {"LD_PRELOAD": str(library), "KVBENCH_TEST_CLOCK": str(clock)}


@REPLAY_ALWAYS
@pytest.mark.parametrize("jump_s", [3600, pytest.param(-3600, marks=LONG)])
def test_a_clock_that_jumps_changes_no_number(
    begin: Begin, tier: Path, settable_clock: tuple[Path, dict[str, str]], driver: str, jump_s: int
) -> None:
    clock, environment = settable_clock
    run = begin(driver, tier, env=environment)
    run.wait_for_second_point()
    clock.write_text(str(jump_s))
    said = run.end()
    assert (run.child.returncode, run.statuses(), left_on(tier)) == (0, ["ok", "ok"], []), said
    for point in run.points():
        assert 1 < point["runtime_s"] < 60
        assert 0 < point["read"]["latency_ns"]["max"] < 600 * 10**9
        assert point["read"]["bytes_per_s"] == pytest.approx(point["read"]["bytes"] / point["runtime_s"], rel=0.6)
