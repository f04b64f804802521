"""The documents of a result file: one JSON object, several after each other (JSON lines), or YAML."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from kvbench.border import bounded
from kvbench.errors import InputFileError

SUFFIXES = (".json", ".jsonl", ".yaml", ".yml")
_YAML = (".yaml", ".yml")
_LONGEST_REASON = 100
_BLANKS = re.compile(r"\s*")


def load(path: Path) -> tuple[Any, ...]:
    """Every document of the file, in order; InputFileError when it cannot be read, is empty or is cut off."""
    if path.suffix.lower() == ".csv":
        raise InputFileError(f"{path} is a CSV file; give prompt_tokens and ttft_s of your own with --ttft-csv.")
    text = _text(path)
    if not text.strip():
        raise InputFileError(f"{path} is empty; name the result file of a serving benchmark.")
    try:
        return tuple(bounded.yaml_of(text)) if path.suffix.lower() in _YAML else _json(text)
    except json.JSONDecodeError as error:
        # An error at the very end means that the file stops in the middle of a value.
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        problem = "ends in the middle of a value" if cut else f"is no JSON at line {error.lineno}"
    except (RecursionError, ValueError) as error:
        # Python refuses integers of more than 4300 digits with ValueError.
        problem = f"holds what no serving benchmark writes ({str(error)[:_LONGEST_REASON]})"
    raise InputFileError(f"{path} {problem}; copy the file again, or run the benchmark again.")


def _text(path: Path) -> str:
    try:
        return bounded.read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        reason = "it is not UTF-8 text; unpack it first if it is compressed"
    except ValueError as error:
        reason = str(error)
    except OSError as error:
        reason = error.strerror or "the system refused"
    raise InputFileError(f"{path} cannot be read ({reason}); name the result file of a serving benchmark.")


def _json(text: str) -> tuple[Any, ...]:
    """The values that stand one after the other, as ``--append-result`` and JSON lines have them."""
    decoder = json.JSONDecoder()
    found, at, end = [], 0, len(text.rstrip())
    while at < end:
        value, at = decoder.raw_decode(text, _BLANKS.search(text, at).end())  # type: ignore[union-attr]
        found.append(value)
    bounded.require_bounded(found)
    return tuple(found)
