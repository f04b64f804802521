"""The four configurations served for real: what they restore, from where, and that nothing is left of them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.lab import engine
from tests.lab.engine import BLOCK_TOKENS, Engine, Wish
from tests.lab.processes import wait_until
from tests.lab.state import LabError

PROMPT = list(range(2, 2 + 2 * BLOCK_TOKENS + 5))
WHOLE = 2 * BLOCK_TOKENS
WISHES = [
    Wish("none", "tiny"),
    Wish("cpu", "much-kv"),
    Wish("fs", "tiny"),
    Wish("fs", "much-kv"),
    Wish("cephfs", "much-kv"),
]
KV_BYTES = {"tiny": 8192, "much-kv": 16384}
HITS = "vllm:external_prefix_cache_hits_total"
READ, FS = "vllm:kv_offload_tiering_read_bytes_total", 'tier="1:fs"'


@pytest.fixture(params=WISHES, ids=lambda wish: f"{wish.arm}-{wish.model}", scope="module")
def served(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A running engine."""
    wish: Wish = request.param
    try:
        if wish.arm == "cephfs":
            engine.cephfs()
    except LabError as error:
        pytest.skip(str(error))
    with engine.serving(wish) as running:
        yield running
    # Whatever the test said: what is left is a fault of the lab.
    assert engine.processes_of(Path(running.root)) == []
    assert engine.memory_files(running.engine_id) == []
    assert not Path(running.root).exists()
    assert running.tier is None or not Path(running.tier).exists()


def test_an_engine_restores_what_its_configuration_keeps(served: Engine) -> None:
    served.ask(PROMPT)
    if served.tier:
        assert wait_until(lambda: len(served.files()) == WHOLE // BLOCK_TOKENS, 30)
        assert {file.stat().st_size for file in served.files()} == {BLOCK_TOKENS * KV_BYTES[served.model]}
    served.ask(PROMPT)
    assert served.total(HITS) == 0, "the KV cache of the engine itself still had it"
    served.forget(cpu_tier=False)
    served.ask(PROMPT)
    assert served.total(HITS) == (0 if served.arm == "none" else WHOLE), "the CPU tier has it, where there is one"
    assert served.total(READ, FS) == 0
    served.forget()
    served.ask(PROMPT)
    assert served.total(HITS) == {"none": 0, "cpu": WHOLE}.get(served.arm, 2 * WHOLE), "files alone are still there"
    assert served.total(READ, FS) == (WHOLE * KV_BYTES[served.model] if served.tier else 0)


def test_the_memory_of_the_cpu_tier_is_a_file_while_the_engine_runs(served: Engine) -> None:
    assert len(engine.memory_files(served.engine_id)) == (0 if served.arm == "none" else 1)


def test_an_engine_is_stopped_when_its_program_gets_a_sigterm() -> None:
    told = "import time\nfrom tests.lab.engine import Wish, serving\n"
    told += "with serving(Wish('cpu')) as served: print(served.root, served.engine_id, flush=True); time.sleep(600)"
    before = set(Path("/dev/shm").iterdir())
    with subprocess.Popen([sys.executable, "-c", told], stdout=subprocess.PIPE, text=True, cwd=ROOT) as program:
        assert program.stdout is not None
        root, engine_id = program.stdout.readline().split()
        assert engine.processes_of(Path(root)), "it runs"
        program.terminate()
    assert program.returncode == 128 + signal.SIGTERM
    assert (engine.processes_of(Path(root)), engine.memory_files(engine_id), Path(root).exists()) == ([], [], False)
    assert set(Path("/dev/shm").glob("psm_*")) <= before
