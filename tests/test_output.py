"""Broken standard streams: never a verdict, never a traceback, for every command and at the interpreter's end."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from kvbench.commands import COMMANDS
from tests.conftest import ROOT
from tests.factories import SHIPPED_CSV

pytestmark = pytest.mark.slow

RUN = ROOT / "reports" / "example" / "run"
PROGRAM = f"{sys.executable} -m kvbench"
NOT_VIABLE = f"{PROGRAM} gate {RUN} --ttft-csv {SHIPPED_CSV}"
PRINTING = {
    "version": (f"{PROGRAM} --version", 0),
    "help": (f"{PROGRAM} --help", 0),
    "blocksize": (f"{PROGRAM} blocksize qwen3-8b", 0),
    "json": (f"{PROGRAM} models --json", 0),
    "gate": (NOT_VIABLE, 1),
    "gate-json": (f"{NOT_VIABLE} --json", 1),
    "diff": (f"{PROGRAM} diff {RUN} {RUN}", 0),
}
FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """One line of bash, whose exit code is that of the last program in it that failed."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize(("line", "code"), PRINTING.values(), ids=PRINTING)
def test_with_whole_streams_the_code_is_the_programs_own(line: str, code: int) -> None:
    done = shell(line)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
    assert done.stdout


@FULL
@pytest.mark.parametrize("end", [">/dev/full", ">&-", ">/dev/full 2>/dev/full", "0<&- >&- 2>&-"])
@pytest.mark.parametrize("what", ["version", "json", "gate"])
def test_an_output_that_takes_nothing_is_74(what: str, end: str) -> None:
    done = shell(f"{PRINTING[what][0]} {end}")
    assert done.returncode == 74
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert ("so the exit code is no verdict" in done.stderr) == ("2>" not in end)


@FULL
def test_no_command_ends_with_1_when_its_help_cannot_be_shown() -> None:
    each = "; ".join(f"{PROGRAM} {name} --help >/dev/full; echo $?" for name in ("", *COMMANDS))
    assert shell(each).stdout.split() == ["74"] * (len(COMMANDS) + 1)


@FULL
def test_python_unbuffered_makes_no_difference() -> None:
    assert shell(f"{PROGRAM} models >/dev/full", PYTHONUNBUFFERED="1").returncode == 74


@pytest.mark.parametrize("what", ["help", "json", "gate"])
def test_a_reader_that_went_away_is_141_and_silent(what: str) -> None:
    done = shell(f"{{ sleep 0.2; {PRINTING[what][0]}; }} | true")
    assert (done.returncode, done.stderr) == (141, "")


def test_a_reader_that_stays_to_the_end_gets_all() -> None:
    done = shell(f"{PROGRAM} models --json | cat")
    assert (done.returncode, done.stdout) == (0, shell(f"{PROGRAM} models --json").stdout)


def test_a_large_output_into_head_ends_quietly() -> None:
    done = shell(f"for n in 1 2 3; do {PROGRAM} models --json; done | head -c 10")
    assert done.returncode == 141
    assert done.stderr == ""


@FULL
def test_a_broken_stderr_spoils_only_what_says_something_there(tmp_path: Path) -> None:
    assert shell(f"{NOT_VIABLE} 2>/dev/full").returncode == 1
    assert shell(f"{NOT_VIABLE} 2>&-").returncode == 1
    # A report says on standard error where it is.
    report = f"{PROGRAM} report {RUN} --ttft-csv {SHIPPED_CSV} -o {tmp_path / 'page.html'}"
    assert shell(report).returncode == 0
    assert shell(f"{report} 2>/dev/full").returncode == 74


@FULL
@pytest.mark.parametrize("end", ["2>/dev/full", "2>&-", ">&- 2>&-"])
def test_a_usage_error_stays_one_when_nobody_can_read_it(end: str) -> None:
    assert shell(f"{PROGRAM} blocksize /nowhere/config.json {end}").returncode == 2


def test_no_file_gets_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    """With descriptors 1 and 2 closed the report's files would be the next to get them, and errors end up inside."""
    page = tmp_path / "page.html"
    line = f"{PROGRAM} report {RUN} --ttft-csv {SHIPPED_CSV} -o {page}"
    assert shell(f"{line} 0<&- >&- 2>&-").returncode == 74
    closed = page.read_text()
    assert shell(line).returncode == 0
    assert closed.startswith("<!")
    assert "no verdict" not in closed
    assert "report: " not in (tmp_path / "page.md").read_text()


@pytest.mark.parametrize("command", ["models", "gate"])
def test_a_terminal_that_is_gone_is_74(command: str) -> None:
    own, theirs = pty.openpty()
    arguments = [command, *([str(RUN), "--ttft-csv", str(SHIPPED_CSV)] if command == "gate" else [])]
    child = subprocess.Popen(
        [sys.executable, "-m", "kvbench", *arguments], stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT
    )
    os.close(theirs)
    os.close(own)
    assert child.wait(60) == 74


def test_a_non_blocking_pipe_is_waited_for() -> None:
    """A reader such as node sets O_NONBLOCK on the pipe for both ends; a full one is then no error."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    filled = 0
    while True:
        try:
            filled += os.write(writing, b"x" * 4096)
        except BlockingIOError:
            break
    child = subprocess.Popen([sys.executable, "-m", "kvbench", "models", "--json"], stdout=writing, cwd=ROOT)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        said = file.read()
    assert child.wait(60) == 0
    assert said[filled:].rstrip().endswith(b"}")


def test_a_broken_installation_is_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ImportError('half of it is missing')\n")
    done = shell(f"{PROGRAM} blocksize qwen3-8b", PYTHONPATH=str(tmp_path))
    assert done.returncode == 70
    assert done.stderr == (
        "kvbench: this installation does not work (ImportError: half of it is missing); install kvbench again.\n"
    )


def test_a_part_that_is_missing_later_is_no_verdict_either(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit(1)\n")
    done = shell(f"{NOT_VIABLE}", PYTHONPATH=str(tmp_path))
    assert done.returncode == 70
