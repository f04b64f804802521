"""The engine for the tests; each is skipped with the reason where it cannot run."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import engine
from tests.lab.state import LabError

HERE = Path(__file__).resolve().parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave these tests out of a plain ``pytest``: they need the engine, 2.5 GB, and minutes."""
    asked = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    return None if any(path.is_relative_to(HERE) for path in asked) else True


@pytest.fixture(autouse=True, scope="session")
def installed() -> None:
    """The engine is there, and nobody has a reason to leave it out."""
    if reason := os.environ.get("KVBENCH_ENGINE_SKIP"):
        pytest.skip(reason)
    try:
        engine.require()
    except LabError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def root() -> Iterator[Path]:
    """A directory with a short name: the engine's sockets are below it."""
    with tempfile.TemporaryDirectory(prefix="kvbench-engine-") as folder:
        yield Path(folder)
