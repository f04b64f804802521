"""What a configuration needs around it: a hash seed, shared memory, and somebody who deletes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvbench.engines.vllm.releases import FEATURES, Release
from kvbench.settings.finding import SettingsFinding, join
from kvbench.settings.offloading import has_tiers, is_llmd, tiers_of
from kvbench.settings.reading import SEED, FoundSettings

# v1/core/kv_cache_utils.py _NON_CRYPTO_HASH_FUNCTIONS: their seed is random in every release.
_RANDOM_HASHES = ("xxhash", "xxhash_cbor")
_HASH_OPTION = "prefix-caching-hash-algo"


def check_surroundings(
    found: FoundSettings, extra: Mapping[str, Any], where: str, release: Release
) -> Iterator[SettingsFinding]:
    """What is missing around an OffloadingConnector's configuration."""
    kinds = {str(tier.get("type")) for tier in tiers_of(extra)} if has_tiers(extra) else set()
    llmd = is_llmd(extra)
    if llmd or kinds & {"fs", "obj", "p2p"}:
        yield from check_seed(found, where, _why_seed(found, release, llmd=llmd))
    if has_tiers(extra):
        yield from _shared_memory(found, where)
    if llmd or "fs" in kinds:
        path = join(where, "shared_storage_path" if llmd else "secondary_tiers")
        message = "the engine never deletes a file: the directory grows until the disk is full"
        hint = "delete old files from outside, see docs/purge.md"
        yield SettingsFinding("note", "no-eviction", path, message, hint)


def check_seed(found: FoundSettings, where: str, why: str | None) -> Iterator[SettingsFinding]:
    """The hash seed that is not set although ``why``; only a note where the file shows no environment."""
    if why is None or (found.environment is not None and SEED in found.environment):
        return
    message = f"{why}: without the same {SEED} nothing is found after a restart, nor by another instance"
    if found.environment is None:
        hint = f"set {SEED} to the same number for every instance; this file does not show whether it is"
        yield SettingsFinding("note", "hash-seed", where, message, hint)
    else:
        yield SettingsFinding("warning", "hash-seed", where, message, f"set {SEED}=0, the same for every instance")


def needs_seed(release: Release) -> bool:
    """Whether a cache that is shared or outlives the engine needs the same PYTHONHASHSEED everywhere."""
    return not release.has("seeded-none-hash")


def _why_seed(found: FoundSettings, release: Release, *, llmd: bool) -> str | None:
    if llmd:
        return "llm-d names files by vLLM's block hashes, whose seed is random in the vLLM 0.20 that it is for"
    if needs_seed(release):
        since = FEATURES["seeded-none-hash"].since
        return f"block hashes start from a random seed before vLLM {since}"
    algorithm = found.options.get(_HASH_OPTION, "")
    return f"{_HASH_OPTION} {algorithm} starts from a random seed" if algorithm in _RANDOM_HASHES else None


def _shared_memory(found: FoundSettings, where: str) -> Iterator[SettingsFinding]:
    if found.mounts is not None and "/dev/shm" not in {path.rstrip("/") for path in found.mounts}:
        message = "the CPU tier is a file in /dev/shm, and a container has 64 MiB there unless a volume is mounted"
        hint = "mount an emptyDir of medium Memory at /dev/shm, larger than cpu_bytes_to_use"
        yield SettingsFinding("warning", "shared-memory", join(where, "cpu_bytes_to_use"), message, hint)
