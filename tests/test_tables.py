"""Tables as Markdown: whatever a model or tier is called, the table keeps its shape and opens no tag."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.decide.crossover import Goal
from kvbench.decide.decision import Wanted
from kvbench.decide.runs import LoadedRun
from kvbench.record.results import Calls, PointWarning, RunResult
from kvbench.report import tables
from kvbench.report.build import build
from kvbench.report.columns import Column, Short, name, narrow, number, sheet, words
from kvbench.report.data import to_json
from kvbench.report.html import html
from kvbench.report.markdown import markdown
from kvbench.report.scene import Scene
from kvbench.report.sheet import Sheet
from kvbench.report.tables.blocks import short_blocks
from kvbench.report.tables.distrust import distrust_by_kind, short_distrust
from kvbench.report.tables.measured import short_measured
from tests.factories import direction, latency, mixed_point, point, use

HOSTILE = [
    "a|b",
    "<img src=x onerror=alert(1)>",
    "`code`",
    "two\nlines",
    "\\|",
    "**bold**",
    "[text](http://x)",
    "\r\n|",
]


def only(run: RunResult) -> list[LoadedRun]:
    """The run as a terminal shows it."""
    return [LoadedRun("run", Path(), run)]


def table(title: str, *rows: tuple[str, str]) -> Sheet:
    """A table of a name and a number."""
    columns: tuple[Column[tuple[str, str]], ...] = (
        words("a", "name", lambda row: row[0]),
        words("b", "count", lambda row: row[1], right=True),
    )
    return narrow(title, columns, rows)


def cells(line: str) -> list[str]:
    """Split a Markdown row at the pipes that are not escaped, as GitHub does."""
    return re.split(r"(?<!\\)(?:\\\\)*\|", line)[1:-1]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_in_their_cell(name: str) -> None:
    run = RunResult("now", (use(model=name),), (point(tier=name, id=name, status="failed", reason=name),))
    text = markdown([short_blocks(only(run)), short_measured(only(run)), short_distrust(only(run))], name)
    assert "<" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 3 + 3 + 3
    for part in (rows[:3], rows[3:6], rows[6:]):
        assert len({len(cells(row)) for row in part}) == 1
    assert re.search(r"(?<!\\)`", text) is None
    assert re.search(r"(?<!\\)\*", text) is None
    assert re.search(r"(?<!\\)\[", text) is None


@given(st.text())
def test_any_text_keeps_the_shape(name: str) -> None:
    text = markdown([table("t", (name, "x"))], "h")
    rows = [line for line in text.split("\n") if line.startswith("|")]
    assert [len(cells(row)) for row in rows] == [2, 2, 2]
    assert "<" not in text


def test_whole_markdown() -> None:
    filled, empty = table("Numbers", ("a", "1"), ("b", "22")), table("Nothing")
    assert markdown([filled, empty], "Run x") == (
        "# Run x\n\n## Numbers\n\n| name | count |\n| --- | ---: |\n| a | 1 |\n| b | 22 |\n"
    )
    assert markdown([empty], "Run x") == "# Run x\n"


def test_points_table_shows_both_directions_and_what_is_missing() -> None:
    slow = latency(99e6, p99_low=None, p99_high=None)
    half = latency(99e6, p99_high=None)
    run = RunResult(
        "now",
        (),
        (
            mixed_point(4500, 1500),
            point(id="w", mix="write", read=None, write=direction(10, 9.96, latency_ns=slow)),
            point(id="h", read=direction(10, 9.94, latency_ns=half)),
            point(id="s", read=direction(10, 0.1, latency_ns=latency(10e9, p99=17_112_760_320))),
            point(id="n", read=direction(latency_ns=None), warnings=tuple(PointWarning(code, "", "") for code in "ab")),
            point(id="f", status="failed", reason="no space", read=None),
        ),
    )
    assert [tuple(row[3:]) for row in short_measured(only(run)).texts] == [
        ("read", "75", "84.38", "10.0", "10.0", "10.0 to 10.0", ""),
        ("write", "25", "28.12", "10.0", "10.0", "10.0 to 10.0", ""),
        ("write", "10", "11.21", "99.0", "99.0", "one section", ""),
        ("read", "9.9", "11.18", "99.0", "99.0", "99.0 to ?", ""),
        ("read", "0.1", "0.113", "10,000", "≥17,113", "10,000 to 10,000", ""),
        ("read", "100", "112.5", "-", "-", "-", "a, b"),
        ("failed", "-", "-", "-", "-", "-", "no space"),
    ]


def test_models_table_counts_units() -> None:
    run = RunResult("now", (use(), use(units_per_block=3)))
    assert [row[4:6] for row in short_blocks(only(run)).texts] == [
        ["1.125 MiB", "1,179,648 B"], ["3.375 MiB", "1,179,648 B x 3"]
    ]  # fmt: skip


def test_warnings_are_counted_by_kind() -> None:
    first, second = PointWarning("x", "first", "do"), PointWarning("x", "second", "do")
    run = RunResult("now", (), (
        point(id="a", warnings=(first,)), point(id="b", warnings=(second,)),
        point(id="c", status="failed", reason="why"),
    ))  # fmt: skip
    assert distrust_by_kind(only(run)).texts == [
        ["x", "2 of 3", "first", "do"], ["failed", "c", "why", "see the point's folder, measure it again"]
    ]  # fmt: skip
    assert [tuple(row[:3]) for row in short_distrust(only(run)).texts] == [
        ("a", "x", "first"), ("b", "x", "second"), ("c", "failed", "why")
    ]  # fmt: skip
    assert distrust_by_kind(only(replace(run, points=()))).texts == []


def test_a_column_is_described_once_for_reports_and_terminals() -> None:
    columns: tuple[Column[int | None], ...] = (
        number(
            "rate_bytes_per_s", "rate", lambda row: row, "{} B/s".format, "x", short=Short("KiB/s", "{:.0f}".format)
        ),
        words("both", "in words", lambda row: "" if row is None else "some"),
        name("distrust", "distrust", lambda row: "", short=Short(unknown="")),
    )
    full, short = sheet("k", "T", columns, (7, None)), narrow("T", columns, (7, None))
    assert (full.headings, full.texts) == (["rate", "distrust"], [["7 B/s", "–"], ["–", "–"]])
    assert (short.headings, short.texts) == (["KiB/s", "in words", "distrust"], [["7", "some", ""], ["-", "-", ""]])
    assert narrow("T", columns, (7,), "both", "rate_bytes_per_s").texts == [["some", "7"]]
    assert (full.right, full.rows[0][0].value, full.rows[0][0].source) == ([0], 7, "x")


def test_a_table_is_one_function_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def toy(scene: Scene) -> Sheet:
        columns: tuple[Column[LoadedRun], ...] = (name("run", "run", lambda run: run.name),)
        return sheet("toy", "A toy", columns, scene.runs)

    monkeypatch.setitem(tables.SHEETS, "decision", [*tables.SHEETS["decision"], toy])
    report = build(only(RunResult("now")), Wanted(None, None, Goal()))
    assert report.sheet("toy").texts == [["run"]]
    assert '<h2 id="table-toy">A toy</h2>' in html(report)
    assert "toy" in to_json(report)["tables"]


def test_what_an_interrupted_point_measured_is_shown_with_its_reason() -> None:
    warning = PointWarning("x", "", "")
    run = RunResult("now", points=(
        point(status="interrupted", reason="killed"),
        point(status="failed", reason="why", read=None, warnings=(warning,)),
    ))  # fmt: skip
    assert [(row[3], row[-1]) for row in short_measured(only(run)).texts] == [
        ("read", "interrupted: killed"), ("failed", "x, why")
    ]  # fmt: skip


def test_blocks_and_calls_are_as_full_in_the_report() -> None:
    windowed = use(units_per_block=3, windowed_units=2, connector="vllm-fs", engine_version="0.24")
    timed = point(metadata={"lookup": Calls(9, None, 2)})
    report = build(only(RunResult("now", (windowed,), (timed,))), Wanted(None, None, Goal()))
    blocks = dict(
        zip([head.key for head in report.sheet("blocks").columns], report.sheet("blocks").rows[0], strict=True)
    )
    assert blocks["block_bytes"].value == 5 * windowed.io_bytes
    assert (blocks["units_per_block"].value, blocks["windowed_units"].value) == (3, 2)
    assert blocks["connector"].text == "vllm-fs 0.24"
    assert report.sheet("calls").texts[0][-1] == "2"
