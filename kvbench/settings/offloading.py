"""What vLLM's OffloadingConnector, its specs and its tiers ask for beyond the single key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvbench.connectors.vllm_rows import ROW_ALIGNMENT
from kvbench.engines.vllm.releases import FEATURES, Release
from kvbench.settings.finding import SettingsFinding, join, shown
from kvbench.settings.keys import (
    BACKPRESSURE,
    BUILT_IN_SPECS,
    DETECTOR,
    DISK_ONLY,
    EVICTION_POLICIES,
    LLMD,
    LLMD_MODULE,
    LLMD_SPEC,
    OFFLOADING,
    STORE,
    TIER_SINCE,
    TIERING_ONLY,
    TIERS,
    Key,
    Scope,
)
from kvbench.settings.scopes import check_keys, missing, nearest
from kvbench.settings.values import is_on, is_real, whole_of

TIERING = "TieringOffloadingSpec"
# Up to 0.22 the fs tier was called so.
_OLD_NAMES = {"fs_python": "fs"}


def spec_of(extra: Mapping[str, Any]) -> str:
    """The name of the spec that the engine would load."""
    name = extra.get("spec_name", BUILT_IN_SPECS[0])
    return name if isinstance(name, str) else ""


def tiers_of(extra: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The secondary tiers that are objects at all."""
    tiers = extra.get("secondary_tiers")
    return [tier for tier in tiers if isinstance(tier, dict)] if isinstance(tiers, list) else []


def has_tiers(extra: Mapping[str, Any]) -> bool:
    """Whether the engine would open secondary tiers: those of CPUOffloadingSpec are ignored."""
    return spec_of(extra) != BUILT_IN_SPECS[0] and bool(tiers_of(extra))


def check_offloading(extra: Mapping[str, Any], where: str, release: Release) -> Iterator[SettingsFinding]:
    """What is wrong with kv_connector_extra_config of OffloadingConnector."""
    spec = spec_of(extra)
    if spec in BUILT_IN_SPECS:
        yield from check_keys(OFFLOADING, extra, where, release)
        yield from _built_in(extra, where, release)
    elif spec == LLMD_SPEC:
        yield from _llmd(extra, where, release)
    else:
        yield from _out_of_tree(extra, where, release)
    # Those that nobody opens are one finding already.
    for number, tier in enumerate(tiers_of(extra) if has_tiers(extra) else []):
        yield from _tier(tier, f"{join(where, 'secondary_tiers')}[{number}]", extra, release)
    yield from _twice(tiers_of(extra), where)


def check_simple(extra: Mapping[str, Any], where: str) -> Iterator[SettingsFinding]:
    """What SimpleCPUOffloadConnector asks for beyond its keys."""
    if extra.get("kv_offload_backend") == "disk":
        if not extra.get("disk_path"):
            message = "kv_offload_backend disk needs disk_path: the engine does not start"
            yield SettingsFinding("error", "missing-key", join(where, "disk_path"), message, "add disk_path", "refuses")
        return
    for name in DISK_ONLY:
        if name in extra:
            message = f"{name} is read with kv_offload_backend disk only: the engine warns and ignores it"
            hint = 'set kv_offload_backend to "disk" or remove it'
            yield SettingsFinding("error", "ignored-key", join(where, name), message, hint, "ignores")


def _built_in(extra: Mapping[str, Any], where: str, release: Release) -> Iterator[SettingsFinding]:
    tiering = spec_of(extra) == TIERING
    if not tiering:
        for name in TIERING_ONLY:
            if extra.get(name) and OFFLOADING.keys[name].known_in(release):
                message = f"{name} is read by {TIERING} only, this is {BUILT_IN_SPECS[0]}: the engine ignores it"
                hint = f'set spec_name to "{TIERING}"'
                yield SettingsFinding("error", "ignored-key", join(where, name), message, hint, "ignores")
    else:
        yield from _tiering(extra, where, release)
    yield from _chunk(extra, where, release)
    yield from _eviction_policy(extra, where, release)


def _tiering(extra: Mapping[str, Any], where: str, release: Release) -> Iterator[SettingsFinding]:
    if 0 < (whole_of(extra.get("cpu_bytes_to_use")) or 0) < ROW_ALIGNMENT:
        message = f"no unit is smaller than {ROW_ALIGNMENT} bytes, so the CPU tier is empty: the engine does not start"
        path = join(where, "cpu_bytes_to_use")
        yield SettingsFinding("error", "cpu-too-small", path, message, "give the bytes of the whole server", "refuses")
    if (whole_of(extra.get("store_threshold")) or 0) >= 2:
        message = f"{TIERING} does not take a store_threshold of 2 or more: the engine does not start"
        path = join(where, "store_threshold")
        yield SettingsFinding("error", "contradiction", path, message, "remove it", "refuses")
    if is_on(extra.get("self_describing_kv_events")) and not release.has("tiering-describes-events"):
        since = FEATURES["tiering-describes-events"].since
        message = f"{TIERING} takes self_describing_kv_events from {since} on: the engine does not start"
        path = join(where, "self_describing_kv_events")
        yield SettingsFinding("error", "other-release", path, message, "remove it", "refuses")
    if "secondary_tiers" not in extra or extra["secondary_tiers"] == []:
        message = f"{TIERING} has no secondary_tiers, so nothing is kept below host memory"
        path = join(where, "secondary_tiers")
        yield SettingsFinding("warning", "no-tier", path, message, f"add a tier, or use {BUILT_IN_SPECS[0]}")


def _chunk(extra: Mapping[str, Any], where: str, release: Release) -> Iterator[SettingsFinding]:
    both = extra.get("block_size") is not None and extra.get("blocks_per_chunk") is not None
    if both and release.has("blocks-per-chunk"):
        message = "block_size and blocks_per_chunk both say how large a chunk is: the engine does not start"
        path = join(where, "blocks_per_chunk")
        yield SettingsFinding("error", "contradiction", path, message, "remove one of them", "refuses")


def _eviction_policy(extra: Mapping[str, Any], where: str, release: Release) -> Iterator[SettingsFinding]:
    policy = extra.get("eviction_policy")
    own = extra.get("cache_policy_module_path") is not None and release.has("cache-policy-path")
    if isinstance(policy, str) and policy not in EVICTION_POLICIES and not own:
        message = f"eviction_policy {shown(policy)!r} is none of the engine's: it does not start"
        hint = f"choose {' or '.join(EVICTION_POLICIES)}"
        yield SettingsFinding("error", "wrong-value", join(where, "eviction_policy"), message, hint, "refuses")


def _llmd(extra: Mapping[str, Any], where: str, release: Release) -> Iterator[SettingsFinding]:
    if extra.get("spec_module_path") is None:
        yield missing("spec_module_path", LLMD, where)
    if extra.get("backend") != "OBJ":
        yield from check_keys(LLMD, extra, where, release)
        return
    # The keys of its object store backend are not listed here.
    yield from check_keys(LLMD, _known(LLMD, extra), where, release)
    yield from _unchecked(LLMD, extra, where, "llm-d's OBJ backend")


def _out_of_tree(extra: Mapping[str, Any], where: str, release: Release) -> Iterator[SettingsFinding]:
    spec = spec_of(extra)
    if extra.get("spec_module_path") is None:
        close = nearest(spec, (*BUILT_IN_SPECS, LLMD_SPEC))
        hint = f"did you mean {close!r}?" if close else "add spec_module_path, the module that holds it"
        message = f"spec_name {shown(spec)!r} is none of vLLM's: the engine does not start"
        yield SettingsFinding("error", "wrong-value", join(where, "spec_name"), message, hint, "refuses")
        return
    for finding in check_keys(OFFLOADING, _known(OFFLOADING, extra), where, release):
        # What a spec of somebody else's needs is its own business.
        if finding.code != "missing-key":
            yield finding
    yield from _unchecked(OFFLOADING, extra, where, f"the spec {shown(spec)!r}")


def _known(scope: Scope, config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name in scope.keys}


def _unchecked(scope: Scope, config: Mapping[str, Any], where: str, whose: str) -> Iterator[SettingsFinding]:
    for name in config:
        if name not in scope.keys:
            message = f"{shown(name)!r} may be a key of {whose}, whose keys are not known here"
            yield SettingsFinding("note", "unchecked", join(where, name), message, "check its spelling there")


def _tier(tier: Mapping[str, Any], where: str, extra: Mapping[str, Any], release: Release) -> Iterator[SettingsFinding]:
    kind = tier.get("type")
    scope = TIERS.get(kind) if isinstance(kind, str) else None
    if scope is None or not isinstance(kind, str):
        yield from _no_such_tier(tier, where, release)
        return
    if kind in TIER_SINCE and not release.has(TIER_SINCE[kind]):
        since = FEATURES[TIER_SINCE[kind]].since
        message = f"tiers of type {kind} came with vLLM {since}, this is {release.version}: the engine does not start"
        hint = "use that release or remove the tier"
        yield SettingsFinding("error", "other-release", join(where, "type"), message, hint, "refuses")
        return
    yield from check_keys(scope, tier, where, release)
    yield from _backpressure(tier, where, extra, release)
    if kind == "obj" and isinstance(tier.get("store_config"), dict):
        yield from _store(tier["store_config"], join(where, "store_config"), release)
    if kind == "fs":
        yield from _root(tier.get("root_dir"), join(where, "root_dir"))
        yield from _threads(tier, where)


def _no_such_tier(tier: Mapping[str, Any], where: str, release: Release) -> Iterator[SettingsFinding]:
    kind, path = tier.get("type"), join(where, "type")
    if not kind:
        message = "a secondary tier needs a type: the engine does not start"
        yield SettingsFinding("error", "missing-key", path, message, f"choose from {', '.join(TIERS)}", "refuses")
    elif tier.get("module_path") is not None and release.has("tier-module-path"):
        message = f"tier type {shown(kind)!r} is loaded from a module of somebody else's; its keys are not known here"
        yield SettingsFinding("note", "unchecked", where, message, "check them there")
    else:
        close = _OLD_NAMES.get(str(kind)) or nearest(str(kind), tuple(TIERS))
        hint = f"did you mean {close!r}?" if close else f"choose from {', '.join(TIERS)}"
        message = f"{shown(kind)!r} is no type of tier: the engine does not start"
        yield SettingsFinding("error", "wrong-value", path, message, hint, "refuses")


def _backpressure(
    tier: Mapping[str, Any], where: str, extra: Mapping[str, Any], release: Release
) -> Iterator[SettingsFinding]:
    own, common = tier.get("backpressure"), extra.get("backpressure")
    if not release.has("backpressure") or ("backpressure" not in tier and not common):
        return
    path = join(where, "backpressure")
    if tier.get("type") == "p2p":
        message = "a p2p tier takes no backpressure, also not the common one: the engine does not start"
        yield SettingsFinding(
            "error", "contradiction", path, message, "give backpressure to the other tiers only", "refuses"
        )
        return
    merged = {**(common if isinstance(common, dict) else {}), **(own if isinstance(own, dict) else {})}
    detector = merged.get("backpressure_cls")
    # Another detector has other keys.
    if not isinstance(detector, str) or detector == DETECTOR:
        yield from check_keys(BACKPRESSURE, merged, path, release)
        yield from _water(merged, path)


def _water(config: Mapping[str, Any], where: str) -> Iterator[SettingsFinding]:
    alpha, low, high = (config.get(name) for name in ("alpha", "low_water_s", "high_water_s"))
    if is_real(alpha) and not 0 < alpha <= 1:
        message = "alpha must be above 0 and at most 1: the engine does not start"
        yield SettingsFinding("error", "wrong-value", join(where, "alpha"), message, "the default is 0.15", "refuses")
    if is_real(low) and is_real(high) and low > high:
        message = "low_water_s is above high_water_s: the engine does not start"
        yield SettingsFinding("error", "contradiction", join(where, "low_water_s"), message, "lower it", "refuses")


def _store(config: Mapping[str, Any], where: str, release: Release) -> Iterator[SettingsFinding]:
    yield from check_keys(STORE, config, where, release)
    if not release.has("object-credential-chain"):
        for name in ("access_key", "secret_key"):
            if name not in config:
                yield missing(name, STORE, where)
    for key in STORE.keys.values():
        if key.secret and config.get(key.name):
            yield _secret(key, where, release)


def _secret(key: Key, where: str, release: Release) -> SettingsFinding:
    message = f"{key.name} holds a secret, and a command line can be read by everybody on the host"
    if release.has("object-credential-chain"):
        hint = "remove it: the engine then finds keys in the AWS variables, the credentials file or the pod's role"
    else:
        since = FEATURES["object-credential-chain"].since
        hint = f"from vLLM {since} on the engine finds keys by itself; until then keep the file to its owner"
    return SettingsFinding("warning", "secret", join(where, key.name), message, hint)


def _root(root: Any, where: str) -> Iterator[SettingsFinding]:
    if not isinstance(root, str) or not root or root.startswith("/"):
        return
    if root.startswith("~") or "$" in root:
        message = "the engine expands neither ~ nor variables: it makes a directory of that name where it runs"
        yield SettingsFinding("error", "wrong-value", where, message, "write the whole path")
    else:
        message = "a relative path is below the directory that the engine happens to run in"
        yield SettingsFinding("warning", "relative-path", where, message, "write the whole path")


def _threads(tier: Mapping[str, Any], where: str) -> Iterator[SettingsFinding]:
    if tier.get("n_read_threads") == 0 and tier.get("n_write_threads") == 0:
        message = "a tier without any thread never finishes its first store, and the engine waits for it at its end"
        path = join(where, "n_read_threads")
        yield SettingsFinding("error", "wrong-value", path, message, "give at least one thread; the default is 16")


def _twice(tiers: list[dict[str, Any]], where: str) -> Iterator[SettingsFinding]:
    seen: set[str] = set()
    for number, tier in enumerate(tiers):
        root = tier.get("root_dir")
        if not isinstance(root, str):
            continue
        plain = root.rstrip("/")
        if plain in seen:
            path = f"{join(where, 'secondary_tiers')}[{number}].root_dir"
            message = "two tiers write the same directory, so every block is written once and looked up twice"
            yield SettingsFinding("warning", "twice", path, message, "remove one of them")
        seen.add(plain)


def is_llmd(extra: Mapping[str, Any]) -> bool:
    """Whether the configuration is llm-d's: its spec, or its module under another name."""
    return spec_of(extra) == LLMD_SPEC or extra.get("spec_module_path") == LLMD_MODULE
