"""Settings that vLLM is started with in the lab, and what it does with them; docs/engine-settings.md is their table.

Each is a change to a configuration that works: TieringOffloadingSpec with an fs tier, 32 tokens a block, a model of
16,384 bytes a block. ``python -m tests.lab.engine_settings`` asks the installed engine and prints what it said;
``... checked`` writes what ``kvbench settings --check`` says into the table's last column, and needs no engine.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvbench.engines.vllm.releases import find_release
from kvbench.layout.models import size_model
from kvbench.settings.checking import check
from kvbench.settings.finding import SettingsFinding
from kvbench.settings.fitting import Deployed
from kvbench.settings.reading import FoundSettings
from tests.conftest import ROOT
from tests.lab import engine

PAGE = ROOT / "docs" / "engine-settings.md"
BLOCK_TOKENS = 32
PROMPT_TOKENS = 4 * BLOCK_TOKENS + 8
_ENOUGH = 16 << 20
# Takes the key out of what works.
ABSENT = "(absent)"


@dataclass(frozen=True)
class Setting:
    """A change in words, and what changes: extra config, fs tier, transfer config, arguments; then the model."""

    words: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    fs: Mapping[str, Any] = field(default_factory=dict)
    transfer: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    model: str = "gqa"
    patience_s: float = 240.0


def tiers(*items: Any) -> dict[str, Any]:
    """Other secondary tiers."""
    return {"secondary_tiers": list(items)}


OBJ = {"bucket": "b", "endpoint_override": "http://127.0.0.1:9", "access_key": "a", "secret_key": "s"}
SETTINGS: dict[str, Setting] = {
    "works": Setting("as it is"),
    "cpu-absent": Setting("`cpu_bytes_to_use` left out", {"cpu_bytes_to_use": ABSENT}),
    "cpu-zero": Setting("`cpu_bytes_to_use` 0", {"cpu_bytes_to_use": 0}),
    "cpu-negative": Setting("`cpu_bytes_to_use` -1", {"cpu_bytes_to_use": -1}),
    "cpu-unit": Setting('`cpu_bytes_to_use` "16MiB"', {"cpu_bytes_to_use": "16MiB"}),
    "cpu-text": Setting('`cpu_bytes_to_use` "16777216"', {"cpu_bytes_to_use": str(_ENOUGH)}),
    "cpu-float": Setting("`cpu_bytes_to_use` 16777216.0", {"cpu_bytes_to_use": float(_ENOUGH)}),
    "cpu-below-a-block": Setting("`cpu_bytes_to_use` 4096, less than a block", {"cpu_bytes_to_use": 4096}),
    "cpu-above-shm": Setting("`cpu_bytes_to_use` 1 PiB, more than /dev/shm", {"cpu_bytes_to_use": 1 << 50}),
    "chunk-multiple": Setting("`block_size` 128, four blocks", {"block_size": 128}),
    "chunk-text": Setting('`block_size` "128"', {"block_size": "128"}),
    "chunk-no-multiple": Setting("`block_size` 48, no multiple of 32", {"block_size": 48}),
    "chunk-zero": Setting("`block_size` 0", {"block_size": 0}),
    "chunk-in-blocks": Setting("`blocks_per_chunk` 4", {"blocks_per_chunk": 4}),
    "chunk-in-blocks-zero": Setting("`blocks_per_chunk` 0", {"blocks_per_chunk": 0}),
    "chunk-both": Setting("`block_size` and `blocks_per_chunk`", {"block_size": 128, "blocks_per_chunk": 4}),
    "eviction-arc": Setting('`eviction_policy` "arc"', {"eviction_policy": "arc"}),
    "eviction-unknown": Setting('`eviction_policy` "fifo"', {"eviction_policy": "fifo"}),
    "threshold": Setting("`store_threshold` 2 with tiers", {"store_threshold": 2}),
    "key-unknown": Setting("an unknown key in `kv_connector_extra_config`", {"cpu_byte_to_use": 1}),
    "spec-unknown": Setting("an unknown `spec_name`", {"spec_name": "TieredSpec", "spec_module_path": ABSENT}),
    "events-described": Setting("`self_describing_kv_events` true", {"self_describing_kv_events": True}),
    "canonical": Setting("`canonical_layout` true", {"canonical_layout": True}),
    "tiers-object": Setting("`secondary_tiers` an object", {"secondary_tiers": {"type": "fs", "root_dir": "{root}"}}),
    "tiers-text": Setting("a tier that is a text", tiers("fs")),
    "tiers-none": Setting("`secondary_tiers` empty", tiers()),
    "tier-no-type": Setting("a tier without `type`", tiers({"root_dir": "{root}"})),
    "tier-unknown": Setting("a tier of an unknown `type`", tiers({"type": "nvme", "root_dir": "{root}"})),
    "fs-twice": Setting("two fs tiers", tiers(*({"type": "fs", "root_dir": f"{{root}}/{name}"} for name in "ab"))),
    "fs-no-root": Setting("fs without `root_dir`", fs={"root_dir": ABSENT}),
    "fs-relative": Setting("fs with a relative `root_dir`", fs={"root_dir": "relative/folder"}),
    "fs-not-allowed": Setting("fs in a folder that cannot be made", fs={"root_dir": "/proc/kvbench"}),
    "fs-memory": Setting("fs on tmpfs", fs={"root_dir": "/dev/shm/vllm_offload_{engine}_tier"}),
    "fs-key-unknown": Setting("fs with an unknown key", fs={"n_threads": 4}),
    "fs-threads-text": Setting('fs with `n_read_threads` "8"', fs={"n_read_threads": "8"}),
    "fs-threads-zero": Setting(
        "fs without any thread", fs={"n_read_threads": 0, "n_write_threads": 0}, patience_s=120.0
    ),
    "fs-locality": Setting('fs with `locality` "remote"', fs={"locality": "remote"}),
    "fs-pressure": Setting("fs with a `backpressure` that names no class", fs={"backpressure": {"high_water_s": 1}}),
    "obj": Setting("obj, without the nixl package", tiers({"type": "obj", "store_config": OBJ})),
    "p2p": Setting("p2p, without the nixl package", tiers({"type": "p2p", "host": "127.0.0.1"})),
    "role-absent": Setting("`kv_role` left out", transfer={"kv_role": ABSENT}),
    "role-unknown": Setting('`kv_role` "both"', transfer={"kv_role": "both"}),
    "connector-unknown": Setting("an unknown `kv_connector`", transfer={"kv_connector": "OffloadConnector"}),
    "top-unknown": Setting("an unknown key beside `kv_role`", transfer={"kv_roles": "kv_both"}),
    "top-moved": Setting("`cpu_bytes_to_use` beside `kv_role`", transfer={"cpu_bytes_to_use": _ENOUGH}),
    "policy-unknown": Setting('`kv_load_failure_policy` "retry"', transfer={"kv_load_failure_policy": "retry"}),
    "no-prefix-caching": Setting("`--no-enable-prefix-caching`", arguments={"enable_prefix_caching": False}),
    "hash-xxhash": Setting("`--prefix-caching-hash-algo xxhash`", arguments={"prefix_caching_hash_algo": "xxhash"}),
    "block-16": Setting("`--block-size 16`", arguments={"block_size": 16}),
    "block-48": Setting("`--block-size 48`", arguments={"block_size": 48}),
    "kv-fp8": Setting("`--kv-cache-dtype fp8`", arguments={"kv_cache_dtype": "fp8"}),
    "kv-int8-heads": Setting(
        "`--kv-cache-dtype int8_per_token_head`",
        arguments={"kv_cache_dtype": "int8_per_token_head"},
    ),
    "mixed-chunk": Setting("`block_size` 64, with sliding windows", {"block_size": 64}, model="mixed"),
}

# Refused by the engine, and no file shows it.
OUTSIDE = {
    "cpu-above-shm": "the file does not show the size of /dev/shm",
    "fs-not-allowed": "the file does not show who may write where",
    "obj": "the file does not show which packages are installed",
    "hash-xxhash": "the file does not show which packages are installed",
    "block-16": "right on a GPU, refused by the CPU platform alone",
    "block-48": "right on a GPU, refused by the CPU platform alone",
}


def trial(root: Path, name: str) -> dict[str, Any]:
    """What engine_side/trials.py is told of a setting."""
    folder = root / "tiers" / name
    folder.mkdir(parents=True)
    setting, config = SETTINGS[name], configuration(name, folder, f"kvbench-{root.name[-8:]}-{name}")
    arguments = {
        "model": str(engine.write_model(root, setting.model)),
        "max_model_len": 256,
        "dtype": "bfloat16",
        "block_size": BLOCK_TOKENS,
        "kv_transfer_config": config,
        **setting.arguments,
    }
    prompt = list(range(10, 10 + PROMPT_TOKENS))
    asked = {"prompts": [prompt], "again": True, "settle_s": 0.5, "patience_s": setting.patience_s}
    return {"name": name, "arguments": arguments, **asked}


def configuration(name: str, folder: Path, engine_id: str) -> dict[str, Any]:
    """The --kv-transfer-config of a setting."""
    setting, whole = SETTINGS[name], engine.offloading("fs", folder, engine_id, _ENOUGH)
    extra = whole["kv_connector_extra_config"]
    extra["secondary_tiers"] = [_changed(extra["secondary_tiers"][0], setting.fs)]
    whole = _changed({**whole, "kv_connector_extra_config": _changed(extra, setting.extra)}, setting.transfer)
    text = json.dumps(whole).replace("{root}", str(folder)).replace("{engine}", engine_id)
    changed: dict[str, Any] = json.loads(text)
    return changed


def findings(name: str) -> list[SettingsFinding]:
    """What ``settings --check`` says of a setting as a user with a GPU would write it: without the lab's own copy."""
    config = configuration(name, Path("/mnt/kv"), "kvbench")
    extra = config["kv_connector_extra_config"]
    if extra.pop("spec_module_path", None):
        extra["spec_name"] = "TieringOffloadingSpec"
    options = {key.replace("_", "-"): str(value) for key, value in SETTINGS[name].arguments.items()}
    found = FoundSettings("the command", config, options={"block-size": str(BLOCK_TOKENS)} | options)
    said = check(found, find_release(engine.RELEASE.rpartition(".")[0]), _deployed(SETTINGS[name].model))
    return [finding for finding in said if finding.severity != "note"]


def _deployed(model: str) -> Deployed:
    with tempfile.TemporaryDirectory() as folder:
        sized = size_model(str(engine.write_model(Path(folder), model)), block_tokens=BLOCK_TOKENS)
    return Deployed(sized, find_release(engine.RELEASE.rpartition(".")[0]), tokens=PROMPT_TOKENS)


def checked(name: str) -> str:
    """The cell of the check: why it cannot know, or its first finding, errors before warnings."""
    if name in OUTSIDE:
        return f"no error: {OUTSIDE[name]}"
    return next((f"{one.severity} `{one.code}`: {one.message}".replace("|", "\\|") for one in findings(name)), "")


def row(name: str, found: engine.Answer) -> str:
    """A row of the table in docs/engine-settings.md."""
    return f"| {SETTINGS[name].words} | {done(found)} | {checked(name)} |"


def done(found: engine.Answer) -> str:
    """The cell of the engine."""
    whole = PROMPT_TOKENS // BLOCK_TOKENS * BLOCK_TOKENS
    if found.refused is None:
        restored = found.cached_tokens[-1][0]
        how = "starts, restores" if restored else "starts, restores nothing"
        how += "" if restored in (0, whole) else f" {restored} of {whole} tokens"
    else:
        how = f"`{found.refused[0]}`: {_plain(found.refused[1])}"
    return how


def _plain(text: str) -> str:
    """An exception's text for a cell: one line, without what differs from run to run."""
    line = " ".join(text.partition(" [type=")[0].split()).replace("|", "\\|")
    return re.sub(r"/tmp/[^ '\")]+|\b\d+ MiB free\b", "...", line)[:260]


def _changed(what: Mapping[str, Any], by: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**what, **by}.items() if value != ABSENT}


def page() -> dict[str, tuple[str, str]]:
    """The cells of the engine and of the check in docs/engine-settings.md, by the setting's words."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return {words: (how, said[0].strip() if said else "") for words, how, *said in rows[1:]}


def write_checked() -> None:
    """Bring the page's cells of the check up to date."""
    cells, lines = page(), []
    rows = {setting.words: name for name, setting in SETTINGS.items()}
    for line in PAGE.read_text().splitlines():
        words = line.strip("| ").split(" | ")[0]
        lines.append(f"| {words} | {cells[words][0]} | {checked(rows[words])} |" if words in rows else line)
    PAGE.write_text("\n".join(lines) + "\n")


def main() -> None:
    """Print a row for each setting that was named, or for all."""
    if sys.argv[1:] == ["checked"]:
        write_checked()
        return
    with tempfile.TemporaryDirectory(prefix="kvbench-engine-") as folder:
        root = Path(folder)
        answers = engine.trials(root, [trial(root, name) for name in sys.argv[1:] or SETTINGS])
    for name, found in answers.items():
        print(row(name, found))


if __name__ == "__main__":
    main()
