"""Tables on a terminal: readable at every width, whole in a pipe."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import pytest

from kvbench.cli import main
from kvbench.commands.fio import show_run
from kvbench.console import print_sheets
from kvbench.record import results
from kvbench.report.columns import Column, narrow, words
from tests.factories import ROOT, SHIPPED_CSV

ESCAPES = r"\x1b\[[0-9;?]*[a-zA-Z]"
RUN = ROOT / "reports" / "example" / "run"
COMMANDS = {
    "crossover": ("crossover", RUN, "--ttft-csv", SHIPPED_CSV, "--model", "gpt-oss-120b"),
    "models": ("models",),
    "blocksize": ("blocksize", "qwen3-8b", "gpt-oss-120b", "--context", "8k,128k"),
    "diff": ("diff", RUN, RUN),
    "published": ("crossover", "--p99-ms", "5,50", "--ttft-csv", SHIPPED_CSV),
    "connector": ("blocksize", "qwen3-8b", "--context", "8k", "--fit", "80GiB,7TB", "--connector", "vllm-fs"),
    "dry run": ("fio", "--tier", "dram", "--model", "qwen3-8b", "--dry-run"),
}


class Terminal(io.StringIO):
    """What a program takes for a terminal."""

    def isatty(self) -> bool:
        return True


OnTerminal = Callable[..., list[str]]


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> OnTerminal:
    """The lines that a command prints on a terminal of a width, without what colours them unless that is wanted."""

    def lines(width: int, *arguments: object, plain: bool = True, code: int = 0) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setattr("sys.stdout", terminal := Terminal())
        assert main(list(map(str, arguments))) == code
        text = terminal.getvalue()
        return (re.sub(ESCAPES, "", text) if plain else text).split("\n")

    return lines


@pytest.mark.slow
@pytest.mark.parametrize("width", [60, 80, 100, 120])
@pytest.mark.parametrize("name", COMMANDS)
def test_no_table_is_wider_than_the_terminal_or_broken_into_letters(
    on_terminal: OnTerminal, name: str, width: int
) -> None:
    lines = on_terminal(width, *COMMANDS[name])
    # Sentences are left to the terminal, which breaks them; a line of a table must fit.
    tables = [line for line in lines if line.startswith(" ") or set(line.strip()) == {"─"}]
    require_readable(tables, width)


@pytest.mark.parametrize("width", range(57, 130, 7))
def test_no_letter_is_lost_where_text_is_broken(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    columns: tuple[Column[tuple[str, str, str]], ...] = (
        words("a", "name", lambda row: row[0]),
        words("b", "count", lambda row: row[1], right=True),
        words("c", "source", lambda row: row[2]),
    )
    rows = [
        ("gpt-oss-120b-h200", "5", "5 from 2,048 to 49,152 tokens"),
        ("x", "1,234,567", "guide (uncached time) " * 3),
    ]
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    print_sheets([narrow("t", columns, rows)])
    text = re.sub(ESCAPES, "", terminal.getvalue())
    assert sorted(re.sub(r"\s", "", "".join(map("".join, rows)))) == sorted(
        re.sub(r"\s", "", text.split("─", 1)[1].replace("─", ""))
    )


@pytest.mark.slow
def test_findings_are_readable(on_terminal: OnTerminal) -> None:
    require_readable([line for line in on_terminal(80, "doctor", "--tier", "dram") if line.startswith(" ")], 80)


def require_readable(tables: list[str], width: int) -> None:
    """No line of a table is wider than the terminal, and none holds a piece of one or two letters alone."""
    assert tables
    assert [line for line in tables if len(line.rstrip()) > width] == []
    assert [line for line in tables if re.fullmatch(r" +[a-z]{1,2} *", line)] == []


def headings(lines: list[str]) -> list[list[str]]:
    """The headings of each table, as words between gaps."""
    return [
        re.split(r" {2,}", line.strip())
        for line, below in pairwise(lines)
        if below.strip() and set(below.strip()) == {"─"}
    ]


@pytest.mark.slow
def test_columns_fall_away_in_their_order_and_are_named(on_terminal: OnTerminal) -> None:
    kept = ["tier", "model", "at once", "verdict", "restoring wins"]
    falling = ["restores tokens/s", "single block (published)"]
    for width, shown, left_out in ((120, 2, 0), (100, 1, 1), (80, 0, 2)):
        lines = on_terminal(width, *COMMANDS["crossover"])
        assert headings(lines)[0] == kept + falling[:shown]
        said = [line for line in lines if line.startswith(f"Left out at {width} columns:")]
        assert falling[-1] in said[0] if left_out else not said, width


@pytest.mark.slow
def test_a_table_that_is_too_wide_without_them_becomes_blocks_of_lines(on_terminal: OnTerminal) -> None:
    lines = on_terminal(80, *COMMANDS["crossover"])
    blocks = [line.split(None, 1) for line in lines[lines.index("Why") :] if line.startswith((" tier ", " distrust "))]
    assert ["tier", "disk"] in blocks
    assert ["distrust", "few-samples"] in blocks


@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_run_is_a_table_of_one_row_a_direction(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    run_dir, result = results.open_run(RUN)
    show_run(result, run_dir, as_json=False)
    lines = re.sub(ESCAPES, "", terminal.getvalue()).split("\n")
    rows = [line for line in lines if re.match(r" (disk|dram) +[0-9.]+ MiB ", line)]
    assert len(rows) == sum(len(point.sides()) for point in result.points) == 32
    assert all(len(line.rstrip()) <= width for line in lines)


@pytest.mark.slow
def test_a_verdict_has_its_colour_beside_its_word_and_none_in_a_pipe(
    on_terminal: OnTerminal, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    painted = on_terminal(80, *COMMANDS["crossover"], plain=False)
    assert any("\x1b[1;31mNOT VIABLE" in line for line in painted)
    assert any("\x1b[1;32mVIABLE" in line for line in painted)
    command = ("gate", RUN, "--ttft-csv", SHIPPED_CSV, "--model", "gpt-oss-120b")
    assert on_terminal(80, *command, plain=False, code=1)[0].startswith("\x1b[1;31mnot viable\x1b[0m: disk")
    monkeypatch.undo()
    assert main(list(map(str, command))) == 1
    assert capsys.readouterr().out.startswith("not viable: disk")


@pytest.mark.slow
def test_a_wide_terminal_and_a_pipe_get_a_table(
    on_terminal: OnTerminal, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    headed = [line for line in on_terminal(200, *COMMANDS["crossover"]) if line.startswith(" tier ")]
    assert headed
    assert all("model" in line for line in headed)
    monkeypatch.undo()
    assert main(list(map(str, COMMANDS["crossover"]))) == 0
    assert all("model" in line for line in capsys.readouterr().out.splitlines() if line.startswith(" tier "))


@pytest.mark.slow
def test_a_real_terminal_of_80_columns() -> None:
    control, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"TERM": "xterm"}
    command = [sys.executable, "-m", "kvbench", *map(str, COMMANDS["models"])]
    child = subprocess.Popen(command, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    printed = b""
    with suppress(OSError):
        while piece := os.read(control, 1 << 16):
            printed += piece
    os.close(control)
    assert child.wait() == 0, printed
    lines = re.sub(ESCAPES, "", printed.decode()).replace("\r", "").split("\n")
    assert "Left out at 80 columns: model." in [line.strip() for line in lines]
    assert max(map(len, lines)) <= 80
