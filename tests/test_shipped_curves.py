"""Prefill curves by name: usable from any directory, listed, and never mistaken for a file."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kvbench.errors import InputFileError
from kvbench.prefill.samples import read_csv
from kvbench.prefill.shipped import find_csv, shipped_curves
from tests.conftest import Outcome
from tests.factories import SHIPPED_CSV


def test_every_shipped_curve_reads_and_names_its_model() -> None:
    assert SHIPPED_CSV in shipped_curves().values()
    assert all(read_csv(path).model for path in shipped_curves().values())


@pytest.mark.parametrize("name", ["gpt-oss-120b-h200", "GPT-OSS-120B-H200"])
def test_a_name_means_the_same_curve_in_any_directory(
    name: str, kvbench: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    by_name = kvbench("crossover", "--p99-ms", "5", "--ttft-csv", name, "--json").json()
    assert by_name == kvbench("crossover", "--p99-ms", "5", "--ttft-csv", str(SHIPPED_CSV), "--json").json()


def test_a_file_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(SHIPPED_CSV, "gpt-oss-120b-h200")
    assert find_csv(Path("gpt-oss-120b-h200")) == Path("gpt-oss-120b-h200")


def test_a_near_miss_is_named_and_a_file_that_is_missing_stays_a_file() -> None:
    with pytest.raises(InputFileError, match="did you mean gpt-oss-120b-h200"):
        find_csv(Path("gpt-oss-120b-h20"))
    with pytest.raises(InputFileError, match="the curves are gpt-oss-120b-h200"):
        find_csv(Path("mine"))
    for missing in (Path("mine.csv"), Path("folder/gpt-oss-120b-h200"), Path("x" * 5000 + ".csv")):
        assert find_csv(missing) == missing


def test_models_lists_them(kvbench: Callable[..., Outcome]) -> None:
    found = kvbench("models", "--json").json()["prefill_curves"]
    assert [curve["name"] for curve in found] == list(shipped_curves())
    assert found[0]["prompt_tokens"] == [2048, 8192, 16384, 32768, 49152]
    assert "gpt-oss-120b-h200" in kvbench("models").out
