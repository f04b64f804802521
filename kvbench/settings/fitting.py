"""Whether the numbers of a configuration fit a model's layout: chunks, alignment, and room for promotions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvbench.connectors import Stored, stored_layout, transfer
from kvbench.connectors.ranks import plain_rank_bytes
from kvbench.engines.vllm.gpu import GpuArch
from kvbench.engines.vllm.releases import Release
from kvbench.errors import ModelConfigError, UsageError
from kvbench.layout.sized import SizedModel
from kvbench.settings.finding import SettingsFinding, join
from kvbench.settings.offloading import TIERING, is_llmd, spec_of
from kvbench.settings.values import is_on, whole_of
from kvbench.units import format_bytes, format_tokens

_DIRECT_ALIGNMENT = 4096
_LMCACHE_CHUNK_TOKENS = 256
_BLOCK_OPTION = "block-size"


@dataclass(frozen=True, slots=True)
class Deployed:
    """A model as the engine serves it, and what is asked of its tiers: ``restores`` prompts of ``tokens`` at once."""

    sized: SizedModel
    release: Release
    gpu_arch: GpuArch = "sm90"
    tokens: int = 32 * 1024
    restores: int = 1

    def stored(self, connector: str, chunk_tokens: int | None = None) -> Stored:
        """What a connector stores; raises what ``stored_layout`` raises."""
        sized = self.sized if chunk_tokens is None else self.sized.in_blocks_of(chunk_tokens)
        return stored_layout(sized, connector, engine_version=self.release.version, gpu_arch=self.gpu_arch)

    def promoted_bytes(self, stored: Stored) -> int:
        """Host memory that the promotions in flight take: every unit of every prompt has a slot until it is copied."""
        return transfer(stored, self.tokens).read.bytes * self.restores


def check_fit(
    connector: str, extra: Mapping[str, Any], where: str, deployed: Deployed, options: Mapping[str, str]
) -> Iterator[SettingsFinding]:
    """What contradicts the layout of the model; one warning where the layout cannot be told."""
    checks = {"OffloadingConnector": _offloading, "SimpleCPUOffloadConnector": _disk, "LMCacheConnectorV1": _lmcache}
    check = _llmd if connector == "OffloadingConnector" and is_llmd(extra) else checks.get(connector)
    if check is None:
        return
    try:
        yield from check(extra, where, deployed, options)
    except (ModelConfigError, UsageError) as error:
        message = f"the values could not be held against the layout: {str(error).rstrip('.')}"
        yield SettingsFinding("warning", "layout-unknown", where, message, "check them by hand, or leave the model out")


def _offloading(
    extra: Mapping[str, Any], where: str, deployed: Deployed, options: Mapping[str, str]
) -> Iterator[SettingsFinding]:
    plain = deployed.stored("vllm-fs")
    blocks = {group.tokens_per_unit for group in plain.groups}
    given = whole_of(options.get(_BLOCK_OPTION))
    if given is not None and len(blocks) == 1:
        # Hybrid models may raise what --block-size says; a single group takes it.
        blocks = {given}
    chunk = whole_of(extra.get("block_size"))
    if chunk is not None and chunk > 0:
        wrong = _not_a_multiple(chunk, blocks, join(where, "block_size"))
        if wrong is not None:
            yield wrong
            return
    factor = whole_of(extra.get("blocks_per_chunk")) or 1 if chunk is None else chunk // min(blocks)
    yield from _room(extra, where, deployed, plain, max(1, factor))


def _not_a_multiple(chunk: int, blocks: set[int], where: str) -> SettingsFinding | None:
    sizes = ", ".join(format_tokens(tokens) for tokens in sorted(blocks))
    if len(blocks) > 1:
        message = f"the KV groups have blocks of {sizes} tokens, and block_size needs one size: the engine stops"
        return SettingsFinding("error", "chunk", where, message, "use blocks_per_chunk (from 0.26 on)", "refuses")
    block = min(blocks)
    if chunk % block == 0:
        return None
    message = f"a chunk of {format_tokens(chunk)} tokens is no multiple of the GPU block of {sizes}: the engine stops"
    return SettingsFinding("error", "chunk", where, message, f"give {-(-chunk // block) * block}", "refuses")


def _room(
    extra: Mapping[str, Any], where: str, deployed: Deployed, plain: Stored, factor: int
) -> Iterator[SettingsFinding]:
    """Whether cpu_bytes_to_use holds a unit at all, and the promotions in flight."""
    cpu_bytes = whole_of(extra.get("cpu_bytes_to_use"))
    stored = _in_chunks(deployed, plain, factor)
    if cpu_bytes is None or cpu_bytes < 1 or stored is None:
        return
    path = join(where, "cpu_bytes_to_use")
    row = max(group.padded_bytes for group in stored.groups)
    tiering = spec_of(extra) == TIERING
    if cpu_bytes < row:
        effect = "the engine does not start" if tiering else "nothing is ever kept"
        message = f"{format_bytes(cpu_bytes)} do not hold one chunk of {format_bytes(row)}: {effect}"
        hint = f"give {row} or more"
        yield SettingsFinding("error", "cpu-too-small", path, message, hint, "refuses" if tiering else "accepts")
        return
    needed = deployed.promoted_bytes(stored)
    if tiering and cpu_bytes < needed:
        message = (
            f"{format_bytes(cpu_bytes)} hold {cpu_bytes // row:,} chunks, but {_prompts(deployed)} promotes "
            f"{format_bytes(needed)} through them: what finds no slot is computed again"
        )
        yield SettingsFinding("warning", "cpu-too-small", path, message, f"give {needed} or more")


def _in_chunks(deployed: Deployed, plain: Stored, factor: int) -> Stored | None:
    """What is stored in chunks of ``factor`` blocks; None where groups have blocks of several sizes."""
    blocks = {group.tokens_per_unit for group in plain.groups}
    if factor == 1:
        return plain
    return deployed.stored("vllm-fs", factor * min(blocks)) if len(blocks) == 1 else None


def _prompts(deployed: Deployed) -> str:
    prompt = f"a prompt of {format_tokens(deployed.tokens)} tokens"
    return prompt if deployed.restores == 1 else f"{deployed.restores} x {prompt}"


def _llmd(extra: Mapping[str, Any], where: str, deployed: Deployed, _: Mapping[str, str]) -> Iterator[SettingsFinding]:
    chunk = whole_of(extra.get("block_size"))
    block = deployed.stored("llm-d-fs").engine_block_tokens
    if chunk is not None and block is not None and chunk % block:
        message = f"a file of {format_tokens(chunk)} tokens is no multiple of the GPU block of {block}: llm-d stops"
        hint = f"give {-(-chunk // block) * block}"
        yield SettingsFinding("error", "chunk", join(where, "block_size"), message, hint, "refuses")


def _disk(extra: Mapping[str, Any], where: str, deployed: Deployed, _: Mapping[str, str]) -> Iterator[SettingsFinding]:
    if extra.get("kv_offload_backend") != "disk" or is_on(extra.get("use_page_cache")):
        return
    sizes = set(deployed.stored("vllm-fs").rank_block_bytes)
    for size in sorted(size for size in sizes if size % _DIRECT_ALIGNMENT):
        message = f"a block of {size:,} bytes does not suit O_DIRECT (4096 does not divide it): the engine stops"
        hint = "set use_page_cache (from 0.30 on), or use OffloadingConnector with a tier of type fs, which pads"
        yield SettingsFinding("error", "unaligned", join(where, "disk_path"), message, hint, "refuses")


def _lmcache(
    extra: Mapping[str, Any], where: str, deployed: Deployed, _: Mapping[str, str]
) -> Iterator[SettingsFinding]:
    inner = extra.get("lmcache.extra_config")
    if not isinstance(inner, dict) or not inner.get("use_odirect"):
        return
    chunk = whole_of(extra.get("lmcache.chunk_size")) or _LMCACHE_CHUNK_TOKENS
    size = plain_rank_bytes(deployed.sized, "lmcache-disk") * chunk
    if size % _DIRECT_ALIGNMENT:
        message = (
            f"a file of {size:,} bytes does not suit O_DIRECT (4096 does not divide it): LMCache reads it buffered"
        )
        path = join(join(where, "lmcache.extra_config"), "use_odirect")
        hint = "choose a lmcache.chunk_size whose file 4096 divides"
        yield SettingsFinding("warning", "unaligned", path, message, hint, "ignores")
