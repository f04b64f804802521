"""The JSON documents in what fio wrote: among notes and errors, several in a row, with a BOM, cut off (pure)."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kvbench.formats.fio.nested import documents_within

# fio prints numbers with %f, so C's spellings of "not a number" may stand where JSON has none.
_C_NOT_A_NUMBER = re.compile(r"(?<=[:\[,])(\s*)[-+]?(?:nan|inf(?:inity)?)(?=\s*[,}\]])", re.IGNORECASE)
_BEGINS = re.compile(r"^[ \t]*[\[{]", re.MULTILINE)
_FOLLOWS = re.compile(r"\s*[\[{]")
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True, slots=True)
class Found:
    """What stands in a text: fio's documents in order, the foreign text before them, and whether one is cut off."""

    documents: tuple[dict[str, Any], ...]
    preamble: str
    cut_off: bool


def decode(content: bytes) -> str:
    """The text of a file; PowerShell's ``>`` writes UTF-16 with a byte-order mark, editors add the UTF-8 one."""
    encoding = next((name for bom, name in _BOMS if content.startswith(bom)), "utf-8")
    return content.decode(encoding, errors="replace")


def find(text: str) -> Found:
    """Every complete fio document of ``text``, also inside a list or the JSON of another tool."""
    text = _C_NOT_A_NUMBER.sub(r"\1null", text.lstrip("\ufeff"))
    documents: list[dict[str, Any]] = []
    foreign: list[str] = []
    position = 0
    for value, start, end in _values(text):
        held = documents_within(value, _values_in)
        if held:
            foreign.append(text[position:start])
            documents += held
            position = end
    return Found(tuple(documents), "".join(foreign).strip(), '"fio version"' in text[position:])


def why_none(text: str) -> str:
    """Why ``text`` holds no document, as the end of a sentence."""
    if not text.strip("\ufeff \t\r\n"):
        return "it is empty."
    if text.lstrip("\ufeff \t\r\n").startswith("{") or '"fio version"' in text:
        return "it is cut off or damaged; run fio again."
    return f"it begins with {text.strip().splitlines()[0][:80]!r}."


def _decoded(text: str, start: int) -> tuple[Any, int] | None:
    try:
        # strict=False: a tab in a job's description is a bare control character in fio's JSON (fio 3.33).
        return json.JSONDecoder(strict=False).raw_decode(text, start)
    except (ValueError, RecursionError):
        return None


def _values(text: str) -> Iterator[tuple[Any, int, int]]:
    """The JSON objects and lists that begin a line or follow another at once, each with where it begins and ends."""
    position = 0
    for match in _BEGINS.finditer(text):
        start: int | None = match.end() - 1
        while start is not None and start >= position and (decoded := _decoded(text, start)) is not None:
            value, position = decoded
            yield value, start, position
            following = _FOLLOWS.match(text, position)
            start = following.end() - 1 if following else None


def _values_in(text: str) -> list[Any]:
    return [value for value, _, _ in _values(text)]
