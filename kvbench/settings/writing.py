"""The engine's configuration for a model and its tiers, each number with its reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from kvbench.connectors import Stored
from kvbench.engines.vllm.releases import FEATURES, Release
from kvbench.errors import UsageError
from kvbench.settings.fitting import Deployed
from kvbench.settings.keys import LLMD_MODULE, LLMD_SPEC, TIER_SINCE
from kvbench.settings.places import Bucket, Directory, Peers, Place
from kvbench.settings.reading import SEED
from kvbench.settings.surroundings import needs_seed
from kvbench.units import format_bytes, format_count, format_tokens

_GIB = 1 << 30
_SEED_VALUE = "0"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a key has its value; ``key`` is its path inside kv_connector_extra_config."""

    key: str
    value: int | float | str
    reason: str


@dataclass(frozen=True, slots=True)
class Numbers:
    """What measurements say; None leaves the engine's default. ``threads`` are by place, in their order."""

    cpu_bytes: int | None = None
    chunk_tokens: int | None = None
    threads: tuple[int | None, ...] = ()
    reasons: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """What to write: sizes are of the whole server, ``numbers`` what a run measured, if one was given."""

    deployed: Deployed
    places: tuple[Place, ...]
    cpu_bytes: int | None = None
    disk_bytes: int | None = None
    numbers: Numbers = Numbers()


@dataclass(frozen=True, slots=True)
class Written:
    """A configuration with what belongs around it: variables, further options, reasons, and what to do besides."""

    engine: str
    engine_version: str | None
    config: dict[str, Any]
    environment: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    shared_memory_bytes: int = 0
    reasons: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()


def write(engine: str, asked: Asked) -> Written:
    """The configuration for one of ENGINES; UsageError where it cannot serve what is asked."""
    make = ENGINES.get(engine)
    if make is None:
        raise UsageError(f"--engine {engine!r}: choose from {', '.join(ENGINES)}.")
    if not asked.places and asked.cpu_bytes is None:
        raise UsageError("nothing to write: name --tier fs=DIR or s3://bucket/prefix, or --cpu SIZE.")
    return make(asked)


def offloading_config(
    release: Release, places: Sequence[Place], cpu_bytes: int, chunk_tokens: int | None, threads: Sequence[int | None]
) -> dict[str, Any]:
    """vLLM's configuration with these tiers in order; UsageError for one that the release lacks."""
    extra: dict[str, Any] = {
        "spec_name": "TieringOffloadingSpec" if places else "CPUOffloadingSpec",
        "cpu_bytes_to_use": cpu_bytes,
    }
    if chunk_tokens is not None:
        extra["block_size"] = chunk_tokens
    if places:
        padded = [*threads, *([None] * (len(places) - len(threads)))]
        extra["secondary_tiers"] = [_tier(place, count, release) for place, count in zip(places, padded, strict=True)]
    return _config("OffloadingConnector", extra)


def environment_of(release: Release, places: Sequence[Place]) -> dict[str, str]:
    """The variables that the configuration needs beside it."""
    return {SEED: _SEED_VALUE} if places and needs_seed(release) else {}


def _config(connector: str, extra: dict[str, Any]) -> dict[str, Any]:
    return {"kv_connector": connector, "kv_role": "kv_both", "kv_connector_extra_config": extra}


def _tier(place: Place, threads: int | None, release: Release) -> dict[str, Any]:
    since = TIER_SINCE.get(place.kind)
    if since is not None and not release.has(since):
        raise UsageError(
            f"vLLM {release.version} has no {place.kind} tier (it came in {FEATURES[since].since}); pass a later "
            "--engine-version or leave it out."
        )
    if isinstance(place, Directory):
        return _with_threads({"type": "fs", "root_dir": place.root}, "n_read_threads", threads)
    if isinstance(place, Bucket):
        return _with_threads(_objects(place, release), "io_threads", threads)
    return {"type": "p2p", **_given(host=place.host, port=place.port)}


def _objects(place: Bucket, release: Release) -> dict[str, Any]:
    if not release.has("object-credential-chain"):
        raise UsageError(
            f"vLLM {release.version} takes S3 keys inside the configuration only, and kvbench writes no secret; pass "
            f"--engine-version {FEATURES['object-credential-chain'].since} or later, which finds them by itself."
        )
    store = {"bucket": place.bucket, "endpoint_override": place.host, "scheme": place.scheme}
    store |= _given(region=place.region or None, ca_bundle=place.ca_bundle or None)
    return {"type": "obj", "store_config": store, **_given(prefix=place.prefix or None)}


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _with_threads(tier: dict[str, Any], key: str, threads: int | None) -> dict[str, Any]:
    return tier if threads is None else {**tier, key: threads}


def _vllm(asked: Asked) -> Written:
    if asked.disk_bytes is not None:
        raise UsageError("--disk is LMCache's: vLLM's tiers know no size; leave it out.")
    deployed, numbers = asked.deployed, asked.numbers
    stored = deployed.stored("vllm-fs", numbers.chunk_tokens)
    cpu_bytes, reason = _host_memory(asked, stored)
    config = offloading_config(deployed.release, asked.places, cpu_bytes, numbers.chunk_tokens, numbers.threads)
    notes = [*numbers.notes, *stored.warnings]
    if any(isinstance(place, Bucket) for place in asked.places):
        notes.append("the engine finds S3 keys by itself: the AWS variables, the credentials file or the pod's role")
    if any(isinstance(place, Bucket) and place.ca_bundle for place in asked.places):
        notes.append("ca_bundle is a file of this host: it must be there on the engine's, too")
    roots = [place.root for place in asked.places if isinstance(place, Directory)]
    if roots:
        notes.append(f"in a pod, mount the tier's volume at {' and '.join(roots)}")
        notes.append("files of an fs tier are never deleted: see docs/purge.md")
    if any(isinstance(place, Peers) for place in asked.places):
        notes.append("a p2p tier's host must be an address that the other instances reach")
    notes.append(f"/dev/shm must hold {format_bytes(cpu_bytes)}")
    return Written(
        "vllm",
        deployed.release.version,
        config,
        environment_of(deployed.release, asked.places),
        _options(deployed, stored),
        cpu_bytes,
        (reason, *numbers.reasons),
        tuple(notes),
    )


def _options(deployed: Deployed, stored: Stored) -> tuple[str, ...]:
    """What the engine's command line needs besides, for the same layout."""
    sized = deployed.sized
    found = parallel_options(sized.tp, sized.pp)
    if sized.kv_dtype_source == "--kv-dtype":
        found += ("--kv-cache-dtype", sized.kv_dtype)
    if any("--enable-prefix-caching" in warning for warning in stored.warnings):
        found += ("--enable-prefix-caching",)
    return found


def parallel_options(tp: int, pp: int = 1) -> tuple[str, ...]:
    """The engine's options for so many ranks, none for one."""
    sizes = {"--tensor-parallel-size": tp, "--pipeline-parallel-size": pp}
    return tuple(word for option, size in sizes.items() if size > 1 for word in (option, str(size)))


def _host_memory(asked: Asked, stored: Stored) -> tuple[int, Reason]:
    """Bytes of the CPU tier: as given, else the least that a run's restores need; UsageError when they do not fit."""
    deployed = asked.deployed
    unit = max(group.padded_bytes for group in stored.groups)
    needed = deployed.promoted_bytes(stored) if asked.places else unit
    prompts = f"{deployed.restores} x a prompt" if deployed.restores > 1 else "a prompt"
    what = f"{prompts} of {format_tokens(deployed.tokens)} tokens is promoted through {needed} bytes"
    what += f" ({needed // unit:,} units of {unit:,} bytes)"
    given = asked.cpu_bytes
    if given is None and asked.numbers.cpu_bytes is None:
        raise UsageError(f"--cpu SIZE is missing: {what}, so give {format_bytes(needed)} or more, or --run RUN_DIR.")
    if given is None:
        least = f"{what}; this is the least, and what should stay in memory comes on top"
        return max(needed, unit), Reason("cpu_bytes_to_use", max(needed, unit), least)
    if given < needed:
        why = what if asked.places else f"one chunk is {unit} bytes"
        shorter = ", or a shorter --target-context" if asked.places else ""
        raise UsageError(
            f"--cpu {format_bytes(given)} is too little: {why}; give {format_bytes(needed)} or more{shorter}."
        )
    held = f"as given: {given // unit:,} units of {unit:,} bytes"
    return given, Reason("cpu_bytes_to_use", given, f"{held}; {what}" if asked.places else held)


def _lmcache(asked: Asked) -> Written:
    deployed = asked.deployed
    directory = _one_directory(asked, "LMCache", "what its remote backends store is not known here")
    if directory is not None and ("," in directory.root or asked.disk_bytes is None):
        raise UsageError(
            "--disk SIZE is missing: LMCache keeps nothing on disk without a size; say how much of it."
            if asked.disk_bytes is None
            else "LMCache takes a comma for the end of a path; name a directory without one."
        )
    if asked.cpu_bytes is None:
        raise UsageError("--cpu SIZE is missing: LMCache stages every chunk in host memory; say how much of it.")
    stored = deployed.stored("lmcache-disk", asked.numbers.chunk_tokens)
    ranks = deployed.sized.tp * deployed.sized.pp
    shared = "" if ranks == 1 else f", shared by {ranks} ranks that each have a cache of their own"
    extra: dict[str, Any] = {
        "lmcache.chunk_size": stored.block_tokens,
        "lmcache.local_cpu": True,
        "lmcache.max_local_cpu_size": asked.cpu_bytes / ranks / _GIB,
    }
    reasons = [
        Reason("lmcache.chunk_size", stored.block_tokens, _measured(asked, "block_size", "LMCache's default")),
        Reason(
            "lmcache.max_local_cpu_size",
            extra["lmcache.max_local_cpu_size"],
            f"--cpu {format_bytes(asked.cpu_bytes)} in GiB{shared}",
        ),
    ]
    if directory is not None and asked.disk_bytes is not None:
        extra["lmcache.local_disk"] = f"file://{directory.root}/"
        extra["lmcache.max_local_disk_size"] = asked.disk_bytes / ranks / _GIB
        text = f"--disk {format_bytes(asked.disk_bytes)} in GiB{shared}"
        reasons.append(Reason("lmcache.max_local_disk_size", extra["lmcache.max_local_disk_size"], text))
    return Written(
        "lmcache",
        None,
        _config("LMCacheConnectorV1", extra),
        {SEED: _SEED_VALUE},
        parallel_options(deployed.sized.tp, deployed.sized.pp),
        reasons=tuple(reasons),
        notes=(*asked.numbers.notes, *stored.warnings, *stored.notes),
    )


def _llmd(asked: Asked) -> Written:
    deployed = asked.deployed
    if asked.cpu_bytes is not None or asked.disk_bytes is not None:
        raise UsageError(
            "--cpu and --disk are not llm-d's: it keeps no tier in memory and knows no size; leave them out."
        )
    directory = _one_directory(asked, "llm-d", "its object store backend's keys are not known here")
    if directory is None:
        raise UsageError("llm-d needs a directory: add --tier fs=DIR.")
    stored = deployed.stored("llm-d-fs", asked.numbers.chunk_tokens)
    ranks = deployed.sized.tp * deployed.sized.pp
    threads = asked.numbers.threads[0] if asked.numbers.threads else None
    extra: dict[str, Any] = {
        "spec_name": LLMD_SPEC,
        "spec_module_path": LLMD_MODULE,
        "shared_storage_path": directory.root,
        "block_size": stored.block_tokens,
    }
    reasons = [Reason("block_size", stored.block_tokens, _measured(asked, "block_size", "llm-d's default"))]
    if threads is not None:
        extra["threads_per_gpu"] = -(-threads // ranks)
        text = f"{format_count(threads)} threads of the server, a share for each of {ranks} GPU"
        text = f"{text}: {_measured(asked, 'threads_per_gpu', 'as given')}"
        reasons.append(Reason("threads_per_gpu", extra["threads_per_gpu"], text))
    return Written(
        "llm-d",
        None,
        _config("OffloadingConnector", extra),
        {SEED: _SEED_VALUE},
        (*parallel_options(deployed.sized.tp, deployed.sized.pp), "--distributed-executor-backend", "mp"),
        reasons=tuple(reasons),
        notes=(*asked.numbers.notes, *stored.warnings, *stored.notes),
    )


def _one_directory(asked: Asked, who: str, why: str) -> Directory | None:
    directories = [place for place in asked.places if isinstance(place, Directory)]
    if len(directories) != len(asked.places):
        raise UsageError(f"{who} is written with a directory only ({why}); use --tier fs=DIR.")
    if len(directories) > 1:
        raise UsageError(f"{who} takes one directory; name one --tier.")
    return directories[0] if directories else None


def _measured(asked: Asked, key: str, default: str) -> str:
    """The measured reason for a key, else ``default``."""
    return next((reason.reason for reason in asked.numbers.reasons if reason.key == key), default)


ENGINES: Mapping[str, Callable[[Asked], Written]] = MappingProxyType(
    {"vllm": _vllm, "lmcache": _lmcache, "llm-d": _llmd}
)
