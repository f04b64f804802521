"""Alibaba's Qwen-Bailian usage traces (alibaba-edu/qwen-bailian-usagetraces-anon): chats of turns, blocks of 16."""

from __future__ import annotations

from collections.abc import Iterable

from kvbench.formats.traces.format import TraceFormat
from kvbench.formats.traces.head import FileHead, Options
from kvbench.formats.traces.record import Request
from kvbench.formats.traces.schema import Ids, Seconds, Tokens, TraceRecord

_NO_PARENT = -1


class _Line(TraceRecord):
    chat_id: int
    parent_chat_id: int = _NO_PARENT
    timestamp: Seconds
    input_length: Tokens
    output_length: Tokens | None = None
    hash_ids: Ids


def accepts(head: FileHead) -> bool:
    """Whether the first object has Bailian's keys."""
    return {"hash_ids", "input_length", "chat_id"} <= head.keys


class BailianReader:
    """Reads one line after the other; a session is a chat with all that descends from it."""

    def __init__(self, options: Options) -> None:
        """Bailian's lines need no options."""
        self._root: dict[int, int] = {}

    def read(self, line: bytes) -> Iterable[Request]:
        """The request of a line; ValueError where it is none."""
        found = _Line.model_validate_json(line)
        root = self._root.get(found.parent_chat_id, found.parent_chat_id)
        root = found.chat_id if root == _NO_PARENT else root
        self._root[found.chat_id] = root
        yield Request(found.input_length, found.output_length, found.timestamp, root, found.hash_ids)


FORMAT = TraceFormat(
    title="Qwen-Bailian JSON lines (chat_id, parent_chat_id, timestamp in s, input_length, hash_ids)",
    accepts=accepts,
    reader=BailianReader,
    block_tokens=16,
)
