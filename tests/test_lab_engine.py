"""What the lab does about SIGTERM while an engine runs; the engine itself is not needed here."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.conftest import ROOT

WAITS = """
import signal, sys, time
from tests.lab import engine
{before}
with engine.ended_in_order():
    try:
        print("within", flush=True)
        time.sleep(60)
    finally:
        print("stopped", flush=True)
"""


@pytest.mark.parametrize(
    ("before", "said", "code"),
    [
        ("", "stopped\n", 128 + signal.SIGTERM),
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))", "stopped\n", 7),
        ("signal.signal(signal.SIGTERM, lambda *_: (print('own'), sys.exit(7)))", "own\nstopped\n", 7),
    ],
    ids=["nobody-handles-it", "the-program-leaves", "the-program-speaks"],
)
def test_a_sigterm_leaves_through_the_finally_clauses(before: str, said: str, code: int) -> None:
    command = [sys.executable, "-c", WAITS.format(before=before)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "within\n"
        child.terminate()
        assert child.stdout.read() == said
    assert child.returncode == code


def test_the_signal_is_as_before_afterwards() -> None:
    told = "from tests.lab import engine\nimport signal\nwith engine.ended_in_order(): pass\n"
    told += "assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL"
    subprocess.run([sys.executable, "-c", told], check=True, cwd=ROOT)
