"""From the options of ``jobs`` and ``fio`` to a Measurement, in one place for both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from kvbench.commands.options import parse_counts, parse_mixes, parse_precision, parse_runtime, parse_tier
from kvbench.connectors import stored_layout
from kvbench.drivers.fio.job import Access
from kvbench.errors import UsageError
from kvbench.measurement import Measurement, plan_tier
from kvbench.models import DEFAULT_MODELS, size_model
from kvbench.plan import points_for, slug, uses_of
from kvbench.results import Use
from kvbench.tiers.directory import inspect
from kvbench.units import parse_size


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked to measure, as typed."""

    tiers: Sequence[str]
    models: Sequence[str] | None
    tp: int
    kv_dtype: str
    block_tokens: int
    connector: str
    mix: str
    rwmixread: int
    numjobs: str
    runtime: str
    dataset: str | None
    access: str
    published: bool
    precision: str = "10%"
    repeats: int = 1


def measurement_for(request: Request) -> Measurement:
    """The measurement that was asked for; raises the first thing that makes it impossible."""
    if request.access not in ("random", "sequential"):
        raise UsageError(f"--access {request.access!r}: choose random or sequential.")
    uses = uses_for(request.models, request.tp, request.kv_dtype, request.block_tokens, request.connector)
    mixes, numjobs = parse_mixes(request.mix), parse_counts(request.numjobs, "--numjobs")
    named = _named_tiers(request.tiers)
    sizes = [use.io_bytes for use in uses]
    tiers = tuple(
        plan_tier(
            inspect(name, target),
            target,
            numjobs,
            sizes,
            dataset_bytes=None if request.dataset is None else parse_size(request.dataset),
            runtime_s=parse_runtime(request.runtime),
            precision=parse_precision(request.precision),
            rwmixread=request.rwmixread,
            access=cast(Access, request.access),
            published=request.published,
        )
        for name, target in named.items()
    )
    return Measurement(tiers, uses, points_for(uses, list(named), mixes, numjobs), request.repeats)


def uses_for(
    models: Sequence[str] | None, tp: int, kv_dtype: str, block_tokens: int, connector: str
) -> tuple[Use, ...]:
    """The uses of the models (the study's three by default), in order, each once."""
    sized = [
        size_model(model, tp=tp, kv_dtype=kv_dtype, block_tokens=block_tokens) for model in models or DEFAULT_MODELS
    ]
    return tuple(dict.fromkeys(use for model in sized for use in uses_of(model, stored_layout(model, connector))))


def _named_tiers(tiers: Sequence[str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for name, target in map(parse_tier, tiers):
        if slug(name) in map(slug, named):
            raise UsageError(f"two tiers are called {name!r}; give them names: --tier a={target} --tier b=...")
        named[name] = target
    return named
