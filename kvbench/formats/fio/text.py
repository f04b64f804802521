"""The JSON documents in what fio wrote: among notes and errors, several in a row, with a BOM, cut off (pure)."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kvbench.border.bounded import require_bounded
from kvbench.formats.fio.nested import documents_within

# fio prints numbers with %f, so C's spellings of "not a number" may stand where JSON has none.
_C_NOT_A_NUMBER = re.compile(r"(?<=[:\[,])(\s*)[-+]?(?:nan|inf(?:inity)?)(?=\s*[,}\]])", re.IGNORECASE)
_C_WORDS = ("nan", "inf", "NAN", "INF", "NaN", "Inf")
# An object with a key, alone or first in a list: no line of a log that begins with a time in brackets.
_BEGINS = re.compile(r"^[ \t]*((?:\[\s*)?\{\s*\")", re.MULTILINE)
# Documents that were appended may follow each other on one line.
_FOLLOWS = re.compile(r"\s*((?:\[\s*)?\{\s*\")")
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# What is looked at before the rest of the text is: nearly everything that is no document fails within it.
_FIRST_LOOK = 1 << 12
_LOOK_FACTOR = 16
# Where a text was cut, an error is of the cut, unless it stands this far before.
_LONGEST_WORD = 64
# Failed attempts may cost this many times the text; a text that costs more was made to.
_MOST_WORK = 8
# Notes and errors are a few lines; of what else stands before the JSON the ends are kept.
_KEPT_PREAMBLE = 1 << 16


@dataclass(frozen=True, slots=True)
class FoundDocuments:
    """What stands in a text: fio's documents in order, the foreign text before them, and whether one is cut off."""

    documents: tuple[dict[str, Any], ...]
    preamble: str
    cut_off: bool


def decode(content: bytes) -> str:
    """The text of a file; PowerShell's ``>`` writes UTF-16 with a byte-order mark, editors add the UTF-8 one."""
    encoding = next((name for bom, name in _BOMS if content.startswith(bom)), "utf-8")
    return content.decode(encoding, errors="replace")


def find(text: str) -> FoundDocuments:
    """Every complete fio document of ``text``, also inside a list or the JSON of another tool.

    ValueError for a document that is deeper, or holds a larger number, than fio writes.
    """
    text = text.lstrip("\ufeff")
    if any(word in text for word in _C_WORDS):
        text = _C_NOT_A_NUMBER.sub(r"\1null", text)
    documents: list[dict[str, Any]] = []
    foreign: list[str] = []
    position = 0
    for start, end, value in _values(text):
        held = documents_within(value, _values_in)
        if held:
            require_bounded(held)
            foreign.append(text[position:start])
            documents += held
            position = end
    return FoundDocuments(tuple(documents), _shortened("".join(foreign).strip()), '"fio version"' in text[position:])


def why_none(text: str) -> str:
    """Why ``text`` holds no document, as the end of a sentence."""
    if not text.strip("\ufeff \t\r\n"):
        return "it is empty."
    if text.lstrip("\ufeff \t\r\n").startswith("{") or '"fio version"' in text:
        return "it is cut off or damaged; run fio again."
    return f"it begins with {text.strip()[:400].splitlines()[0][:80]!r}."


def _values(text: str) -> Iterator[tuple[int, int, Any]]:
    """Every JSON object, or list of objects, that begins a line or follows another at once, with its place."""
    # Not strict: a tab in a job's description is a bare control character in fio's JSON (fio 3.33).
    decoder = json.JSONDecoder(strict=False, parse_constant=_null)
    begins, position, work = _BEGINS.search, 0, _MOST_WORK * len(text) + _FIRST_LOOK * _LOOK_FACTOR
    while work > 0 and (match := begins(text, position) or _BEGINS.search(text, position)) is not None:
        start = match.start(1)
        value, looked = _decoded(decoder, text, start)
        if value is None:
            work -= looked
            begins, position = _BEGINS.search, start + 1
        else:
            yield match.start(), start + looked, value
            begins, position = _FOLLOWS.match, start + looked


def _values_in(text: str) -> list[Any]:
    return [value for _, _, value in _values(text)]


def _decoded(decoder: json.JSONDecoder, text: str, start: int) -> tuple[Any, int]:
    """The value at ``start`` and its length; None, and how much had to be looked at, where there is none.

    Looks at a part first: an error costs a count of all lines before it (json.JSONDecodeError).
    """
    size = _FIRST_LOOK
    while True:
        part = text[start : start + size]
        try:
            value, length = decoder.raw_decode(part)
        except json.JSONDecodeError as error:
            whole = start + size >= len(text)
            if whole or (error.pos < len(part) - _LONGEST_WORD and not error.msg.startswith("Unterminated")):
                return None, error.pos + 1
        except (ValueError, RecursionError):
            # Python refuses integers of more than 4300 digits with ValueError.
            return None, len(part)
        else:
            return value, length
        size *= _LOOK_FACTOR


def _shortened(preamble: str) -> str:
    if len(preamble) <= 2 * _KEPT_PREAMBLE:
        return preamble
    return f"{preamble[:_KEPT_PREAMBLE]}\n...\n{preamble[-_KEPT_PREAMBLE:]}"


def _null(_: str) -> None:
    return None
