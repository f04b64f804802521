"""The JSON documents in what fio wrote: among notes and errors, several in a row, with a BOM, cut off (pure)."""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass
from typing import Any

# fio prints numbers with %f, so C's spellings of "not a number" may stand where JSON has none.
_C_NOT_A_NUMBER = re.compile(r"(?<=[:\[,])(\s*)[-+]?(?:nan|inf(?:inity)?)(?=\s*[,}\]])", re.IGNORECASE)
_BEGINS = re.compile(r"^[ \t]*[\[{]", re.MULTILINE)
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
    """Every complete fio document of ``text``; a list of documents, as scripts re-save them, counts as well."""
    text = _C_NOT_A_NUMBER.sub(r"\1null", text.lstrip("\ufeff"))
    documents: list[dict[str, Any]] = []
    foreign: list[str] = []
    position = 0
    for match in _BEGINS.finditer(text):
        if match.start() < position:
            continue
        decoded = _decoded(text, match.end() - 1)
        if decoded is None:
            continue
        value, end = decoded
        held = [item for item in (value if isinstance(value, list) else [value]) if _is_fio(item)]
        if held:
            foreign.append(text[position : match.start()])
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


def _is_fio(value: Any) -> bool:
    return isinstance(value, dict) and "fio version" in value
