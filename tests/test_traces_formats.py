"""Readers of traces: every format, packed or not, what is broken in them, and that no input ends in a traceback."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvbench.errors import InputFileError, KvbenchError, UsageError
from kvbench.formats import traces
from kvbench.formats.traces import FORMATS, load, text
from kvbench.formats.traces.head import Options
from kvbench.formats.traces.record import dense
from kvbench.traces.curve import reuse_curve
from tests.conftest import ROOT

DATA = ROOT / "tests" / "data" / "traces"
TOKENIZER = DATA / "tokenizer"


def blocks(loaded: traces.Loaded) -> list[list[int]]:
    own = loaded.trace
    return [own.blocks[start:end].tolist() for start, end in zip(own.first[:-1], own.first[1:], strict=True)]


def write(path: Path, *lines: str | bytes) -> Path:
    path.write_bytes(b"\n".join(line.encode() if isinstance(line, str) else line for line in lines) + b"\n")
    return path


def line(ids: list[int], tokens: int, **more: object) -> str:
    return json.dumps({"timestamp": 0, "input_length": tokens, "output_length": 1, "hash_ids": ids, **more})


def test_mooncake() -> None:
    loaded = load(DATA / "mooncake.jsonl", Options())
    own = loaded.trace
    assert (loaded.format, own.block_tokens, own.reuse) == ("mooncake", 512, "hashes")
    assert blocks(loaded) == [[0, 1, 2], [0, 1, 3, 4], [0, 1, 2], [5]]
    assert own.arrival_s is not None
    assert own.arrival_s.tolist() == [0, 30, 61, 90]
    assert own.prompt_tokens.tolist() == [1100, 1600, 1100, 512]
    assert own.output_tokens.tolist() == [10, 20, 30, 40]
    assert own.session.tolist() == [-1] * 4
    assert own.reference_tokens().tolist() == [512, 512, 76, 512, 512, 512, 64, 512, 512, 76, 512]
    curve, _ = reuse_curve(own)
    assert (curve.ideal.blocks, curve.ideal.tokens) == (5, 4 * 512 + 76)


def test_bailian_finds_the_chats_that_belong_together() -> None:
    loaded = load(DATA / "bailian.jsonl", Options())
    own = loaded.trace
    assert (loaded.format, own.block_tokens) == ("bailian", 16)
    assert own.session.tolist() == [0, 0, 0, 1]
    assert own.arrival_s is not None
    assert own.arrival_s.tolist() == [0, 9, 19, 20]
    assert blocks(loaded)[2] == [0, 1, 3, 4, 5]


def test_agent_sessions_have_subagents_in_their_own_time_and_sessions() -> None:
    loaded = load(DATA / "weka.json", Options())
    own = loaded.trace
    assert (loaded.format, own.block_tokens) == ("weka", 64)
    assert own.arrival_s is not None
    assert own.arrival_s.tolist() == [0, 4, 5, 7]
    assert blocks(loaded) == [[0, 1], [3], [0, 1, 2], [3, 4]]
    assert own.session.tolist() == [0, 1, 0, 1]
    assert own.prompt_tokens.tolist() == [130, 64, 200, 190]


def test_agent_sessions_on_lines_and_in_folders_are_the_same(tmp_path: Path) -> None:
    whole = json.loads((DATA / "weka.json").read_text())
    other = {**whole, "id": "two"}
    rows = write(tmp_path / "rows.jsonl", json.dumps(whole), json.dumps(other))
    folder = tmp_path / "folder"
    folder.mkdir()
    write(folder / "a.json", json.dumps(whole, indent=1))
    (folder / "b.json.gz").write_bytes(gzip.compress(json.dumps(other).encode()))
    write(folder / "README.md", "not a trace")
    # Equal ids of two sessions are different blocks, and requests at the same time stand in the order of the files.
    for path in (rows, folder):
        own = load(path, Options())
        assert own.trace.unique_blocks == 10
        assert blocks(own)[:4] == [[0, 1], [5, 6], [3], [8]]
        assert own.broken.lines == 2


def test_a_session_is_taken_whole_or_not_at_all(tmp_path: Path) -> None:
    whole = json.loads((DATA / "weka.json").read_text())
    bad = json.loads((DATA / "weka.json").read_text())
    bad["requests"][2]["hash_ids"] = [1, 2]
    loaded = load(write(tmp_path / "t.jsonl", json.dumps(bad), json.dumps(whole)), Options())
    assert loaded.trace.requests == 4
    assert loaded.broken.first == ["line 1: 2 blocks of 64 tokens are not a prompt of 200 tokens (--block-tokens)"]


def test_a_prompt_log_with_sessions_takes_prompts_to_grow() -> None:
    loaded = load(DATA / "prompts.csv", Options())
    own = loaded.trace
    assert (loaded.format, own.reuse, own.block_tokens) == ("prompt-log", "sessions", 16)
    assert blocks(loaded) == [[0, 1], [4], [0, 1, 2, 3], [0, 1]]
    assert own.arrival_s is not None
    assert own.arrival_s.tolist() == [0, 10, 60, 120]
    assert own.output_tokens.tolist() == [5, 5, 5, -1]
    assert load(DATA / "prompts.csv", Options(block_tokens=32)).trace.references == 1 + 0 + 2 + 1


def test_a_prompt_log_as_json_lines_is_the_same(tmp_path: Path) -> None:
    rows = [
        {"timestamp_ms": 500, "session_id": "a", "prompt_tokens": 40},
        {"timestamp_ms": 1500, "session_id": 7, "prompt_tokens": 33.0, "completion_tokens": 2},
    ]
    own = load(write(tmp_path / "log.jsonl", *map(json.dumps, rows)), Options()).trace
    assert own.arrival_s is not None
    assert (own.arrival_s.tolist(), own.references, own.output_tokens.tolist()) == ([0, 1], 4, [-1, 2])


def test_a_time_beyond_all_numbers_is_a_broken_line(tmp_path: Path) -> None:
    lines = [f'{{"timestamp": {"9" * digits}, "prompt_tokens": 40}}' for digits in (400, 9)]
    loaded = load(write(tmp_path / "log.jsonl", lines[0], *[lines[1]] * 99), Options())
    assert loaded.trace.requests == 99


def test_a_prompt_log_without_sessions_says_nothing_of_reuse() -> None:
    own = load(DATA / "azure.csv", Options()).trace
    assert (own.reuse, own.references, own.requests) == ("nothing", 0, 2)
    assert own.arrival_s is not None
    assert own.arrival_s[1] == pytest.approx(0.052)


def test_texts_are_hashed_with_the_tokenizer_and_its_template() -> None:
    pytest.importorskip("tokenizers", reason="the tokenizers library is not installed")
    loaded = load(DATA / "openai.jsonl", Options(block_tokens=4, tokenizer=TOKENIZER))
    own = loaded.trace
    # <s> system a b | c d e f | g h user i | j assistant, with k l m n before the last word of the second.
    assert own.prompt_tokens.tolist() == [14, 19, 5]
    assert blocks(loaded) == [[0, 1, 2], [0, 1, 2, 3], [4]]
    assert own.session.tolist() == [0, 0, -1]
    assert loaded.broken.count == 0


def test_texts_without_a_template_are_joined(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="the tokenizers library is not installed")
    alone = tmp_path / "tokenizer.json"
    alone.write_text((TOKENIZER / "tokenizer.json").read_text())
    loaded = load(DATA / "openai.jsonl", Options(block_tokens=4, tokenizer=alone))
    assert loaded.trace.prompt_tokens.tolist() == [12, 17, 5]


def test_a_message_that_is_no_text_is_a_broken_line(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="the tokenizers library is not installed")
    image = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}
    path = write(
        tmp_path / "t.jsonl", json.dumps(image), json.dumps({"prompt": "a b c d"}), json.dumps({"prompt": None})
    )
    loaded = load(path, Options(tokenizer=TOKENIZER))
    assert [reason.partition(": ")[2] for reason in loaded.broken.first] == [
        "a message holds a part that is no text",
        "it has neither messages nor a prompt",
    ]


@pytest.mark.parametrize(
    ("place", "content", "message"),
    [
        ("tokenizer.json", "{}", "is no tokenizer"),
        ("tokenizer_config.json", "{", "is no JSON"),
        ("tokenizer_config.json", '{"chat_template": "{% for %}"}', "chat template"),
        ("tokenizer.json", None, "does not exist"),
    ],
)
def test_a_broken_tokenizer_is_refused(place: str, content: str | None, message: str, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="the tokenizers library is not installed")
    for file in TOKENIZER.iterdir():
        (tmp_path / file.name).write_text(file.read_text())
    (tmp_path / place).unlink()
    if content is not None:
        (tmp_path / place).write_text(content)
    with pytest.raises(InputFileError, match=message):
        load(DATA / "openai.jsonl", Options(tokenizer=tmp_path))


def test_a_template_cannot_reach_out_of_its_sandbox(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="the tokenizers library is not installed")
    (tmp_path / "tokenizer.json").write_text((TOKENIZER / "tokenizer.json").read_text())
    template = "{{ messages.__class__.__mro__[1].__subclasses__() }}"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    path = write(tmp_path / "t.jsonl", json.dumps({"messages": [{"role": "user", "content": "a"}]}))
    with pytest.raises(InputFileError, match="the chat template refuses it"):
        load(path, Options(tokenizer=tmp_path))


def test_texts_without_a_tokenizer_are_refused() -> None:
    with pytest.raises(UsageError, match="--tokenizer"):
        load(DATA / "openai.jsonl", Options())


def zstd_packed(content: bytes) -> bytes:
    backport = pytest.importorskip("backports.zstd", reason="backports.zstd is not installed")
    packed: bytes = backport.compress(content)
    return packed


@pytest.mark.parametrize("pack", [gzip.compress, zstd_packed, lambda content: b"\xef\xbb\xbf" + content])
def test_packed_files_read_the_same(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    # Told by the first bytes: the name says nothing.
    path = tmp_path / "trace"
    path.write_bytes(pack((DATA / "mooncake.jsonl").read_bytes()))
    assert blocks(load(path, Options())) == [[0, 1, 2], [0, 1, 3, 4], [0, 1, 2], [5]]


@pytest.mark.parametrize("pack", [gzip.compress, zstd_packed])
def test_a_packed_file_that_is_cut_off_is_refused(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    content = pack("".join(line([number], 512) + "\n" for number in range(4000)).encode())
    path = tmp_path / "trace"
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(InputFileError, match="copy the file again"):
        load(path, Options())


def test_broken_lines_are_named_and_counted(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.jsonl",
        "{",
        line([1], 100),
        "[]",
        line([1, 2, 3], 100),
        line([1], -5),
        line([], 0),
        "",
        line([1], 100, timestamp="soon"),
        b"\xff\xfe",
        line([1], 512),
    )
    loaded = load(path, Options())
    assert (loaded.trace.requests, loaded.broken.lines, loaded.broken.count) == (3, 9, 6)
    assert [found.partition(":")[0] for found in loaded.broken.first] == [
        "line 1",
        "line 3",
        "line 4",
        "line 5",
        "line 8",
    ]
    assert "3 blocks of 512 tokens are not a prompt of 100 tokens" in loaded.broken.first[2]
    assert "input_length" in loaded.broken.first[3]


@pytest.mark.parametrize(
    ("broken", "whole", "refused"), [(10, 2, False), (11, 2, True), (11, 300, False), (16, 300, True)]
)
def test_too_many_broken_lines_are_refused(broken: int, whole: int, refused: bool, tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", *[line([1], 100)] * whole, *["{"] * broken)
    if refused:
        with pytest.raises(InputFileError, match=rf"{broken} of {whole + broken} lines are broken"):
            load(path, Options())
    else:
        assert load(path, Options()).broken.count == broken


def test_a_hopeless_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", line([1], 100), *["{"] * 5000)
    with pytest.raises(InputFileError, match="1001 of 1002 lines"):
        load(path, Options())


def test_a_line_that_is_too_long_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "LONGEST_LINE_BYTES", 1000)
    path = write(tmp_path / "t.jsonl", line([1], 100), "x" * 3_000_000, line([1], 100), "y" * 999)
    loaded = load(path, Options())
    assert loaded.trace.requests == 2
    assert loaded.broken.first[0].startswith("line 2: it is longer than")
    assert loaded.broken.count == 2


def test_requests_are_put_in_order_of_arrival(tmp_path: Path) -> None:
    rows = [line([5, 6], 1000, timestamp=3000), line([5], 512, timestamp=1000), line([7], 9, timestamp=1000)]
    loaded = load(write(tmp_path / "t.jsonl", *rows), Options())
    assert blocks(loaded) == [[0], [2], [0, 1]]
    assert loaded.trace.arrival_s is not None
    assert loaded.trace.arrival_s.tolist() == [0, 0, 2]
    assert loaded.trace.prompt_tokens.tolist() == [512, 9, 1000]


def test_a_trace_of_which_one_request_has_no_time_keeps_its_order(tmp_path: Path) -> None:
    rows = [line([5], 512, timestamp=3000), line([6], 512, timestamp=None), line([7], 512, timestamp=1000)]
    loaded = load(write(tmp_path / "t.jsonl", *rows), Options())
    assert loaded.trace.arrival_s is None
    assert blocks(loaded) == [[0], [1], [2]]


@pytest.mark.parametrize(
    "ids",
    [[1, 2, 3], ["a", "b", "c"], [2**63, 5, 2**70], [-(2**62), 0, 9], [10**15, 3, 10**12]],
)
def test_any_kind_of_id_is_a_block(ids: list[object], tmp_path: Path) -> None:
    rows = [{"timestamp": at, "input_length": 1536, "hash_ids": order} for at, order in enumerate((ids, ids[::-1]))]
    loaded = load(write(tmp_path / "t.jsonl", *map(json.dumps, rows)), Options())
    first, second = blocks(loaded)
    assert (second, loaded.trace.unique_blocks) == (first[::-1], 3)


def test_lines_may_say_how_large_blocks_are(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", line([1, 2], 20, block_size=16), line([1], 16), line([1, 2], 20, block_size=8))
    loaded = load(path, Options())
    assert (loaded.trace.block_tokens, loaded.trace.requests, loaded.broken.count) == (16, 2, 1)
    assert load(write(tmp_path / "u.jsonl", line([1, 2], 20)), Options(block_tokens=16)).trace.block_tokens == 16


def test_wrong_blocks_are_refused_with_the_option_that_helps(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", *[line(list(range(64)), 1024)] * 20)
    with pytest.raises(InputFileError, match="--block-tokens"):
        load(path, Options())
    assert load(path, Options(block_tokens=16)).trace.references == 20 * 64


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    empty = write(tmp_path / "empty.jsonl")
    for path, message in (
        (empty, "is no trace that kvbench knows"),
        (ROOT / "README.md", "is no trace that kvbench knows"),
        (tmp_path / "absent", "cannot be read"),
        (DATA / "tokenizer" / "tokenizer.json", "is no trace that kvbench knows"),
    ):
        with pytest.raises(InputFileError, match=message):
            load(path, Options())
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputFileError, match=r"holds no \.json"):
        load(tmp_path / "folder", Options())
    with pytest.raises(UsageError, match="choose from"):
        load(DATA / "mooncake.jsonl", Options(), "moon")
    with pytest.raises(InputFileError, match="holds no request"):
        load(empty, Options(), "mooncake")
    with pytest.raises(UsageError, match="leave out --block-tokens"):
        load(DATA / "weka.json", Options(block_tokens=16))


def test_a_pipe_is_refused_before_it_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputFileError, match="is a pipe or a device"):
        load(tmp_path / "pipe", Options())


def test_a_folder_of_separate_traces_is_refused(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        write(tmp_path / name, line([1], 100))
    with pytest.raises(UsageError, match="name one of them"):
        load(tmp_path, Options())


SCRAPS = st.sampled_from(
    [
        *(b'{"hash_ids": ', b"[1, 2]", b'"input_length": 1024', b", ", b"}", b"]", b"\n", b'"', b"1e999", b"NaN"),
        *(b'{"requests": [', b'"block_size": 64', b'"messages": [{}]', b"prompt_tokens,session_id", b"5,a"),
        *(b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"[" * 100_000, b'{"prompt_tokens": [], "session_id": {}}'),
        b'{"timestamp": true, "input_length": 1, "hash_ids": [1]}',
    ]
)


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(SCRAPS | st.binary(max_size=12), max_size=14), st.sampled_from([None, *FORMATS]))
def test_no_input_crashes(tmp_path: Path, parts: list[bytes], name: str | None) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"".join(parts))
    try:
        loaded = load(path, Options(tokenizer=TOKENIZER), name)
    except KvbenchError:
        return
    assert loaded.trace.requests >= 1


def test_a_line_that_is_no_csv_is_broken(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", "prompt_tokens,session_id", '"5,a', "5", "6,b", "-1,c", "x,d", "7" * 400 + ",e")
    loaded = load(path, Options())
    assert (loaded.trace.requests, loaded.broken.count) == (1, 5)
    assert "no CSV" in loaded.broken.first[0]
    assert "1 cells where 2 columns" in loaded.broken.first[1]


def test_every_format_has_a_file_here_and_is_told_apart() -> None:
    found = {
        load(DATA / name, Options()).format for name in ("mooncake.jsonl", "bailian.jsonl", "weka.json", "prompts.csv")
    }
    assert found | {"openai"} == set(FORMATS)


def test_dense_numbers_keep_what_is_equal() -> None:
    import numpy as np

    for ids in ([5, 3, 5, 9], [10**15, -4, 10**15], []):
        numbers, unique = dense(np.array(ids, np.int64))
        assert unique == len(set(ids))
        pairs = list(zip(ids, numbers.tolist(), strict=True))
        assert len(set(pairs)) == unique == len(set(numbers.tolist()))


@pytest.mark.parametrize("column", ["prompt_tokens", "output_tokens"])
@pytest.mark.parametrize("count", ["-1", "1" + "0" * 30])
def test_a_count_that_no_request_has_breaks_its_line_only(tmp_path: Path, column: str, count: str) -> None:
    rows = [{"timestamp": str(at), "prompt_tokens": "100", "output_tokens": "5"} for at in range(20)]
    rows[3][column] = count
    file = tmp_path / "log.csv"
    file.write_text("\n".join([",".join(rows[0]), *(",".join(row.values()) for row in rows)]) + "\n")
    loaded = load(file, Options())
    assert (loaded.trace.requests, loaded.broken.count) == (19, 1)
