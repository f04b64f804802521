"""What the engine wrote, file by file, against what ``kvbench blocksize --connector vllm-fs`` says of the same model.

The engine's block is set with --block-size; kvbench is told the same tokens with --block-tokens. Every prompt is longer
than a window of 256 tokens, so that windows matter.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Outcome
from tests.lab import engine

Kvbench = Callable[..., Outcome]

PROMPT_TOKENS = 300
NAME = re.compile(
    r"(?P<model>.+)_[0-9a-f]{12}_r0/(?P<a>[0-9a-f]{3})/(?P<b>[0-9a-f]{2})_g(?P<group>\d+)/(?P=a)(?P=b)[0-9a-f]{59}\.bin"
)


@dataclass(frozen=True)
class Case:
    """A model, the engine's --block-size (None: the platform's own) and --kv-cache-dtype."""

    model: str
    block: int | None
    dtype: str

    @property
    def name(self) -> str:
        """For pytest, and for the tier's folder."""
        return f"{self.model}-{self.block or 'own'}-{self.dtype}"


BLOCKS = (16, 32, 64, 128)
CASES = [
    Case(model, block, dtype) for model in ("gqa", "windowed", "mixed") for block in BLOCKS for dtype in ("auto", "fp8")
]
CASES += [Case("mla", None, "auto"), Case("mla", None, "fp8"), Case("gqa", None, "auto")]
# The CPU platform's attention takes multiples of 32, its latent attention only 16 and no fp8.
REFUSED = {case: "No common block size" for case in CASES if case.block == 16}
OWN_BLOCK = {"mla": 16, "gqa": engine.BLOCK_TOKENS}


@pytest.fixture(scope="session")
def answers(root: Path) -> dict[str, engine.Answer]:
    """What the engine did in each case, one after the other in one process."""
    return engine.trials(root, [_trial(root, case) for case in CASES])


def _trial(root: Path, case: Case) -> dict[str, Any]:
    tier = root / "tiers" / case.name
    tier.mkdir(parents=True)
    arguments: dict[str, Any] = {
        "model": str(engine.write_model(root, case.model)),
        "max_model_len": 1024,
        "dtype": "bfloat16",
        "kv_cache_dtype": case.dtype,
        "kv_transfer_config": engine.offloading("fs", tier, f"{root.name}-{case.name}"),
    }
    if case.block is not None:
        arguments["block_size"] = case.block
    prompt = list(range(3, 3 + PROMPT_TOKENS))
    return {"name": case.name, "arguments": arguments, "prompts": [prompt], "again": True, "settle_s": 1.0}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_engines_files_are_those_that_kvbench_says(
    case: Case, answers: dict[str, engine.Answer], root: Path, kvbench: Kvbench
) -> None:
    answer = answers[case.name]
    if case in REFUSED:
        assert answer.refused is not None
        assert REFUSED[case] in answer.refused[1]
        return
    assert answer.refused is None, answer.refused
    tokens = case.block or OWN_BLOCK[case.model]
    said = kvbench(
        "blocksize", root / "models" / case.model, "--connector", "vllm-fs", "--engine-version", "0.32",
        "--block-tokens", str(tokens), "--kv-dtype", case.dtype, "--context", str(PROMPT_TOKENS), "--json",
    ).json()["models"][0]["connectors"][0]  # fmt: skip
    tier = root / "tiers" / case.name
    written = _written(tier, root / "models" / case.model)
    wanted: Counter[tuple[int, int]] = Counter()
    for group in said["groups"]:
        wanted[group["index"], group["padded_bytes"]] = units(group, tokens)
    assert written == wanted
    # The first time nothing was there, the second time every whole block was.
    assert answer.cached_tokens == [[0], [PROMPT_TOKENS // tokens * tokens]]


def units(group: dict[str, Any], tokens: int) -> int:
    """Files of a group for the prompt."""
    return PROMPT_TOKENS // tokens


def _written(tier: Path, model: Path) -> Counter[tuple[int, int]]:
    """Files by group and size; every one has the engine's name, and its folder's config.json names the model."""
    found: Counter[tuple[int, int]] = Counter()
    for file in tier.rglob("*"):
        if file.is_dir() or file.name == "config.json":
            continue
        match = NAME.fullmatch(str(file.relative_to(tier)))
        assert match is not None, file
        assert match["model"] == str(model).replace("/", "_")
        found[int(match["group"]), file.stat().st_size] += 1
    (config,) = tier.glob("*/config.json")
    assert json.loads(config.read_text())["model_name"] == str(model)
    return found
