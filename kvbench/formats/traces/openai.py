"""Requests in OpenAI's shape (messages, or a prompt as text), hashed with a tokenizer that the user names."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AliasChoices, Field

from kvbench.errors import UsageError
from kvbench.formats.traces.format import TraceFormat
from kvbench.formats.traces.head import FileHead, Options
from kvbench.formats.traces.record import Request
from kvbench.formats.traces.schema import Name, Seconds, Tokens, TraceRecord

if TYPE_CHECKING:
    from kvbench.formats.traces.tokenizer import Tokenizer

_BLOCK_TOKENS = 16
_TEXTS = frozenset({"messages", "prompt", "text_input", "body"})


class _Body(TraceRecord):
    messages: list[dict[str, Any]] | None = None
    prompt: Annotated[str | None, Field(validation_alias=AliasChoices("prompt", "text_input"))] = None
    tools: list[dict[str, Any]] | None = None


class _Line(_Body):
    body: _Body | None = None
    timestamp: Seconds | None = None
    timestamp_s: Annotated[Seconds | None, Field(validation_alias=AliasChoices("timestamp_s", "created"))] = None
    session_id: Annotated[Name | None, Field(validation_alias=AliasChoices("session_id", "conversation_id"))] = None
    output_length: Annotated[
        Tokens | None, Field(validation_alias=AliasChoices("output_length", "output_tokens", "completion_tokens"))
    ] = None


def accepts(head: FileHead) -> bool:
    """Whether the first object holds a prompt's text."""
    return bool(_TEXTS & head.keys) and "hash_ids" not in head.keys


class OpenaiReader:
    """Reads one line after the other; equal beginnings of whole blocks get equal ids."""

    def __init__(self, options: Options) -> None:
        """Load the tokenizer; UsageError where none is named."""
        if options.tokenizer is None:
            raise UsageError(
                "the trace holds texts, whose blocks only a tokenizer can tell; name the model's with --tokenizer "
                "(a folder with tokenizer.json, or the file)."
            )
        from kvbench.formats.traces.tokenizer import load

        self._tokenizer: Tokenizer = load(options.tokenizer)
        self._block_tokens = options.block_tokens or _BLOCK_TOKENS
        self._ids: dict[Hashable, int] = {}

    def read(self, line: bytes) -> Iterable[Request]:
        """The request of a line; ValueError where it is none."""
        found = _Line.model_validate_json(line)
        body = found.body or found
        if body.messages is not None:
            tokens = self._tokenizer.chat(body.messages, body.tools)
        elif body.prompt is not None:
            tokens = self._tokenizer.text(body.prompt)
        else:
            raise ValueError("it has neither messages nor a prompt")
        # AIPerf's traces count milliseconds in `timestamp`, as Mooncake's do.
        arrival_s = found.timestamp_s if found.timestamp is None else found.timestamp / 1000
        yield Request(len(tokens), found.output_length, arrival_s, found.session_id, self._blocks(tokens))

    def _blocks(self, tokens: Sequence[int]) -> list[int]:
        """Ids of the whole blocks, each with all before it: the engine keeps no block that is not full."""
        blocks, parent = [], -1
        for start in range(0, len(tokens) - self._block_tokens + 1, self._block_tokens):
            content = (parent, *tokens[start : start + self._block_tokens])
            parent = self._ids.setdefault(content, len(self._ids))
            blocks.append(parent)
        return blocks


FORMAT = TraceFormat(
    title="OpenAI-style JSON lines (messages, prompt or text_input; needs --tokenizer)",
    accepts=accepts,
    reader=OpenaiReader,
    block_tokens=_BLOCK_TOKENS,
)
