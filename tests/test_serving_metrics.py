"""What servers and storage counted during a run: a real Ceph's counters, the time of the run, GPU memory."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvbench.errors import InputFileError, UsageError
from kvbench.formats.metrics import ranges, snapshots
from kvbench.formats.metrics.record import Metrics, Window, is_counter
from kvbench.formats.serving.record import ServingRun, ServingSummary
from kvbench.layout.models import size_model
from kvbench.report.serving_figures import ServedFigure, ServedLine, draw, figures_of
from kvbench.serving.arm import ArmRun, Configuration
from kvbench.serving.checks import problems_of
from kvbench.serving.comparing import compare
from kvbench.serving.gpu_memory import room_of
from kvbench.serving.loading import load
from kvbench.serving.published import published
from kvbench.serving.server import ServerState, state_of
from kvbench.serving.storage import ALL, PoolTraffic, StorageState, storage_of
from tests.conftest import Outcome
from tests.factories import ROOT, serving_result

Run = Callable[..., Outcome]
# Of the lab's Ceph 16.2 and a Prometheus that read its manager every 5 s: 96 files of 1 MiB written with O_DIRECT to
# CephFS, 48 of them read, all of it between these two times.
RECORDED = ROOT / "tests" / "data" / "metrics"
WROTE, READ = 96 << 20, 48 << 20
BUSY = Window(1796128592.9, 1796128594.6)


def pool(state: StorageState | None, name: str = "cephfs_data") -> PoolTraffic:
    assert state is not None
    return state.pools[name]


def test_ceph_pages_before_and_after() -> None:
    """The pool holds to the byte what was written and read; ceph-fuse moves 128 KiB at a time."""
    state = storage_of(snapshots.between(RECORDED / "ceph_before.txt", RECORDED / "ceph_after.txt"))
    assert pool(state) == PoolTraffic(READ, WROTE, 48 * 8, 96 * 8)
    assert pool(state, "default.rgw.log") == PoolTraffic()
    assert state is not None
    assert state.read_latency_s == pytest.approx((0.189204482 - 0.053062031) / (779 - 350))


def test_ceph_range_of_prometheus() -> None:
    """A range export says no types: Ceph's counters are known by their names, and so are its pools."""
    state = storage_of(ranges.read(RECORDED / "ceph_range.json"))
    assert pool(state) == PoolTraffic(READ, WROTE, 48 * 8, 96 * 8)


def test_an_export_is_cut_to_the_time_of_the_run() -> None:
    """The counters arrived between 8 and 13 s later: the time of the work alone holds none of them."""
    path = RECORDED / "ceph_range.json"
    assert pool(storage_of(ranges.read(path, BUSY))) == PoolTraffic()
    assert pool(storage_of(ranges.read(path, replace(BUSY, end_s=BUSY.end_s + 20)))).read_bytes == READ
    # Half-way between the two samples between which they arrived.
    half = Window(1796128592.915, 1796128605.415)
    assert pool(storage_of(ranges.read(path, half))).read_bytes == READ / 2


@pytest.mark.parametrize(
    ("window", "said"),
    [
        (Window(1.7e9, 1.7e9 + 600), "nothing of the time of its run (2023-11-14T22:13:20Z to"),
        (Window(1796128592.0, 1796128592.0 + 900), "not all of its run"),
        (Window(1796128592.0 - 900, 1796128600.0), "not all of its run"),
    ],
)
def test_an_export_of_another_time_is_refused(window: Window, said: str) -> None:
    with pytest.raises(InputFileError) as caught:
        ranges.read(RECORDED / "ceph_range.json", window)
    assert said in str(caught.value)


def test_which_names_grow() -> None:
    grow = ["vllm:num_preemptions_total", "ceph_pool_rd", "ceph_pool_wr_bytes", "ceph_osd_op_r_out_bytes", "x_sum"]
    others = ["ceph_pool_stored", "ceph_osd_op_wip", "ceph_pool_rd_bytes_per_s", "vllm:kv_cache_usage_perc"]
    assert [is_counter(name) for name in grow + others] == [True] * len(grow) + [False] * len(others)


def page(tmp_path: Path, text: str) -> Metrics:
    for name in ("before", "after"):
        (tmp_path / name).write_text(text + "x_total 1\n")
    return snapshots.between(tmp_path / "before", tmp_path / "after")


def test_osds_count_where_pools_do_not(tmp_path: Path) -> None:
    """ceph-exporter has no pools; and a page without any of them says nothing."""
    (tmp_path / "before").write_text('ceph_osd_op_r_out_bytes{ceph_daemon="osd.0"} 5\n')
    (tmp_path / "after").write_text(
        'ceph_osd_op_r_out_bytes{ceph_daemon="osd.0"} 9\nceph_osd_op_r_out_bytes{ceph_daemon="osd.1"} 7\n'
    )
    state = storage_of(snapshots.between(tmp_path / "before", tmp_path / "after"))
    assert state == StorageState({ALL: PoolTraffic(read_bytes=11.0)})
    assert storage_of(page(tmp_path, "")) is None
    assert storage_of(Metrics({})) is None


@pytest.mark.parametrize(
    ("labels", "tokens"),
    [
        (['engine="0",kv_cache_size_tokens="1000"', 'engine="1",kv_cache_size_tokens="1000"'], 2000),
        # Started anew with less: the series of before is still exported.
        (['engine="0",kv_cache_size_tokens="1000"', 'engine="0",kv_cache_size_tokens="900"'], 900),
        (['engine="0",num_gpu_blocks="100",block_size="16",kv_cache_size_tokens="None"'], None),
        (['engine="0",num_gpu_blocks="100",block_size="16"'], None),
        ([f'engine="0",kv_cache_size_tokens="{"9" * 5000}"'], None),
    ],
)
def test_what_the_gpus_hold(tmp_path: Path, labels: list[str], tokens: int | None) -> None:
    text = "".join(f"vllm:cache_config_info{{{one}}} 1.0\n" for one in labels)
    assert state_of(page(tmp_path, text)).kv_tokens == tokens


def arm(server: ServerState | None = None, storage: StorageState | None = None, duration_s: float = 1800) -> ArmRun:
    summary = ServingSummary(completed=100, duration_s=duration_s, prompt_tokens_mean=50_000.0)
    run = ServingRun("x", "1", "m", "f", summary, concurrency=32)
    return ArmRun(run, server or ServerState(external_tokens=1.0), storage=storage)


def codes(run: ArmRun) -> list[str]:
    return [problem.code for problem in problems_of(run, is_control=False)]


def server(**known: Any) -> ServerState:
    return ServerState(external_tokens=1.0, **known)


def test_gpu_memory_that_holds_fewer_prompts_than_are_sent() -> None:
    assert codes(arm(server(kv_tokens=500_000))) == ["kv-below-load"]
    assert codes(arm(server(kv_tokens=1_600_000))) == []
    full = server(kv_tokens=500_000, kv_usage_highest=0.99, preemptions=3.0, external_hit_rate=0.02)
    bound, _ = problems_of(arm(full), is_control=False)
    assert bound.code == "gpu-memory-bound"
    assert "only 2% came back from a tier; it holds 10 prompts at once" in bound.message


def test_gpu_memory_that_is_left() -> None:
    """Qwen3-8B: 147,456 bytes for each token, over two GPUs; (80 GiB x 0.9 - 8 GiB) is left on each."""
    sized = size_model("qwen3-8b", tp=2)
    room = room_of(sized, 80 << 30, 0.9, 16 << 30, 50_000.0)
    assert room.left_bytes == (72 - 8) << 30
    assert room.prompt_bytes == 50_000 * 147_456 // 2
    assert room.prompts == (64 << 30) / (50_000 * 147_456 // 2)
    assert room_of(sized, 80 << 30, 0.9, 16 << 30, None).prompts is None
    with pytest.raises(UsageError, match="the weights take 72 GiB of each GPU"):
        room_of(sized, 80 << 30, 0.9, 144 << 30, None)


def test_storage_beside_what_the_engine_moved() -> None:
    gib = float(1 << 30)
    moved = server(read_bytes={"fs": gib}, written_bytes={"fs": gib})

    def seen(read: float, wrote: float) -> list[str]:
        return codes(arm(moved, StorageState({"data": PoolTraffic(read, wrote)})))

    assert seen(gib, gib * 1.1) == []
    assert seen(gib * 0.5, gib) == ["storage-disagrees"]
    assert seen(gib, gib * 2) == ["storage-disagrees"]
    # Files that are there already are counted by the engine and not written again.
    assert seen(gib, gib * 0.1) == []
    # An engine that counts nothing is not contradicted.
    assert codes(arm(server(), StorageState({"data": PoolTraffic(gib, gib)}))) == []


def test_counters_that_come_late() -> None:
    storage = StorageState({"data": PoolTraffic(1.0, 1.0)})
    assert codes(arm(storage=storage, duration_s=60)) == ["storage-late"]
    assert codes(arm(storage=storage, duration_s=600)) == []
    assert codes(arm(duration_s=60)) == []


@pytest.mark.slow
def test_the_command_shows_storage_and_gpu_memory(kvbench: Run, tmp_path: Path) -> None:
    metric = "vllm:external_prefix_cache"
    for name, hits in (("none", 0), ("cephfs", 600)):
        folder = serving_result(tmp_path / name / "result.json", 1.0).parent
        for when, found, asked in (("before", 0, 0), ("after", hits, 1000)):
            text = f"{metric}_hits_total {found}\n{metric}_queries_total {asked}\n"
            text += 'vllm:cache_config_info{engine="0",kv_cache_size_tokens="4000"} 1.0\n'
            (folder / f"metrics_{when}.txt").write_text(text)
    for when in ("before", "after"):
        shutil.copy(RECORDED / f"ceph_{when}.txt", tmp_path / "cephfs")
    named = (f"none={tmp_path / 'none'}", f"cephfs={tmp_path / 'cephfs'}")
    outcome = kvbench("compare", *named, "--json")
    none, cephfs = (one["runs"][0] for one in json.loads(outcome.out)["configurations"])
    assert none["storage"] is None
    assert (none["kv_tokens"], none["prompts_in_kv"]) == (4000, 4.0)
    data = cephfs["storage"]["pools"]["cephfs_data"]
    assert (data["read_bytes"], data["written_bytes"], data["reads"]) == (READ, WROTE, 384)
    assert data["read_bytes_per_s"] == READ / 40
    text = kvbench("compare", *named).out
    assert "cephfs_data" in text
    # Of the other pools the table says nothing: they hold less than a hundredth.
    assert "default.rgw.log" not in text
    assert "kv-below-load" in text


@pytest.mark.slow
def test_an_export_of_several_runs_needs_their_times(kvbench: Run, tmp_path: Path) -> None:
    """With the time of day each run takes its part of one export; without it a longer export is of nobody."""
    for name, start_s in (("none", 0.0), ("cpu", 1000.0)):
        folder = serving_result(
            tmp_path / name / "result.json", 1.0, start_times=[1.7e9 + start_s + at for at in range(40)]
        ).parent
        values = [[1.7e9 + at, str(at if at > 900 else 0)] for at in range(-60, 1200, 20)]
        series = {"metric": {"__name__": "vllm:external_prefix_cache_hits_total"}, "values": values}
        (folder / "metrics.json").write_text(json.dumps({"data": {"result": [series]}}))
    named = (f"none={tmp_path / 'none'}", f"cpu={tmp_path / 'cpu'}")
    outcome = kvbench("compare", *named, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    serving_result(tmp_path / "cpu" / "result.json", 1.0)
    assert "has metrics of more than its run" in kvbench("compare", *named).err


@pytest.mark.slow
def test_the_command_says_what_gpu_memory_is_left(kvbench: Run, tmp_path: Path) -> None:
    named = [f"{name}={serving_result(tmp_path / name / 'r.json', 1.0)}" for name in ("none", "cpu")]
    asked = (
        "--gpu-memory",
        "80GiB",
        "--model",
        "qwen3-8b",
        "--tp",
        "2",
        "--weights",
        "16GiB",
        "--gpu-memory-utilization",
        "90%",
    )
    room = json.loads(kvbench("compare", *named, *asked, "--json").out)["gpu_memory"]
    assert (room["gpus"], room["left_bytes"], room["prompt_tokens"]) == (2, 64 << 30, 1000)
    assert (
        "at most 64 GiB on each of 2 GPUs, 932 prompts of 1,000 tokens at once"
        in kvbench("compare", *named, *asked).out
    )
    assert json.loads(kvbench("compare", *named, "--json").out)["gpu_memory"] is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("--gpu-memory", "80GiB"), "needs --model MODEL and --weights SIZE"),
        (("--model", "qwen3-8b"), "add --gpu-memory SIZE"),
        (("--gpu-memory", "8GiB", "--model", "qwen3-8b", "--weights", "16GiB"), "the weights take 16 GiB"),
        (("--gpu-memory", "8GiB", "--gpu-memory-utilization", "2"), "write a share"),
    ],
)
def test_half_of_what_gpu_memory_needs(kvbench: Run, tmp_path: Path, asked: tuple[str, ...], said: str) -> None:
    named = [f"{name}={serving_result(tmp_path / name / 'r.json', 1.0)}" for name in ("none", "cpu")]
    outcome = kvbench("compare", *named, *asked)
    assert outcome.code == 2
    assert said in outcome.err


def several(tmp_path: Path) -> list[str]:
    """A control and an offload arm at two loads, the second with its tier's hits and its storage."""
    named = []
    for name, ttft_s, hits in (("none", 2.0, 0), ("ceph<fs>", 1.0, 600)):
        for at_once in (8, 32):
            result = tmp_path / name / f"c{at_once}" / "r.json"
            folder = serving_result(result, ttft_s * at_once / 8, concurrency=at_once).parent
            for when, share in (("before", 0), ("after", 1)):
                page = f"vllm:external_prefix_cache_hits_total {hits * share}\n"
                page += f"vllm:external_prefix_cache_queries_total {1000 * share}\n"
                (folder / f"metrics_{when}.txt").write_text(page)
                if hits:
                    shutil.copy(RECORDED / f"ceph_{when}.txt", folder)
        named.append(f"{name}={tmp_path / name}")
    return named


@pytest.mark.slow
def test_the_figures_hold_the_numbers(tmp_path: Path) -> None:
    pairs = [one.partition("=") for one in several(tmp_path)]
    loaded = [load(name, [Path(path)]).configuration for name, _, path in pairs]
    figures = {one.key: one for one in figures_of(compare(loaded, "none"))}
    none, cephfs = figures["served-ttft-mean"].lines
    assert (none.configuration, none.loads, none.values) == ("none", (8, 32), (2.0, 8.0))
    assert (cephfs.loads, cephfs.values) == ((8, 32), (1.0, 4.0))
    assert [line.values for line in figures["speedup"].lines] == [(2.0, 2.0)]
    # 48 MiB in the 40 s of each run; the control has no storage.
    (reads,) = figures["storage-read"].lines
    assert reads.values == (1.2, 1.2)
    assert [line.values for line in figures["served-hits"].lines] == [(0.0, 0.0), (0.6, 0.6)]


@pytest.mark.slow
def test_the_page_is_offline_and_escaped(kvbench: Run, tmp_path: Path) -> None:
    page, named = tmp_path / "page.html", several(tmp_path)
    assert kvbench("compare", *named, "-o", page).code == 0
    text = page.read_text()
    assert text.count("<figure") == 10
    missing = [
        key for key in ("served", "speedups", "pools", "problems", "published") if f'id="table-{key}"' not in text
    ]
    assert missing == []
    assert "ceph<fs>" not in text
    assert not re.search(r'(?:src|href)="(?!data:|#)', text)
    # Written again over itself, and over nothing else.
    assert kvbench("compare", *named, "-o", page).code == 0
    (tmp_path / "mine.html").write_text("mine")
    outcome = kvbench("compare", *named, "-o", tmp_path / "mine.html")
    assert (outcome.code, (tmp_path / "mine.html").read_text()) == (2, "mine")
    assert kvbench("compare", *named, "-o", tmp_path / "page.txt").code == 2


def test_the_published_runs() -> None:
    """The study's first table and its largest gain: 0.77 requests/s over 0.13."""
    rows = list(published())
    assert len(rows) == 17
    gains = {(row.deployment.partition(" ")[0], row.run.configuration): row.speedup for row in rows[:12]}
    assert gains["Nemotron-Ultra-253B", "cpu+cephfs"] == 0.77 / 0.13
    assert gains["Gemma", "none"] == 1.0
    assert rows[-2].speedup is None


def test_what_is_refused_is_not_drawn() -> None:
    def at(concurrency: int, hits: float) -> ArmRun:
        run = arm(ServerState(external_tokens=hits, external_hit_rate=hits)).run
        return ArmRun(replace(run, concurrency=concurrency), ServerState(external_tokens=hits, external_hit_rate=hits))

    controls = Configuration("none", tuple(at(load, 0.0) for load in (8, 32)))
    found = compare([controls, Configuration("cpu", (at(8, 0.5), at(32, 0.0)))], "none")
    (hits,) = (one for one in figures_of(found) if one.key == "served-hits")
    assert [(line.configuration, line.loads) for line in hits.lines] == [("none", (8, 32)), ("cpu", (8,))]


@pytest.mark.parametrize(("count", "bars"), [(1, 1), (2, 2), (3, 0)])
def test_one_load_is_drawn_as_bars(count: int, bars: int) -> None:
    lines = (ServedLine("a", (8,), (1.0,)), ServedLine("b", (8,), (0.0,)), ServedLine("c", (8, 16), (1.0, 2.0)))
    axes = draw(ServedFigure("k", "t", "s", lines[:count]), ["a", "b", "c"]).axes[0]
    assert (len(axes.patches), len(axes.lines)) == (bars, 0 if bars else count)
