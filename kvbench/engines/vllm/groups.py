"""Which caches share a block table: vLLM's KV cache groups, and the bytes of one GPU block that serves any of them.

v1/core/kv_cache_utils.py get_kv_cache_groups (0.24.0; kv_cache_planning.py in 0.33.0): caches of one type form one
group; otherwise pages are made equal and each type is split into groups of the same number of layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kvbench.engines.vllm.blocks import Blocks
from kvbench.engines.vllm.caches import UNWINDOWED, Cache
from kvbench.engines.vllm.gpu import GpuArch
from kvbench.engines.vllm.releases import Release
from kvbench.errors import ModelConfigError
from kvbench.layout.kv import Kind

# _get_kv_cache_groups_uniform_page_size: the largest type sets the group size while below this multiple of the least.
# 1.5 in every release known here; releases before 0.24 had 1.25.
_LARGEST_WINS_BELOW = 1.5
# Where the layout is known to be LBHNC (recorded from vLLM's own classes), which does not pack.
_NOT_PACKED = frozenset({("0.33.0", "sm90")})


@dataclass(frozen=True, slots=True)
class Paged:
    """A cache with its block: ``page_bytes`` allocated on a rank for ``tokens`` tokens, ``used_bytes`` of them needed.

    ``tokens`` is None for a state that is kept once for max_model_len.
    """

    cache: Cache
    tokens: int | None
    page_bytes: int
    used_bytes: int


@dataclass(frozen=True, slots=True)
class CacheGroup:
    """Caches with one block table. ``stacked``: each has its own page size and a block is their sum."""

    members: tuple[Paged, ...]
    stacked: bool

    @property
    def kind(self) -> Kind:
        """The kind of layer, that of the first where several share the group."""
        return self.members[0].cache.kind

    @property
    def tokens(self) -> int | None:
        """Tokens of one block on one context-parallel rank; None for max_model_len."""
        return self.members[0].tokens

    @property
    def window(self) -> int | None:
        """Tokens that the attention of a windowed group reaches back."""
        return self.members[0].cache.window

    @property
    def page_bytes(self) -> tuple[int, ...]:
        """The distinct page sizes on one rank, in order."""
        return tuple(sorted({member.page_bytes for member in self.members}))

    @property
    def used_bytes(self) -> int:
        """KV or state bytes of all members in one block on one rank."""
        return sum(member.used_bytes for member in self.members)


def groups_of(
    caches: Sequence[Cache], blocks: Blocks, release: Release, arch: GpuArch, *, hybrid_manager: bool
) -> tuple[CacheGroup, ...]:
    """The groups in the engine's order; ModelConfigError for a mix that it refuses or whose pages are not known."""
    wanted = caches if hybrid_manager else _all_full(caches)
    paged = [_page(cache, blocks) for cache in wanted]
    if _one_type(wanted):
        return (CacheGroup(tuple(paged), stacked=len({cache.shape for cache in wanted}) > 1),)
    if not hybrid_manager:
        raise ModelConfigError(
            "vLLM cannot turn recurrent layers into full attention, so it does not start this model with "
            "--disable-hybrid-kv-cache-manager; leave the option out."
        )
    _refuse_packed(paged, release, arch)
    return _split(_same_page(paged))


def block_bytes(groups: Iterable[CacheGroup], layers: range) -> int:
    """Bytes of one GPU block on one rank of the pipeline stage that runs ``layers``: those of its largest group."""
    return max(sum(member.page_bytes for member in group.members if member.cache.layer in layers) for group in groups)


def _all_full(caches: Sequence[Cache]) -> list[Cache]:
    # unify_hybrid_kv_cache_specs: sliding and chunked become full where the model has full layers.
    if not any(cache.kind in UNWINDOWED for cache in caches):
        return list(caches)
    return [replace(cache, kind="full", window=None) if cache.window else cache for cache in caches]


def _one_type(caches: Sequence[Cache]) -> bool:
    # is_kv_cache_spec_uniform and UniformTypeKVCacheSpecs.is_uniform_type.
    kinds = {"full" if cache.kind in UNWINDOWED else cache.kind for cache in caches}
    states = {cache.state_bytes for cache in caches}
    return len(kinds) == 1 and len({cache.window for cache in caches}) == 1 and len(states) == 1


def _page(cache: Cache, blocks: Blocks) -> Paged:
    if cache.kind == "linear":
        return Paged(cache, blocks.state_tokens, cache.state_bytes, cache.state_bytes)
    size = cache.token_bytes * blocks.attention_tokens
    return Paged(cache, blocks.attention_tokens, size, size)


def _refuse_packed(paged: Sequence[Paged], release: Release, arch: GpuArch) -> None:
    # From 0.29 on a cache layout whose outermost dimension is the block packs such pages instead of making them equal.
    sizes = {member.page_bytes for member in paged if member.cache.kind != "linear"}
    if len(sizes) > 1 and release.has("packed-groups") and (release.version, arch) not in _NOT_PACKED:
        raise ModelConfigError(
            "windowed and full layers have pages of different sizes, and whether vLLM "
            f"{release.version} packs them on {arch} depends on its cache layout, which is not known here; pass "
            "--engine-version 0.28, or 0.33 with --gpu-arch sm90."
        )


def _same_page(paged: Sequence[Paged]) -> list[Paged]:
    """Pages made equal: a state is padded, a smaller attention page gets a multiple of the tokens."""
    page = max(member.page_bytes for member in paged)
    return [_raised(member, page) for member in paged]


def _raised(member: Paged, page: int) -> Paged:
    # unify_kv_cache_spec_page_size (0.24.0); padding an attention page depends on the backend and is not settled here.
    if member.cache.kind == "linear":
        return replace(member, page_bytes=page)
    if member.tokens is None or page % member.page_bytes:
        raise ModelConfigError(
            f"pages of {member.page_bytes} and {page} bytes do not divide, and whether vLLM pads or refuses them "
            "depends on the attention backend; choose another TP or --kv-dtype."
        )
    ratio = page // member.page_bytes
    return replace(member, tokens=member.tokens * ratio, page_bytes=page, used_bytes=member.used_bytes * ratio)


def _split(paged: Sequence[Paged]) -> tuple[CacheGroup, ...]:
    kinds: dict[tuple[object, ...], list[Paged]] = {}
    for member in paged:
        kinds.setdefault(member.cache.shape, []).append(member)
    least, most = min(map(len, kinds.values())), max(map(len, kinds.values()))
    size = most if most < least * _LARGEST_WINS_BELOW else least
    found = []
    for members in kinds.values():
        count = -(-len(members) // size)
        # layers[i::count], so that pipeline stages share the groups evenly.
        found += [CacheGroup(tuple(members[index::count]), stacked=False) for index in range(count)]
    return tuple(found)
