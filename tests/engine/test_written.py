"""What ``kvbench settings`` writes, as the engine takes it: it starts with it, and restores from the tier.

Only the class that copies over PCIe is exchanged for the lab's; every other key stays as it was written.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvbench.engines.vllm.releases import find_release
from kvbench.layout.models import size_model
from kvbench.settings.fitting import Deployed
from kvbench.settings.places import Directory
from kvbench.settings.writing import Asked, Numbers, write
from tests.lab import engine

BLOCK_TOKENS = 32
WHOLE = 4 * BLOCK_TOKENS
CPU_BYTES = 16 << 20
LAB_CLASS = {"TieringOffloadingSpec": "HostTiering", "CPUOffloadingSpec": "HostCPU"}

Make = Callable[[Deployed, Path], Asked]
WRITTEN: dict[str, Make] = {
    "cpu": lambda deployed, _: Asked(deployed, (), CPU_BYTES),
    "fs": lambda deployed, folder: Asked(deployed, (Directory(str(folder)),), CPU_BYTES),
    "two": lambda deployed, folder: Asked(
        deployed, (Directory(str(folder / "a")), Directory(str(folder / "b"))), CPU_BYTES
    ),
    "chunk": lambda deployed, folder: Asked(
        deployed, (Directory(str(folder)),), CPU_BYTES, numbers=Numbers(chunk_tokens=2 * BLOCK_TOKENS)
    ),
    "threads": lambda deployed, folder: Asked(
        deployed, (Directory(str(folder)),), CPU_BYTES, numbers=Numbers(threads=(3,))
    ),
    "strange-name": lambda deployed, folder: Asked(deployed, (Directory(f"{folder}/a b'c"),), CPU_BYTES),
}


@pytest.fixture(scope="module")
def answers(root: Path) -> dict[str, engine.Answer]:
    """The engine started with every one."""
    return engine.trials(root, [_trial(root, name) for name in WRITTEN])


def _trial(root: Path, name: str) -> dict[str, Any]:
    model = engine.write_model(root, "gqa")
    release = find_release(engine.RELEASE.rpartition(".")[0])
    deployed = Deployed(size_model(str(model), block_tokens=BLOCK_TOKENS), release, tokens=WHOLE)
    config = write("vllm", WRITTEN[name](deployed, root / "written" / name)).config
    extra = config["kv_connector_extra_config"]
    extra |= {"spec_name": LAB_CLASS[extra["spec_name"]], "spec_module_path": "host_tiers"}
    arguments = {
        "model": str(model),
        "max_model_len": 256,
        "dtype": "bfloat16",
        "block_size": BLOCK_TOKENS,
        "kv_transfer_config": config | {"engine_id": f"kvbench-{root.name[-8:]}-{name}"},
    }
    prompt = list(range(10, 10 + WHOLE + 8))
    return {"name": f"written-{name}", "arguments": arguments, "prompts": [prompt], "again": True, "settle_s": 0.5}


@pytest.mark.parametrize("name", WRITTEN)
def test_the_engine_starts_with_what_is_written_and_restores(name: str, answers: dict[str, engine.Answer]) -> None:
    answer = answers[f"written-{name}"]
    assert answer.refused is None, answer.refused
    # Host memory alone is empty when its cache was emptied.
    assert answer.cached_tokens == [[0], [0 if name == "cpu" else WHOLE]]
