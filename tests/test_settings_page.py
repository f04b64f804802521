"""docs/engine-settings.md: what the engine did with each setting, and what ``settings --check`` says of the same one.

tests/engine starts the engine with every row; here its answers are those on the page.
"""

from __future__ import annotations

import pytest

from tests.lab import engine_settings
from tests.lab.engine_settings import OUTSIDE, SETTINGS

PAGE = engine_settings.page()
# The engine starts, and does not do what the configuration says.
SILENT = {"key-unknown"}


def test_the_page_has_a_row_for_each_setting() -> None:
    assert list(PAGE) == [setting.words for setting in SETTINGS.values()]


@pytest.mark.parametrize("name", SETTINGS)
def test_the_page_says_what_the_check_says(name: str) -> None:
    assert PAGE[SETTINGS[name].words][1] == engine_settings.checked(name), "python -m tests.lab.engine_settings checked"


@pytest.mark.parametrize("name", SETTINGS)
def test_the_check_refuses_what_the_engine_refuses_and_nothing_that_restores(name: str) -> None:
    engine = PAGE[SETTINGS[name].words][0]
    errors = [finding for finding in engine_settings.findings(name) if finding.severity == "error"]
    assert bool(errors) == ((not engine.startswith("starts") and name not in OUTSIDE) or name in SILENT)
    assert all(finding.message and finding.hint for finding in errors)
    if engine == "starts, restores" and name not in SILENT:
        assert all(finding.engine == "accepts" for finding in engine_settings.findings(name))
