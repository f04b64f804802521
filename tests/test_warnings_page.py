"""Every code that the program can emit is documented with what to do about it, and nothing else is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from kvbench.checks import CODES, VOIDING
from tests.factories import ROOT

DOCUMENT = (ROOT / "docs" / "warnings.md").read_text()
ROWS = {
    match[1]: [cell.strip() for cell in match[2].split("|")]
    for match in re.finditer(r"^\| `([a-z-]+)` \|(.*)\|$", DOCUMENT, re.MULTILINE)
}


def emitted() -> Iterator[str]:
    """The first argument of every PointWarning(...) of a point, written out. docs/prefill.md has its own."""
    for path in (ROOT / "kvbench").rglob("*.py"):
        if path.is_relative_to(ROOT / "kvbench" / "prefill"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "PointWarning":
                first = node.args[0] if node.args else next(word.value for word in node.keywords if word.arg == "code")
                assert isinstance(first, ast.Constant), f"{path.name}:{node.lineno} makes up a code"
                yield str(first.value)


@pytest.mark.slow
def test_every_code_is_documented_with_what_to_do() -> None:
    assert set(ROWS) == set(emitted()) == CODES
    for code, (void, meaning, advice) in ROWS.items():
        assert meaning.endswith("."), code
        assert advice.endswith("."), code
        assert void == ("yes" if code in VOIDING else ""), code


def test_no_code_is_documented_twice() -> None:
    assert len(re.findall(r"^\| `", DOCUMENT, re.MULTILINE)) == len(ROWS)
