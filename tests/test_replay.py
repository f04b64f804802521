"""The replay driver: the engine's system calls as strace sees them, its flows, and runs from start to end."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvbench.drivers.replay.blocks import BlockFiles, least_blocks
from kvbench.drivers.replay.calls import BlockCalls, Buffer, CallTimes, CCalls, PythonCalls
from kvbench.drivers.replay.crew import Crew
from kvbench.drivers.replay.driver import _calls_of, _histograms
from kvbench.drivers.replay.flow import POOL, REQUESTS, Flow, InFlight, Worker, fill, flow_of, prepare, release_of
from kvbench.errors import MeasurementError
from kvbench.record.results import Calls, Mix
from tests.conftest import ROOT, Outcome

Kvbench = Callable[..., Outcome]
Start = Callable[..., subprocess.Popen[str]]

SIZE = 1 << 16
SMALL = (
    "--driver", "replay", "--model", "qwen3-8b", "--numjobs", "1,2", "--runtime", "1", "--dataset", "64MiB",
)  # fmt: skip

# The documented order of calls, in strace's words: {b} is the block file, {d} its directory, {p} that one's parent.
STATS = r"(newfstatat|stat|statx)\((AT_FDCWD, )?"
ACCESS = r"(access|faccessat)\((AT_FDCWD, )?"
MKDIR = r"(mkdir|mkdirat)\((AT_FDCWD, )?"
RENAME = r"rename(at)?\(.*{t}.*{b}\""
NEW = r"openat\(AT_FDCWD, \"{t}\", O_WRONLY\|O_CREAT\|O_EXCL\|O_TRUNC\|O_DIRECT{c}, 0644"
DOCUMENTED: dict[str, dict[str, list[str]]] = {
    "PythonCalls": {
        "lookup": [STATS + r"\"{b}\""],
        "store": [
            STATS + r"\"{b}\".*ENOENT", STATS + r"\"{p}\"", MKDIR + r"\"{d}\".*EEXIST", STATS + r"\"{d}\"",
            NEW, r"write\(\d+, .*, 65536\) += 65536", r"close\(", RENAME,
        ],
        "store again": [STATS + r"\"{b}\""],
        "load": [
            r"openat\(AT_FDCWD, \"{b}\", O_RDONLY\|O_DIRECT\|O_CLOEXEC\)",
            r"readv\(\d+, \[\{{.*iov_len=65536\}}\], 1\) += 65536",
            r"close\(",
        ],
    },
    "CCalls": {
        "lookup": [ACCESS + r"\"{b}\", F_OK"],
        "store": [
            ACCESS + r"\"{b}\", F_OK.*ENOENT", STATS + r"\"{d}\"",
            NEW, r"write\(\d+, .*, 65536\) += 65536", r"close\(", RENAME,
        ],
        "store again": [ACCESS + r"\"{b}\", F_OK"],
        "load": [
            r"openat\(AT_FDCWD, \"{b}\", O_RDONLY\|O_DIRECT\)", r"read\(\d+, .*, 65536\) += 65536", r"close\(",
        ],
    },
}  # fmt: skip

TRACED = """
import os, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from kvbench.drivers.replay import calls
from kvbench.drivers.replay.blocks import BlockFiles
blocks, times, buffer = BlockFiles(Path({place!r}), {size}, 1), calls.CallTimes(), calls.Buffer({size})
engine = calls.{kind}()
(first,) = blocks.first_names()
engine.store(first, buffer, times)
second = blocks.new_name()
for name, path, act in (
    ("store", second, engine.store), ("store again", second, engine.store), ("load", second, engine.load),
):
    os.access("/mark/" + name, 0)
    try:
        act(path, buffer, times)
    except FileExistsError:
        pass
os.access("/mark/lookup", 0)
engine.lookup(second, times)
os.access("/mark/end", 0)
"""


def require_strace() -> None:
    """Skip, with the reason, where strace is missing or may not trace."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    if subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode:
        pytest.skip("strace may not trace here")


def traced(kind: str, place: Path) -> dict[str, list[str]]:
    """The system calls of each marked act."""
    script = TRACED.format(root=str(ROOT), place=str(place), size=SIZE, kind=kind)
    trace = place.parent / f"{kind}.strace"
    subprocess.run(
        ["strace", "-s", "300", "-o", str(trace), sys.executable, "-c", script], check=True, capture_output=True
    )
    acts: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in trace.read_text().splitlines():
        mark = re.search(r'"/mark/([^"]+)"', line)
        if mark:
            lines = acts.setdefault(mark[1], [])
        else:
            lines.append(line)
    return acts


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["PythonCalls", "CCalls"])
def test_the_system_calls_are_those_of_the_engine_and_no_others(kind: str, tmp_path: Path) -> None:
    require_strace()
    place = tmp_path / "tier"
    place.mkdir()
    acts = traced(kind, place)
    for name, documented in DOCUMENTED[kind].items():
        seen = [line for line in acts[name] if not re.match(r"(mmap|munmap|brk|futex|madvise)\(", line)]
        block = re.search(r'"(/[^"]+\.bin)', seen[0])
        assert block is not None, seen
        directory = Path(block[1]).parent
        names = {
            "b": re.escape(block[1]),
            "d": re.escape(str(directory)),
            "p": re.escape(str(directory.parent)),
            "t": re.escape(block[1]) + r"_\d+\.tmp",
            "c": r"\|O_CLOEXEC" if kind == "PythonCalls" else "",
        }
        assert len(seen) == len(documented), (name, seen)
        for line, wanted in zip(seen, documented, strict=True):
            assert re.match(wanted.format(**names), line), (name, line, wanted)


def test_files_are_named_as_the_engine_names_them(tmp_path: Path) -> None:
    (path,) = BlockFiles(tmp_path, SIZE, 1).first_names()
    name = Path(path).relative_to(tmp_path)
    assert re.fullmatch(r"kvbench_[0-9a-f]{12}_r0/([0-9a-f]{3})/([0-9a-f]{2})_g0/\1\2[0-9a-f]{59}\.bin", str(name))


@pytest.mark.parametrize("calls", [PythonCalls, CCalls])
def test_a_block_comes_back_as_it_was_stored(calls: Callable[[], BlockCalls], tmp_path: Path) -> None:
    blocks, times, engine = BlockFiles(tmp_path, SIZE, 1), CallTimes(), calls()
    (path,) = blocks.first_names()
    stored, loaded = Buffer(SIZE), Buffer(SIZE)
    assert not engine.lookup(path, times)
    assert engine.store(path, stored, times) > 0
    assert engine.lookup(path, times)
    assert engine.load(path, loaded, times) > 0
    assert bytes(loaded.view) == bytes(stored.view) == Path(path).read_bytes()
    counts = {kind: len(durations) for kind, durations in times.kinds.items()}
    assert counts == {
        "lookup": 2, "check": 1, "directories": 1, "create": 1, "rename": 1, "open": 1, "close": 2,
    }  # fmt: skip
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("calls", [PythonCalls, CCalls])
def test_a_block_that_is_gone_or_short_is_an_error(calls: Callable[[], BlockCalls], tmp_path: Path) -> None:
    engine, buffer, times = calls(), Buffer(SIZE), CallTimes()
    with pytest.raises(FileNotFoundError):
        engine.load(str(tmp_path / "gone.bin"), buffer, times)
    (tmp_path / "short.bin").write_bytes(bytes(4096))
    with pytest.raises(OSError, match="short read: 4096 of 65536"):
        engine.load(str(tmp_path / "short.bin"), buffer, times)


@pytest.mark.parametrize("calls", [PythonCalls, CCalls])
def test_a_call_that_fails_is_counted_by_its_kind(calls: Callable[[], BlockCalls], tmp_path: Path) -> None:
    engine, buffer, times = calls(), Buffer(SIZE), CallTimes()
    (tmp_path / "file").touch()
    (tmp_path / "new").mkdir()
    engine.store(str(tmp_path / "new" / "block.bin"), buffer, times)
    Path(f"{tmp_path / 'new' / 'other.bin'}{engine._suffix}").touch()  # type: ignore[attr-defined]
    for attempt, path in (
        (engine.load, tmp_path / "gone.bin"),
        (engine.load, tmp_path / "gone too.bin"),
        (engine.store, tmp_path / "file" / "directory" / "block.bin"),
        (engine.store, tmp_path / "new" / "other.bin"),
    ):
        with pytest.raises(OSError, match=r"directory|exists"):
            attempt(str(path), buffer, times)
    found = _calls_of(_histograms([times]), [times])
    assert {kind: (one.count, one.failed) for kind, one in found.items()} == {
        "open": (0, 2), "check": (1, 0), "directories": (1, 1), "create": (1, 1), "close": (1, 0), "rename": (1, 0),
    }  # fmt: skip
    assert found["open"] == Calls(0, None, 2)


def test_no_page_of_a_block_is_stored_twice() -> None:
    buffer, seen = Buffer(SIZE), set()
    for _ in range(4):
        buffer.renew()
        seen |= {bytes(buffer.view[at : at + 4096]) for at in range(0, SIZE, 4096)}
    assert len(seen) == 4 * SIZE // 4096


@pytest.mark.parametrize(("version", "flow"), [("0.24", POOL), ("0.26", POOL), ("0.27", REQUESTS), (None, REQUESTS)])
def test_the_flow_follows_the_release(version: str | None, flow: Flow) -> None:
    assert flow_of(release_of(version)) is flow


def laid_out(root: Path, flow: Flow, jobs: int, capacity: int) -> tuple[BlockFiles, list[Worker]]:
    blocks = BlockFiles(root, SIZE, capacity)
    workers = [Worker(flow.calls(), Buffer(SIZE)) for _ in range(jobs)]
    fill(blocks, blocks.first_names(), workers, lambda: None)
    return blocks, [Worker(worker.calls, worker.buffer) for worker in workers]


@pytest.mark.slow
@pytest.mark.parametrize("flow", [POOL, REQUESTS])
@pytest.mark.parametrize("mix", ["read", "write", "mixed"])
def test_a_round_never_holds_more_than_the_data_set(flow: Flow, mix: Mix, tmp_path: Path) -> None:
    jobs = 3
    blocks, workers = laid_out(tmp_path, flow, jobs, least_blocks([jobs]))
    most = 0

    def count() -> None:
        nonlocal most
        most = max(most, sum(1 for _ in tmp_path.rglob("*.bin*")))

    prepare(blocks, mix, workers, count)
    whole = InFlight(blocks, flow, workers, mix, 75)
    whole.run(0.5, count, count)
    reads, writes = (sum(worker.recorder.sides[way].ios for worker in workers) for way in ("read", "write"))
    assert whole.failures == []
    assert (reads > 0, writes > 0) == (mix != "write", mix != "read")
    assert 0 < most <= blocks.capacity
    assert sorted(blocks.live) == sorted(map(str, tmp_path.rglob("*.bin")))
    # Room was used up many times over, and the clock stood still meanwhile.
    assert (whole.pauses > 1) == (mix != "read")
    assert 0.5 <= whole.seconds < 0.5 + 5
    if mix == "mixed":
        assert reads / (reads + writes) == pytest.approx(0.75, abs=0.1)
        assert whole.lookups.kinds["lookup"].itemsize == 8


@pytest.mark.slow
def test_loads_never_wait_for_the_stores_beside_them(tmp_path: Path) -> None:
    """The jobs of a mix only load and others only store, a third as much."""
    blocks, workers = laid_out(tmp_path, REQUESTS, 6, 256)
    loaders, storers = workers[:2], workers[2:]
    prepare(blocks, "mixed", workers, lambda: None)
    whole = InFlight(blocks, REQUESTS, loaders, "mixed", 75, storers)
    whole.run(1.0, lambda: None, lambda: None)
    assert whole.failures == []
    done = [[worker.recorder.sides[way].ios for way in ("read", "write")] for worker in workers]
    assert all(reads > 0 and writes == 0 for reads, writes in done[:2])
    assert all(reads == 0 for reads, _ in done[2:])
    reads, writes = (sum(column) for column in zip(*done, strict=True))
    assert 0 < writes <= reads / 3 + 8
    assert sorted(blocks.live) == sorted(map(str, tmp_path.rglob("*.bin")))


@pytest.mark.slow
def test_stores_that_hang_hold_no_load_up(tmp_path: Path) -> None:
    blocks, workers = laid_out(tmp_path, REQUESTS, 3, 4096)
    hanging = threading.Event()

    class Hangs(CCalls):
        def store(self, path: str, buffer: Buffer, times: CallTimes) -> int:
            hanging.wait(20)
            return super().store(path, buffer, times)

    prepare(blocks, "mixed", workers, lambda: None)
    whole = InFlight(blocks, REQUESTS, workers[:2], "mixed", 75, [Worker(Hangs(), workers[2].buffer)])
    threading.Timer(1.0, hanging.set).start()
    whole.run(0.8, lambda: None, lambda: None)
    # One storing thread has two tasks waiting and one in hand; each task of 8 blocks stands for 24 loads.
    assert sum(worker.recorder.sides["read"].ios for worker in workers[:2]) > 4 * 24


def test_in_the_pool_all_threads_share_the_blocks_of_a_request(tmp_path: Path) -> None:
    blocks, workers = laid_out(tmp_path, POOL, 4, 32)
    InFlight(blocks, POOL, workers, "read", 75).run(0.3, lambda: None, lambda: None)
    assert all(worker.recorder.sides["read"].ios for worker in workers)


def test_from_0_27_a_thread_takes_the_blocks_of_a_request_in_a_row(tmp_path: Path) -> None:
    """The blocks that were looked up together are loaded by one thread, in that order."""
    blocks, workers = laid_out(tmp_path, REQUESTS, 4, 64)
    looked_up: list[str] = []
    loaded: list[list[str]] = [[] for _ in workers]

    class Heard(CCalls):
        def __init__(self, into: list[str]) -> None:
            super().__init__()
            self.into = into

        def lookup(self, path: str, times: CallTimes) -> bool:
            self.into.append(path)
            return super().lookup(path, times)

        def load(self, path: str, buffer: Buffer, times: CallTimes) -> int:
            self.into.append(path)
            return super().load(path, buffer, times)

    heard = [Worker(Heard(into), worker.buffer) for into, worker in zip(loaded, workers, strict=True)]
    flow = Flow("heard", lambda: Heard(looked_up), REQUESTS.task_blocks, "")
    InFlight(blocks, flow, heard, "read", 75).run(0.3, lambda: None, lambda: None)
    size = REQUESTS.task_blocks
    requests = {tuple(looked_up[at : at + size]) for at in range(0, len(looked_up), size)}
    assert len(requests) > len(workers)
    for into in loaded:
        whole = [tuple(into[at : at + size]) for at in range(0, len(into) - size + 1, size)]
        assert set(whole) <= requests


def test_a_failure_ends_the_round_and_is_told(tmp_path: Path) -> None:
    blocks, workers = laid_out(tmp_path, REQUESTS, 2, 8)
    for path in blocks.live:
        Path(path).write_bytes(b"")
    began = time.monotonic()
    whole = InFlight(blocks, REQUESTS, workers, "read", 75)
    whole.run(30, lambda: None, lambda: None)
    assert time.monotonic() - began < 20
    assert whole.failures[0] == f"short read: 0 of {SIZE} bytes"


def test_a_thread_that_crashes_is_no_round_with_a_thread_less() -> None:
    crew = Crew()

    def crash() -> None:
        raise ZeroDivisionError

    crew.hire([crash, lambda: None])
    crew.go()
    with pytest.raises(ZeroDivisionError):
        crew.watch(5, lambda: None, lambda: None)


def test_a_data_set_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    blocks = BlockFiles(tmp_path / "file", SIZE, 2)
    (tmp_path / "file").write_text("")
    with pytest.raises(MeasurementError, match="laying out the data set failed: Not a directory"):
        fill(blocks, blocks.first_names(), [Worker(CCalls(), Buffer(SIZE))], lambda: None)


@pytest.mark.slow
def test_a_run_needs_no_fio_and_is_kept_like_every_other(
    kvbench: Kvbench, tier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    out = tmp_path / "run"
    done = kvbench("fio", "--tier", tier, *SMALL, "--engine-version", "0.24", "-o", out, "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    ids = [f"tier-2359296-{mix}-j{jobs}-replay" for mix in ("mixed", "read", "write") for jobs in (1, 2)]
    assert [point["id"] for point in result["points"]] == ids
    for point in result["points"]:
        assert (point["driver"], point["status"]) == ("replay", "ok")
        assert point["conditions"]["ioengine"] == "calls of vLLM 0.24.0"
        assert point["conditions"]["direct"] is True
        assert point["conditions"]["unwritten_bytes"] in (0, None)
        assert 0 < point["conditions"]["dataset_bytes"] <= 64 << 20
        kinds = {"open", "close", "lookup"} if point["mix"] != "write" else set()
        kinds |= {"check", "directories", "create", "close", "rename"} if point["mix"] != "read" else set()
        assert set(point["metadata"]) == kinds
        moved = sum(point[way]["ios"] for way in ("read", "write") if point[way])
        assert point["metadata"]["close"]["count"] == moved
        for name in ("histogram", "series"):
            assert (out / point[name]).exists()
        said = json.loads((out / point["source"] / "replay.json").read_text())
        assert (said["engine"], said["threads"]) == ("vLLM 0.24.0", point["numjobs"])
    assert list(tier.iterdir()) == []
    assert "Calls that move no data" in (out / "summary.md").read_text()
    assert "replay of the file system tier of vLLM 0.24.0" in (out / "tier-replay.txt").read_text()


@pytest.mark.slow
def test_rounds_pool_the_calls_too(kvbench: Kvbench, tier: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = kvbench("fio", "--tier", tier, *SMALL, "--mix", "read", "--repeat", "2", "-o", out, "--json")
    assert done.code == 0, done.err
    for point in json.loads(done.out)["points"]:
        assert len(point["rounds"]) == 2
        assert point["metadata"]["open"]["count"] == point["read"]["ios"]
        assert point["metadata"]["open"]["latency_ns"]["p99"] > 0


def test_ctrl_c_saves_what_finished_and_resume_goes_on(
    start: Start, kvbench: Kvbench, tier: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    slow = (*SMALL[:4], "--numjobs", "1,2", "--mix", "mixed", "--runtime", "2", "--dataset", "64MiB")
    child = start("fio", "--tier", tier, *slow, "-o", out)
    wait_for(lambda: (out / "points" / "tier-2359296-mixed-j2-replay").is_dir(), "the second point")
    time.sleep(0.7)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=30)
    assert child.returncode == 130, errors
    assert list(tier.iterdir()) == []
    assert [point["status"] for point in points(out)] == ["ok", "interrupted"]
    assert kvbench("fio", "--resume", "-o", out).code == 0
    assert [point["status"] for point in points(out)] == ["ok", "ok"]


def test_after_kill_9_the_guard_leaves_the_tier_as_it_was(start: Start, tier: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    child = start("fio", "--tier", tier, *SMALL[:6], "--runtime", "30", "--dataset", "64MiB", "-o", out)
    wait_for(lambda: any(tier.rglob("*.bin")), "block files")
    child.kill()
    child.wait()
    wait_for(lambda: not list(tier.iterdir()), "the guard to clean up")


def test_a_tier_that_goes_away_is_the_reason_and_no_pause(tmp_path: Path) -> None:
    class Fails(CCalls):
        def store(self, path: str, buffer: Buffer, times: CallTimes) -> int:
            for block in tmp_path.rglob("*.bin"):
                block.unlink(missing_ok=True)
            raise OSError(5, "Input/output error")

    blocks, _ = laid_out(tmp_path, REQUESTS, 1, 8)
    prepare(blocks, "mixed", [Worker(CCalls(), Buffer(SIZE))], lambda: None)
    whole = InFlight(blocks, REQUESTS, [Worker(Fails(), Buffer(SIZE))], "mixed", 0)
    whole.run(5.0, lambda: None, lambda: None)
    assert (whole.failures[0], whole.pauses) == ("Input/output error", 0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--dataset", "8MiB"), "--dataset 9437184"),
        (("--published",), "--published"),
        (("--access", "sequential"), "--access sequential"),
        (("--engine-version", "0.9"), "--engine-version"),
        (("--fidelity",), "leave --driver out"),
    ],
)
def test_what_cannot_be_replayed_is_refused(
    kvbench: Kvbench, tier: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = kvbench("fio", "--tier", tier, *SMALL, *arguments, "-o", tmp_path / "run")
    assert done.code == 2
    assert said in done.err
    assert list(tier.iterdir()) == []


def test_memory_is_not_replayed(kvbench: Kvbench, tmp_path: Path) -> None:
    done = kvbench("fio", "--tier", "dram", *SMALL, "-o", tmp_path / "run")
    assert done.code == 2
    assert "--driver replay measures no tier of this run, which is measured by memory" in done.err


@pytest.mark.slow
def test_several_sizes_share_the_data_set(kvbench: Kvbench, tier: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    models = ("--model", "qwen3-8b", "--model", "gpt-oss-120b")
    options = ("--driver", "replay", *models, "--mix", "read", "--numjobs", "1", "--runtime", "1")
    done = kvbench("fio", "--tier", tier, *options, "--dataset", "32MiB", "-o", out, "--json")
    assert done.code == 0, done.err
    sizes = [point["conditions"]["dataset_bytes"] for point in json.loads(done.out)["points"]]
    assert len(sizes) == 2
    assert all(0 < size <= 16 << 20 for size in sizes)


def points(run_dir: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((run_dir / "result.json").read_text())["points"]
    return found


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        time.sleep(0.05)
