"""``kvbench models``: the shipped profiles with their sizes."""

from __future__ import annotations

from kvbench import console
from kvbench.commands.options import JsonOption
from kvbench.layout.models import profile_paths, size_model
from kvbench.layout.sized import SizedModel
from kvbench.layout.view import sizes_json
from kvbench.units import format_count


def models(*, json: JsonOption = False) -> None:
    """One row per shipped profile: the name to use, the architecture, the bytes per token of one copy."""
    sized = {path.stem: size_model(path.stem) for path in profile_paths()}
    if json:
        console.print_json({"models": [_json(short, one) for short, one in sized.items()]})
        return
    rows = [
        [short, one.model, one.model_type, format_count(one.bytes_per_token), format_count(one.growing_bytes_per_token)]
        for short, one in sized.items()
    ]
    columns = ["name", "model", "architecture", "B/token", "growing"]
    console.print_aligned(f"{len(rows)} shipped profiles", columns, rows, right=(3, 4))


def _json(short: str, sized: SizedModel) -> dict[str, object]:
    keys = ("model", "source", "model_type", "layers", "kv_dtype", "bytes_per_token", "growing_bytes_per_token")
    known = sizes_json(sized, (), ())
    return {"name": short, **{key: known[key] for key in keys}}
