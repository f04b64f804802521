"""Tables on a terminal: readable at every width, whole in a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from contextlib import suppress

import pytest

from tests.factories import ROOT, SHIPPED_CSV

RUN = ROOT / "reports" / "example" / "run"
COMMANDS = {
    "crossover": ("crossover", RUN, "--ttft-csv", SHIPPED_CSV, "--model", "gpt-oss-120b"),
    "models": ("models",),
    "blocksize": ("blocksize", "qwen3-8b", "gpt-oss-120b", "--context", "8k,128k"),
    "diff": ("diff", RUN, RUN),
}


def on_terminal(width: int, *arguments: object) -> list[str]:
    """The lines that the program prints on a terminal of that width."""
    control, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"TERM": "xterm"}
    command = [sys.executable, "-m", "kvbench", *map(str, arguments)]
    child = subprocess.Popen(command, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    printed = b""
    with suppress(OSError):
        while piece := os.read(control, 1 << 16):
            printed += piece
    os.close(control)
    assert child.wait() == 0, printed
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", printed.decode()).replace("\r", "").split("\n")


@pytest.mark.parametrize("width", [60, 80, 100, 120])
@pytest.mark.parametrize("name", COMMANDS)
def test_no_table_is_wider_than_the_terminal_or_broken_into_letters(name: str, width: int) -> None:
    lines = on_terminal(width, *COMMANDS[name])
    # Sentences are left to the terminal, which breaks them; a line of a table must fit.
    tables = [line for line in lines if line.startswith(" ") or set(line.strip()) == {"─"}]
    assert tables
    assert [line for line in tables if len(line.rstrip()) > width] == []
    alone = [line for line in tables if re.fullmatch(r" +[a-z]{1,2} *", line)]
    assert alone == [], "pieces of one or two letters"


def test_a_narrow_terminal_gets_each_row_as_a_block() -> None:
    lines = on_terminal(80, *COMMANDS["crossover"])
    blocks = [line.split(None, 1) for line in lines if line.startswith((" tier ", " verdict "))]
    assert ["verdict", "NOT VIABLE"] in blocks
    assert ["tier", "disk"] in blocks


def test_a_wide_terminal_and_a_pipe_get_a_table() -> None:
    headed = [line for line in on_terminal(200, *COMMANDS["crossover"]) if line.startswith(" tier ")]
    assert all("model" in line for line in headed)
    piped = subprocess.run(
        [sys.executable, "-m", "kvbench", *map(str, COMMANDS["crossover"])], capture_output=True, text=True, check=True
    ).stdout
    assert all("model" in line for line in piped.splitlines() if line.startswith(" tier "))
