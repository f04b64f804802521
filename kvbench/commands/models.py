"""``kvbench models``: the shipped profiles with their sizes, and the shipped prefill curves."""

from __future__ import annotations

from kvbench import console
from kvbench.commands.options import JsonOption
from kvbench.layout.models import profile_paths, size_model
from kvbench.layout.sized import SizedModel
from kvbench.layout.view import sizes_json
from kvbench.prefill.samples import Samples, read_csv
from kvbench.prefill.shipped import shipped_curves
from kvbench.report.listings.profiles import curves as curves_table
from kvbench.report.listings.profiles import profiles


def models(*, json: JsonOption = False) -> None:
    """One row per shipped profile and per prefill curve, with the name to use."""
    sized = {path.stem: size_model(path.stem) for path in profile_paths()}
    curves = {name: read_csv(path) for name, path in shipped_curves().items()}
    if json:
        shown = [_json(short, one) for short, one in sized.items()]
        console.print_json({"models": shown, "prefill_curves": [_curve_json(name, curves[name]) for name in curves]})
        return
    console.print_aligned(profiles(sized))
    console.print_aligned(curves_table(curves))


def _json(short: str, sized: SizedModel) -> dict[str, object]:
    keys = ("model", "source", "model_type", "layers", "kv_dtype", "bytes_per_token", "growing_bytes_per_token")
    known = sizes_json(sized, (), ())
    return {"name": short, **{key: known[key] for key in keys}}


def _curve_json(name: str, samples: Samples) -> dict[str, object]:
    lengths = [sample.prompt_tokens for sample in samples.rows]
    return {"name": name, "model": samples.model, "source": samples.source, "prompt_tokens": lengths}
