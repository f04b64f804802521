"""Mooncake's traces, and what AIPerf and others write in its shape (kvcache-ai/Mooncake FAST25-release/traces)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import AliasChoices, Field

from kvbench.formats.traces.format import TraceFormat
from kvbench.formats.traces.head import FileHead, Options
from kvbench.formats.traces.record import Request
from kvbench.formats.traces.schema import BlockTokens, Ids, Name, Seconds, Tokens, TraceRecord


class _Line(TraceRecord):
    timestamp: Seconds | None = None
    input_length: Tokens
    output_length: Tokens | None = None
    session_id: Name | None = None
    hash_ids: Ids
    tokens_per_block: Annotated[BlockTokens | None, Field(validation_alias=AliasChoices("block_size"))] = None


def accepts(head: FileHead) -> bool:
    """Whether the first object has Mooncake's keys, and not those that Bailian's has beyond them."""
    return {"hash_ids", "input_length"} <= head.keys and "chat_id" not in head.keys


class MooncakeReader:
    """Reads one line after the other."""

    def __init__(self, options: Options) -> None:
        """Mooncake's lines need no options."""

    def read(self, line: bytes) -> Iterable[Request]:
        """The request of a line; ValueError where it is none."""
        found = _Line.model_validate_json(line)
        yield Request(
            found.input_length,
            found.output_length,
            None if found.timestamp is None else found.timestamp / 1000,
            found.session_id,
            found.hash_ids,
            found.tokens_per_block,
        )


FORMAT = TraceFormat(
    title="Mooncake JSON lines (timestamp in ms, input_length, output_length, hash_ids)",
    accepts=accepts,
    reader=MooncakeReader,
    block_tokens=512,
)
