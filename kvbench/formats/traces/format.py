"""What a format of traces tells of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from kvbench.formats.traces.head import FileHead, Options
from kvbench.formats.traces.record import Request
from kvbench.traces.trace import Reuse


class TraceReader(Protocol):
    """Turns the lines of a file, in order, into requests."""

    def read(self, line: bytes, /) -> Iterable[Request]:
        """The requests of a line or document; ValueError with the reason where it is broken."""


def hashes(_: FileHead) -> Reuse:
    """What most formats know of reuse: the hashes of the blocks."""
    return "hashes"


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """A format: its title for people, whether a file that begins so is of it, and a reader for one trace.

    ``block_tokens`` is None where the file itself says it. ``session_files``: a file may be one document over many
    lines, and the files of a folder are one trace.
    """

    title: str
    accepts: Callable[[FileHead], bool]
    reader: Callable[[Options], TraceReader]
    block_tokens: int | None
    reuse: Callable[[FileHead], Reuse] = hashes
    session_files: bool = False
