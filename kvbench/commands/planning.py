"""From the options of ``jobs`` and ``fio`` to a Measurement, in one place for both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from kvbench.commands.options import (
    parse_counts,
    parse_limits,
    parse_mixes,
    parse_precision,
    parse_runtime,
    parse_tier,
)
from kvbench.connectors import DEFAULT_CONNECTOR, logical, stored_layout, vllm_fs
from kvbench.drivers.registry import require_known
from kvbench.drivers.settings import Access, Buffers, Layout
from kvbench.engines.vllm.releases import find_release
from kvbench.errors import UsageError
from kvbench.layout.models import DEFAULT_MODELS, size_model
from kvbench.record.point import slug
from kvbench.record.results import Use
from kvbench.run.before_read import parse_command
from kvbench.run.measurement import Measurement, TierPlan, plan_tier
from kvbench.run.plan import points_for, uses_of
from kvbench.tiers.consent import require_consent, require_nearby, require_unshared
from kvbench.tiers.kinds import inspect
from kvbench.tiers.tier import Tier
from kvbench.units import parse_size


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked to measure, as typed."""

    tiers: Sequence[str]
    models: Sequence[str] | None
    tp: int
    kv_dtype: str
    block_tokens: int
    connector: str | None
    mix: str
    rwmixread: int
    numjobs: str | None
    runtime: str
    dataset: str | None
    access: str
    published: bool
    precision: str = "10%"
    repeats: int = 1
    limits: list[str] | None = None
    before_read: str | None = None
    read_counter: str | None = None
    watch: str | None = None
    driver: str | None = None
    fio_layout: str = "large-files"
    fidelity: bool = False
    buffers: str = "engine"
    engine_version: str | None = None
    gpu_arch: str = "sm90"
    allow_destroy: Sequence[str] = ()
    yes: bool = False
    allow_shared: bool = False

    @property
    def chosen_connector(self) -> str:
        """The connector that was named, or else the default, which is the published one with ``--published``."""
        return self.connector or (logical.NAME if self.published else DEFAULT_CONNECTOR)


_PUBLISHED_JOBS = (1, 16)
_COMMAND_OPTIONS = ("--before-read", "--read-counter", "--watch")

# Two drivers are compared by visits that alternate; two of each are the fewest that have a spread.
_FIDELITY_VISITS = 2
_FIDELITY_DRIVERS = ("fio", "replay")


def measurement_for(request: Request) -> Measurement:
    """The measurement that was asked for; raises the first thing that makes it impossible."""
    _require_known(request)
    uses = uses_for(
        request.models,
        request.tp,
        request.kv_dtype,
        request.block_tokens,
        request.chosen_connector,
        engine_version=request.engine_version,
        gpu_arch=request.gpu_arch,
    )
    mixes, numjobs = parse_mixes(request.mix), _numjobs(request, uses)
    named = _named_tiers(request.tiers)
    sizes = [use.io_bytes for use in uses]
    found = {name: inspect(name, target, request.allow_destroy) for name, target in named.items()}
    for tier in found.values():
        tier.require_aligned(sizes)
    writes = any(mix != "read" for mix in mixes)
    require_consent([(tier, writes) for tier in found.values()], request.allow_destroy)
    require_nearby(found.values(), yes=request.yes)
    require_unshared(found.values(), allow_shared=request.allow_shared)
    lanes = [(name, driver) for name, tier in found.items() for driver in _drivers_of(tier, request)]
    _require_taken(request, lanes)
    tiers = tuple(
        plan_tier(
            found[name],
            named[name],
            numjobs,
            sizes,
            dataset_bytes=None if request.dataset is None else parse_size(request.dataset),
            runtime_s=parse_runtime(request.runtime),
            precision=parse_precision(request.precision),
            rwmixread=request.rwmixread,
            access=cast(Access, request.access),
            published=request.published,
            driver=driver,
            layout=cast(Layout, request.fio_layout) if driver == "fio" else "large-files",
            engine_version=find_release(request.engine_version).version if driver == "replay" else None,
            buffers=cast(Buffers, request.buffers),
        )
        for name, driver in lanes
    )
    _require_space(found, tiers)
    limits = parse_limits(request.limits, list(named))
    tiers = tuple(replace(tier, limit_bytes_per_s=limits.get(tier.name)) for tier in tiers)
    commands = commands_of(request.before_read, request.read_counter, request.watch)
    before_read, counter, watch = (commands.get(option, ()) for option in _COMMAND_OPTIONS)
    points = points_for(uses, [(plan.name, plan.driver) for plan in tiers], mixes, numjobs)
    repeats = max(request.repeats, _FIDELITY_VISITS) if request.fidelity else request.repeats
    return Measurement(tiers, uses, points, repeats, before_read, counter, watch)


def commands_of(before_read: str | None, read_counter: str | None, watch: str | None) -> dict[str, tuple[str, ...]]:
    """The words of the user's commands by option, without those that were not given."""
    given = zip(_COMMAND_OPTIONS, (before_read, read_counter, watch), strict=True)
    return {option: parse_command(text, option) for option, text in given if text is not None}


def uses_for(
    models: Sequence[str] | None,
    tp: int,
    kv_dtype: str,
    block_tokens: int,
    connector: str,
    *,
    engine_version: str | None = None,
    gpu_arch: str = "sm90",
) -> tuple[Use, ...]:
    """The uses of the models (the study's three by default), in order, each once."""
    sized = [
        size_model(model, tp=tp, kv_dtype=kv_dtype, block_tokens=block_tokens) for model in models or DEFAULT_MODELS
    ]
    stored = [stored_layout(one, connector, engine_version=engine_version, gpu_arch=gpu_arch) for one in sized]
    return tuple(dict.fromkeys(use for one, what in zip(sized, stored, strict=True) for use in uses_of(one, what)))


def _require_known(request: Request) -> None:
    """UsageError for options that are not what they should be, or that exclude each other."""
    if request.access not in ("random", "sequential"):
        raise UsageError(f"--access {request.access!r}: choose random or sequential.")
    if request.fio_layout not in ("large-files", "file-per-block"):
        raise UsageError(f"--fio-layout {request.fio_layout!r}: choose large-files or file-per-block.")
    if request.buffers not in ("engine", "own", "huge"):
        raise UsageError(f"--buffers {request.buffers!r}: choose engine, own or huge.")
    if request.published and request.buffers != "engine":
        raise UsageError("--published is the study's own fio job, which leaves memory to fio; leave out --buffers.")
    if request.driver is not None:
        require_known(request.driver)
    if request.fidelity and request.driver is not None:
        raise UsageError("--fidelity measures with fio and replay; leave --driver out.")
    blockwise = request.driver == "replay" or request.fidelity or request.fio_layout == "file-per-block"
    if blockwise and request.published:
        raise UsageError("--published is the study's own fio job on large files; leave it out to measure block files.")
    if request.driver == "replay" and request.access == "sequential":
        raise UsageError("--access sequential: replay reads whole block files, which have no order; leave it out.")


def _drivers_of(tier: Tier, request: Request) -> tuple[str, ...]:
    """The drivers that measure a tier: those of --fidelity or --driver where it has a choice, else the tier's own."""
    choice = tier.kind.programs
    if request.fidelity and choice.keys() >= set(_FIDELITY_DRIVERS):
        return _FIDELITY_DRIVERS
    if request.driver is not None and request.driver in choice:
        return (request.driver,)
    return ("replay" if replays_by_default(tier, request) else tier.kind.driver,)


def replays_by_default(tier: Tier, request: Request) -> bool:
    """Whether fio would be too far from the connector on this tier: a server or a FUSE program answers every open.

    On CephFS fio gave 576 KiB blocks 1.4 to 1.6 times as fast as vLLM's own calls, which open, close and rename a file
    for each (docs/replay.md); on local file systems they agreed.
    """
    chosen = request.driver is not None or request.published or request.fio_layout != "large-files"
    if chosen or request.access != "random" or request.chosen_connector != vllm_fs.NAME:
        return False
    return tier.slow_opens


def _require_taken(request: Request, lanes: Sequence[tuple[str, str]]) -> None:
    """UsageError when no tier can be measured the way that was asked for."""
    drivers = {driver for _, driver in lanes}
    asked = "replay" if request.fidelity else request.driver
    if asked is not None and asked not in drivers:
        what = "--fidelity compares" if request.fidelity else f"--driver {asked} measures"
        raise UsageError(f"{what} no tier of this run, which is measured by {', '.join(sorted(drivers))}.")
    if request.buffers != "engine" and drivers == {"memory"}:
        raise UsageError("--buffers: no tier of this run is read into memory; it is memory.")
    if request.fio_layout == "file-per-block" and "fio" not in drivers:
        raise UsageError("--fio-layout: no tier of this run is measured by fio.")


def _require_space(found: Mapping[str, Tier], plans: Sequence[TierPlan]) -> None:
    """TierError when the data sets of a tier that several drivers measure do not fit at the same time."""
    for name, tier in found.items():
        wanted = [plan.settings.dataset_bytes for plan in plans if plan.name == name]
        if len(wanted) > 1:
            tier.require_space(sum(wanted))


def _numjobs(request: Request, uses: Sequence[Use]) -> tuple[int, ...]:
    """The job counts that were asked for, or the published ones and what one request of each use has in flight."""
    if request.numjobs is not None:
        return parse_counts(request.numjobs, "--numjobs")
    own = () if request.published else sorted({use.parallelism_per_request for use in uses})
    return tuple(dict.fromkeys((*_PUBLISHED_JOBS, *own)))


def _named_tiers(tiers: Sequence[str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for name, target in map(parse_tier, tiers):
        if slug(name) in map(slug, named):
            raise UsageError(f"two tiers are called {name!r}; give them names: --tier a={target} --tier b=...")
        named[name] = target
    return named
