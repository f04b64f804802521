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

# One that ends within a block, and one of whole blocks of every size.
PROMPTS = (300, 384)
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
# The CPU platform's attention takes multiples of 32 tokens, its latent attention no fp8.
REFUSED = {Case("gqa", 16, dtype): "No common block size" for dtype in ("auto", "fp8")}
REFUSED[Case("mla", None, "fp8")] = "fp8 KV cache for CPU MLA is not yet implemented"
# With windows the engine takes 32 where 16 is asked for, without a word.
TAKEN = {Case(model, 16, dtype): 32 for model in ("windowed", "mixed") for dtype in ("auto", "fp8")}


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
    prompts = [list(range(number, number + tokens)) for number, tokens in enumerate(PROMPTS, 3)]
    return {"name": case.name, "arguments": arguments, "prompts": prompts, "again": True, "settle_s": 1.0}


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
    tier = root / "tiers" / case.name
    (config,) = (json.loads(file.read_text()) for file in tier.glob("*/config.json"))
    tokens = config["tokens_per_hash"]
    assert (config["model_name"], tokens) == (str(root / "models" / case.model), TAKEN.get(case, case.block or tokens))
    said = kvbench(
        "blocksize", root / "models" / case.model, "--connector", "vllm-fs", "--engine-version", "0.32",
        "--block-tokens", str(tokens), "--kv-dtype", case.dtype, "--context", ",".join(map(str, PROMPTS)), "--json",
    ).json()["models"][0]["connectors"][0]  # fmt: skip
    groups = said["groups"]
    written = _written(tier, root / "models" / case.model)
    assert written.keys() == {(group["index"], group["padded_bytes"]) for group in groups}
    assert written.total() == sum(request["units_written"] for request in said["requests"])
    for group in groups:
        if not group["newest_only"]:
            assert written[group["index"], group["padded_bytes"]] == sum(length // tokens for length in PROMPTS)
    # The first time nothing was there. Windows leave the block of the last token to be computed.
    left = 1 if any(group["newest_only"] for group in groups) else 0
    assert answer.cached_tokens == [[0, 0], [(length - left) // tokens * tokens for length in PROMPTS]]


def _written(tier: Path, model: Path) -> Counter[tuple[int, int]]:
    """Files by group and size; every one has the engine's name."""
    found: Counter[tuple[int, int]] = Counter()
    for file in tier.rglob("*"):
        if file.is_dir() or file.name == "config.json":
            continue
        match = NAME.fullmatch(str(file.relative_to(tier)))
        assert match is not None, file
        assert match["model"] == str(model).replace("/", "_")
        found[int(match["group"]), file.stat().st_size] += 1
    return found
