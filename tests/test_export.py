"""Exports: the numbers of result.json in other forms, by readers of those forms that are not ours."""

from __future__ import annotations

import csv
import io
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kvbench.record import results
from kvbench.record.results import RunResult
from kvbench.report.exports import FORMS
from tests.conftest import Outcome
from tests.factories import ROOT, direction, latency, point

RUN = ROOT / "reports" / "example" / "run"
Run = Callable[..., Outcome]


def saved(folder: Path, *points: results.PointResult) -> Path:
    """A run directory with these points."""
    folder.mkdir()
    results.save(RunResult("2026-11-29T23:04:06+00:00", (), points), folder)
    return folder


def rows(outcome: Outcome) -> list[dict[str, str]]:
    """The rows of a CSV."""
    return list(csv.DictReader(io.StringIO(outcome.out)))


def test_a_form_that_does_not_exist_is_refused_with_those_that_do(kvbench: Run) -> None:
    refused = kvbench("export", RUN, "--form", "xlsx")
    assert refused.code == 2
    assert f"choose from {', '.join(FORMS)}" in refused.err


def test_csv_has_every_direction_of_every_point_in_base_units(kvbench: Run) -> None:
    found = rows(kvbench("export", RUN))
    _, run = results.open_run(RUN)
    expected = [(one.id, way, str(side.bytes_per_s), str(side.ios)) for one in run.points for way, side in one.sides()]
    assert [(row["point"], row["direction"], row["bytes_per_s"], row["ios"]) for row in found] == expected


def test_two_runs_of_one_name_are_told_apart(kvbench: Run, tmp_path: Path) -> None:
    other = tmp_path / "run"
    shutil.copytree(RUN, other)
    assert {row["run"] for row in rows(kvbench("export", RUN, other))} == {"run #1", "run #2"}


@pytest.mark.parametrize("form", ["csv", "prometheus"])
def test_names_act_neither_on_the_terminal_nor_in_a_spreadsheet(kvbench: Run, tmp_path: Path, form: str) -> None:
    run = saved(tmp_path / "run", point(id="=x\x1b[2J\u202e\udc80", tier="ä b"))
    outcome = kvbench("export", run, "--form", form)
    assert outcome.code == 0, outcome.err
    assert outcome.out.replace("\n", "").isprintable()
    assert "=x\\x1b[2J" in outcome.out.replace("\\\\", "\\")
    assert "ä b" in outcome.out
    assert ",=x" not in outcome.out


def test_a_point_without_a_number_is_a_row_with_its_status(kvbench: Run, tmp_path: Path) -> None:
    broken = point(id="x", status="failed", reason="no space", read=None)
    (row,) = rows(kvbench("export", saved(tmp_path / "run", broken)))
    assert (row["status"], row["bytes_per_s"], row["p99_ns"]) == ("failed", "", "")


def test_parquet_holds_the_same_under_types_that_never_change(kvbench: Run, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    target, empty = tmp_path / "run.parquet", tmp_path / "empty.parquet"
    assert kvbench("export", RUN, "--form", "parquet", "-o", target).code == 0
    found = parquet.read_table(target)
    by_csv = rows(kvbench("export", RUN))
    for key in ("point", "io_bytes", "bytes_per_s", "p99_ns", "p99_low_ns", "distrust"):
        values = ["" if value is None else str(value) for value in found.column(key).to_pylist()]
        shown = [f"{float(row[key])}" if row[key] and key == "p99_ns" else row[key] for row in by_csv]
        expected = [f"{float(text)}" if text and key == "bytes_per_s" else text for text in shown]
        assert values == expected, key
    broken = point(id="x", status="failed", reason="no space", read=None)
    assert kvbench("export", saved(tmp_path / "run", broken), "--form", "parquet", "-o", empty).code == 0
    assert parquet.read_table(empty).schema == found.schema


def test_prometheus_reads_every_sample_and_none_twice(kvbench: Run) -> None:
    text = kvbench("export", RUN, "--form", "prometheus").out
    families = {family.name: family for family in text_string_to_metric_families(text)}
    _, run = results.open_run(RUN)
    directions = [(one, way, side) for one in run.points for way, side in one.sides()]
    rates = families["kvbench_bandwidth_bytes_per_second"].samples
    assert [sample.value for sample in rates] == [side.bytes_per_s for _, _, side in directions]
    every = [(sample.name, *sorted(sample.labels.items())) for one in families.values() for sample in one.samples]
    assert len(every) == len(set(every))
    p99 = [one.value for one in families["kvbench_latency_seconds"].samples if one.labels.get("quantile") == "0.99"]
    expected = [side.latency_ns.p99 / 1e9 for _, _, side in directions if side.latency_ns and side.latency_ns.p99]
    assert p99 == expected
    (created,) = families["kvbench_run_created_timestamp_seconds"].samples
    assert datetime.fromtimestamp(created.value, UTC) == datetime(2026, 11, 29, 23, 4, 6, tzinfo=UTC)
    assert all(sample.value == 1 for sample in families["kvbench_point_ok"].samples)


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "a\\nb", "a{b}=,c", "café"])
def test_any_name_is_read_back_by_prometheus(name: str, kvbench: Run, tmp_path: Path) -> None:
    run = saved(tmp_path / "run", point(tier=name))
    text = kvbench("export", run, "--form", "prometheus").out
    (family,) = [one for one in text_string_to_metric_families(text) if one.name == "kvbench_point_ok"]
    assert family.samples[0].labels["tier"] == name.replace("\n", "\\n")


def test_a_latency_that_is_not_known_is_left_out(kvbench: Run, tmp_path: Path) -> None:
    unknown = latency(p99=None, p99_low=None, p99_high=None)
    run = saved(tmp_path / "run", replace(point(), read=direction(latency_ns=unknown)))
    text = kvbench("export", run, "--form", "prometheus").out
    assert 'quantile="0.5"' in text
    assert 'quantile="0.99"' not in text
    assert "nan" not in text.lower()


def test_only_an_export_of_the_same_form_is_written_over(kvbench: Run, tmp_path: Path) -> None:
    target = tmp_path / "kvbench.prom"
    assert kvbench("export", RUN, "--form", "prometheus", "-o", target).code == 0
    assert kvbench("export", RUN, "--form", "prometheus", "-o", target).code == 0
    before = target.read_bytes()
    refused = kvbench("export", RUN, "-o", target)
    assert (refused.code, target.read_bytes()) == (2, before)
    assert "exists and is no csv of 'kvbench export'" in refused.err


def test_parquet_needs_a_file_and_its_library(kvbench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "name a file with -o" in kvbench("export", RUN, "--form", "parquet").err
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    missing = kvbench("export", RUN, "--form", "parquet", "-o", tmp_path / "x.parquet")
    assert (missing.code, (tmp_path / "x.parquet").exists()) == (2, False)
    assert "pip install 'kvbench[parquet]'" in missing.err
