"""docs/safety.md names tests that exist, and the purge job of docs/purge.md keeps to the rules that it is said to."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.test_removal import as_root, mounted

PAGE = (ROOT / "docs" / "safety.md").read_text()
NAMED = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)
PURGE = (ROOT / "docs" / "purge.md").read_text()


def functions_of(file: Path) -> set[str]:
    return {node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.slow
def test_every_test_that_the_page_names_exists() -> None:
    assert len(NAMED) > 50
    for file in {file for file, _ in NAMED}:
        assert {name for other, name in NAMED if other == file} <= functions_of(ROOT / "tests" / file), file


def test_every_row_of_the_page_names_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| what ")]
    assert len(rows) > 20
    assert [row for row in rows if not re.search(r"`[\w/]+\.py::\w+` ?[|,]", row)] == []


def test_every_test_of_removal_is_on_the_page() -> None:
    tests = {name for name in functions_of(ROOT / "tests" / "test_removal.py") if name.startswith("test_")}
    assert tests == {name for file, name in NAMED if file == "test_removal.py"}


def purge(volume: Path) -> subprocess.CompletedProcess[str]:
    """Run the script of the documented job on another directory than /kv."""
    script = re.search(r"- \|\n((?: {14}.*\n)+)", PURGE)
    assert script is not None
    text = script[1].replace("/kv", str(volume))
    return subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False)


def aged(path: Path) -> Path:
    """A file that nobody touched for a week."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    then = time.time() - 7 * 86_400
    os.utime(path, (then, then))
    return path


def test_the_purge_job_removes_old_blocks_only(tmp_path: Path) -> None:
    volume, outside = tmp_path / "kv", aged(tmp_path / "outside" / "old.bin")
    assert not volume.exists()
    volume.mkdir()
    assert purge(volume).returncode == 0
    engine = volume / "model_0123456789ab_r0"
    gone = [aged(engine / "abc" / "de_g0" / "old.bin"), aged(engine / "abc" / "de_g0" / "old.tmp")]
    stays = [
        aged(engine / "config.json"),
        aged(volume / "kvbench-0123456789abcdef" / "old.bin"),
        aged(volume / "mine" / "old.bin"),
        outside,
    ]
    (engine / "abc" / "new.bin").write_text("x")
    (engine / "link").symlink_to(outside.parent)
    (engine / "link.bin").symlink_to(outside)
    (volume / "other_r0").symlink_to(outside.parent)
    done = purge(volume)
    assert (done.returncode, done.stderr) == (0, "")
    assert not any(path.exists() for path in gone)
    assert all(path.exists() for path in [*stays, engine / "abc" / "new.bin", engine / "link.bin"])


@as_root
@pytest.mark.parametrize("same_file_system", [True, False])
def test_the_purge_job_refuses_mounts_below(tmp_path: Path, same_file_system: bool) -> None:
    volume, outside = tmp_path / "kv", aged(tmp_path / "outside" / "old.bin")
    block = aged(volume / "model_r0" / "abc" / "old.bin")
    point = volume / "model_r0" / "mnt"
    point.mkdir()
    with mounted(*(("--bind", outside.parent) if same_file_system else ("-t", "tmpfs", "tmpfs")), point):
        inside = aged(point / "old.bin")
        done = purge(volume)
        assert (done.returncode, "unmount what is mounted below" in done.stderr) == (1, True)
        assert (inside.exists(), block.exists(), outside.exists()) == (True, True, True)
    assert purge(volume).returncode == 0
    assert not block.exists()
