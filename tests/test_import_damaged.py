"""Damaged and forged fio files: one sentence, a failed point or a warning, never a traceback or a wrong number."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvbench.errors import InputFileError
from kvbench.formats.fio.importer import imported_points
from kvbench.formats.fio.read import decode, parse_all
from kvbench.record.results import PointResult
from tests.conftest import Outcome
from tests.factories import DATA, fio_document, fio_job, fio_side, shared_data

pytestmark = pytest.mark.slow

MS = 10**6
BINS = {9 * MS: 3000, 11 * MS: 3000}
HALF = {19 * MS: 1500, 21 * MS: 1500}
Path_ = tuple[str | int, ...]
ODD: dict[str, Any] = {
    "null": None, "true": True, "text": "x", "number as text": "12", "negative": -1, "zero": 0, "one": 1,
    "huge": 10**30, "infinite": float("inf"), "NaN": float("nan"), "list": [], "object": {}, "nested": [[{}]],
}  # fmt: skip


def honest() -> dict[str, Any]:
    """A clean json+ document: one job that reads and one that reads and writes."""
    read = fio_job("read", fio_side(BINS, 1 << 20), rw="randread", bs="1m", numjobs="1", size="400g")
    mixed = fio_job("mixed", fio_side(HALF, 1 << 20), fio_side(HALF, 1 << 20), rw="randrw", bs="1m", size="400g")
    mixed["job options"] |= {"numjobs": "2", "rwmixread": "50"}
    return fio_document(read, mixed)


def paths(value: Any, at: Path_ = ()) -> Iterator[Path_]:
    """Every place in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*at, key)
        yield from paths(item, (*at, key))


def changed(document: dict[str, Any], at: Path_, change: Callable[[Any, Any], None]) -> dict[str, Any]:
    """A copy of the document in which ``change(container, key)`` was made at one place."""
    copied = copy.deepcopy(document)
    container: Any = copied
    for key in at[:-1]:
        container = container[key]
    change(container, at[-1])
    return copied


def numbers(point: PointResult) -> dict[str, Any]:
    """Every number of a point that a verdict could rest on."""
    found: dict[str, Any] = {"runtime_s": point.runtime_s, "io_bytes": point.io_bytes}
    for name, side in (("read", point.read), ("write", point.write)):
        if side is None:
            continue
        latency = side.latency_ns
        found |= {f"{name} ios": side.ios, f"{name} bytes": side.bytes, f"{name} iops": side.iops}
        found |= {f"{name} rate": side.bytes_per_s}
        if latency is not None:
            found |= {f"{name} {key}": getattr(latency, key) for key in ("mean", "p50", "p99", "p99_9")}
    return found


def points_of(text: str) -> list[PointResult]:
    return [item.point for item in imported_points(parse_all(text, "x.json"), "tier", "x.json")]


def points_or_refusal(text: str) -> list[PointResult] | str:
    try:
        return points_of(text)
    except InputFileError as error:
        return str(error)


def require_no_crash(text: str) -> None:
    """Points, or one sentence."""
    found = points_or_refusal(text)
    assert not isinstance(found, str) or (found.endswith(".") and "\n" not in found)


def require_honest(text: str, truth: dict[str, dict[str, Any]]) -> None:
    """The text is refused in one sentence, or every number that comes out is true, or its point is doubted."""
    require_no_crash(text)
    found = points_or_refusal(text)
    for point in found if isinstance(found, list) else []:
        if point.status != "ok" or point.warnings:
            continue
        # A forged name is believed; the numbers must then be those of one of the jobs.
        known = [truth[point.job]] if point.job in truth else list(truth.values())
        assert any(is_true(numbers(point), one) for one in known), (point.job, numbers(point))


def is_true(found: dict[str, Any], known: dict[str, Any]) -> bool:
    return all(value is None or value == pytest.approx(known.get(name), rel=0.03) for name, value in found.items())


TRUTH = {point.job: numbers(point) for point in points_of(json.dumps(honest()))}
PLACES = list(paths(honest()))


def test_the_honest_document_is_clean() -> None:
    assert [(point.status, point.warnings) for point in points_of(json.dumps(honest()))] == [("ok", ())] * 2


def test_every_key_deleted() -> None:
    for place in PLACES:
        require_honest(json.dumps(changed(honest(), place, lambda container, key: container.pop(key))), TRUTH)


@pytest.mark.parametrize("name", ODD)
def test_every_value_replaced(name: str) -> None:
    def replace(container: Any, key: Any) -> None:
        container[key] = ODD[name]

    for place in PLACES:
        # What the job was asked to do is not known otherwise: a forged option is believed.
        if "job options" in place or "global options" in place:
            continue
        require_honest(json.dumps(changed(honest(), place, replace)), TRUTH)


@pytest.mark.parametrize("name", ODD)
def test_odd_options_are_no_crash(name: str) -> None:
    def replace(container: Any, key: Any) -> None:
        container[key] = ODD[name]

    for place in PLACES:
        if "job options" in place or "global options" in place:
            require_no_crash(json.dumps(changed(honest(), place, replace)))


@pytest.mark.parametrize("factor", [0.1, 0.5, 2, 10, 1000, 1024])
def test_every_number_scaled(factor: float) -> None:
    """Units mistaken by hand: one number that does not fit the others is noticed."""

    def scale(container: Any, key: Any) -> None:
        container[key] = type(container[key])(container[key] * factor)

    for place in PLACES:
        container: Any = honest()
        for key in place:
            container = container[key]
        if isinstance(container, int | float) and not isinstance(container, bool):
            require_honest(json.dumps(changed(honest(), place, scale)), TRUTH)


def test_cut_anywhere() -> None:
    text = json.dumps(honest(), indent=1)
    for end in range(0, len(text), 100):
        require_honest(text[:end], TRUTH)
        require_honest(text[end:], TRUTH)


def test_recorded_files_cut_anywhere() -> None:
    recorded = [DATA / "fio" / "fio-3.33_json-plus.json", *sorted(shared_data("fio").glob("*_*"))]
    for path in recorded:
        text = decode(path.read_bytes())
        for end in range(0, len(text), max(100, len(text) // 60)):
            require_no_crash(text[:end])


def test_cut_files_on_the_command_line(kvbench: Callable[..., Outcome], tmp_path: Path) -> None:
    text = json.dumps(honest(), indent=1)
    for number, end in enumerate(range(0, len(text), len(text) // 8)):
        source = tmp_path / f"cut-{number}.json"
        source.write_text(text[:end])
        outcome = kvbench("import", source, "-o", tmp_path / f"run-{number}")
        assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
        assert not (tmp_path / f"run-{number}").exists()


@pytest.mark.parametrize("content", [b"\x00" * 64, b"\xff\xfe", b"{" * 2000, b"[" * 100_000, b'{"fio version": 3}'])
def test_bytes_that_are_no_fio_output(kvbench: Callable[..., Outcome], tmp_path: Path, content: bytes) -> None:
    source = tmp_path / "x.json"
    source.write_bytes(content)
    outcome = kvbench("import", source, "-o", tmp_path / "run")
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
