"""Every row of the recorded tables: what vLLM's own Python computed for a deployment, and what kvbench says of it.

tests/data/connectors/vllm-<version>.tsv was recorded from vLLM's classes on a machine without a GPU, posing as sm90
(docs/geometry-oracle.md says how); models.json holds the configs that were given to it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import pytest

from kvbench.connectors import CONNECTORS, Stored, stored_layout
from kvbench.engines.vllm.cache import Deployment, EngineCache, engine_cache
from kvbench.engines.vllm.groups import CacheGroup
from kvbench.engines.vllm.releases import FEATURES, RELEASES, find_release
from kvbench.errors import ModelConfigError
from kvbench.layout import read_layout
from kvbench.layout.dtype import Checkpoint, resolve
from kvbench.layout.models import FoundConfig, size_layout
from kvbench.layout.sized import SizedModel
from tests.factories import DATA

FOLDER = DATA / "connectors"
MODELS: dict[str, dict[str, Any]] = json.loads((FOLDER / "models.json").read_text(encoding="utf-8"))
# vLLM's max_model_len for these configs, where a state is kept once for all of it.
UNBOUNDED = "8192|262144"


@dataclass(frozen=True)
class Row:
    """A line of a table. ``file_bytes`` is '-' where offloading was off and 'refused' where the engine stopped."""

    version: str
    model: str
    tp: int
    pp: int
    dcp: int
    kv_dtype: str
    options: str
    block_tokens: int
    pages: str
    rank_block_bytes: str
    file_bytes: str
    groups: str

    def __str__(self) -> str:
        return f"{self.version} {self.model} tp{self.tp} pp{self.pp} dcp{self.dcp} {self.kv_dtype} {self.options}"

    @property
    def hybrid_manager(self) -> bool:
        return "no-hybrid-manager" not in self.options

    @property
    def prefix_caching(self) -> bool:
        # From 0.26 on it is on by default for hybrid models; mamba2 alone was recorded with the option.
        return "prefix-caching" in self.options or self.version == "0.33.0"

    @property
    def file_tokens(self) -> int:
        found = re.search(r"block=(\d+)", self.options)
        return int(found[1]) if found else 16


def rows() -> list[Row]:
    """Every line of every table."""
    found = []
    for path in sorted(FOLDER.glob("vllm-*.tsv")):
        version = path.stem.removeprefix("vllm-")
        for line in path.read_text(encoding="utf-8").splitlines()[1:]:
            name, tp, pp, dcp, dtype, options, tokens, *texts = line.split("\t")
            found.append(Row(version, name, int(tp), int(pp), int(dcp), dtype, options, int(tokens), *texts))
    return found


def size(name: str, block_tokens: int = 16, kv_dtype: str = "auto", **parallel: int) -> SizedModel:
    """A model of models.json, sized."""
    config = MODELS[name]
    read = read_layout(config)
    dtype = resolve(kv_dtype, read.layout, Checkpoint(config, read.text))
    parallel = {"tp": 1, "pp": 1} | parallel
    return size_layout(FoundConfig(name, "a test", config), read, dtype, block_tokens=block_tokens, **parallel)


def sized_as(row: Row) -> SizedModel:
    return size(row.model, row.file_tokens, row.kv_dtype, tp=row.tp, pp=row.pp, dcp=row.dcp)


def fs(name: str, version: str | None = None, **options: Any) -> Stored:
    """What vllm-fs stores for a model of models.json."""
    switches = {key: options.pop(key) for key in ("prefix_caching", "hybrid_manager", "gpu_arch") if key in options}
    return stored_layout(size(name, **options), "vllm-fs", engine_version=version, **switches)


def group_text(cache: EngineCache, stage: range) -> str:
    """The groups of one pipeline stage as the tables write them."""
    texts = [f"{count(group, stage)}x{group.kind}@{group.tokens}" for group in cache.groups]
    runs = [(text, len(list(same))) for text, same in groupby(texts)]
    return " ".join(f"{length}*{text}" if length > 1 else text for text, length in runs)


def count(group: CacheGroup, stage: range) -> int:
    return sum(member.cache.layer in stage for member in group.members)


RECORDED = rows()
SELF_ATTENTION = [row for row in RECORDED if "cross" not in row.groups]


@pytest.mark.parametrize("row", SELF_ATTENTION, ids=str)
def test_blocks_pages_and_groups_are_the_engines(row: Row) -> None:
    deployment = Deployment(
        find_release(row.version), prefix_caching=row.prefix_caching, hybrid_manager=row.hybrid_manager
    )
    cache = engine_cache(sized_as(row), deployment)

    assert cache.block_tokens == row.block_tokens * row.dcp
    assert "/".join(map(str, cache.rank_block_bytes)) == row.rank_block_bytes
    assert re.sub(rf"@({UNBOUNDED})\b", "@None", row.groups) == group_text(cache, cache.stage_layers[0])
    pages = sorted({page for group in cache.groups for page in group.page_bytes})
    assert set(row.pages.split(",")) in (
        {str(page) for page in pages},
        {str(sum(m.page_bytes for m in cache.groups[0].members))},
    )


@pytest.mark.parametrize("row", [row for row in RECORDED if row.file_bytes != "-"], ids=str)
def test_file_sizes_are_the_engines(row: Row) -> None:
    def store() -> Stored:
        return stored_layout(
            sized_as(row),
            "vllm-fs",
            engine_version=row.version,
            prefix_caching=row.prefix_caching,
            hybrid_manager=row.hybrid_manager,
        )

    if row.file_bytes == "refused":
        with pytest.raises(ModelConfigError):
            store()
        return
    stored = store()
    assert {group.padded_bytes for group in stored.groups} == {int(row.file_bytes)}
    assert stored.engine_block_tokens == row.block_tokens * row.dcp
    assert all(group.bytes <= group.padded_bytes and group.aligned_4096 for group in stored.groups)


def test_the_tables_cover_what_was_recorded() -> None:
    assert [len([row for row in RECORDED if row.version == version]) for version in ("0.24.0", "0.33.0")] == [96, 73]


# (model, TP, KV dtype, block per rank, file) on 0.33.0, recorded apart from the table.
@pytest.mark.parametrize(
    ("model", "tp", "dtype", "rank", "file"),
    [
        ("qwen3-8b", 1, "auto", 2_359_296, 2_359_296),
        ("qwen3-8b", 16, "auto", 294_912, 4_718_592),
        ("gemma-3-27b-text", 4, "auto", 327_680, 1_310_720),
        ("gpt-oss-20b", 1, "auto", 393_216, 393_216),
        ("deepseek-v2-lite", 2, "auto", 497_664, 499_712),
        ("deepseek-v3", 8, "fp8", 2_248_704, 2_248_704),
        ("deepseek-v3.2", 8, "fp8", 3_076_352, 3_080_192),
    ],
)
def test_the_newest_release(model: str, tp: int, dtype: str, rank: int, file: int) -> None:
    stored = fs(model, tp=tp, kv_dtype=dtype)

    assert (stored.engine_version, stored.rank_block_bytes) == ("0.33.0", (rank,))
    assert {group.padded_bytes for group in stored.groups} == {file}


@pytest.mark.parametrize("version", RELEASES)
@pytest.mark.parametrize("model", ["llama-3.1-8b", "gpt-oss-120b", "gemma-3-27b-text", "qwen2.5-7b"])
def test_models_without_states_or_latents_are_the_same_in_every_release(model: str, version: str) -> None:
    groups, newest = fs(model, version, tp=2).groups, fs(model, tp=2).groups

    assert groups == tuple(replace(one, newest_only=one.newest_only and version >= "0.30") for one in newest)
    assert all(one.newest_only is (one.window_units is not None) for one in newest)


@pytest.mark.parametrize("name", CONNECTORS)
def test_every_connector_describes_itself(name: str) -> None:
    stored = stored_layout(size("llama-3.1-8b", tp=2), name)

    assert stored.connector == name
    assert stored.parallelism_per_request >= 1
    assert stored.stored_bytes_per_block >= sum(group.bytes for group in stored.groups) > 0
    assert stored.block_tokens % stored.groups[0].tokens_per_unit == 0
    documented = (DATA.parents[1] / "docs" / "connectors.md").read_text(encoding="utf-8")
    assert f"`{name}`" in documented


def test_every_feature_has_a_release_and_a_source() -> None:
    assert all(feature.since in RELEASES and feature.source for feature in FEATURES.values())
