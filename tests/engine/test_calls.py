"""The calls of the engine's C code for its files, by strace, against those of ``--driver replay`` for that release."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.lab import engine, traced
from tests.lab.engine import BLOCK_TOKENS, Engine, Wish
from tests.lab.processes import wait_until
from tests.lab.state import LabError
from tests.lab.traced import Call

BLOCKS = 12
PROMPT = list(range(2, 2 + BLOCKS * BLOCK_TOKENS + 5))
MODEL = "much-kv"
LOOKUP, LOAD = ("access",), ("open", "read", "readv", "close", "unlink", "fsync")


@dataclass(frozen=True)
class Traces:
    """What one side did: on an empty tier, on one whose folders are there, and to bring blocks back."""

    fresh: list[Call]
    again: list[Call]
    restored: list[Call]


@pytest.fixture(scope="module")
def served() -> Iterator[Engine]:
    """An engine with an fs tier."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    with engine.serving(Wish("fs", MODEL)) as running:
        yield running


@pytest.fixture(scope="module")
def engines(served: Engine) -> Traces:
    """The engine: a prompt that is new, one whose files were removed, and one that is read back."""
    fresh = _asked(served, "fresh")
    served.forget()
    for file in served.files():
        file.unlink()
    again = _asked(served, "again")
    served.forget()
    return Traces(fresh, again, _asked(served, "restored"))


def _asked(served: Engine, name: str) -> list[Call]:
    trace = Path(served.root) / f"{name}.strace"
    try:
        with traced.attached(served.processes(), trace):
            served.ask(PROMPT)
            assert wait_until(lambda: len(served.files()) == BLOCKS, 60)
    except LabError as error:
        pytest.skip(str(error))
    return traced.calls(trace)


@pytest.fixture(scope="module")
def replayed(served: Engine, tmp_path_factory: pytest.TempPathFactory) -> Traces:
    """The replay on files of the same size: its lay-out, its writes and its reads."""
    folder = tmp_path_factory.mktemp("replay")
    tier = folder / "tier"
    tier.mkdir()

    def run(mix: str) -> list[Call]:
        trace = folder / f"{mix}.strace"
        command = [
            "strace", "-f", "-s", "300", "-e", f"trace={traced.CALLS}", "-o", str(trace),
            sys.executable, "-m", "kvbench", "fio", "--driver", "replay", "--engine-version", "0.32", "--tier",
            str(tier), "--allow-shared",
            "--model",
            f"{served.root}/models/{MODEL}", "--block-tokens", str(BLOCK_TOKENS), "--numjobs", "1", "--mix", mix,
            "--runtime", "1", "--dataset", "64MiB", "-o", str(folder / mix),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=dict(os.environ), check=False)
        assert done.returncode == 0, done.stderr
        return traced.calls(trace)

    reads, writes = run("read"), run("write")
    return Traces(reads, writes, reads)


def _stores(made: list[Call]) -> list[Call]:
    """Calls of the threads that store, up to and with the rename of each block."""
    by = {call.block: call.thread for call in made if call.what == "rename"}
    over: set[str] = set()
    found = []
    for call in made:
        if call.block not in over and by.get(call.block) == call.thread:
            found.append(call)
        if call.what == "rename":
            over.add(call.block)
    return found


def _loads(made: list[Call]) -> list[Call]:
    """Calls of the threads that read. (kvbench opens its files for checks as well, in another thread, unmeasured.)"""
    threads = {call.thread for call in made if call.what.startswith("read")}
    return [call for call in made if call.thread in threads and call.on == "block" and call.what in LOAD]


def _lookups(made: list[Call]) -> list[Call]:
    """Calls that found a block, in the threads that do nothing else with blocks."""
    busy = {call.thread for call in made if call.what not in LOOKUP}
    return [call for call in made if call.what in LOOKUP and not call.details and call.thread not in busy]


def _ways(made: list[Call]) -> Counter[tuple[str, ...]]:
    """How often each sequence of calls was made for a block."""
    return Counter(tuple(call.words for call in of) for of in traced.by_block(made).values())


def test_storing_makes_the_same_calls(engines: Traces, replayed: Traces) -> None:
    (usual, count), *_ = _ways(_stores(engines.fresh)).most_common(1)
    assert count >= BLOCKS - 2, "blocks whose outer folder another block had made already are few"
    assert usual == _ways(_stores(replayed.fresh)).most_common(1)[0][0]


def test_storing_where_the_folders_are_makes_the_same_calls(engines: Traces, replayed: Traces) -> None:
    (usual, count), *others = _ways(_stores(engines.again)).most_common()
    assert (count, others) == (BLOCKS, [])
    # The lay-out of a run of writes makes the folders, and what is measured finds them.
    assert usual == _ways(_stores(replayed.again)).most_common(1)[0][0]


def test_bringing_back_makes_the_same_calls(engines: Traces, replayed: Traces) -> None:
    wanted = ("open block O_RDONLY|O_DIRECT", f"read block {BLOCK_TOKENS * 16384}", "close block")
    assert _ways(_loads(engines.restored)) == {wanted: BLOCKS}
    # The replay reads a block more than once.
    for way in _ways(_loads(replayed.restored)):
        assert way == wanted * (len(way) // 3)


def test_one_thread_looks_up_and_another_brings_all_of_a_prompts_blocks_back(engines: Traces, replayed: Traces) -> None:
    for side in (engines, replayed):
        assert len({call.thread for call in _lookups(side.restored)}) == 1
        assert len({call.thread for call in _loads(side.restored)}) == 1
        # Block after block: the next is opened when the one before is closed.
        order = [call.what for call in _loads(side.restored)]
        assert order == ["open", "read", "close"] * (len(order) // 3)
    # The engine looks a prompt's blocks up once, all before it reads the first.
    kinds = [call.what for call in engines.restored]
    assert kinds == ["access"] * BLOCKS + ["open", "read", "close"] * BLOCKS


def test_one_thread_stores_a_steps_blocks(engines: Traces) -> None:
    threads = {call.thread for call in _stores(engines.again) if call.what == "write"}
    assert len(threads) == 1
