"""What one block and one context of each model weigh (pure)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvbench.layout.kv import KINDS
from kvbench.layout.sized import SizedModel
from kvbench.layout.sizing import Context
from kvbench.layout.view import fitting, weigh
from kvbench.report.columns import Column, narrow, words
from kvbench.report.sheet import Sheet
from kvbench.units import format_bytes, format_count, format_tokens


def _layers(one: SizedModel) -> str:
    windows = {layer.kind: layer.window for layer in one.layout.layers if layer.window is not None}
    return ", ".join(
        f"{one.layout.count(kind)} {kind}{f' ({windows[kind]:,})' if kind in windows else ''}"
        for kind in KINDS
        if one.layout.count(kind)
    )


def _state(one: SizedModel) -> str:
    return "unknown" if one.state_unknown else format_bytes(one.state_bytes) if one.state_bytes else ""


def _block(one: SizedModel) -> str:
    return f"= {format_bytes(one.server_block_bytes)}" if one.server_block_bytes else "no KV cache"


def _bytes(key: str, heading: str, count: Callable[[SizedModel], int], *, falls: int = 0) -> Column[SizedModel]:
    return words(key, heading, lambda one: format_count(count(one)), right=True, falls=falls)


SIZES: tuple[Column[SizedModel], ...] = (
    words("model", "model", lambda one: one.model),
    words("layers", "layers", _layers, falls=1),
    words("kv_dtype", "KV dtype", lambda one: one.kv_dtype),
    _bytes("bytes_per_token", "B/token", lambda one: one.bytes_per_token),
    _bytes("growing_bytes_per_token", "growing", lambda one: one.growing_bytes_per_token),
    _bytes("rank_block_bytes", "rank block", lambda one: one.rank_block_bytes, falls=2),
    _bytes("server_block_bytes", "server block", lambda one: one.server_block_bytes),
    words("server_block", "", _block, right=True),
    words("state", "state", _state, right=True),
)


def sizes(sized: Sequence[SizedModel]) -> Sheet:
    """One row for each model; columns that say nothing new for any of them are left out."""
    first, dtypes = sized[0], {one.kv_dtype for one in sized}
    says_nothing = {
        "kv_dtype": len(dtypes) == 1,
        "growing_bytes_per_token": all(one.growing_bytes_per_token == one.bytes_per_token for one in sized),
        "state": not any(map(_state, sized)),
    }
    pp = f", PP {first.pp}" if first.pp > 1 else ""
    dtype = f" in {first.kv_dtype}" if len(dtypes) == 1 else ""
    title = f"KV cache{dtype} at TP {first.tp}{pp}: bytes of blocks of {first.block_tokens} tokens"
    return narrow(title, SIZES, sized, *(column.key for column in SIZES if not says_nothing.get(column.key)))


@dataclass(frozen=True, slots=True)
class SizedContext:
    """One context of one model; ``known`` says whether all parts of it are."""

    model: str
    weighed: Context
    known: bool


def _size(key: str, heading: str, size: Callable[[Context], int], *, falls: int = 0) -> Column[SizedContext]:
    def text(row: SizedContext) -> str:
        return format_bytes(size(row.weighed)) if row.known else "unknown"

    return words(key, heading, text, right=True, falls=falls)


def _fit(key: str, heading: str, space: int, size: Callable[[Context], int], *, falls: int = 0) -> Column[SizedContext]:
    def text(row: SizedContext) -> str:
        count = fitting(space, size(row.weighed), row.known)
        return "" if count is None else format_count(count)

    return words(key, heading, text, right=True, falls=falls)


CONTEXTS: tuple[Column[SizedContext], ...] = (
    words("model", "model", lambda row: row.model),
    words("tokens", "context", lambda row: format_tokens(row.weighed.tokens), right=True),
    _size("bytes", "one copy", lambda one: one.bytes, falls=3),
    _size("rank_bytes", "per rank", lambda one: one.rank_bytes, falls=2),
    _size("server_bytes", "server", lambda one: one.server_bytes),
)


def contexts(sized: Sequence[SizedModel], tokens: Sequence[int], spaces: Sequence[int]) -> Sheet:
    """One row for each model and context: one copy, per rank, on the server, and how many fit."""
    fits = [
        column
        for at, space in enumerate(spaces)
        for column in (
            _fit(f"fit_{at}_rank", f"fit {format_bytes(space)} per rank", space, lambda one: one.rank_bytes, falls=1),
            _fit(f"fit_{at}", f"fit {format_bytes(space)}", space, lambda one: one.server_bytes),
        )
    ]
    rows = [SizedContext(one.model, *weigh(one, count)) for one in sized for count in tokens]
    return narrow("One request, windows and states honoured", (*CONTEXTS, *fits), rows)
