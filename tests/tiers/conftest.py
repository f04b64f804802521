"""The lab's parts as fixtures; a test whose part does not run is skipped with the reason, and counted as such."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, require_fio
from tests.lab import ceph as lab_ceph
from tests.lab import loops, nanio
from tests.lab.processes import pid_of
from tests.lab.state import Ceph, Lab, LabError, Loop, Osd, S3Server, lab_root, load

HERE = Path(__file__).resolve().parent

Run = Callable[..., "Measured"]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave these tests out of a plain ``pytest``: they need minutes, root and a running lab."""
    asked = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    return None if any(path.is_relative_to(HERE) for path in asked) else True


class Measured:
    """A run of the program as a child: exit code, what it printed, and its result."""

    def __init__(self, done: subprocess.CompletedProcess[str], run_dir: Path) -> None:
        """Keep what one call left."""
        self.code, self.out, self.err, self.run_dir = done.returncode, done.stdout, done.stderr, run_dir

    @property
    def result(self) -> dict[str, Any]:
        """result.json."""
        data: dict[str, Any] = json.loads((self.run_dir / "result.json").read_text())
        return data

    def points(self) -> list[dict[str, Any]]:
        """The points of the result."""
        found: list[dict[str, Any]] = self.result["points"]
        return found

    def fio(self, point: dict[str, Any]) -> dict[str, Any]:
        """The only job in fio's own output of a point."""
        (job,) = json.loads((self.run_dir / point["source"]).read_text())["jobs"]
        assert isinstance(job, dict)
        return job


def program(*arguments: str | Path) -> list[str]:
    """The command line of kvbench with these arguments."""
    return [sys.executable, "-m", "kvbench", *map(str, arguments)]


@pytest.fixture
def run_fio(tmp_path: Path) -> Run:
    """``kvbench fio`` with short defaults; extra variables by keyword ``env``."""
    require_fio()

    def run(*arguments: str | Path, env: dict[str, str] | None = None) -> Measured:
        run_dir = tmp_path / f"run-{len(list(tmp_path.glob('run-*')))}"
        command = program(
            "fio", "--connector", "logical", "--runtime", "1", "--dataset", "64MiB", *arguments, "-o", run_dir
        )
        variables = {**os.environ, **(env or {})}
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=variables, check=False)
        return Measured(done, run_dir)

    return run


@pytest.fixture
def doctor() -> Callable[..., dict[str, Any]]:
    """The only tier of ``kvbench doctor --tier T --json``."""

    def examine(target: str | Path, **variables: str) -> dict[str, Any]:
        command = program("doctor", "--tier", f"t={target}", "--json")
        env = {**os.environ, **variables}
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env, check=False)
        (tier,) = json.loads(done.stdout)["tiers"]
        assert isinstance(tier, dict)
        return tier

    return examine


@pytest.fixture(scope="session")
def lab() -> Lab:
    """The running lab."""
    found = load(lab_root())
    if found is None:
        pytest.skip("the storage lab is not up (make lab-up)")
    return found


@pytest.fixture
def ceph(lab: Lab) -> Ceph:
    """A healthy Ceph."""
    if lab.ceph is None or not lab_ceph.is_up(Path(lab.root), lab.ceph):
        pytest.skip(f"the lab's Ceph does not run: {lab.missing.get('ceph', 'a daemon is gone')}")
    return lab.ceph


@pytest.fixture
def xfs(lab: Lab, request: pytest.FixtureRequest) -> Loop:
    """The lab's mounted XFS with the sector size of the parameter."""
    for loop in lab.loops:
        if loop.sector_bytes == request.param and loop.mount and loops.is_attached(loop):
            return loop
    pytest.skip(f"the lab's loop devices are not there: {lab.missing.get('loops', 'detached')}")


@pytest.fixture
def fresh_loop(tmp_path: Path) -> Iterator[Callable[..., Loop]]:
    """Makes loop devices that belong to the test alone and are detached at its end."""
    try:
        loops.require()
    except LabError as error:
        pytest.skip(str(error))
    made: list[Loop] = []

    def make(name: str, sector_bytes: int = 512, *, xfs: bool = False, size: int = 400 << 20) -> Loop:
        try:
            made.append(loops.attach(tmp_path / "loops", name, sector_bytes, xfs=xfs, size=size))
        except LabError as error:
            pytest.skip(str(error))
        return made[-1]

    yield make
    for loop in made:
        loops.detach(loop)


@pytest.fixture(params=["rgw", "nanio"])
def s3(lab: Lab, request: pytest.FixtureRequest) -> S3Server:
    """A real S3 endpoint."""
    root = Path(lab.root)
    if request.param == "rgw" and lab.ceph and lab_ceph.is_up(root, lab.ceph):
        return lab.ceph.rgw
    if request.param == "nanio" and lab.nanio and nanio.is_up(root):
        return lab.nanio
    pytest.skip(f"the lab's {request.param} does not run: {lab.missing}")


@pytest.fixture
def pause(ceph: Ceph) -> Iterator[Callable[[], None]]:
    """Stops every OSD in its tracks (SIGSTOP); they go on at the end of the test, or when ``resume`` is called."""

    def stop() -> None:
        signal_osds(ceph.osds, signal.SIGSTOP)

    yield stop
    resume(ceph)


def resume(ceph: Ceph) -> None:
    """Let every OSD go on."""
    signal_osds(ceph.osds, signal.SIGCONT)


def signal_osds(osds: Sequence[Osd], number: signal.Signals) -> None:
    """Send a signal to the lab's own OSDs."""
    for osd in osds:
        process = pid_of(Path(osd.pid_file))
        assert process is not None, f"osd.{osd.id} is gone"
        os.kill(process, number)


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    """Fail unless the condition comes true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.1)
