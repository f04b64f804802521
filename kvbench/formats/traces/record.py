"""One request as every trace format gives it, and how they are gathered into a Trace."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kvbench.errors import InputFileError
from kvbench.traces.stack import MOST_REFERENCES
from kvbench.traces.trace import Places, Reuse, Trace

# More than any prompt has.
MOST_TOKENS = 1 << 27
# Also milliseconds since 1970 are below it, which some traces write.
LONGEST_S = 1e15
_CHUNK = 1 << 20
# Ids of one part of a file are below it, so that a part and an id make one number.
_MOST_LOCAL = 1 << 32


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a trace file; None is what the file does not say.

    ``ids`` name the blocks of the prompt in order; equal ids are equal blocks, within ``scope`` where the ids are the
    own of a part of the file. ``block_tokens`` is what the file itself says of the blocks.
    """

    prompt_tokens: int
    output_tokens: int | None = None
    arrival_s: float | None = None
    session: Hashable | None = None
    ids: Sequence[int] | Sequence[str] = ()
    block_tokens: int | None = None
    scope: int | None = None


@dataclass
class Builder:
    """Gathers requests in numpy arrays as they come.

    Blocks have ``block_tokens`` tokens; where that is None the first request says it, or it is the format's usual size.
    """

    block_tokens: int | None
    usual_block_tokens: int | None
    reuse: Reuse
    _arrival: array[float] = field(default_factory=lambda: array("d"))
    _timeless: int = 0
    _session: array[int] = field(default_factory=lambda: array("i"))
    _sessions: dict[Hashable, int] = field(default_factory=dict)
    _prompt: array[int] = field(default_factory=lambda: array("q"))
    _output: array[int] = field(default_factory=lambda: array("q"))
    _counts: array[int] = field(default_factory=lambda: array("q"))
    _pending: array[int] = field(default_factory=lambda: array("q"))
    _chunks: list[npt.NDArray[np.int64]] = field(default_factory=list)
    _named: dict[Hashable, int] = field(default_factory=dict)
    _references: int = 0

    def add(self, requests: Sequence[Request]) -> None:
        """Take the requests of a line, all or none; ValueError with the reason where one cannot be right."""
        for request in requests:
            self._check(request)
        for request in requests:
            self._take(request)

    def _take(self, request: Request) -> None:
        self._take_ids(request)
        self._timeless += request.arrival_s is None
        self._arrival.append(request.arrival_s or 0.0)
        session = request.session
        self._session.append(-1 if session is None else self._sessions.setdefault(session, len(self._sessions)))
        self._prompt.append(request.prompt_tokens)
        self._output.append(-1 if request.output_tokens is None else request.output_tokens)
        self._counts.append(len(request.ids))

    def __len__(self) -> int:
        """How many requests were taken."""
        return len(self._prompt)

    def _check(self, request: Request) -> None:
        if not 0 <= request.prompt_tokens <= MOST_TOKENS:
            raise ValueError(f"a prompt of {str(request.prompt_tokens)[:40]} tokens does not exist")
        if request.output_tokens is not None and not 0 <= request.output_tokens <= MOST_TOKENS:
            raise ValueError(f"an answer of {str(request.output_tokens)[:40]} tokens does not exist")
        if request.arrival_s is not None and not abs(request.arrival_s) <= LONGEST_S:
            raise ValueError(f"{request.arrival_s} is no time of arrival")
        if self.block_tokens is None:
            self.block_tokens = request.block_tokens or self.usual_block_tokens
        tokens = self.block_tokens
        if tokens is None:
            raise ValueError("it does not say how many tokens a block has (--block-tokens)")
        if request.block_tokens not in (None, tokens):
            raise ValueError(f"its blocks have {request.block_tokens} tokens, those before it {tokens}")
        if request.scope is not None and request.ids and not _local(request.ids):
            raise ValueError(f"a block id is not between 0 and {_MOST_LOCAL:,}")
        count = len(request.ids)
        whole, rest = divmod(request.prompt_tokens, tokens)
        if self.reuse == "hashes" and count not in (whole, whole + bool(rest)):
            raise ValueError(
                f"{count} blocks of {tokens} tokens are not a prompt of {request.prompt_tokens} tokens (--block-tokens)"
            )

    def _take_ids(self, request: Request) -> None:
        self._references += len(request.ids)
        if self._references > MOST_REFERENCES:
            raise InputFileError(f"the trace has more than {MOST_REFERENCES:,} blocks; cut it into shorter ones.")
        if request.scope is not None:
            self._take_scoped(request.scope, np.array(request.ids, np.int64))
        else:
            try:
                # Copied whole or not at all: an id beyond 64 bits, or one that is text, leaves nothing behind.
                self._pending.extend(array("q", request.ids))  # type: ignore[arg-type]
            except (OverflowError, TypeError):
                self._take_names(request.ids)
        if len(self._pending) >= _CHUNK:
            self._flush()

    def _take_scoped(self, scope: int, ids: npt.NDArray[np.int64]) -> None:
        self._pending.frombytes((ids + scope * _MOST_LOCAL).tobytes())

    def _take_names(self, names: Sequence[Hashable]) -> None:
        # Names count downwards from -2^62, where no file's own numbers are.
        for name in names:
            self._pending.append(self._named.setdefault(name, len(self._named) - (1 << 62)))

    def _flush(self) -> None:
        self._chunks.append(np.frombuffer(self._pending, np.int64))
        self._pending = array("q")

    def trace(self) -> Trace:
        """The requests in order of arrival (as they came, where any has no time); InputFileError for none."""
        if not len(self):
            raise InputFileError("the trace holds no request; name another file.")
        self._flush()
        ids = np.concatenate(self._chunks)
        self._chunks.clear()
        blocks, unique = dense(ids)
        first = np.concatenate(([0], np.cumsum(np.frombuffer(self._counts, np.int64))))
        arrival = None if self._timeless else np.frombuffer(self._arrival, np.float64)
        order = None if arrival is None or bool((np.diff(arrival) >= 0).all()) else np.argsort(arrival, kind="stable")
        session = np.frombuffer(self._session, np.int32)
        prompt, output = np.frombuffer(self._prompt, np.int64), np.frombuffer(self._output, np.int64)
        if order is not None and arrival is not None:
            session, prompt, output, arrival = session[order], prompt[order], output[order], arrival[order]
            blocks, first = _reordered(blocks, first, order)
        if arrival is not None:
            arrival = arrival - arrival[0]
        assert self.block_tokens is not None
        return Trace(self.block_tokens, self.reuse, arrival, session, prompt, output, first, blocks, unique)


def _local(ids: Sequence[int] | Sequence[str]) -> bool:
    if isinstance(ids, range):
        return True
    return all(isinstance(one, int) for one in ids) and 0 <= min(ids) <= max(ids) < _MOST_LOCAL  # type: ignore[operator]


def dense(ids: npt.NDArray[np.int64]) -> tuple[Places, int]:
    """The ids as numbers from 0, and how many there are; a table where they are dense already, else a sort."""
    if not len(ids):
        return ids.astype(np.int32), 0
    low, high = int(ids.min()), int(ids.max())
    if high - low > 8 * len(ids) + (1 << 16):
        names, numbers = np.unique(ids, return_inverse=True)
        return numbers.astype(np.int32), len(names)
    used = np.zeros(high - low + 1, np.bool_)
    used[ids - low] = True
    number = np.cumsum(used, dtype=np.int32) - np.int32(1)
    return number[ids - low], int(number[-1]) + 1


def _reordered(
    blocks: Places, first: npt.NDArray[np.int64], order: npt.NDArray[np.int64]
) -> tuple[Places, npt.NDArray[np.int64]]:
    counts = np.diff(first)[order]
    moved = np.concatenate(([0], np.cumsum(counts)))
    shift = np.repeat(first[:-1][order] - moved[:-1], counts)
    return blocks[np.arange(len(blocks)) + shift], moved
