"""Signals at any moment of a call: a sentence and 130, or the whole answer and its code; never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import pytest

from kvbench.host.interruption import interruptible
from tests.conftest import ROOT, FakeFio
from tests.factories import SHIPPED_CSV

pytestmark = pytest.mark.slow

RUN = ROOT / "reports" / "example" / "run"
COMMANDS = {
    "version": ("--version",),
    "blocksize": ("blocksize", "qwen3-8b"),
    "crossover": ("crossover", str(RUN), "--ttft-csv", str(SHIPPED_CSV)),
}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DELAYS_S = (0.0, 0.01, 0.02, 0.04, 0.08, 0.12, 0.16, 0.2, 0.25, 0.3, 0.4, 0.5)
SCRIPT = Path(sys.executable).with_name("kvbench")


def catches_sigterm(process: int) -> bool:
    """Whether the program has taken over its signals; until then they are Python's and the kernel's."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False
    mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(mask, 16) >> (signal.SIGTERM - 1) & 1)


def launch(*command: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    deadline = time.monotonic() + 30
    while not catches_sigterm(child.pid):
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return child


def whole(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "kvbench", *arguments], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_a_signal_at_any_moment(arguments: tuple[str, ...]) -> None:
    answer = whole(*arguments)
    codes = set()
    for number, delay_s in zip(cycle(SIGNALS), DELAYS_S, strict=False):
        child = launch(sys.executable, "-m", "kvbench", *arguments)
        time.sleep(delay_s)
        child.send_signal(number)
        out, err = child.communicate(timeout=60)
        said = f"{number.name} after {delay_s} s: {err}"
        assert child.returncode in (0, 130), said
        assert "Traceback" not in err, said
        assert "Exception ignored" not in err, said
        if child.returncode == 130:
            assert err.endswith("kvbench: interrupted.\n"), said
        else:
            assert out == answer, said
        codes.add(child.returncode)
    assert 130 in codes


def test_the_console_script_takes_its_signals_over_as_well() -> None:
    if not SCRIPT.exists():
        pytest.skip("kvbench is not installed as a script beside this Python")
    child = launch(str(SCRIPT), "blocksize", "qwen3-8b")
    child.send_signal(signal.SIGTERM)
    _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (130, "kvbench: interrupted.\n")


def test_two_signals_in_a_row_end_it_all_the_same() -> None:
    child = launch(sys.executable, "-m", "kvbench", "crossover", str(RUN), "--ttft-csv", str(SHIPPED_CSV))
    for _ in range(2):
        child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "Traceback" not in err


def test_a_run_under_nohup_outlives_its_terminal(fake_fio: FakeFio, tier: Path, tmp_path: Path) -> None:
    options = ("--model", "qwen3-8b", "--mix", "read", "--numjobs", "1", "--runtime", "1", "--dataset", "16MiB")
    fake_fio.on("read-j1", "hang")
    line = ["nohup", sys.executable, "-m", "kvbench", "fio", "--tier", str(tier), *options, "-o", str(tmp_path / "run")]
    child = subprocess.Popen(
        line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        cwd=tmp_path, env={**fake_fio.environment, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 30
        while not any(entry.startswith("hanging") for entry in fake_fio.log()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        child.send_signal(signal.SIGHUP)
        time.sleep(1)
        assert child.poll() is None
        child.send_signal(signal.SIGTERM)
        _, err = child.communicate(timeout=60)
    finally:
        child.kill()
        child.communicate()
    assert child.returncode == 130
    assert "stopped by SIGTERM; what finished is saved" in err


def test_handlers_come_back_after_a_run() -> None:
    marks: list[int] = []
    handler: Callable[..., None] = lambda number, frame: marks.append(number)  # noqa: E731
    earlier = signal.signal(signal.SIGTERM, handler)
    try:
        with interruptible(lambda: "nothing."):
            assert signal.getsignal(signal.SIGTERM) is not handler
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, earlier)
    assert marks == [signal.SIGTERM]
