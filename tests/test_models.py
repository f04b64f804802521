"""How a model's name becomes a config: paths, shipped profiles, Hub ids, and every way in which that fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvbench.errors import ModelConfigError, UsageError
from kvbench.layout import models
from kvbench.layout.models import DEFAULT_MODELS, find_config, find_profile, profile_paths, read_profile, size_model
from kvbench.profiles import profiles_dir

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "hidden_size": 8192,
}
FP8_KV = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}

# TP 2, 16 tokens, one rank: published by natoscott/benchmarks (storage-offload-eval) and vLLM's shape logs.
RANK_BLOCKS = {
    "Qwen/Qwen3-8B": 1_179_648,
    "openai/gpt-oss-120b": 589_824,
    "meta-llama/Llama-3.1-70B": 2_621_440,
    "Qwen/Qwen3-32B": 2_097_152,
    "Qwen/Qwen3-0.6B": 917_504,
    "Qwen/Qwen3-14B": 1_310_720,
}
PER_TOKEN = {
    "openai/gpt-oss-20b": 49_152,
    "Qwen/Qwen3-235B-A22B": 192_512,
    "Qwen/Qwen3.6-35B-A3B": 20_480,
    "meta-llama/Llama-3.1-8B": 131_072,
    "meta-llama/Llama-3.1-405B": 516_096,
    "nvidia/Llama-3_1-Nemotron-Ultra-253B-v1": 262_144,
    "google/gemma-4-31B": 901_120,
    "deepseek-ai/DeepSeek-V3": 70_272,
    "zai-org/GLM-4.5": 376_832,
    "zai-org/GLM-5.3": 89_856,
    "moonshotai/Kimi-K3": 24 * 1_152,
    # 9 full layers of 4 heads and 39 sliding ones of 8, K 192 and V 128.
    "XiaomiMiMo/MiMo-V2-Flash": (9 * 4 + 39 * 8) * 320 * 2,
}


def write(folder: Path, config: object, name: str = "config.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


@pytest.mark.parametrize(("model", "block"), RANK_BLOCKS.items())
def test_published_rank_blocks(model: str, block: int) -> None:
    sized = size_model(model, tp=2)

    assert (sized.model, sized.kv_dtype) == (model, "bfloat16")
    assert (sized.rank_block_bytes, sized.server_block_bytes) == (block, 2 * block)


@pytest.mark.parametrize(("model", "per_token"), PER_TOKEN.items())
def test_bytes_per_token_of_profiles(model: str, per_token: int) -> None:
    assert size_model(model).bytes_per_token == per_token


def test_tp_16_replicates_llama_70b() -> None:
    sized = size_model("llama-3.1-70b", tp=16)

    assert (sized.rank_block_bytes, sized.server_block_bytes) == (655_360, 16 * 655_360)
    assert any("replicates" in warning for warning in sized.warnings)


@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16])
def test_deepseek_v3_is_whole_on_every_rank(tp: int) -> None:
    assert size_model("deepseek-v3", tp=tp, block_tokens=1).rank_block_bytes == 70_272


def test_pipeline_stages_are_listed_and_the_block_counts_them_all() -> None:
    sized = size_model("deepseek-v3", pp=4)

    assert [stage.layers for stage in sized.stages] == [15, 15, 16, 15]
    assert sum(stage.rank_block_bytes for stage in sized.stages) == sized.rank_block_bytes == 16 * 70_272


@pytest.mark.parametrize("name", ["Qwen/Qwen3-8B", "qwen/qwen3-8b", "Qwen3-8B", "qwen3-8b"])
def test_a_profile_answers_to_its_name_and_its_last_part_in_any_case(name: str) -> None:
    assert find_config(name).name == "Qwen/Qwen3-8B"


def test_a_profile_does_not_answer_for_another_organisation() -> None:
    assert find_profile("someone/Qwen3-8B") is None


@pytest.mark.parametrize("model", DEFAULT_MODELS)
def test_the_default_models_are_shipped(model: str) -> None:
    assert find_profile(model) is not None


@pytest.mark.parametrize("path", profile_paths(), ids=lambda path: path.stem)
def test_every_profile_is_complete(path: Path) -> None:
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    found = read_profile(path)

    assert set(data) == {"name", "source", "licence", "config"}
    assert path.stem == found.name.rpartition("/")[2].lower()
    assert data["source"] in found.source
    assert find_profile(path.stem) == find_profile(found.name) == found
    assert size_model(path.stem).bytes_per_token > 0


def test_at_least_forty_profiles_are_shipped() -> None:
    assert len(profile_paths()) >= 40


def test_a_damaged_profile_is_said_to_be_one(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("name: a/b\n")
    with pytest.raises(ModelConfigError, match="reinstall"):
        read_profile(path)


def test_profiles_inside_the_package_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvbench.profiles._PACKAGE", tmp_path / "kvbench")
    assert profiles_dir() == tmp_path / "profiles"
    (tmp_path / "kvbench" / "profiles").mkdir(parents=True)
    assert profiles_dir() == tmp_path / "kvbench" / "profiles"


def test_a_file_and_its_folder_are_the_same_model(tmp_path: Path) -> None:
    path = write(tmp_path / "my-llama", LLAMA)

    assert size_model(str(path)).model == size_model(str(path.parent)).model == "my-llama"
    assert size_model(str(path)).source == str(path)


def test_a_config_that_knows_its_hub_id_goes_by_it(tmp_path: Path) -> None:
    path = write(tmp_path, {**LLAMA, "_name_or_path": "meta-llama/Llama-2-70b-hf"})

    assert size_model(str(path)).model == "meta-llama/Llama-2-70b-hf"


@pytest.mark.parametrize("local", ["/home/me/llama", "./llama", "llama", "models/checkpoint", ""])
def test_a_local_path_is_not_a_hub_id(local: str, tmp_path: Path) -> None:
    path = write(tmp_path, {**LLAMA, "_name_or_path": local}, "seventy.json")

    assert size_model(str(path)).model == "seventy"


def test_the_hub_cache_knows_the_name(tmp_path: Path) -> None:
    path = write(tmp_path / "models--meta-llama--Llama-3.1-70B" / "snapshots" / "abc", LLAMA)

    assert size_model(str(path)).model == "meta-llama/Llama-3.1-70B"


def test_a_path_wins_over_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "qwen3-8b", LLAMA)
    monkeypatch.chdir(tmp_path)

    assert size_model("qwen3-8b").bytes_per_token == 327_680


def test_a_folder_that_holds_no_config_does_not_hide_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "qwen3-8b").mkdir()
    monkeypatch.chdir(tmp_path)

    assert size_model("qwen3-8b").bytes_per_token == 147_456


def test_hf_quant_config_beside_the_config_declares_fp8_kv(tmp_path: Path) -> None:
    write(tmp_path, LLAMA)
    assert size_model(str(tmp_path), tp=2).rank_block_bytes == 2_621_440

    write(tmp_path, FP8_KV, "hf_quant_config.json")
    sized = size_model(str(tmp_path), tp=2)
    assert (sized.rank_block_bytes, sized.kv_dtype) == (1_310_720, "fp8")
    assert "hf_quant_config.json" in sized.kv_dtype_source


def test_weight_quantisation_leaves_kv_alone(tmp_path: Path) -> None:
    for method in ("fp8", "awq", "gptq", "mxfp4", "bitsandbytes"):
        write(tmp_path, {**LLAMA, "quantization_config": {"quant_method": method, "bits": 4}})
        assert size_model(str(tmp_path), tp=2).rank_block_bytes == 2_621_440


def test_bare_infinity_nan_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    text = json.dumps({**LLAMA, "time_step_limit": [0.0, float("inf")], "x": float("nan")})
    assert "Infinity" in text
    for encoding in ("utf-8-sig", "utf-16"):
        (tmp_path / "config.json").write_text(text, encoding=encoding)
        assert size_model(str(tmp_path)).bytes_per_token == 327_680


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'{"model_type": "llama"', "not readable JSON"),
        (b"", "not readable JSON"),
        (b"\xff\xfe\x00", "not readable JSON"),
        (b"[" * 100_000, "not readable JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"model_type": "llama", "model_type": "mpt"}', "'model_type' stands in it twice"),
    ],
)
def test_damaged_json_is_one_sentence(content: bytes, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ModelConfigError, match=sentence) as caught:
        size_model(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    write(tmp_path, LLAMA)
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ModelConfigError, match="Permission denied"):
        size_model(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("gpt-oss", "gpt-oss-20b"),
        ("no such model", "no profile has that name"),
        ("a/b/c", "no such file or folder"),
        ("x" * 5000, "no such file or folder"),
        (" ", "empty model name"),
    ],
)
def test_an_unknown_name_says_what_is_near(name: str, sentence: str) -> None:
    with pytest.raises(ModelConfigError, match=sentence):
        size_model(name)


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match=r"holds no config\.json"):
        size_model(str(tmp_path))


@pytest.mark.parametrize("option", ["tp", "pp", "block_tokens"])
def test_options_below_one_are_usage_errors(option: str) -> None:
    with pytest.raises(UsageError, match=option.replace("_", "-")):
        size_model("qwen3-8b", **{option: 0})  # type: ignore[arg-type]


class FakeHub:
    """A Hub that holds given files, or fails in a given way; it remembers what was asked."""

    def __init__(self, folder: Path, failures: dict[str, Exception]) -> None:
        self.folder, self.failures = folder, failures
        self.asked: list[tuple[str, str, bool]] = []

    def download(self, repository: str, file: str, *, local_files_only: bool) -> str:
        self.asked.append((repository, file, local_files_only))
        if file in self.failures:
            raise self.failures[file]
        return str(self.folder / file)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    import huggingface_hub

    fake = FakeHub(tmp_path, {})
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fake.download)
    monkeypatch.setattr(models, "_hub_answers", lambda: True)
    return fake


def failure(name: str) -> Exception:
    from huggingface_hub import errors

    kind = getattr(errors, name)
    made: Exception = kind.__new__(kind)
    made.args = ("first line.\nsecond line",)
    return made


def test_a_hub_id_is_fetched_as_two_json_files(hub: FakeHub) -> None:
    write(hub.folder, LLAMA)
    hub.failures["hf_quant_config.json"] = failure("RemoteEntryNotFoundError")
    sized = size_model("org/some-llama")

    assert (sized.model, sized.bytes_per_token, sized.warnings) == ("org/some-llama", 327_680, ())
    assert hub.asked == [("org/some-llama", "config.json", False), ("org/some-llama", "hf_quant_config.json", False)]


def test_hf_quant_config_on_the_hub_counts(hub: FakeHub) -> None:
    write(hub.folder, LLAMA)
    write(hub.folder, FP8_KV, "hf_quant_config.json")

    assert size_model("org/some-llama").kv_dtype == "fp8"


def test_hf_quant_config_is_not_fetched_when_the_config_speaks(hub: FakeHub) -> None:
    write(hub.folder, {**LLAMA, "quantization_config": {"quant_method": "fp8"}})
    size_model("org/some-llama")

    assert [file for _, file, _ in hub.asked] == ["config.json"]


def test_an_unknown_hf_quant_config_is_a_warning(hub: FakeHub) -> None:
    write(hub.folder, LLAMA)
    hub.failures["hf_quant_config.json"] = failure("LocalEntryNotFoundError")

    assert "hf_quant_config.json could not be looked up" in size_model("org/some-llama").warnings[0]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("GatedRepoError", "is gated; accept its terms"),
        ("RepositoryNotFoundError", "is not on the Hub, or private"),
        ("LocalEntryNotFoundError", "the Hub cannot be asked"),
        ("RemoteEntryNotFoundError", "has no config.json on the Hub"),
        ("HfHubHTTPError", r"could not be fetched from the Hub \(first line\)"),
    ],
)
def test_hub_failures_are_one_sentence_with_a_next_step(name: str, sentence: str, hub: FakeHub) -> None:
    hub.failures["config.json"] = failure(name)
    with pytest.raises(ModelConfigError, match=sentence) as caught:
        size_model("org/some-llama")
    assert "\n" not in str(caught.value)


def test_a_silent_hub_is_asked_for_cached_files_only(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    write(hub.folder, {**LLAMA, "quantization_config": {}})
    monkeypatch.setattr(models, "_hub_answers", lambda: False)
    size_model("org/some-llama")

    assert hub.asked == [("org/some-llama", "config.json", True)]


def test_a_closed_port_is_no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    for name in models._PROXIES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert not models._hub_answers()
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    assert models._hub_answers()


def test_sizing_a_profile_imports_no_heavy_module() -> None:
    code = (
        "import sys; from kvbench.layout.models import size_model; size_model('qwen3-8b');"
        "heavy = ('pandas', 'matplotlib', 'huggingface_hub', 'rich', 'pydantic', 'typer');"
        "print([m for m in heavy if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout == "[]\n"
