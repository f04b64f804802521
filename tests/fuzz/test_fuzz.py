"""Mutated inputs of every border, the same ones each time: sentences, no traceback, no hang."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from tests.fuzz.borders import BORDERS, Border, remove_made, remove_prepared
from tests.fuzz.trial import tried

pytestmark = pytest.mark.slow

_INPUTS = 160


@pytest.fixture(scope="module", autouse=True)
def seeds() -> Iterator[None]:
    """The made seeds, removed afterwards."""
    yield
    remove_made()
    remove_prepared()


@pytest.mark.parametrize("border", BORDERS, ids=lambda border: border.name)
def test_every_input_ends_in_a_documented_way(border: Border) -> None:
    total = sum(other.share for other in BORDERS)
    inputs = max(16, _INPUTS * border.share // total)
    codes = set()
    for number in range(inputs):
        trial = tried(border, Random(f"ci-{border.name}-{number}"))
        assert trial.fault is None, f"input {number}: {trial.fault}"
        codes.add(trial.code)
    assert len(codes) > border.refuses, "the mutations reach both what is read and what is refused"
