"""A sized model as JSON: what ``blocksize`` prints, without printing it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from kvbench.layout.kv import KINDS
from kvbench.layout.sized import SizedModel
from kvbench.layout.sizing import Context, context


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
        "contexts": [_context_json(weigh(sized, count), spaces) for count in tokens],
        "warnings": list(sized.warnings),
    }


def weigh(sized: SizedModel, tokens: int) -> tuple[Context, bool]:
    """The context, and whether all parts of it are known."""
    known = sized.state_unknown is None and sized.cross_bytes is not None
    return context(sized.layout, sized.kv_dtype, sized.tp, tokens, sized.dcp), known


def _context_json(weighed: tuple[Context, bool], spaces: Sequence[int]) -> dict[str, object]:
    one, known = weighed
    sizes = {} if known else dict.fromkeys(("bytes", "rank_bytes", "server_bytes", "state_bytes", "cross_bytes"))
    fits = [
        {
            "bytes": space,
            "per_rank": fitting(space, one.rank_bytes, known),
            "stored": fitting(space, one.server_bytes, known),
            "one_copy": fitting(space, one.bytes, known),
        }
        for space in spaces
    ]
    return {**asdict(one), **sizes, "fits": fits}


def fitting(space: int, size: int, known: bool) -> int | None:
    """How many contexts of a size fit a space, None where the size is not known or nothing."""
    return space // size if known and size else None
