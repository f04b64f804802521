"""``kvbench blocksize`` and ``kvbench models``: whole output, JSON contract, refusals and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Outcome

Run = Callable[..., Outcome]
GOLDEN = Path(__file__).parent / "data" / "blocksize"
DOCS = Path(__file__).parents[1] / "docs" / "geometry.md"


GPT_OSS_20B: dict[str, Any] = {
    "model": "openai/gpt-oss-20b",
    "source": "profile gpt-oss-20b.yaml: PyPI aiconfigurator-core 0.12.0 model_configs/openai--gpt-oss-20b_config.json",
    "model_type": "gpt_oss",
    "kv_dtype": "bfloat16",
    "kv_dtype_source": "auto: the config names no dtype, bfloat16 assumed",
    "tp": 2,
    "pp": 1,
    "dcp": 1,
    "block_tokens": 16,
    "layers": {"full": 12, "sliding": 12, "chunked": 0, "mla": 0, "linear": 0, "none": 0, "shared": 0},
    "bytes_per_token": 49_152,
    "growing_bytes_per_token": 24_576,
    "rank_block_bytes": 393_216,
    "server_block_bytes": 786_432,
    "stages": [{"stage": 0, "layers": 24, "rank_block_bytes": 393_216}],
    "state_bytes": 0,
    "index_bytes_per_token": 0,
    "cross_bytes": 0,
    "contexts": [
        {
            "tokens": 131_072,
            "bytes": 3_224_371_200,
            "rank_bytes": 1_612_185_600,
            "server_bytes": 3_224_371_200,
            "state_bytes": 0,
            "index_bytes": 0,
            "cross_bytes": 0,
            "fits": [{"bytes": 85_899_345_920, "per_rank": 53, "stored": 26, "one_copy": 26}],
        }
    ],
    "warnings": [],
    "engine_block_tokens": None,
    "connectors": [
        {
            "name": "logical",
            "engine_version": None,
            "unit": "block",
            "block_tokens": 16,
            "engine_block_tokens": None,
            "rank_block_bytes": [],
            "stored_bytes_per_block": 786_432,
            "parallelism_per_request": 16,
            "groups": [
                {
                    "index": 0,
                    "kind": "full",
                    "layers": 24,
                    "tokens_per_unit": 16,
                    "bytes": 786_432,
                    "padded_bytes": 786_432,
                    "units": 1,
                    "page_bytes": [],
                    "window_units": None,
                    "kept": None,
                    "per_step": False,
                    "newest_only": False,
                    "aligned_512": True,
                    "aligned_4096": True,
                }
            ],
            "calls": None,
            "requests": [
                {
                    "tokens": 131_072,
                    "units_written": 8_192,
                    "bytes_written": 6_442_450_944,
                    "units_written_least": 8_192,
                    "bytes_written_least": 6_442_450_944,
                    "units_read": 8_192,
                    "bytes_read": 6_442_450_944,
                    "units_read_least": 8_192,
                    "bytes_read_least": 6_442_450_944,
                    "write_amplification": 1.0,
                    "read_amplification": 6_442_450_944 / 3_224_371_200,
                }
            ],
            "warnings": [],
        }
    ],
    "connector_refusals": [],
}


def test_the_table_of_several_models(kvbench: Run) -> None:
    models = ("gpt-oss-120b", "Qwen3-8B", "deepseek-v3.2", "qwen3.6-35b-a3b")
    result = kvbench("blocksize", *models, "--tp", "2", "--context", "128k", "--fit", "80GiB")

    assert (result.code, result.err) == (0, "")
    assert result.out == (GOLDEN / "table.txt").read_text(encoding="utf-8")


def test_the_json_of_one_model(kvbench: Run) -> None:
    arguments = ("blocksize", "gpt-oss-20b", "--tp", "2", "--context", "128k", "--fit", "80GiB", "--json")
    result = kvbench(*arguments, "--connector", "logical")

    assert (result.code, result.err) == (0, "")
    assert result.out == json.dumps({"models": [GPT_OSS_20B], "refused": []}, indent=2) + "\n"


def test_the_derivation_of_one_model(kvbench: Run) -> None:
    result = kvbench("blocksize", "gpt-oss-20b", "--tp", "2", "--explain")

    assert (result.code, result.err) == (0, "")
    assert result.out == (GOLDEN / "explain.txt").read_text(encoding="utf-8")


def test_no_model_means_the_three_of_the_study(kvbench: Run) -> None:
    found = kvbench("blocksize", "--tp", "2", "--json").json()["models"]

    assert isinstance(found, list)
    assert [(one["model"], one["rank_block_bytes"]) for one in found] == [
        ("openai/gpt-oss-120b", 589_824),
        ("Qwen/Qwen3-8B", 1_179_648),
        ("meta-llama/Llama-3.1-70B", 2_621_440),
    ]


def test_a_refused_model_does_not_stop_the_others(kvbench: Run) -> None:
    result = kvbench("blocksize", "phi-4", "qwen3-8b", "nonsense", "--tp", "4", "--json")
    found = result.json()

    assert result.code == 2
    assert isinstance(found["models"], list)
    assert [one["model"] for one in found["models"]] == ["Qwen/Qwen3-8B"]
    assert isinstance(found["refused"], list)
    assert [one["model"] for one in found["refused"]] == ["phi-4", "nonsense"]
    assert "10 KV heads and TP 4" in found["refused"][0]["reason"]
    assert "phi-4 refused" in result.err


def test_a_refused_model_is_named_below_the_table(kvbench: Run) -> None:
    result = kvbench("blocksize", "falcon-7b", "qwen3-8b", "--tp", "2")

    assert result.code == 2
    assert "Qwen/Qwen3-8B" in result.out
    assert result.err == (
        "kvbench: falcon-7b refused: 71 attention heads cannot be shared by TP 2; choose a TP that divides them.\n"
    )


def test_an_unknown_architecture_lists_the_known_ones(kvbench: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama9"}')
    result = kvbench("blocksize", tmp_path)

    assert (result.code, result.out) == (2, "")
    assert "'llama9' and does not guess; it knows" in result.err
    assert "qwen3_moe" in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--kv-dtype", "fp4"), "unknown KV dtype 'fp4'; known: auto, bfloat16"),
        (("--tp", "0"), "--tp"),
        (("--fit", "80GiB"), "--fit needs --context"),
        (("--context", "8q"), "'8q' is not a number of tokens"),
        (("--context", "8k", "--fit", "80G"), "'80G' is ambiguous"),
        (("--connector", "floppy"), "unknown connector 'floppy'; known: logical"),
        (("--connector", "floppy", "--json"), "unknown connector 'floppy'; known: logical"),
        (("--engine-version", "0.23"), "'0.23' is not a vLLM release known here; known: 0.24.0, 0.25.0, 0.25.1"),
        (("--gpu-arch", "sm70"), "--gpu-arch 'sm70': choose from sm90, sm100"),
        (("--connector", "vllm-disk", "--engine-version", "0.24"), "vLLM 0.24.0 has no disk backend"),
        (("--frobnicate",), "No such option"),
    ],
)
def test_usage_errors(arguments: tuple[str, ...], sentence: str, kvbench: Run) -> None:
    result = kvbench("blocksize", "qwen3-8b", *arguments)

    assert (result.code, result.out) == (2, "")
    assert sentence in result.err


def one_model(result: Outcome) -> dict[str, Any]:
    assert result.code == 0, result.err
    models = result.json()["models"]
    assert isinstance(models, list)
    found = models[0]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("dtype", "per_token"),
    [("fp8", 73_728), ("int8_per_token_head", 36 * 8 * 2 * 132), ("nvfp4", 36 * 8 * 2 * 72), ("float16", 147_456)],
)
def test_kv_dtype_overrides(dtype: str, per_token: int, kvbench: Run) -> None:
    found = one_model(kvbench("blocksize", "qwen3-8b", "--kv-dtype", dtype, "--json"))

    assert (found["bytes_per_token"], found["kv_dtype_source"]) == (per_token, "--kv-dtype")


def test_fp8_of_a_sparse_mla_model_has_its_own_layout(kvbench: Run) -> None:
    found = one_model(kvbench("blocksize", "deepseek-v3.2", "--kv-dtype", "fp8", "--json"))

    # 61 x 656 and 61 x 132.
    assert (found["bytes_per_token"], found["index_bytes_per_token"]) == (40_016, 8_052)


def test_block_tokens_and_stages(kvbench: Run) -> None:
    found = one_model(kvbench("blocksize", "qwen3-8b", "--block-tokens", "64", "--pp", "5", "--json"))

    assert found["rank_block_bytes"] == 64 * 147_456
    assert [stage["layers"] for stage in found["stages"]] == [7, 7, 7, 8, 7]


def test_a_model_without_kv_has_no_connectors_and_says_so(kvbench: Run, tmp_path: Path) -> None:
    config = {"model_type": "mamba", "n_layer": 24, "intermediate_size": 1536, "state_size": 16, "conv_kernel": 4}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = one_model(kvbench("blocksize", tmp_path, "--context", "1k,64k", "--json"))

    assert (found["bytes_per_token"], found["server_block_bytes"], found["connectors"]) == (0, 0, [])
    assert [one["bytes"] for one in found["contexts"]] == [1_400_832, 1_400_832]
    assert found["state_bytes"] == 1_400_832
    assert "no attention: 0 bytes per token" in found["warnings"][0]
    assert "no KV cache" in kvbench("blocksize", tmp_path).out
    assert kvbench("blocksize", tmp_path, "--explain", "--connector", "logical").code == 0


def test_an_unknown_state_is_null_and_unknown(kvbench: Run, tmp_path: Path) -> None:
    layers = {"layer_types": ["mamba", "attention"], "num_hidden_layers": 2}
    heads = {"num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "granitemoehybrid", **layers, **heads}))
    arguments = ("blocksize", tmp_path, "--context", "1k", "--fit", "1GiB")
    found = one_model(kvbench(*arguments, "--json"))

    assert (found["bytes_per_token"], found["state_bytes"]) == (4_096, None)
    assert (found["contexts"][0]["bytes"], found["contexts"][0]["fits"][0]["stored"]) == (None, None)
    assert "recurrent state not sized: mamba_n_heads" in found["warnings"][0]
    assert "unknown" in kvbench(*arguments).out


def test_cross_attention_is_apart(kvbench: Run, tmp_path: Path) -> None:
    config = {
        "model_type": "whisper",
        "is_encoder_decoder": True,
        "num_hidden_layers": 32,
        "decoder_layers": 32,
        "decoder_attention_heads": 20,
        "d_model": 1280,
        "max_source_positions": 1500,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = one_model(kvbench("blocksize", tmp_path, "--json"))

    assert (found["bytes_per_token"], found["cross_bytes"]) == (163_840, 245_760_000)
    assert "cross-attention keeps 1,500 encoder tokens" in found["warnings"][0]


def test_a_connector_is_shown_when_asked_for(kvbench: Run) -> None:
    out = kvbench("blocksize", "deepseek-v3.2", "--connector", "logical", "--kv-dtype", "fp8").out

    # 61 x 656 x 16 = 640,256 = 1250.5 x 512: O_DIRECT takes it on no sector size.
    assert "Stored by connector logical" in out
    assert [line.split()[-4:] for line in out.splitlines() if "61 mla" in line][-1] == ["640,256", "625.2", "KiB", "no"]


def test_what_the_file_tier_stores(kvbench: Run) -> None:
    models = ("gemma-3-27b-it", "qwen3.6-35b-a3b", "gpt-oss-120b")
    result = kvbench(
        "blocksize", *models, "--tp", "2", "--connector", "vllm-fs", "--engine-version", "0.24", "--context", "32k"
    )

    assert (result.code, result.err) == (0, "")
    assert result.out == (GOLDEN / "vllm-fs.txt").read_text(encoding="utf-8")


def test_the_json_of_the_file_tier(kvbench: Run) -> None:
    arguments = ("blocksize", "deepseek-v3", "--tp", "8", "--kv-dtype", "fp8", "--connector", "vllm-fs", "--json")
    old = one_model(kvbench(*arguments, "--engine-version", "0.24", "--context", "64"))
    new = one_model(kvbench(*arguments, "--context", "64"))

    assert (old["engine_block_tokens"], new["engine_block_tokens"]) == (64, 64)
    assert [one["stored_bytes_per_block"] for one in (*old["connectors"], *new["connectors"])] == [
        17_989_632,
        2_248_704,
    ]
    assert [one["parallelism_per_request"] for one in (*old["connectors"], *new["connectors"])] == [32, 1]
    assert old["connectors"][0]["requests"][0]["write_amplification"] == 8
    assert old["connectors"][0]["calls"]["load"] == ["open O_DIRECT", "readv", "close"]


def test_a_refusing_connector_refuses_the_model_when_asked_for_and_is_listed_when_not(kvbench: Run) -> None:
    models = ("llama-4-scout-17b-16e-instruct", "qwen3-8b")
    asked = kvbench("blocksize", *models, "--connector", "vllm-fs", "--engine-version", "0.24", "--json")
    listed = kvbench("blocksize", *models, "--engine-version", "0.24", "--json")

    assert (asked.code, listed.code) == (2, 0)
    kept = asked.json()["models"]
    assert isinstance(kept, list)
    assert [one["model"] for one in kept] == ["Qwen/Qwen3-8B"]
    assert "AssertionError in get_sliding_window_size_in_blocks" in asked.err
    found = listed.json()["models"]
    assert isinstance(found, list)
    assert [one["name"] for one in found[0]["connectors"]] == ["logical"]
    assert {one["name"] for one in found[0]["connector_refusals"]} >= {"vllm-fs", "vllm-obj", "llm-d-fs"}
    assert [one["name"] for one in found[1]["connector_refusals"]] == ["vllm-disk"]


def test_the_engines_own_switches(kvbench: Run) -> None:
    arguments = ("--connector", "vllm-fs", "--engine-version", "0.24", "--json")
    llama = ("blocksize", "llama-4-scout-17b-16e-instruct", *arguments)
    found = one_model(kvbench(*llama, "--disable-hybrid-kv-cache-manager"))

    assert found["connectors"][0]["stored_bytes_per_block"] == 3_145_728
    refused = kvbench("blocksize", "qwen3.6-35b-a3b", *arguments, "--no-enable-prefix-caching")
    assert refused.code == 2
    assert "need --enable-prefix-caching" in refused.err


def test_missing_grouping_is_a_warning(kvbench: Run, tmp_path: Path) -> None:
    config = {"model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = one_model(kvbench("blocksize", tmp_path, "--json"))

    assert found["bytes_per_token"] == 524_288
    assert "num_key_value_heads is absent: 32 (multi-head attention" in found["warnings"][0]


def test_models_lists_every_profile(kvbench: Run) -> None:
    table, found = kvbench("models"), kvbench("models", "--json").json()["models"]

    assert isinstance(found, list)
    assert f"{len(found)} shipped profiles" in table.out
    by_name = {one["name"]: one for one in found}
    assert by_name["qwen3-8b"]["model"] == "Qwen/Qwen3-8B"
    assert by_name["qwen3-8b"]["bytes_per_token"] == 147_456
    assert by_name["llama-3.1-70b"]["source"].startswith("profile llama-3.1-70b.yaml: ")
    assert all(one["name"] in table.out for one in found)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["blocksize"], ["blocksize", "qwen3-8b", "--json"], ["models"], ["--help"]])
def test_no_heavy_module_is_imported(arguments: list[str]) -> None:
    code = (
        "import sys; from kvbench.cli import main; main(sys.argv[1:]);"
        "heavy = ('pandas', 'matplotlib', 'huggingface_hub', 'jinja2', 'numpy');"
        "print([m for m in heavy if m in sys.modules], file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)

    assert result.stderr == "[]\n"


def documented() -> list[tuple[str, int, int]]:
    """Model, TP and bytes of the comparison table in docs/geometry.md."""
    rows = [line.split("|")[1:4] for line in DOCS.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    return [(name.strip(" `"), int(tp), int(size.strip(" *").replace(",", ""))) for name, tp, size in rows]


@pytest.mark.parametrize(("model", "tp", "size"), documented())
def test_the_documented_comparison_is_what_kvbench_says(model: str, tp: int, size: int, kvbench: Run) -> None:
    found = one_model(kvbench("blocksize", model, "--tp", str(tp), "--block-tokens", "1", "--json"))

    # A server's bytes per token: all ranks, replicas included, and the index keys of each rank.
    assert found["server_block_bytes"] + tp * found["index_bytes_per_token"] == size
