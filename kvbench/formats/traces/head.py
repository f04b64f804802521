"""What the formats know of a file before they read it: its beginning, and what the user said."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_LOOKED_AT = 20


@dataclass(frozen=True)
class FileHead:
    """The beginning of a file (up to a mebibyte)."""

    text: bytes

    @cached_property
    def keys(self) -> frozenset[str]:
        """The keys of the first line that is a JSON object; none where no line is."""
        for line in self.text.splitlines()[:_LOOKED_AT]:
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(found, dict):
                return frozenset(found)
        return frozenset()

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The cells of the first line, as a CSV file's names of columns."""
        first = next((line for line in self.text.splitlines() if line.strip()), b"")
        return tuple(cell.strip().strip('"') for cell in first.decode("utf-8", "replace").split(","))


@dataclass(frozen=True, slots=True)
class Options:
    """What the user says of a trace: the tokens of its blocks, and the tokenizer of its texts."""

    block_tokens: int | None = None
    tokenizer: Path | None = None
