"""fio's documents inside the JSON of other tools (pure): kubestr, the Benchmark Operator, lists, text in a string."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

# Wrappers are shallow; a search that is this long has met something else.
_MOST_VALUES = 200_000
_DEEPEST = 64
_DEEPEST_TEXT = 2


def documents_within(value: Any, decode: Callable[[str], list[Any]]) -> list[dict[str, Any]]:
    """The fio documents in ``value`` at any path, in order; a document is not searched itself.

    ``decode`` gives the JSON values in a text: some tools keep fio's output as a string.
    """
    found: list[dict[str, Any]] = []
    left = deque([(value, 0, 0)])
    for _ in range(_MOST_VALUES):
        if not left:
            break
        item, depth, texts = left.popleft()
        document = _document(item)
        if document is not None:
            found.append(document)
        elif depth < _DEEPEST:
            inner, texts = _inside(item, texts, decode)
            # In the order of the file, depth first.
            left.extendleft((one, depth + 1, texts) for one in reversed(inner))
    return found


def _document(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        return None
    if "fio version" in value:
        return value
    # The Benchmark Operator's wrapper indexes every client_stats entry by itself, its version beside it (snafu).
    entry, version = value.get("fio"), value.get("fio_version")
    if isinstance(entry, dict) and "jobname" in entry and isinstance(version, str):
        return {"fio version": version, "global options": value.get("global_options", {}), "client_stats": [entry]}
    return None


def _inside(value: Any, texts: int, decode: Callable[[str], list[Any]]) -> tuple[list[Any], int]:
    if isinstance(value, dict):
        return list(value.values()), texts
    if isinstance(value, list):
        return value, texts
    if isinstance(value, str) and texts < _DEEPEST_TEXT and '"fio version' in value:
        return decode(value), texts + 1
    return [], texts
