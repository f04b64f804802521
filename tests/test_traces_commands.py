"""``kvbench trace`` and ``kvbench workingset``: what they print, write and refuse."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT, SHARED_DATA, Outcome

Kvbench = Callable[..., Outcome]

DATA = ROOT / "tests" / "data" / "traces"
MOONCAKE = DATA / "mooncake.jsonl"
BLOCK = 72 << 20  # 512 tokens of Qwen3-8B


def test_info_says_what_a_trace_holds(kvbench: Kvbench) -> None:
    shown = kvbench("trace", "info", MOONCAKE)
    assert shown.code == 0
    assert shown.out.splitlines()[0].endswith("mooncake.jsonl: mooncake")
    for text in ("11 of 512 tokens, 6 different", "49.26% of prompt tokens", "37.50% of their blocks", "90.0 s"):
        assert text in shown.out
    found = kvbench("trace", "info", MOONCAKE, "--json").json()
    assert found["format"] == "mooncake"
    assert found["trace"]["ideal_hit_rate"] == (4 * 512 + 76) / 4312
    assert found["trace"]["unchained"] == 0
    assert found["trace"]["blocks_for_share"][-1] == {"share": 1.0, "capacity_blocks": 5}
    assert found["broken"] == {"lines": 4, "count": 0, "first": []}


def test_broken_lines_and_ids_that_are_no_prefix_hashes_are_said(kvbench: Kvbench, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    rows = [{"input_length": 1024, "hash_ids": ids} for ids in ([1, 2], [3, 2])]
    path.write_text("\n".join(["{", *map(json.dumps, rows)]))
    shown = kvbench("trace", "info", path)
    assert shown.code == 0
    assert "1 of 3 lines" in shown.err
    assert "line 1: " in shown.err
    assert "no hashes of whole prefixes" in shown.out


def test_nothing_is_said_of_reuse_where_nothing_is_known(kvbench: Kvbench) -> None:
    found = kvbench("trace", "info", DATA / "azure.csv", "--json").json()["trace"]
    assert (found["reuse"], found["ideal_hit_rate"], found["blocks_for_share"]) == ("nothing", None, [])
    refused = kvbench("workingset", DATA / "azure.csv")
    assert refused.code == 2
    assert "nothing is known of reuse" in refused.err


def test_made_traces_are_the_same_for_the_same_seed_and_are_read_back(kvbench: Kvbench, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.jsonl", "b.jsonl", "c.jsonl")]
    for path, seed in zip(paths, ("1", "1", "2"), strict=True):
        made = ("--conversation-num", "20", "--isl-block-size", "128", "--random-seed", seed)
        assert kvbench("trace", "make", "-o", path, *made).code == 0
    assert paths[0].read_bytes() == paths[1].read_bytes() != paths[2].read_bytes()
    rows = [json.loads(line) for line in paths[0].read_text().splitlines()]
    assert [row["timestamp"] for row in rows] == sorted(row["timestamp"] for row in rows)
    found = kvbench("trace", "info", paths[0], "--json").json()
    assert found["trace"]["requests"] == len(rows)
    assert found["trace"]["block_tokens"] == 128
    assert found["trace"]["unchained"] == found["broken"]["count"] == 0
    assert found["trace"]["sessions"] == len({row["session_id"] for row in rows})
    refused = kvbench("trace", "make", "-o", paths[0])
    assert refused.code == 2
    assert "exists" in refused.err


def test_a_made_trace_has_what_was_asked_for(kvbench: Kvbench, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    plain = (
        "--conversation-turn-mean",
        "3",
        "--conversation-turn-stddev",
        "0",
        "--conversation-turn-delay-mean",
        "1000",
    )
    exact = ("--isl", "512", "--isl-stddev", "0", "--osl", "512", "--osl-stddev", "0", "--num-prefix-prompts", "1")
    alone = ("--conversation-turn-delay-stddev", "0", "--subagent-ratio", "0", "--user-context-prompt-length", "0")
    many = ("--conversation-num", "50", "--shared-system-prompt-length", "1024")
    assert kvbench("trace", "make", "-o", path, *plain, *exact, *alone, *many).code == 0
    found = kvbench("trace", "info", path, "--json").json()["trace"]
    # Prompts of 3, 5 and 7 blocks; two are shared by all, and each turn finds the prompt of the one before it.
    assert (found["requests"], found["blocks"], found["unique_blocks"]) == (150, 50 * 15, 2 + 50 * 5)
    assert found["ideal_hit_blocks"] == 50 * 15 - 2 - 50 * 5
    assert found["output_tokens"] == 150 * 512


def test_subagents_branch_off_from_the_prompt_before_them(kvbench: Kvbench, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    assert kvbench("trace", "make", "-o", path, "--conversation-num", "8", "--subagent-ratio", "0.5").code == 0
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    branches = [row for row in rows if "/" in row["session_id"]]
    assert branches
    for row in branches:
        parent = row["session_id"].rpartition("/")[0]
        before = [other for other in rows if other["session_id"] == parent and other["timestamp"] <= row["timestamp"]]
        assert any(other["hash_ids"][: other["input_length"] // 512] == row["hash_ids"][: other["input_length"] // 512]
                   for other in before)  # fmt: skip


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--conversation-num", "0"),
        ("--request-rate", "0"),
        ("--subagent-ratio", "2"),
        ("--isl", "-1"),
        ("--osl", "nan"),
    ],
)
def test_an_impossible_recipe_is_refused_before_anything_is_written(
    option: str, value: str, kvbench: Kvbench, tmp_path: Path
) -> None:
    refused = kvbench("trace", "make", "-o", tmp_path / "t.jsonl", option, value)
    assert refused.code == 2
    assert "--" in refused.err
    assert not (tmp_path / "t.jsonl").exists()


def test_workingset_at_chosen_capacities(kvbench: Kvbench) -> None:
    asked = ("--model", "qwen3-8b", "--capacity", "cpu=144MiB,200MiB", "--capacity-blocks", "1,5")
    found = kvbench("workingset", MOONCAKE, *asked, "--json").json()
    assert found["trace"]["ideal_hit_rate"] == (4 * 512 + 76) / 4312
    assert {"requests", "prompt_tokens", "block_tokens", "blocks"} <= set(found["trace"])
    assert (found["block_bytes"], found["request_end_bytes"]) == (BLOCK, 0)
    points = [(one["name"], one["capacity_bytes"], one["capacity_blocks"], one["hit_blocks"]) for one in found["curve"]]
    assert points == [
        ("cpu", 2 * BLOCK, 2, 4),
        (None, 200 << 20, 2, 4),
        (None, BLOCK, 1, 2),
        (None, 5 * BLOCK, 5, 5),
    ]
    assert found["curve"][0]["hit_tokens"] == 4 * 512
    assert found["curve"][0]["hit_rate"] == 4 * 512 / 4312
    assert [one["window_s"] for one in found["working_set"]] == [60, 300, 1800, 3600]
    assert found["working_set"][0] == {
        "window_s": 60, "touched_blocks": [5, 4], "reused_blocks": [2, 0], "touched_bytes": [5 * BLOCK, 4 * BLOCK],
    }  # fmt: skip


def test_tensor_parallelism_that_copies_heads_makes_blocks_heavier(kvbench: Kvbench) -> None:
    sizes = [
        kvbench("workingset", MOONCAKE, "--model", "qwen3-8b", "--tp", tp, "--json").json()["block_bytes"]
        for tp in ("1", "8", "16")
    ]
    assert sizes == [BLOCK, BLOCK, 2 * BLOCK]


def test_windows_and_states_weigh_at_the_end_of_requests_only(kvbench: Kvbench) -> None:
    found = kvbench("workingset", MOONCAKE, "--model", "gpt-oss-120b", "--capacity", "40MiB,1GiB", "--json").json()
    full, end = 512 * 36_864, 128 * 36_864
    assert (found["block_bytes"], found["request_end_bytes"]) == (full, end)
    # 40 MiB hold two blocks, and what hits them needs no end: as many hits as two blocks have.
    assert [(one["capacity_blocks"], one["hit_blocks"]) for one in found["curve"]] == [(2, 4), (5, 5)]
    # All that is ever needed: 9 and 8 and 7 of the first prompt, 11 and 10 of the second with its end.
    needs = [one["capacity_bytes"] for one in found["shares"]]
    assert needs[-1] == 5 * full + 2 * end
    shown = kvbench("workingset", MOONCAKE, "--model", "gpt-oss-120b")
    assert "more (windows and state) until a later request goes on from there" in shown.out


def test_without_a_model_the_curve_is_in_blocks(kvbench: Kvbench) -> None:
    found = kvbench("workingset", MOONCAKE, "--json").json()
    assert found["model"] is None
    assert [(one["capacity_blocks"], one["capacity_bytes"]) for one in found["curve"]] == [(4, None), (8, None)]
    shown = kvbench("workingset", MOONCAKE)
    assert shown.code == 0
    assert "LRU hit rate by capacity" in shown.out


@pytest.mark.slow
def test_tables_and_figures_are_written_and_agree(kvbench: Kvbench, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    asked = ("--model", "qwen3-8b", "--capacity", "<b>=144MiB,nvme=1GiB")
    assert kvbench("workingset", MOONCAKE, *asked, "-o", folder).code == 0
    names = {path.name for path in folder.iterdir()}
    figures, tables = ("hit-rate", "traffic", "working-set"), ("curve", "shares", "windows")
    assert names == {
        "workingset.json",
        *(f"{name}.{suffix}" for name in figures for suffix in ("svg", "png", "csv", "json")),
        *(f"{name}.{suffix}" for name in tables for suffix in ("csv", "json")),
    }
    printed = json.loads((folder / "workingset.json").read_text())
    with (folder / "hit-rate.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["hit_blocks"]) for row in rows] == [one["hit_blocks"] for one in printed["curve"]] == [4, 5]
    assert [row["name"] for row in rows] == ["<b>", "nvme"]
    with (folder / "traffic.csv").open() as file:
        moved = [(row["name"], int(row["read_bytes"]), int(row["written_bytes"])) for row in csv.DictReader(file)]
    assert sum(read for name, read, _ in moved if "nvme" in name) == 5 * BLOCK
    assert sum(written for name, _, written in moved if "nvme" in name) == 6 * BLOCK
    for name in figures:
        drawn = (folder / f"{name}.svg").read_text()
        assert drawn.startswith("<svg xmlns=")
        assert "var(--" not in drawn
        assert "#0101" not in drawn
        assert "#0201" not in drawn
        assert "<b>" not in drawn
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    again = kvbench("workingset", MOONCAKE, "-o", folder)
    assert again.code == 2
    assert "name a new folder" in again.err


@pytest.mark.slow
def test_a_trace_with_a_wrong_time_is_not_cut_into_millions_of_windows(kvbench: Kvbench, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    rows = [{"timestamp": at, "input_length": 10, "hash_ids": [1]} for at in (0, 1_700_000_000_000)]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert kvbench("workingset", path, "--json").json()["working_set"] == []
    shown = kvbench("workingset", path, "--window", "1,10000", "--model", "qwen3-8b", "-o", tmp_path / "out")
    assert shown.code == 0
    assert "Windows of 1 min are left out" in shown.out


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 3])
def test_figures_of_traces_in_which_hardly_anything_happens(rows: int, kvbench: Kvbench, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    line = json.dumps({"timestamp": 0, "input_length": 10, "hash_ids": []})
    line = line.replace("[]", "[5]") if rows > 1 else line.replace('"hash_ids": []', '"hash_ids": [1]')
    path.write_text(f"{line}\n" * rows)
    asked = ("--model", "qwen3-8b", "--capacity", "1B,1PB", "-o", tmp_path / "out")
    assert kvbench("workingset", path, *asked).code == 0
    assert (tmp_path / "out" / "traffic.png").is_file()


@pytest.mark.slow
def test_a_sample_shows_its_error(kvbench: Kvbench, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    made = ("--conversation-num", "300", "--isl-block-size", "64")
    assert kvbench("trace", "make", "-o", path, *made).code == 0
    asked = ("--model", "qwen3-8b", "--capacity", "8GiB", "--sample", "20%")
    found = kvbench("workingset", path, *asked, "--json").json()
    (point,) = found["curve"]
    assert point["hit_rate_low"] < point["hit_rate"] < point["hit_rate_high"]
    assert found["sampling"]["rate"] == 0.2
    assert 0 < found["sampling"]["references"] < found["trace"]["blocks"]
    shown = kvbench("workingset", path, *asked)
    assert "% to " in shown.out
    assert "Estimated from" in shown.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--capacity", "1GiB"), "--capacity needs --model"),
        (("--model", "qwen3-8b", "--capacity", "5G"), "ambiguous"),
        (("--model", "qwen3-8b", "--capacity", "cpu=0"), "is nothing"),
        (("--model", "qwen3-8b", "--capacity", ","), "names no size"),
        (("--capacity-blocks", "0"), "whole numbers from 1"),
        (("--window", "x"), "whole numbers from 1"),
        (("--sample", "2"), "share between"),
        (("--sample", "50%"), "too few to say"),
        (
            (
                "--model",
                "no-such-model",
            ),
            "no-such-model",
        ),
        (("--model", "qwen3-8b", "--tp", "3"), "TP 3"),
        (("--format", "x"), "choose from mooncake, weka"),
    ],
)
def test_what_cannot_be_answered_is_refused(arguments: tuple[str, ...], message: str, kvbench: Kvbench) -> None:
    refused = kvbench("workingset", MOONCAKE, *arguments)
    assert refused.code == 2
    assert message in refused.err or message.replace("mooncake, weka", "bailian, mooncake") in refused.err
    assert "Traceback" not in refused.err


def test_help_has_an_example(kvbench: Kvbench) -> None:
    for words in (("trace", "info"), ("trace", "make"), ("workingset",)):
        shown = kvbench(*words, "--help")
        assert shown.code == 0
        assert f"Example: kvbench {' '.join(words)} " in " ".join(shown.out.split())


def test_mistakes_in_a_subcommand_point_to_its_own_help(kvbench: Kvbench) -> None:
    assert "See 'kvbench trace info --help'" in kvbench("trace", "info", "--no-such-option").err
    assert "See 'kvbench trace --help'" in kvbench("trace", "nothing").err


@pytest.mark.slow
@pytest.mark.parametrize(("size", "hits"), [(5859, 39_258), (100, 12_071), (97_656, 104_870)])
def test_the_public_trace_through_the_command(size: int, hits: int, kvbench: Kvbench) -> None:
    path = SHARED_DATA / "traces" / "mooncake" / "conversation_trace.jsonl"
    if not path.is_file():
        pytest.skip("the public traces are not here")
    asked = ("--model", "qwen3-8b", "--tp", "2", "--capacity", f"{size * BLOCK}B", "--capacity-blocks", str(size))
    points = kvbench("workingset", path, *asked, "--json").json()["curve"]
    assert [(one["capacity_blocks"], one["hit_blocks"]) for one in points] == [(size, hits)] * 2
    assert points[0]["capacity_bytes"] == points[1]["capacity_bytes"] == size * BLOCK
