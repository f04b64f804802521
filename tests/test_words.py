"""One word for one idea: no synonyms of the glossary's words, and no two classes of one name."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.factories import ROOT

SOURCES = sorted((ROOT / "kvbench").rglob("*.py"))

# What docs/glossary.md calls otherwise.
SYNONYMS = re.compile(r"(?i)_?(?:caveats?|doubts?|traps?)")
# Where one of them may stand: parsing every file takes seconds.
LIKELY = re.compile(r"(?i)caveat|doubt|trap")


def names(tree: ast.Module) -> Iterator[str]:
    """Every name that the module gives or uses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg


def test_no_name_is_a_synonym_of_a_word_of_the_glossary() -> None:
    found = {
        (path.name, name)
        for path in SOURCES
        if LIKELY.search(path.read_text())
        for name in names(ast.parse(path.read_text()))
        if any(SYNONYMS.fullmatch(part) for part in name.split("_"))
    }
    assert found == set()


def test_no_two_public_classes_have_one_name() -> None:
    where: dict[str, set[Path]] = defaultdict(set)
    for path in SOURCES:
        for name in re.findall(r"(?m)^class ([A-Za-z]\w*)", path.read_text()):
            where[name].add(path)
    assert {name: paths for name, paths in where.items() if len(paths) > 1} == {}
