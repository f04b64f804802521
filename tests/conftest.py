"""Shared fixtures: the program run in process or as a child, and a fake fio on PATH."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from kvbench.cli import main
from kvbench.prefill.live import endpoint

ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = ROOT.parent / "shared" / "data"
NEUTRAL = ("KVBENCH_RUN_TOKEN", "COLUMNS", "FORCE_COLOR", "NO_COLOR", "TERM")

# What a test needs beside Python, told by the fixtures that start it; the rest is marked by hand.
NEEDS = {"nanio": "server", "real": "server", "engine": "fio", "browser": "browser", "start": "slow"}

# How long an example takes says nothing on a machine with other work.
settings.register_profile("kvbench", deadline=None)
settings.register_profile("quick", settings.get_profile("kvbench"), max_examples=10)
settings.load_profile("kvbench")

# Under nohup a run outlives its terminal, and so would the runs that the tests end with SIGHUP.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test by what its fixtures need, before -m chooses."""
    for item in items:
        for name in NEEDS.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(NEEDS[name])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that runs the real fio is skipped where there is none, before its fixtures are made."""
    if item.get_closest_marker("fio") is not None:
        require_fio()


@dataclass(frozen=True)
class Outcome:
    """What one call of the program returned and printed."""

    code: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        """The one JSON object on stdout."""
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value


@pytest.fixture(autouse=True)
def neutral_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the developer's terminal reaches a test."""
    for name in NEUTRAL:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "160")


@pytest.fixture(autouse=True, scope="session")
def alone_on_this_host() -> Iterator[None]:
    """No run of kvbench beside the tests is seen by the calls of main() in this process."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("kvbench.tiers.others._SOCKETS", Path(os.devnull))
        yield


@pytest.fixture
def kvbench(capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run the program in this process through main(), as the console script does."""

    def run(*arguments: str | Path) -> Outcome:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture
def no_key_and_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the developer's key nor a proxy that would be found in the way (nobody listens at that one)."""
    monkeypatch.delenv(endpoint.KEY_VARIABLE, raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


@dataclass
class FakeFio:
    """The fake fio: its log, and how to make a job misbehave."""

    log_file: Path
    environment: dict[str, str]
    behaviour: dict[str, str | int] = field(default_factory=dict)

    def on(self, job_part: str, what: str | int) -> None:
        """Make jobs whose name holds ``job_part`` do ``what`` (see fake_fio.py)."""
        self.behaviour[job_part] = what
        os.environ["FAKE_FIO_BEHAVIOUR"] = json.dumps(self.behaviour)
        self.environment["FAKE_FIO_BEHAVIOUR"] = json.dumps(self.behaviour)

    def log(self) -> list[str]:
        """Every call so far, in order."""
        return self.log_file.read_text().splitlines() if self.log_file.exists() else []

    def runs(self) -> list[str]:
        """Names of the jobs that were run, in order."""
        return [line.partition(" ")[2] for line in self.log() if line.startswith("run ")]


@pytest.fixture
def fake_fio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeFio:
    """A program called fio, first on PATH, that writes canned results."""
    return install_fake_fio(tmp_path, monkeypatch)


def install_fake_fio(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeFio:
    """Put the fake fio into ``folder`` and that first on PATH."""
    programs = folder / "bin"
    programs.mkdir()
    program = programs / "fio"
    program.write_text(f"#!{sys.executable} -I\n" + (ROOT / "tests" / "fake_fio.py").read_text())
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    log_file = folder / "fio.log"
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_FIO_LOG", str(log_file))
    monkeypatch.setenv("FAKE_FIO_BEHAVIOUR", "{}")
    return FakeFio(log_file, dict(os.environ))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the program as a child process, for signals; whatever is left is killed at the end."""
    children: list[subprocess.Popen[str]] = []

    def launch(*arguments: str | Path) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-m", "kvbench", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        children.append(child)
        return child

    yield launch
    for child in children:
        if child.poll() is None:
            child.kill()
        child.communicate()


@pytest.fixture
def tier(tmp_path: Path) -> Path:
    """An empty directory to measure."""
    path = tmp_path / "tier"
    path.mkdir()
    return path


Mounted = Callable[..., None]


@pytest.fixture
def mounted() -> Iterator[Mounted]:
    """Mounts a file system (``mounted(place, type, *options, source=...)``) and takes it away at the end."""
    places: list[Path] = []

    def mount(place: Path, kind: str, *options: str, source: str | Path = "kvbench-test") -> None:
        done = subprocess.run(
            ["mount", "-t", kind, *options, str(source), str(place)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            pytest.skip(f"this host mounts no {kind}: {done.stderr.strip()[:200]}")
        places.append(place)

    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting needs root and mount(8)")
    yield mount
    for place in reversed(places):
        if place.is_mount():
            subprocess.run(["umount", "-l", str(place)], check=True)


def require_fio() -> None:
    """Skip, with the reason, where the real fio is not installed."""
    if shutil.which("fio") is None:
        pytest.skip("fio is not installed")
