"""The result file: what is saved is what is loaded, and nothing damaged is taken for a result."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.errors import ResultFileError
from kvbench.record import results
from kvbench.record.histogram import Histogram
from kvbench.record.results import Conditions, Direction, LatencyNs, PointResult, PointWarning, RunResult, Use
from tests.factories import direction, latency, point, use

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
COUNT, POSITIVE = st.integers(0, 1 << 62), st.integers(1, 1 << 62)
FLOAT = st.floats(0, 1e15)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**24), 10**24) | TEXT | st.floats(-1e24, 1e24),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
MAYBE_NS = st.none() | COUNT
LATENCIES = st.builds(LatencyNs, st.none() | FLOAT, *[MAYBE_NS] * 9)
DIRECTIONS = st.builds(Direction, COUNT, COUNT, FLOAT, FLOAT, st.none() | LATENCIES)
VALUES = st.dictionaries(TEXT, st.none() | st.booleans() | st.integers(-(10**24), 10**24) | FLOAT | TEXT, max_size=3)
WARNINGS = st.builds(PointWarning, TEXT, TEXT, TEXT, VALUES)
CONDITIONS = st.builds(
    Conditions, ioengine=st.none() | TEXT, direct=st.none() | st.booleans(), cached_fraction=st.none() | FLOAT,
    dataset_bytes=MAYBE_NS, requested_runtime_s=st.none() | FLOAT,
)  # fmt: skip
POINTS = st.builds(
    PointResult, TEXT, TEXT, TEXT, TEXT, TEXT, COUNT, st.sampled_from(["read", "write", "mixed"]), POSITIVE,
    st.lists(TEXT, max_size=2).map(tuple), st.none() | FLOAT, st.sampled_from([None, "lat", "clat"]),
    st.sampled_from(["ok", "failed", "skipped", "interrupted"]), st.none() | TEXT, st.none() | TEXT,
    st.none() | DIRECTIONS, st.none() | DIRECTIONS, st.lists(WARNINGS, max_size=2).map(tuple), CONDITIONS,
)  # fmt: skip
USES = st.builds(
    Use, TEXT, POSITIVE, TEXT, TEXT, st.none() | TEXT, POSITIVE, POSITIVE, COUNT, POSITIVE,
)  # fmt: skip
RUNS = st.builds(
    RunResult, TEXT, st.lists(USES, max_size=2).map(tuple), st.lists(POINTS, max_size=2).map(tuple),
    st.dictionaries(TEXT, TEXT, max_size=2), st.dictionaries(TEXT, JSON, max_size=2),
    st.dictionaries(TEXT, st.dictionaries(TEXT, JSON, max_size=2), max_size=2),
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=60)
@given(RUNS)
def test_save_and_load_are_inverse(run: RunResult) -> None:
    with TemporaryDirectory() as name:
        results.save(run, Path(name))
        loaded = results.load(Path(name))
    assert loaded == run
    assert repr(loaded) == repr(run)  # also the types: 1 is not 1.0 is not True


def test_file_begins_with_its_version_and_holds_the_contract(tmp_path: Path) -> None:
    results.save(RunResult("2026-11-29T00:00:00+00:00", (use(),), (point(),), {"k": "v"}), tmp_path)
    text = (tmp_path / "result.json").read_text()
    assert text.startswith('{\n "schema_version": 1,')
    data = json.loads(text)
    assert set(data) >= {"schema_version", "created", "labels", "environment", "uses", "points"}
    assert set(data["uses"][0]) >= {
        "model", "tp", "kv_dtype", "connector", "engine_version", "io_bytes", "block_tokens", "units_per_block"
    }  # fmt: skip
    assert set(data["points"][0]) >= {
        "id", "job", "source", "tier", "driver", "io_bytes", "mix", "numjobs", "clients", "runtime_s",
        "latency_source", "status", "reason", "histogram", "read", "write", "warnings",
    }  # fmt: skip
    assert data["points"][0]["write"] is None
    assert set(data["points"][0]["read"]) == {"ios", "bytes", "iops", "bytes_per_s", "latency_ns"}
    assert set(data["points"][0]["read"]["latency_ns"]) == {
        "mean", "min", "max", "p50", "p90", "p95", "p99", "p99_9", "p99_low", "p99_high", "intervals"
    }  # fmt: skip


def saved(tmp_path: Path) -> dict[str, Any]:
    """The JSON of a small run saved in ``tmp_path``."""
    results.save(RunResult("now", (use(),), (point(),)), tmp_path)
    data = json.loads((tmp_path / "result.json").read_text())
    assert isinstance(data, dict)
    return data


def test_unknown_keys_are_accepted(tmp_path: Path) -> None:
    data = saved(tmp_path)
    data["later"] = {"x": 1}
    data["points"][0]["later"] = [1]
    data["points"][0]["read"]["latency_ns"]["p75"] = 3
    data["points"][0]["conditions"]["later"] = None
    data["uses"][0]["later"] = 1
    (tmp_path / "result.json").write_text(json.dumps(data))
    assert results.load(tmp_path) == RunResult("now", (use(),), (point(),))


def test_missing_new_fields_have_defaults(tmp_path: Path) -> None:
    data = saved(tmp_path)
    for key in ("conditions", "clients", "warnings", "histogram", "reason"):
        del data["points"][0][key]
    del data["tiers"]
    (tmp_path / "result.json").write_text(json.dumps(data))
    assert results.load(tmp_path).points[0] == replace(point(), conditions=Conditions())


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    data = saved(tmp_path)
    data["schema_version"] = results.SCHEMA_VERSION + 1
    (tmp_path / "result.json").write_text(json.dumps(data))
    with pytest.raises(ResultFileError, match=r"written by a newer kvbench \(schema 2, this one reads up to 1\)"):
        results.load(tmp_path)


@pytest.mark.parametrize("version", [None, 0, -1, True, "1", 1.0, []])
def test_a_file_without_a_version_is_not_ours(tmp_path: Path, version: object) -> None:
    (tmp_path / "result.json").write_text(json.dumps({"schema_version": version, "created": "now"}))
    with pytest.raises(ResultFileError, match="has no schema_version, so kvbench did not write it"):
        results.load(tmp_path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is not complete JSON"),
        (b"{", "is not complete JSON"),
        (b"\xff\xfe\x00", "is not complete JSON"),
        (b"[]", "holds no JSON object"),
        (b"3", "holds no JSON object"),
        (b"null", "holds no JSON object"),
        (b'{"schema_version": 1}', "is damaged at created"),
        (b'{"schema_version": 1, "created": "x", "points": [{}]}', r"is damaged at points\.0\.id"),
        (b'{"schema_version": 1, "created": "x", "points": 3}', "is damaged at points"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "result.json").write_bytes(content)
    with pytest.raises(ResultFileError, match=sentence):
        results.load(tmp_path)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    content = (tmp_path / "result.json").read_bytes()
    for length in range(0, len(content.rstrip()), 97):
        (tmp_path / "result.json").write_bytes(content[:length])
        with pytest.raises(ResultFileError, match="is not complete JSON"):
            results.load(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ResultFileError, match=r"result\.json does not exist; name a run directory"):
        results.load(tmp_path)
    with pytest.raises(ResultFileError, match="gone does not exist"):
        results.load(tmp_path / "gone")


def test_deep_nesting_is_a_damaged_file(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"schema_version": 1, "a": ' + "[" * 100_000)
    with pytest.raises(ResultFileError):
        results.load(tmp_path)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_is_never_written_and_the_old_file_stays(tmp_path: Path, bad: float) -> None:
    saved(tmp_path)
    before = (tmp_path / "result.json").read_bytes()
    worse = point(read=direction(latency_ns=latency(mean=1.0, p50=1)))
    worse = replace(worse, runtime_s=bad)
    with pytest.raises(ValueError, match="not JSON compliant"):
        results.save(RunResult("now", (), (worse,)), tmp_path)
    assert (tmp_path / "result.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_a_failed_write_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "file.txt"
    results.write_atomically(target, "old")
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", failing)
        with pytest.raises(OSError, match="No space left"):
            results.write_atomically(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]
    results.write_atomically(target, "new")
    assert target.read_text() == "new"


def failing(_: int) -> None:
    raise OSError(28, "No space left on device")


def test_bytes_that_are_no_text_are_written_as_escapes(tmp_path: Path) -> None:
    results.write_atomically(tmp_path / "file.txt", "path \udcff")
    assert (tmp_path / "file.txt").read_text() == "path \\udcff"


def test_a_write_that_cannot_replace_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "file.txt"
    (target / "child").mkdir(parents=True)
    with pytest.raises(OSError, match=r"file\.txt"):
        results.write_atomically(target, "text")
    assert [path.name for path in tmp_path.iterdir()] == ["file.txt"]


@given(st.dictionaries(st.integers(1, 10**12), st.integers(1, 10**9), min_size=1, max_size=20))
def test_histograms_round_trip(counts: dict[int, int]) -> None:
    histogram = Histogram.from_counts(counts)
    with TemporaryDirectory() as name:
        results.save_histograms(Path(name), "points/a/histogram.json", {"read": histogram})
        kept = replace(point(), histogram="points/a/histogram.json")
        assert results.load_histogram(Path(name), kept, "read") == histogram
        assert results.load_histogram(Path(name), kept, "write") is None


def test_histogram_files_that_are_gone_or_damaged(tmp_path: Path) -> None:
    assert results.load_histogram(tmp_path, point(), "read") is None
    named = replace(point(), histogram="h.json")
    assert results.load_histogram(tmp_path, named, "read") is None
    for content in ('{"read": {"x": 1}}', '{"read": {"1": null}}', '{"read": '):
        (tmp_path / "h.json").write_text(content)
        with pytest.raises(ResultFileError):
            results.load_histogram(tmp_path, named, "read")


@pytest.mark.parametrize("name", ["erce11000000", "-1", "1.5", "", "9" * 30, "\u0661"])
def test_a_series_whose_bins_are_no_latencies_is_damaged(tmp_path: Path, name: str) -> None:
    path = tmp_path / "series.json"
    entry = {"second": 1, "read": {"iops": 1, "bins": {"11000000": 1}}}
    path.write_text(json.dumps([entry]))
    assert results.read_series(path) == [entry]
    path.write_text(json.dumps([{"second": 1, "read": {"iops": 1, "bins": {name: 1}}}]))
    with pytest.raises(ResultFileError, match="is damaged"):
        results.read_series(path)


def test_with_point_replaces_in_place() -> None:
    run = RunResult("now", (), (point(id="a"), point(id="b")))
    again = run.with_point(point(id="a", status="failed")).with_point(point(id="c"))
    assert [(one.id, one.status) for one in again.points] == [("a", "failed"), ("b", "ok"), ("c", "ok")]
    assert again.point("c") == point(id="c")
    assert again.point("d") is None
