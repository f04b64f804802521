"""Plain logs of prompts: token counts, times and session ids in columns (CSV) or keys (JSON lines), no hashes.

Azure's LLM inference traces and BurstGPT are of this kind. Where sessions are named, each prompt is taken to extend
the earlier ones of its session, which is the most that can be reused; else nothing is known of reuse.
"""

from __future__ import annotations

import csv
from collections.abc import Hashable, Iterable, Mapping
from datetime import datetime
from typing import Any

from kvbench.border.bounded import json_of
from kvbench.formats.traces.format import TraceFormat
from kvbench.formats.traces.head import FileHead, Options
from kvbench.formats.traces.record import Request
from kvbench.traces.trace import Reuse

_BLOCK_TOKENS = 16
_PROMPT = ("prompt_tokens", "input_tokens", "input_length", "contexttokens", "request tokens")
_OUTPUT = ("output_tokens", "completion_tokens", "output_length", "generatedtokens", "response tokens")
_SESSION = ("session_id", "conversation_id", "chat_id", "session id")
_TIME_S = ("timestamp", "timestamp_s", "time", "arrival_s", "arrived_at")
_TIME_MS = ("timestamp_ms", "time_ms")


def accepts(head: FileHead) -> bool:
    """Whether a column or key counts the prompt's tokens, and nothing names blocks."""
    names = _names(head)
    return _first(names, _PROMPT) is not None and "hash_ids" not in names


def reuse(head: FileHead) -> Reuse:
    """Sessions, where a column names them."""
    return "nothing" if _first(_names(head), _SESSION) is None else "sessions"


def _names(head: FileHead) -> tuple[str, ...]:
    return tuple(name.strip().lower() for name in (head.keys or head.columns))


def _first(names: Iterable[str], wanted: tuple[str, ...]) -> str | None:
    present = set(names)
    return next((name for name in wanted if name in present), None)


class PromptLogReader:
    """Reads one line after the other; the first line of a CSV file names its columns."""

    def __init__(self, options: Options) -> None:
        """Blocks have as many tokens as the user says, or 16."""
        self._block_tokens = options.block_tokens or _BLOCK_TOKENS
        self._columns: list[str] | None = None
        self._sessions: dict[Hashable, int] = {}

    def read(self, line: bytes) -> Iterable[Request]:
        """The request of a line; ValueError where it is none."""
        row = self._row(line)
        if row is None:
            return
        prompt = _count(_cell(row, _PROMPT), "the prompt's tokens")
        if prompt is None:
            raise ValueError("it does not say how many tokens the prompt has")
        session = _cell(row, _SESSION)
        if session is None:
            ids, scope = range(0), None
        else:
            ids = range(prompt // self._block_tokens)
            scope = self._sessions.setdefault(str(session), len(self._sessions))
        # Only whole blocks: the one that a longer prompt fills up is another block then.
        yield Request(
            prompt, _count(_cell(row, _OUTPUT), "the output's tokens"), _arrival_s(row), scope, ids, None, scope
        )

    def _row(self, line: bytes) -> Mapping[str, Any] | None:
        if line.startswith(b"{"):
            found = json_of(line)
            return {str(key).lower(): value for key, value in found.items()}
        try:
            cells = next(csv.reader([line.decode("utf-8")], strict=True))
        except csv.Error as error:
            raise ValueError(f"it is no CSV ({error})") from None
        if self._columns is None:
            columns = [cell.strip().lower() for cell in cells]
            if _first(columns, _PROMPT) is None:
                raise ValueError("it names no column of prompt tokens, which the first line of a CSV file does")
            self._columns = columns
            return None
        if len(cells) != len(self._columns):
            raise ValueError(f"it has {len(cells)} cells where {len(self._columns)} columns are named")
        return dict(zip(self._columns, (cell.strip() or None for cell in cells), strict=True))


def _cell(row: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _count(value: Any, what: str) -> int | None:
    """A whole number, also as text and as ``12.0``, which some tools write."""
    if value is None:
        return None
    try:
        number = float(value)
        whole = int(number)
    except (TypeError, ValueError, OverflowError):
        whole, number = -1, 0.0
    if isinstance(value, bool) or whole < 0 or whole != number:
        raise ValueError(f"{what} are {str(value)[:40]!r}, which is no count")
    return whole


def _arrival_s(row: Mapping[str, Any]) -> float | None:
    if (value := _cell(row, _TIME_MS)) is not None:
        return _seconds(value) / 1000
    value = _cell(row, _TIME_S)
    return None if value is None else _seconds(value)


def _seconds(value: Any) -> float:
    """Seconds of a number, or of a date with a time; those without a zone are taken for UTC."""
    try:
        return float(value)
    except (TypeError, ValueError):
        pass
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        raise ValueError(f"{str(value)[:40]!r} is no time; write seconds or ISO 8601") from None
    from datetime import UTC

    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


FORMAT = TraceFormat(
    title="prompt logs, CSV or JSON lines (prompt_tokens, and timestamp in s or ISO 8601, output_tokens, session_id)",
    accepts=accepts,
    reader=PromptLogReader,
    block_tokens=_BLOCK_TOKENS,
    reuse=reuse,
)
