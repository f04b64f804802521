"""Tables as Markdown: whatever a model or tier is called, the table keeps its shape and opens no tag."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.record.results import Caveat, RunResult
from kvbench.report.tables import Table, markdown, models_table, points_table, warnings_summary, warnings_table
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


def cells(line: str) -> list[str]:
    """Split a Markdown row at the pipes that are not escaped, as GitHub does."""
    return re.split(r"(?<!\\)(?:\\\\)*\|", line)[1:-1]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_in_their_cell(name: str) -> None:
    run = RunResult("now", (use(model=name),), (point(tier=name, id=name, status="failed", reason=name),))
    text = markdown([models_table(run), points_table(run), warnings_table(run)], name)
    assert "<" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 3 + 3 + 3
    for table in (rows[:3], rows[3:6], rows[6:]):
        assert len({len(cells(row)) for row in table}) == 1
    assert re.search(r"(?<!\\)`", text) is None
    assert re.search(r"(?<!\\)\*", text) is None
    assert re.search(r"(?<!\\)\[", text) is None


@given(st.text())
def test_any_text_keeps_the_shape(name: str) -> None:
    text = markdown([Table("t", ("a", "b"), ((name, "x"),))], "h")
    rows = [line for line in text.split("\n") if line.startswith("|")]
    assert [len(cells(row)) for row in rows] == [2, 2, 2]
    assert "<" not in text


def test_whole_markdown() -> None:
    table = Table("Numbers", ("name", "count"), (("a", "1"), ("b", "22")), (1,))
    empty = Table("Nothing", ("x",), ())
    assert markdown([table, empty], "Run x") == (
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
            point(id="n", read=direction(latency_ns=None), warnings=(Caveat("a", "", ""), Caveat("b", "", ""))),
            point(id="f", status="failed", reason="no space", read=None),
        ),
    )
    assert [row[3:] for row in points_table(run).rows] == [
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
    assert [row[4:6] for row in models_table(run).rows] == [
        ("1.125 MiB", "1,179,648 B"), ("3.375 MiB", "1,179,648 B x 3")
    ]  # fmt: skip


def test_warnings_are_counted_by_kind() -> None:
    first, second = Caveat("x", "first", "do"), Caveat("x", "second", "do")
    run = RunResult("now", (), (
        point(id="a", warnings=(first,)), point(id="b", warnings=(second,)),
        point(id="c", status="failed", reason="why"),
    ))  # fmt: skip
    assert warnings_summary(run).rows == (
        ("x", "2 of 3", "first", "do"), ("failed", "c", "why", "measure it again")
    )  # fmt: skip
    assert [row[:3] for row in warnings_table(run).rows] == [
        ("a", "x", "first"), ("b", "x", "second"), ("c", "failed", "why")
    ]  # fmt: skip
    assert warnings_summary(replace(run, points=())).rows == ()
