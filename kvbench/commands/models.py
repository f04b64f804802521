"""``kvbench models``: the shipped profiles with their sizes."""

from __future__ import annotations

from kvbench import console
from kvbench.commands.options import JsonOption
from kvbench.layout.models import profile_paths, size_model
from kvbench.layout.sized import SizedModel
from kvbench.layout.view import sizes_json
from kvbench.report.listings.profiles import profiles


def models(*, json: JsonOption = False) -> None:
    """One row per shipped profile: the name to use, the architecture, the bytes per token of one copy."""
    sized = {path.stem: size_model(path.stem) for path in profile_paths()}
    if json:
        console.print_json({"models": [_json(short, one) for short, one in sized.items()]})
        return
    console.print_aligned(profiles(sized))


def _json(short: str, sized: SizedModel) -> dict[str, object]:
    keys = ("model", "source", "model_type", "layers", "kv_dtype", "bytes_per_token", "growing_bytes_per_token")
    known = sizes_json(sized, (), ())
    return {"name": short, **{key: known[key] for key in keys}}
