"""Every config of the optional data folder gives exactly the values recorded for it."""

from __future__ import annotations

import ast
import csv
from functools import cache
from pathlib import Path

import pytest

from kvbench.errors import ModelConfigError
from kvbench.layout.kv import KINDS
from kvbench.layout.models import profile_paths, size_model

DATA = Path(__file__).parents[2] / "shared" / "data" / "model-configs"
EXPECTED = DATA / "expected.tsv"
pytestmark = pytest.mark.skipif(not EXPECTED.is_file(), reason="the data folder ../shared/data is not there")
TPS = (1, 2, 4, 8, 16)

# Published checkpoints whose file goes by another name than the shipped profile.
RENAMED = {
    "meta-llama/Llama-3.1-8B": "meta-llama__Meta-Llama-3.1-8B",
    "meta-llama/Llama-3.1-70B": "meta-llama__Meta-Llama-3.1-70B",
    "meta-llama/Llama-3.1-405B": "meta-llama__Meta-Llama-3.1-405B",
    "Qwen/Qwen3.6-35B-A3B": "nvidia__Qwen3.6-35B-A3B-NVFP4",
}


@cache
def rows() -> dict[str, dict[str, str]]:
    if not EXPECTED.is_file():
        return {}
    with EXPECTED.open(encoding="utf-8", newline="") as file:
        return {row["model"]: row for row in csv.DictReader(file, delimiter="\t")}


def block(path: Path, tp: int) -> int | None:
    try:
        return size_model(str(path), tp=tp, kv_dtype="bfloat16").rank_block_bytes
    except ModelConfigError:
        return None


def integer_or_none(text: str) -> int | None:
    return None if text == "None" else int(text)


@pytest.mark.parametrize("model", sorted(rows()))
def test_every_column_matches(model: str) -> None:
    row, path = rows()[model], DATA / f"{model}.json"
    sized = size_model(str(path), kv_dtype="bfloat16")

    assert sized.bytes_per_token == int(row["tok_bf16"])
    assert sized.growing_bytes_per_token == int(row["growing_tok_bf16(full+mla)"])
    assert [block(path, tp) for tp in TPS] == [integer_or_none(row[f"blkTP{tp}"]) for tp in TPS]
    assert sized.index_bytes_per_token == int(row["extra_tok"] or 0)
    owners = {(layer.kv_heads, layer.k_dim, layer.v_dim) for layer in sized.layout.layers if layer.owns_kv}
    geometry = ast.literal_eval(row["geom(heads,k,v)"])
    assert owners == {(heads or 1, k, v) for heads, k, v in geometry}
    windows = {layer.window for layer in sized.layout.layers if layer.window is not None}
    assert windows == set(ast.literal_eval(row["windows"]))


@pytest.mark.parametrize("model", sorted(rows()))
def test_layer_kinds_match(model: str) -> None:
    wanted = ast.literal_eval(rows()[model]["layer_counts"])
    if not wanted:
        pytest.skip("attention-free: the table counts no layers, kvbench counts its recurrent ones")
    layout = size_model(str(DATA / f"{model}.json"), kv_dtype="bfloat16").layout

    assert {kind: layout.count(kind) for kind in KINDS if layout.count(kind)} == wanted


@pytest.mark.parametrize("model", sorted(rows()))
def test_auto_dtype_is_fp8_exactly_where_the_config_declares_fp8_kv(model: str) -> None:
    declared = rows()[model]["kv_quant_in_config"] != "None"

    assert (size_model(str(DATA / f"{model}.json")).kv_dtype == "fp8") == declared


@pytest.mark.parametrize("path", profile_paths(), ids=lambda path: path.stem)
def test_shipped_profiles_agree_with_the_config_of_the_same_model(path: Path) -> None:
    profile = size_model(path.stem)
    file = DATA / f"{RENAMED.get(profile.model, profile.model.replace('/', '__'))}.json"
    if not file.is_file():
        pytest.skip(f"the data folder has no config of {profile.model}")
    config = size_model(str(file))

    assert profile.layout == config.layout
    assert (profile.kv_dtype, profile.bytes_per_token) == (config.kv_dtype, config.bytes_per_token)
    assert (profile.rank_block_bytes, profile.state_bytes) == (config.rank_block_bytes, config.state_bytes)
