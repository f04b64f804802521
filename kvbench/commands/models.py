"""``kvbench models``: the shipped profiles with their sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kvbench.layout.sized import SizedModel

HELP = "List the models that kvbench knows without a download, with their KV bytes per token."


def models(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """One row per shipped profile: the name to use, the architecture, the bytes per token of one copy."""
    from kvbench import console
    from kvbench.layout.models import profile_paths, size_model
    from kvbench.units import format_count

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
    from kvbench.layout.view import sizes_json

    keys = ("model", "source", "model_type", "layers", "kv_dtype", "bytes_per_token", "growing_bytes_per_token")
    known = sizes_json(sized, (), ())
    return {"name": short, **{key: known[key] for key in keys}}
