"""The row that vLLM's OffloadingConnector keeps for one block and KV group: what its fs and obj tiers store as a unit.

v1/kv_offload/cpu/spec.py, v1/kv_offload/tiering/ and kv_connector/v1/offloading/ (0.24.0 to 0.33.0): a row holds every
rank's bytes of one GPU block (times block_size / GPU block), rounded up to a page; every group writes the full row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvbench.connectors.stored import Group, Stored
from kvbench.engines.vllm.blocks import DEFAULT_TOKENS
from kvbench.engines.vllm.cache import Deployment, EngineCache, engine_cache
from kvbench.engines.vllm.groups import CacheGroup
from kvbench.engines.vllm.releases import Release
from kvbench.errors import ModelConfigError, UsageError
from kvbench.layout.sized import SizedModel

# SharedOffloadRegion.BLOCK_SIZE_ALIGNMENT.
ROW_ALIGNMENT = 4096


@dataclass(frozen=True, slots=True)
class Rows:
    """The engine's cache and the groups that are made of it; ``copies`` of each byte of KV or latent are in a row."""

    cache: EngineCache
    groups: tuple[Group, ...]
    copies: int


def offloaded(sized: SizedModel, deployment: Deployment) -> Stored:
    """What the tiers have in common; connector, unit and parallelism are the tier's to fill in.

    ModelConfigError for a model that the release does not offload.
    """
    rows, release = rows_of(sized, deployment), deployment.release
    return Stored(
        connector="",
        engine_version=release.version,
        block_tokens=math.lcm(*(group.tokens_per_unit for group in rows.groups)),
        parallelism_per_request=1,
        groups=rows.groups,
        engine_block_tokens=rows.cache.block_tokens,
        rank_block_bytes=rows.cache.rank_block_bytes,
        over_reads=not release.has("window-scan-stops"),
        leaves_last_block=rows.cache.mode == "align",
        warnings=tuple(_warnings(sized, rows, deployment)),
        notes=tuple(_notes(release)),
    )


def rows_of(sized: SizedModel, deployment: Deployment) -> Rows:
    """The rows of a model; ModelConfigError for one that the release does not offload."""
    if sized.layout.cross is not None:
        raise ModelConfigError(
            f"vLLM {deployment.release.version} does not offload cross-attention: the engine stops with an "
            "AssertionError in get_sliding_window_size; leave the connector out for this model."
        )
    cache = engine_cache(sized, deployment)
    _refuse_not_offloaded(sized, cache, deployment)
    factor = _factor(sized, cache)
    copies = 1 if _stored_once(sized, cache, deployment) else sized.tp * sized.pp
    row = cache.rank_block_bytes[0] * copies * factor
    ranks = 1 if copies == 1 else sized.tp
    groups = tuple(_group(sized, cache, index, row, ranks, factor) for index in range(len(cache.groups)))
    return Rows(cache, retained(groups) if deployment.release.has("newest-window-only") else groups, copies)


def _refuse_not_offloaded(sized: SizedModel, cache: EngineCache, deployment: Deployment) -> None:
    version = deployment.release.version
    chunked = any(group.kind == "chunked" for group in cache.groups)
    if chunked and not deployment.release.has("chunked-windows"):
        raise ModelConfigError(
            f"vLLM {version} does not offload chunked attention (Llama 4): the engine stops with an AssertionError in "
            "get_sliding_window_size_in_blocks; start it with --disable-hybrid-kv-cache-manager, or take 0.28 or later."
        )
    if all(group.tokens is None for group in cache.groups):
        raise ModelConfigError(
            f"{sized.model} keeps states only, and without prefix caching vLLM {version} stores one for max_model_len "
            "tokens, which is not known here; switch prefix caching on."
        )
    if any(group.tokens is None for group in cache.groups):
        raise ModelConfigError(
            f"{sized.model} needs prefix caching to be offloaded, or vLLM {version} stops: 'Hybrid models (e.g. "
            "Mamba+Attention) need --enable-prefix-caching to align block sizes'; switch it on."
        )


def _stored_once(sized: SizedModel, cache: EngineCache, deployment: Deployment) -> bool:
    """Whether a row holds one copy of a latent that every rank has (single node, executor backend mp)."""
    only_mla = all(member.cache.kind == "mla" for group in cache.groups for member in group.members)
    if not only_mla or sized.tp == 1 or sized.pp > 1 or sized.dcp > 1:
        return False
    needed = "sparse-mla-stored-once" if any(group.stacked for group in cache.groups) else "mla-stored-once"
    return deployment.release.has(needed)


def _factor(sized: SizedModel, cache: EngineCache) -> int:
    """GPU blocks of one unit: kv_connector_extra_config's block_size, which --block-tokens sets, over the block's."""
    if sized.block_tokens == DEFAULT_TOKENS:
        return 1
    tokens = {_tokens(sized, group) for group in cache.groups}
    own = max(tokens)
    if len(tokens) > 1 or sized.block_tokens % own:
        raise UsageError(
            f"--block-tokens {sized.block_tokens}: the engine's block_size must be a multiple of its GPU block, here "
            f"{', '.join(map(str, sorted(tokens)))} tokens, the same in every KV group; leave the option out."
        )
    return sized.block_tokens // own


def _tokens(sized: SizedModel, group: CacheGroup) -> int:
    assert group.tokens is not None
    return group.tokens * sized.dcp


def _group(sized: SizedModel, cache: EngineCache, index: int, row: int, ranks: int, factor: int) -> Group:
    group = cache.groups[index]
    tokens = _tokens(sized, group) * factor
    state = group.kind == "linear"
    window = 1 if state else None if group.window is None else -(-group.window // tokens)
    return Group(
        index=index,
        kind=group.kind,
        layers=len(group.members),
        tokens_per_unit=tokens,
        # Where a later pipeline stage has larger blocks than the first, the row has no room; a warning says so.
        bytes=min(group.used_bytes * ranks * factor, row),
        padded_bytes=-(-row // ROW_ALIGNMENT) * ROW_ALIGNMENT,
        page_bytes=group.page_bytes,
        window_units=window,
        kept=None if window is None else _kept(sized, cache.groups, tokens, window),
        per_step=state and cache.mode == "align",
    )


def retained(groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """The groups where of a prompt's window only the blocks before its last token are stored.

    v1/core/single_type_kv_cache_manager.py SlidingWindowManager.reachable_block_mask: not where the units of the full
    groups, which a hit is aligned to, differ or are no multiple of the window's.
    """
    full = {one.tokens_per_unit for one in groups if one.window_units is None}
    aligned = full or {max(one.tokens_per_unit for one in groups)}
    if len(aligned) > 1:
        return groups
    (tokens,) = aligned
    return tuple(
        replace(one, kept=None, newest_only=True)
        if one.kind == "sliding" and tokens % one.tokens_per_unit == 0
        else one
        for one in groups
    )


def _kept(sized: SizedModel, groups: Sequence[CacheGroup], tokens: int, window: int) -> tuple[int, int] | None:
    """Of how many blocks how many are stored: those that a restore, aligned to the full group, can use.

    scheduler.py SchedulerOffloadConfig.from_spec, alignment_block_count.
    """
    full = {_tokens(sized, group) for group in groups if group.kind != "linear" and group.window is None}
    if len(full) != 1:
        return None
    per_segment = full.pop() // tokens
    return (window, per_segment) if window < per_segment else None


def _warnings(sized: SizedModel, rows: Rows, deployment: Deployment) -> list[str]:
    release, found = deployment.release, []
    linear = [group for group in rows.groups if group.kind == "linear"]
    if linear and (len(linear) == len(rows.groups) or not release.has("hybrid-prefix-caching")):
        found.append(
            f"prefix caching is off by default for this model in vLLM {release.version}: start it with "
            "--enable-prefix-caching, or a hybrid model stops with an AssertionError"
        )
    if any(group.per_step for group in linear):
        found.append("states are stored at the end of a scheduler step only: so many files a prompt at most")
    if len(set(rows.cache.rank_block_bytes)) > 1:
        found.append(
            f"pipeline stages have blocks of {', '.join(f'{size:,}' for size in rows.cache.rank_block_bytes)} bytes: "
            "each process derives the row from its own, so scheduler and stages disagree about the shared memory's "
            "stride; choose a PP that divides the layers"
        )
    if rows.copies > 1 and all(group.kind == "mla" for group in rows.groups):
        found.append(f"every unit holds {sized.tp} identical copies of the latent, one for each TP rank")
    if len(rows.groups) > 1 and rows.groups[0].window_units is not None and not release.has("window-scan-stops"):
        found.append("a restore reads every stored block of the windowed groups, not only the window (#51439)")
    return found


def _notes(release: Release) -> list[str]:
    notes = [
        "cpu_bytes_to_use is a file in /dev/shm for all ranks together: larger than /dev/shm, and the engine ends with "
        "'Bad address' or an error at start (#46949, #50358)"
    ]
    if not release.has("seeded-none-hash"):
        notes.append(
            "block hashes start from a random seed: without the same PYTHONHASHSEED nothing is found after a restart "
            "(#51875)"
        )
    return notes
