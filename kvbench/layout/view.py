"""A sized model as JSON and as table cells: what ``blocksize`` prints, without printing it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from kvbench.layout.kv import KINDS
from kvbench.layout.sized import SizedModel
from kvbench.layout.sizing import Context, context
from kvbench.units import format_bytes, format_count, format_tokens


def sizes_json(sized: SizedModel, tokens: Sequence[int], spaces: Sequence[int]) -> dict[str, object]:
    """The JSON object of one model: integers for bytes and tokens, null for what the config does not settle."""
    return {
        "model": sized.model,
        "source": sized.source,
        "model_type": sized.model_type,
        "kv_dtype": sized.kv_dtype,
        "kv_dtype_source": sized.kv_dtype_source,
        "tp": sized.tp,
        "pp": sized.pp,
        "dcp": sized.dcp,
        "block_tokens": sized.block_tokens,
        "layers": {kind: sized.layout.count(kind) for kind in KINDS},
        "bytes_per_token": sized.bytes_per_token,
        "growing_bytes_per_token": sized.growing_bytes_per_token,
        "rank_block_bytes": sized.rank_block_bytes,
        "server_block_bytes": sized.server_block_bytes,
        "stages": [asdict(stage) for stage in sized.stages],
        "state_bytes": None if sized.state_unknown else sized.state_bytes,
        "index_bytes_per_token": sized.index_bytes_per_token,
        "cross_bytes": sized.cross_bytes,
        "contexts": [_context_json(_weigh(sized, count), spaces) for count in tokens],
        "warnings": list(sized.warnings),
    }


def _weigh(sized: SizedModel, tokens: int) -> tuple[Context, bool]:
    """The context, and whether all parts of it are known."""
    known = sized.state_unknown is None and sized.cross_bytes is not None
    return context(sized.layout, sized.kv_dtype, sized.tp, tokens, sized.dcp), known


def _context_json(weighed: tuple[Context, bool], spaces: Sequence[int]) -> dict[str, object]:
    one, known = weighed
    sizes = {} if known else dict.fromkeys(("bytes", "rank_bytes", "server_bytes", "state_bytes", "cross_bytes"))
    fits = [
        {
            "bytes": space,
            "per_rank": _fitting(space, one.rank_bytes, known),
            "stored": _fitting(space, one.server_bytes, known),
            "one_copy": _fitting(space, one.bytes, known),
        }
        for space in spaces
    ]
    return {**asdict(one), **sizes, "fits": fits}


def _fitting(space: int, size: int, known: bool) -> int | None:
    return space // size if known and size else None


def sizes_table(sized: Sequence[SizedModel]) -> tuple[str, list[str], list[list[str]]]:
    """Title, columns and rows of the table of models; columns that say nothing new for any model are left out."""
    first = sized[0]
    growing = any(one.growing_bytes_per_token != one.bytes_per_token for one in sized)
    state = any(one.state_bytes or one.state_unknown for one in sized)
    dtypes = {one.kv_dtype for one in sized}
    columns = ["model", "layers", *["KV dtype"] * (len(dtypes) > 1), "B/token", *["growing"] * growing]
    columns += ["rank block", "server block", "", *["state"] * state]
    pp = f", PP {first.pp}" if first.pp > 1 else ""
    dtype = f" in {first.kv_dtype}" if len(dtypes) == 1 else ""
    title = f"KV cache{dtype} at TP {first.tp}{pp}: bytes of blocks of {first.block_tokens} tokens"
    return title, columns, [_size_row(one, dtype=len(dtypes) > 1, growing=growing, state=state) for one in sized]


def _size_row(one: SizedModel, *, dtype: bool, growing: bool, state: bool) -> list[str]:
    row = [one.model, _layers(one), *[one.kv_dtype] * dtype, format_count(one.bytes_per_token)]
    row += [format_count(one.growing_bytes_per_token)] * growing
    row += [format_count(one.rank_block_bytes), format_count(one.server_block_bytes)]
    row += [f"= {format_bytes(one.server_block_bytes)}" if one.server_block_bytes else "no KV cache"]
    state_text = "unknown" if one.state_unknown else format_bytes(one.state_bytes) if one.state_bytes else "-"
    return [*row, *[state_text] * state]


def _layers(one: SizedModel) -> str:
    windows = {layer.kind: layer.window for layer in one.layout.layers if layer.window is not None}
    return ", ".join(
        f"{one.layout.count(kind)} {kind}{f' ({windows[kind]:,})' if kind in windows else ''}"
        for kind in KINDS
        if one.layout.count(kind)
    )


def contexts_table(
    sized: Sequence[SizedModel], tokens: Sequence[int], spaces: Sequence[int]
) -> tuple[str, list[str], list[list[str]]]:
    """Title, columns and rows of the table of contexts: one copy, per rank, on the server, and how many fit."""
    columns = ["model", "context", "one copy", "per rank", "server"]
    for space in spaces:
        columns += [f"fit {format_bytes(space)} per rank", f"fit {format_bytes(space)}"]
    rows = [_context_row(one, count, spaces) for one in sized for count in tokens]
    return "One request, windows and states honoured", columns, rows


def _context_row(one: SizedModel, tokens: int, spaces: Sequence[int]) -> list[str]:
    weighed, known = _weigh(one, tokens)
    sizes = (weighed.bytes, weighed.rank_bytes, weighed.server_bytes)
    row = [one.model, format_tokens(tokens), *(format_bytes(size) if known else "unknown" for size in sizes)]
    for space in spaces:
        for size in (weighed.rank_bytes, weighed.server_bytes):
            count = _fitting(space, size, known)
            row.append("-" if count is None else format_count(count))
    return row
