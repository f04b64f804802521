"""Agent traces of kv-cache-tester (WEKA), which AIPerf's AgentX replays: one JSON object for each agent session.

A file holds one object, or one on each line (as rows of the Hub's data sets). Block ids count within one object; a
subagent's requests share them, and their times count from the subagent's start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from kvbench.formats.traces.format import TraceFormat
from kvbench.formats.traces.head import FileHead, Options
from kvbench.formats.traces.record import Request
from kvbench.formats.traces.schema import BlockTokens, Seconds, Tokens, TraceRecord

_KEY = re.compile(rb'"(block_size|hash_id_scope|requests)"\s*:')


class _Call(TraceRecord):
    t: Seconds
    type: Literal["n", "s"]
    prompt: Annotated[Tokens, Field(validation_alias="in")]
    out: Tokens | None = None
    hash_ids: list[int]


class _Subagent(TraceRecord):
    t: Seconds
    type: Literal["subagent"]
    agent_id: str = ""
    requests: list[_Entry]


def _kind(entry: object) -> str:
    own = entry.get("type") if isinstance(entry, dict) else getattr(entry, "type", None)
    return "subagent" if own == "subagent" else "call"


_Entry = Annotated[Annotated[_Call, Tag("call")] | Annotated[_Subagent, Tag("subagent")], Discriminator(_kind)]


class _Session(TraceRecord):
    id: str
    block_size: BlockTokens
    hash_id_scope: Literal["local"] = "local"
    requests: list[_Entry]


def accepts(head: FileHead) -> bool:
    """Whether the beginning names the keys of an agent session; it may be one long line."""
    return {b"block_size", b"requests"} <= set(_KEY.findall(head.text[:65536]))


class WekaReader:
    """Reads one session after the other."""

    def __init__(self, options: Options) -> None:
        """Sessions say all by themselves."""
        self._sessions = 0

    def read(self, line: bytes) -> Iterable[Request]:
        """The requests of a session in order of their start; ValueError where it is none."""
        session = _Session.model_validate_json(line)
        self._sessions += 1
        found = _requests(session.requests, session, self._sessions, 0.0, session.id)
        return sorted(found, key=lambda request: request.arrival_s or 0.0)


def _requests(
    entries: Iterable[_Call | _Subagent], session: _Session, scope: int, start_s: float, name: str
) -> Iterator[Request]:
    for entry in entries:
        if isinstance(entry, _Subagent):
            agent = f"{name}/{entry.agent_id}"
            yield from _requests(entry.requests, session, scope, start_s + entry.t, agent)
        else:
            yield Request(
                entry.prompt, entry.out, start_s + entry.t, (scope, name), entry.hash_ids, session.block_size, scope
            )


FORMAT = TraceFormat(
    title="agent traces of kv-cache-tester and AIPerf (requests with t in s, in, out, hash_ids; or a folder of them)",
    accepts=accepts,
    reader=WekaReader,
    block_tokens=None,
    session_files=True,
)
