"""docs/engine-settings.md is what the engine does with each setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab import engine, engine_settings
from tests.lab.engine_settings import SETTINGS


@pytest.fixture(scope="session")
def answers(root: Path) -> dict[str, engine.Answer]:
    """The engine started with every setting."""
    return engine.trials(root, [engine_settings.trial(root, name) for name in SETTINGS])


@pytest.mark.parametrize("name", SETTINGS)
def test_the_page_says_what_the_engine_does(name: str, answers: dict[str, engine.Answer]) -> None:
    assert engine_settings.page()[SETTINGS[name].words][0] == engine_settings.done(answers[name])
