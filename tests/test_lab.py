"""The lab touches only what is its own: directories that it marked, processes that it started."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab import processes, state
from tests.lab.state import Ceph, Lab, LabError, Loop, Osd, S3Server

SERVER = S3Server("http://127.0.0.1:1", "key", "secret", "bucket")


def test_what_runs_is_written_for_this_user_only_and_read_back(tmp_path: Path) -> None:
    lab = Lab(
        str(tmp_path),
        ceph=Ceph("conf", "mount", [Osd(0, "pid", ["ceph-osd"])], None, SERVER),
        nanio=SERVER,
        loops=[Loop("/dev/loop0", "/img", 512, None)],
        missing={"x": "why"},
    )
    state.save(lab)
    assert state.load(tmp_path) == lab
    assert stat.S_IMODE((tmp_path / state.STATE_NAME).stat().st_mode) == 0o600


def test_no_lab_is_no_lab(tmp_path: Path) -> None:
    assert state.load(tmp_path) is None


def test_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(LabError, match="exists and is no lab"):
        state.claim(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_an_empty_or_marked_directory_is_taken(tmp_path: Path) -> None:
    root = tmp_path / "lab"
    state.claim(root)
    (root / "something").touch()
    state.claim(root)
    assert (root / state.MARKER_NAME).is_file()


@pytest.mark.parametrize("text", ["", "no number", "1", "own", "4194305"])
def test_a_pid_file_of_another_process_is_not_believed(tmp_path: Path, text: str) -> None:
    """Process 1, this test itself and a process that is gone: none of them names the lab's directory."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "mon.a.pid").write_text(text.replace("own", str(os.getpid())))
    assert processes.pid_of(folder / "mon.a.pid") is None
    processes.stop([folder / "mon.a.pid", folder / "absent.pid"], grace_s=0.1)


def test_a_process_of_the_lab_is_stopped_even_when_it_is_paused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", str(tmp_path)])
    try:
        (folder / "nanio.pid").write_text(f"{child.pid}\n")
        assert processes.wait_until(lambda: processes.pid_of(folder / "nanio.pid") == child.pid, 10)
        os.kill(child.pid, signal.SIGSTOP)
        processes.stop([folder / "nanio.pid"], grace_s=10)
        assert child.wait(10) != 0
    finally:
        child.kill()
        child.wait()


def test_a_command_that_fails_says_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="cannot access"):
        processes.run(["ls", "/no/such/place"])
    with pytest.raises(LabError, match="did not end within"):
        processes.run(["sleep", "60"], timeout_s=0.1, log=tmp_path / "log")
    assert processes.run(["echo", "fine"]) == "fine\n"


def test_mounts_below_the_lab_are_found_deepest_first() -> None:
    points = processes.mounted_below(Path("/"))
    assert points
    assert [len(point.parts) for point in points] == sorted((len(point.parts) for point in points), reverse=True)
