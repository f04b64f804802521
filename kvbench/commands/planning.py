"""From the options of ``jobs`` and ``fio`` to a Measurement, in one place for both."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, cast

import typer

from kvbench.commands.groups import parsed
from kvbench.commands.options import (
    AskedLimit,
    BlockTokensOption,
    EngineVersionOption,
    GpuArchOption,
    KvDtypeOption,
    NamedTier,
    TpOption,
    counts_of,
    limits_by_tier,
    parse_mix_share,
    parse_precision,
    parse_runtime,
)
from kvbench.connectors import CONNECTORS, DEFAULT_CONNECTOR, logical, stored_layout, vllm_fs
from kvbench.drivers.registry import PROGRAMS, require_known
from kvbench.drivers.settings import Buffers, DataLayout
from kvbench.engines.vllm.releases import NEWEST
from kvbench.errors import UsageError
from kvbench.layout.models import DEFAULT_MODELS, size_model
from kvbench.record.point import slug
from kvbench.record.results import Access, Mix, Use
from kvbench.run.before_read import parse_command
from kvbench.run.measurement import Measurement, Method, TierPlan, plan_tier
from kvbench.run.plan import points_for, uses_of
from kvbench.simulate.mix import read_percent
from kvbench.tiers.consent import require_consent, require_nearby, require_unshared
from kvbench.tiers.kinds import inspect
from kvbench.tiers.tier import Tier
from kvbench.units import parse_size, split_list

_MIXES: tuple[Mix, ...] = ("mixed", "read", "write")
_PUBLISHED_JOBS = (1, 16)

# Two drivers are compared by visits that alternate; two of each are the fewest that have a spread.
_FIDELITY_VISITS = 2
_FIDELITY_DRIVERS = ("fio", "replay")


def parse_mixes(text: str) -> tuple[Mix, ...]:
    """The mixes of ``--mix``, in the order given, each once."""
    wanted = tuple(dict.fromkeys(split_list(text)))
    if not wanted or not set(wanted) <= set(_MIXES):
        raise UsageError(f"--mix {text!r}: choose from {', '.join(_MIXES)}.")
    return cast("tuple[Mix, ...]", wanted)


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Whose KV blocks: the models, how a server runs them, and the connector that stores them."""

    panel: ClassVar[str] = "Models, engine and connector"

    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="MODEL",
            help="A shipped profile, a config.json or its folder, or a Hub id; repeatable.",
            show_default="gpt-oss-120b, Qwen3-8B, Llama-3.1-70B",
        ),
    ] = None
    tp: TpOption = 1
    kv_dtype: KvDtypeOption = "auto"
    block_tokens: BlockTokensOption = 16
    connector: Annotated[
        str | None,
        typer.Option(
            "--connector",
            metavar="C",
            help=f"Whose I/O to make: {', '.join(CONNECTORS)}; 'logical' is the published method.",
        ),
    ] = None
    engine_version: EngineVersionOption = None
    gpu_arch: GpuArchOption = "sm90"

    def uses(self, default_connector: str) -> tuple[Use, ...]:
        """The uses of the models (the study's three by default), in order, each once."""
        sized = [
            size_model(model, tp=self.tp, kv_dtype=self.kv_dtype, block_tokens=self.block_tokens)
            for model in self.model or DEFAULT_MODELS
        ]
        connector = self.connector or default_connector
        stored = [
            stored_layout(one, connector, engine_version=self.engine_version, gpu_arch=self.gpu_arch) for one in sized
        ]
        return tuple(dict.fromkeys(use for one, what in zip(sized, stored, strict=True) for use in uses_of(one, what)))


@dataclass(frozen=True, slots=True)
class MethodOptions:
    """What is measured on each tier, by default as published."""

    panel: ClassVar[str] = "What is measured"

    mix: Annotated[
        tuple[Mix, ...],
        parsed(parse_mixes, "--mix", metavar="MIX,...", help="What to measure: mixed (reads and writes), read, write."),
    ] = _MIXES
    rwmixread: Annotated[
        int | None,
        parsed(
            parse_mix_share,
            "--rwmixread",
            metavar="PERCENT",
            help="Share of reads in the mix, in percent, or auto: what --from-workingset found.",
        ),
    ] = 75
    from_workingset: Annotated[
        Path | None,
        typer.Option(
            "--from-workingset",
            metavar="FILE",
            help="With --rwmixread auto: what 'kvbench workingset --json' said of the tier of this name, or of its "
            "only one behind the CPU's memory.",
        ),
    ] = None
    numjobs: Annotated[
        tuple[int, ...] | None,
        parsed(
            counts_of("--numjobs"),
            "--numjobs",
            metavar="N,...",
            help="Parallel jobs.",
            show_default="1, 16 and what one request has in flight",
        ),
    ] = None
    runtime_s: Annotated[
        int | None,
        parsed(
            parse_runtime,
            "--runtime",
            metavar="SECONDS",
            help="Seconds for each point, or auto: 18 to 60 s, in turn with the others, until p99 is known to "
            "--precision.",
            show_default="auto",
        ),
    ] = None
    dataset_bytes: Annotated[
        int | None,
        parsed(
            parse_size,
            "--dataset",
            metavar="SIZE",
            help="Data set of each tier, like 4GiB.",
            show_default="4GiB or a quarter of the free space",
        ),
    ] = None
    access: Annotated[Access, typer.Option("--access", help="Order of the pure reads and writes.")] = "random"
    published: Annotated[
        bool,
        typer.Option(
            "--published",
            help="The study's own fio options and nothing else: sequential pure reads and writes, 225 MiB for each "
            "job.",
        ),
    ] = False
    layout: Annotated[
        DataLayout,
        typer.Option(
            "--fio-layout",
            help="Files that fio measures: large-files, or file-per-block, which opens, reads once and closes a file "
            "for every block, as the connector does.",
        ),
    ] = "large-files"
    buffers: Annotated[
        Buffers,
        typer.Option(
            "--buffers",
            help="Memory that the I/O lands in: engine, as vLLM's CPU tier has it (a region in /dev/shm); own, of each "
            "job; huge, on huge pages: what a CPU tier on a tmpfs with huge=always would bring.",
        ),
    ] = "engine"


@dataclass(frozen=True, slots=True)
class DriverOptions:
    """What makes the I/O, and how often."""

    panel: ClassVar[str] = "How it is measured"

    driver: Annotated[
        str | None,
        parsed(
            require_known,
            "--driver",
            metavar="|".join(PROGRAMS),
            help="What makes the I/O. replay does the calls of vLLM's file system tier on a directory, in the way of "
            "--engine-version, and needs no fio.",
            show_default="fio; replay on network and FUSE mounts for vllm-fs; memory for dram; s3 for buckets",
        ),
    ] = None
    fidelity: Annotated[
        bool,
        typer.Option(
            "--fidelity",
            help="Measure every point of a directory with fio and with replay in turns, and say how far they are "
            "apart. At least two visits each.",
        ),
    ] = False
    precision: Annotated[
        float,
        parsed(
            parse_precision,
            "--precision",
            metavar="SHARE",
            help="With --runtime auto: half-width of the p99 interval to reach, like 10%.",
            show_default="10%",
        ),
    ] = 0.10
    repeat: Annotated[
        int, typer.Option("--repeat", min=1, help="Visit every point so often, in shuffled order; all visits pool.")
    ] = 1

    @property
    def repeats(self) -> int:
        """How often every point is visited."""
        return max(self.repeat, _FIDELITY_VISITS) if self.fidelity else self.repeat


@dataclass(frozen=True, slots=True)
class HookOptions:
    """The user's own commands, in words."""

    panel: ClassVar[str] = "Your own commands beside it"

    before_read: Annotated[
        tuple[str, ...] | None,
        parsed(
            partial(parse_command, option="--before-read"),
            "--before-read",
            metavar="CMD",
            help="A command to run before every round that reads, for example to drop a storage server's caches. It is "
            "split into words and run without a shell; when it fails, the point fails.",
        ),
    ] = None
    read_counter: Annotated[
        tuple[str, ...] | None,
        parsed(
            partial(parse_command, option="--read-counter"),
            "--read-counter",
            metavar="CMD",
            help="A command that prints how many bytes the storage has read so far, like the sum of Ceph's "
            "op_r_out_bytes. Asked before and after every round that reads, where this host sees no device.",
        ),
    ] = None
    watch: Annotated[
        tuple[str, ...] | None,
        parsed(
            partial(parse_command, option="--watch"),
            "--watch",
            metavar="CMD",
            help="A command that prints the state of the storage, like 'ceph osd stat'. It is run about once a second "
            "beside every round, without a shell; what changes is an event on the point's series.",
        ),
    ] = None

    @property
    def commands(self) -> dict[str, tuple[str, ...]]:
        """The words of the commands by option, without those that were not given."""
        given = {"--before-read": self.before_read, "--read-counter": self.read_counter, "--watch": self.watch}
        return {option: words for option, words in given.items() if words is not None}


@dataclass(frozen=True, slots=True)
class ConsentOptions:
    """What the user agrees to."""

    panel: ClassVar[str] = "Consent"

    allow_destroy: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-destroy",
            metavar="DEV",
            help="Write to this block device, given by its resolved path, and lose what is on it; repeatable. "
            "Without it a device is only read, with --mix read.",
        ),
    ] = None
    allow_shared: Annotated[
        bool,
        typer.Option(
            "--allow-shared",
            help="Also measure a directory that others may rename in, such as a volume of mode 0777. kvbench works "
            "through an open descriptor; a point fails when its directory is renamed or replaced.",
        ),
    ] = False
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Also measure an S3 endpoint that is not loopback or private; it may cost money."),
    ] = False

    @property
    def devices(self) -> Sequence[str]:
        """The devices that may be written."""
        return self.allow_destroy or ()


@dataclass(frozen=True, slots=True)
class AskedRun:
    """What the user asked to measure."""

    tiers: Sequence[NamedTier]
    models: ModelOptions = field(default_factory=ModelOptions)
    method: MethodOptions = field(default_factory=MethodOptions)
    drivers: DriverOptions = field(default_factory=DriverOptions)
    hooks: HookOptions = field(default_factory=HookOptions)
    limits: Sequence[AskedLimit] | None = None
    consent: ConsentOptions = field(default_factory=ConsentOptions)

    @property
    def default_connector(self) -> str:
        """The connector where none was named: the published one with ``--published``."""
        return logical.NAME if self.method.published else DEFAULT_CONNECTOR

    def numjobs(self, uses: Sequence[Use]) -> tuple[int, ...]:
        """The job counts asked for, or the published ones and what one request of each use has in flight."""
        if self.method.numjobs is not None:
            return self.method.numjobs
        own = () if self.method.published else sorted({use.parallelism_per_request for use in uses})
        return tuple(dict.fromkeys((*_PUBLISHED_JOBS, *own)))

    def _read_percent(self) -> int:
        share, path = self.method.rwmixread, self.method.from_workingset
        if (share is None) != (path is not None):
            raise UsageError("--rwmixread auto and --from-workingset FILE go together; give both or neither.")
        if share is not None:
            return share
        assert path is not None
        return read_percent(path, _targets(self.tiers))

    def measured_by(self, uses: Sequence[Use]) -> Method:
        """The method of every tier of the run."""
        return Method(
            numjobs=self.numjobs(uses),
            io_bytes=tuple(use.io_bytes for use in uses),
            rwmixread=self._read_percent(),
            access=self.method.access,
            published=self.method.published,
            layout=self.method.layout,
            buffers=self.method.buffers,
            dataset_bytes=self.method.dataset_bytes,
            runtime_s=self.method.runtime_s,
            precision=self.drivers.precision,
            engine_version=self.models.engine_version or NEWEST,
        )


def measurement_for(request: AskedRun) -> Measurement:
    """The measurement that was asked for; raises the first thing that makes it impossible."""
    _require_compatible(request)
    uses = request.models.uses(request.default_connector)
    method = request.measured_by(uses)
    targets = _targets(request.tiers)
    found = {name: inspect(name, target, request.consent.devices) for name, target in targets.items()}
    _require_allowed(request, found.values(), method.io_bytes)
    lanes = [(name, driver) for name, tier in found.items() for driver in _drivers_of(tier, request)]
    _require_taken(request, lanes)
    tiers = [plan_tier(found[name], targets[name], driver, method) for name, driver in lanes]
    _require_space(found, tiers)
    limits = limits_by_tier(request.limits, list(targets))
    hooks = request.hooks
    return Measurement(
        tiers=tuple(replace(tier, limit_bytes_per_s=limits.get(tier.name)) for tier in tiers),
        uses=uses,
        points=points_for(uses, lanes, request.method.mix, method.numjobs),
        repeats=request.drivers.repeats,
        before_read=hooks.before_read or (),
        read_counter=hooks.read_counter or (),
        watch=hooks.watch or (),
    )


def _require_compatible(request: AskedRun) -> None:
    """UsageError for options that exclude each other."""
    method, drivers = request.method, request.drivers
    if method.published and method.buffers != "engine":
        raise UsageError("--published is the study's own fio job, which leaves memory to fio; leave out --buffers.")
    if drivers.fidelity and drivers.driver is not None:
        raise UsageError("--fidelity measures with fio and replay; leave --driver out.")
    blockwise = drivers.driver == "replay" or drivers.fidelity or method.layout == "file-per-block"
    if blockwise and method.published:
        raise UsageError("--published is the study's own fio job on large files; leave it out to measure block files.")
    if drivers.driver == "replay" and method.access == "sequential":
        raise UsageError("--access sequential: replay reads whole block files, which have no order; leave it out.")


def _require_allowed(request: AskedRun, tiers: Collection[Tier], io_bytes: Sequence[int]) -> None:
    """Raises for a tier that cannot take the I/O, or that needs a consent which was not given."""
    for tier in tiers:
        tier.require_aligned(io_bytes)
    writes = any(mix != "read" for mix in request.method.mix)
    require_consent([(tier, writes) for tier in tiers], request.consent.devices)
    require_nearby(tiers, yes=request.consent.yes)
    require_unshared(tiers, allow_shared=request.consent.allow_shared)


def _drivers_of(tier: Tier, request: AskedRun) -> tuple[str, ...]:
    """The drivers that measure a tier: those of --fidelity or --driver where it has a choice, else the tier's own."""
    asked, choice = request.drivers, tier.kind.programs
    if asked.fidelity and choice.keys() >= set(_FIDELITY_DRIVERS):
        return _FIDELITY_DRIVERS
    if asked.driver is not None and asked.driver in choice:
        return (asked.driver,)
    return ("replay" if replays_by_default(tier, request) else tier.kind.driver,)


def replays_by_default(tier: Tier, request: AskedRun) -> bool:
    """Whether fio would be too far from the connector on this tier: a server or a FUSE program answers every open.

    On CephFS fio gave 576 KiB blocks 1.4 to 1.6 times as fast as vLLM's own calls, which open, close and rename a file
    for each (docs/replay.md); on local file systems they agreed.
    """
    method = request.method
    chosen = request.drivers.driver is not None or method.published or method.layout != "large-files"
    connector = request.models.connector or request.default_connector
    if chosen or method.access != "random" or connector != vllm_fs.NAME:
        return False
    return tier.slow_opens


def _require_taken(request: AskedRun, lanes: Sequence[tuple[str, str]]) -> None:
    """UsageError when no tier can be measured the way that was asked for."""
    drivers = {driver for _, driver in lanes}
    asked = "replay" if request.drivers.fidelity else request.drivers.driver
    if asked is not None and asked not in drivers:
        what = "--fidelity compares" if request.drivers.fidelity else f"--driver {asked} measures"
        raise UsageError(f"{what} no tier of this run, which is measured by {', '.join(sorted(drivers))}.")
    if request.method.buffers != "engine" and drivers == {"memory"}:
        raise UsageError("--buffers: no tier of this run is read into memory; it is memory.")
    if request.method.layout == "file-per-block" and "fio" not in drivers:
        raise UsageError("--fio-layout: no tier of this run is measured by fio.")


def _require_space(found: Mapping[str, Tier], plans: Sequence[TierPlan]) -> None:
    """TierError when the data sets of a tier that several drivers measure do not fit at the same time."""
    for name, tier in found.items():
        wanted = [plan.settings.dataset_bytes for plan in plans if plan.name == name]
        if len(wanted) > 1:
            tier.require_space(sum(wanted))


def _targets(tiers: Sequence[NamedTier]) -> dict[str, str]:
    """What each name stands for; UsageError for a name that is given twice, as files are called."""
    found: dict[str, str] = {}
    for name, target in tiers:
        if slug(name) in map(slug, found):
            raise UsageError(f"two tiers are called {name!r}; give them names: --tier a={target} --tier b=...")
        found[name] = target
    return found
