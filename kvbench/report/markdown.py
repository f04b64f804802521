"""Tables as GitHub-flavoured Markdown (pure)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kvbench.border.escaping import escaped
from kvbench.report.sheet import Sheet

_SPECIAL = re.compile(r"[\\|`*\[\]~$]|(?<!\w)_|_(?!\w)")


def markdown(tables: Sequence[Sheet], heading: str, notes: Sequence[str] = ()) -> str:
    """The tables under one heading and its notes; empty tables are left out."""
    parts = [f"# {_cell(heading)}", ""]
    for note in notes:
        parts += [_cell(note), ""]
    for table in tables:
        if table.rows:
            parts += [f"## {_cell(table.title)}", "", *_table(table), ""]
    return "\n".join(parts)


def _table(table: Sheet) -> list[str]:
    rule = ["---:" if column.right else "---" for column in table.columns]
    return [_row(row) for row in (table.headings, rule, *table.texts)]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(text: str) -> str:
    # Names come from users: keep them from ending a cell, opening a tag, or starting emphasis or code.
    shown = escaped(" ".join(text.split())).replace("&", "&amp;").replace("<", "&lt;")
    return _SPECIAL.sub(r"\\\g<0>", shown)
