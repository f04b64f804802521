"""JSON as kvbench writes it, for files and for standard output."""

from __future__ import annotations

import json

_READ_BY_PEOPLE = 1 << 20


def json_text(data: object, indent: int) -> str:
    """JSON data as a text with an end of line; ValueError for NaN and infinity, which would be a bug of ours.

    Indented as far as people read it: Python takes ten times as long for that.
    """
    text = json.dumps(data, allow_nan=False)
    return (text if len(text) > _READ_BY_PEOPLE else json.dumps(data, indent=indent)) + "\n"
