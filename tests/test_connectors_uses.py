"""From what a connector stores to the uses that are measured and decided, whichever connector is the default."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kvbench.connectors import DEFAULT_CONNECTOR, stored_layout
from kvbench.connectors.transfer import transfer
from kvbench.decide.restore import restore_tokens_per_s
from kvbench.run.plan import uses_of
from tests.conftest import Outcome
from tests.factories import measured
from tests.test_connectors import size

Run = Callable[..., Outcome]


@pytest.mark.parametrize("connector", ["logical", "vllm-fs", "vllm-obj", "vllm-disk", "llm-d-fs", "lmcache-disk"])
def test_a_use_reads_what_the_transfer_reads(connector: str) -> None:
    sized = size("llama-3.1-8b", tp=2)
    stored = stored_layout(sized, connector)
    (use,) = uses_of(sized, stored)

    assert (use.connector, use.parallelism_per_request) == (connector, stored.parallelism_per_request)
    assert use.units(8192) == transfer(stored, 8192).read.units


@pytest.mark.parametrize(("version", "growing", "windowed", "most"), [("0.24", 7, 0, 0), ("0.33", 1, 6, 6 * 64)])
def test_windowed_groups_stop_growing_where_the_engine_stops_reading(
    version: str, growing: int, windowed: int, most: int
) -> None:
    sized = size("gemma-3-27b-text")
    stored = stored_layout(sized, "vllm-fs", engine_version=version)
    (use,) = uses_of(sized, stored)

    assert (use.units_per_block, use.windowed_units, use.window_units) == (growing, windowed, most)
    # Of a prompt of whole blocks the engine leaves the last to be computed from 0.30 on; a use counts it.
    assert use.units(32_768) == transfer(stored, 32_768).read.units + (version == "0.33")


def test_a_hybrid_use_counts_its_enlarged_block() -> None:
    sized = size("qwen3-next-80b-a3b", tp=4)
    (use,) = uses_of(sized, stored_layout(sized, "vllm-fs", engine_version="0.28"))

    assert (use.block_tokens, use.units_per_block, use.windowed_units, use.window_units) == (272, 1, 3, 3)


def test_a_model_with_windows_alone_has_no_speed_to_beat_on_long_prompts() -> None:
    sized = size("mistral-7b-v0.1(sw4096)")
    (use,) = uses_of(sized, stored_layout(sized, "vllm-fs"))

    assert (use.units_per_block, use.units(1_000_000)) == (0, 256)
    assert restore_tokens_per_s(use, measured(100.0), 1) is None


def test_jobs_name_the_connector_and_measure_its_parallelism(kvbench: Run, tier: Path) -> None:
    arguments = ("jobs", "--tier", tier, "--model", "gpt-oss-120b", "--tp", "2", "--dataset", "4GiB")
    out = kvbench(*arguments, "--connector", "vllm-fs", "--engine-version", "0.24").out

    assert out.startswith(
        "; openai/gpt-oss-120b, TP 2, bfloat16: vllm-fs of vLLM 0.24.0 makes 2 x 589824 bytes for 16 tokens, "
        "32 in flight for one request\n"
    )
    assert "bs=589824" in out
    assert [out.count(f"numjobs={jobs}\n") for jobs in (1, 16, 32)] == [3, 3, 3]


def test_the_published_method_stays_the_published_method(kvbench: Run, tier: Path) -> None:
    arguments = ("jobs", "--tier", tier, "--model", "gpt-oss-120b", "--tp", "2")
    out = kvbench(*arguments, "--published").out

    assert out == kvbench(*arguments, "--published", "--connector", "logical", "--numjobs", "1,16").out
    assert "bs=1179648" in out


def test_without_a_connector_the_default_is_taken(kvbench: Run, tier: Path) -> None:
    arguments = ("jobs", "--tier", tier, "--model", "qwen3-8b", "--dataset", "4GiB")

    assert kvbench(*arguments).out == kvbench(*arguments, "--connector", DEFAULT_CONNECTOR).out


def test_a_job_file_as_json_is_the_same_text_with_its_points_and_uses(kvbench: Run, tier: Path, tmp_path: Path) -> None:
    arguments = ("jobs", "--tier", tier, "--model", "qwen3-8b", "--numjobs", "1,4", "--dataset", "1GiB")
    text, data = kvbench(*arguments).out, kvbench(*arguments, "--json").json()
    assert (data["job"], data["file"]) == (text, None)
    assert [(point["mix"], point["numjobs"]) for point in data["points"]] == [
        (mix, jobs) for mix in ("mixed", "read", "write") for jobs in (1, 4)
    ]
    assert {use["io_bytes"] for use in data["uses"]} == {point["io_bytes"] for point in data["points"]} == {2359296}
    written = tmp_path / "kv.fio"
    assert kvbench(*arguments, "--json", "-o", written).json()["file"] == str(written)
    assert written.read_text() == text
