"""The main job with the real fio: structure, order and exact arithmetic are asserted, never a speed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from kvbench.tiers.mounts import mount_of
from tests.conftest import ROOT, Outcome

Kvbench = Callable[..., Outcome]
Start = Callable[..., subprocess.Popen[str]]

pytestmark = pytest.mark.fio

PREFILL = ROOT / "profiles" / "prefill" / "gpt-oss-120b-h200.csv"
SHORT = ("--dataset", "96MiB", "--runtime", "1", "--numjobs", "1,4")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, Any]]:
    """One run of all three models on a real directory: the tier, the run directory and its result."""
    tier = tmp_path_factory.mktemp("tier")
    run = tmp_path_factory.mktemp("runs") / "run"
    command = [
        "-m",
        "kvbench",
        "fio",
        "--tier",
        f"disk={tier}",
        "--connector",
        "logical",
        "--dataset",
        "256MiB",
        "--runtime",
        "1",
        "-o",
        str(run),
    ]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return tier, run, json.loads((run / "result.json").read_text())


def test_every_point_of_the_published_method_is_measured(measured: tuple[Path, Path, dict[str, Any]]) -> None:
    tier, _, result = measured
    ids = [
        f"disk-{size}-{mix}-j{jobs}"
        for size in (1179648, 2359296, 5242880)
        for mix in ("mixed", "read", "write")
        for jobs in (1, 16)
    ]
    assert [point["id"] for point in result["points"]] == ids
    assert {point["status"] for point in result["points"]} == {"ok"}
    assert list(tier.iterdir()) == []


def test_bytes_are_whole_blocks_and_rates_follow_from_counts(measured: tuple[Path, Path, dict[str, Any]]) -> None:
    for point in measured[2]["points"]:
        for side in (point["read"], point["write"]):
            if side is None:
                continue
            assert side["bytes"] == side["ios"] * point["io_bytes"]
            assert side["bytes_per_s"] == pytest.approx(side["iops"] * point["io_bytes"], rel=0.01)
        assert (point["read"] is None) == (point["mix"] == "write")
        assert (point["write"] is None) == (point["mix"] == "read")


def test_latency_is_lat_ns_and_equals_what_fio_says(measured: tuple[Path, Path, dict[str, Any]]) -> None:
    _, run, result = measured
    for point in result["points"]:
        fio = json.loads((run / point["source"]).read_text())
        (job,) = fio["jobs"]
        assert point["latency_source"] == "lat"
        for name in ("read", "write"):
            if point[name] is None:
                continue
            ours, theirs = point[name]["latency_ns"], job[name]["lat_ns"]
            percentiles = theirs["percentile"]
            assert (ours["p50"], ours["p99"]) == (percentiles["50.000000"], percentiles["99.000000"])
            assert (ours["p95"], ours["p99_9"]) == (percentiles["95.000000"], percentiles["99.900000"])
            assert ours["mean"] == pytest.approx(theirs["mean"])
            histogram = json.loads((run / point["histogram"]).read_text())[name]
            assert sum(histogram.values()) == theirs["N"] == point[name]["ios"]


def test_every_rendered_job_file_is_accepted_by_fio(measured: tuple[Path, Path, dict[str, Any]]) -> None:
    _, run, result = measured
    files = sorted(run.glob("**/*.fio"))
    assert len(files) == len(result["points"]) + 2
    for file in files:
        subprocess.run(["fio", "--parse-only", str(file)], check=True, capture_output=True, cwd=file.parent)


def test_the_environment_is_provenance(measured: tuple[Path, Path, dict[str, Any]]) -> None:
    _, _, result = measured
    environment = result["environment"]
    assert environment["fio"].startswith("fio-3.")
    assert {"host", "kernel", "cpus", "memory_bytes", "load_1m"} <= set(environment)
    mount, found = mount_of(measured[0].resolve()), result["tiers"]["disk"]["filesystem"]
    assert found == mount.filesystem if mount else found.startswith("unknown: ")


def test_conditions_say_what_was_asked(measured: tuple[Path, Path, dict[str, Any]]) -> None:
    for point in measured[2]["points"]:
        conditions = point["conditions"]
        assert (conditions["ioengine"], conditions["direct"], conditions["iodepth"]) == ("libaio", True, 1)
        assert conditions["rwmixread"] == (75 if point["mix"] == "mixed" else None)
        assert conditions["dataset_bytes"] == (256 << 20) // 16 // point["io_bytes"] * point["io_bytes"] * 16


def test_the_decision_follows_offline_from_the_run_directory(
    measured: tuple[Path, Path, dict[str, Any]], kvbench: Kvbench
) -> None:
    outcome = kvbench("crossover", measured[1], "--ttft-csv", PREFILL, "--json")

    assert outcome.code == 0
    by_model = {result["model"]: result for result in outcome.json()["results"]}
    assert set(by_model) == {"openai/gpt-oss-120b", "Qwen/Qwen3-8B", "meta-llama/Llama-3.1-70B"}
    decided = by_model["openai/gpt-oss-120b"]
    assert decided["point"] == "disk-1179648-mixed-j16"
    assert decided["request"]["kind"] in ("always", "from", "never", "unknown")
    assert decided["verdict"] in ("viable", "not viable", "cannot say")
    assert by_model["Qwen/Qwen3-8B"]["request"]["kind"] == "unknown"
    assert by_model["Qwen/Qwen3-8B"]["restore_tokens_per_s"] > 0


def test_an_imported_result_equals_the_measured_one(
    measured: tuple[Path, Path, dict[str, Any]], kvbench: Kvbench, tmp_path: Path
) -> None:
    _, run, result = measured
    wanted = deepcopy(next(point for point in result["points"] if point["id"] == "disk-1179648-mixed-j16"))
    outcome = kvbench("import", f"disk={run / wanted['source']}", "-o", tmp_path / "imported", "--json")

    assert outcome.code == 0, outcome.err
    imported: list[dict[str, Any]] = outcome.json()["points"]
    (point,) = imported
    for side in ("read", "write"):
        # One takes fio's mean as it is, the other pools it: the last binary digit may differ.
        assert point[side]["latency_ns"].pop("mean") == pytest.approx(wanted[side]["latency_ns"]["mean"], rel=1e-12)
        wanted[side]["latency_ns"].pop("mean")
    for key in ("io_bytes", "mix", "numjobs", "runtime_s", "latency_source", "read", "write"):
        assert point[key] == wanted[key]


def test_a_killed_kvbench_leaves_neither_fio_nor_data(start: Start, tier: Path, tmp_path: Path) -> None:
    options = ("--model", "qwen3-8b", "--mix", "read", "--numjobs", "1", "--runtime", "60", "--dataset", "32MiB")
    child = start("fio", "--tier", tier, *options, "-o", tmp_path / "run")
    wait_for(lambda: bool(our_fio(tmp_path)) and bool(list(tier.glob("kvbench-*/kvbench.0"))))
    child.kill()
    child.communicate()

    wait_for(lambda: not our_fio(tmp_path))
    wait_for(lambda: not list(tier.iterdir()))


def test_fio_jobs_run_as_threads_so_that_one_kill_ends_them(start: Start, tier: Path, tmp_path: Path) -> None:
    options = ("--model", "qwen3-8b", "--mix", "read", "--numjobs", "4", "--runtime", "60", "--dataset", "32MiB")
    child = start("fio", "--tier", tier, *options, "-o", tmp_path / "run")
    wait_for(lambda: "read-j4" in str([cwd for _, cwd in our_fio(tmp_path)]))
    ((process, _),) = our_fio(tmp_path)
    os.kill(process, 9)
    child.wait(timeout=60)

    assert child.returncode == 3
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["points"][0]["reason"] == "fio was killed by SIGKILL"
    assert not our_fio(tmp_path)
    assert list(tier.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "said"),
    [("with#hash", "fio cannot express the path"), ("with$dollar", "fio cannot express the path")],
)
def test_a_path_that_fio_would_misread_is_refused(kvbench: Kvbench, tmp_path: Path, path: str, said: str) -> None:
    (tmp_path / path).mkdir()
    outcome = kvbench("fio", "--tier", tmp_path / path, "--model", "qwen3-8b", *SHORT, "-o", tmp_path / "run")
    assert outcome.code == 2
    assert said in outcome.err


def test_a_path_with_a_colon_and_blanks_works(kvbench: Kvbench, tmp_path: Path) -> None:
    tier = tmp_path / "a:b c"
    tier.mkdir()
    options = ("--model", "qwen3-8b", "--mix", "read", "--numjobs", "1,2", "--runtime", "1", "--dataset", "32MiB")
    outcome = kvbench("fio", "--tier", tier, *options, "-o", tmp_path / "run")
    assert outcome.code == 0, outcome.err
    assert list(tier.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("a")) == ["a:b c"]


@pytest.fixture
def loop_mount(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A small ext4 or 4096-byte-sector XFS on a loop device, as root only."""
    kind, size, sector = request.param
    if os.geteuid() != 0 or shutil.which("losetup") is None or shutil.which(f"mkfs.{kind}") is None:
        pytest.skip(f"needs root, losetup and mkfs.{kind}")
    image, target = tmp_path / "disk.img", tmp_path / "mount"
    target.mkdir()
    with image.open("wb") as file:
        file.truncate(size)
    loop = subprocess.run(
        ["losetup", "--show", "-f", "-b", str(sector), "--direct-io=on", str(image)],
        capture_output=True,
        text=True,
        check=False,
    )
    if loop.returncode != 0:
        pytest.skip(f"no loop device: {loop.stderr.strip()}")
    device = loop.stdout.strip()
    try:
        subprocess.run([f"mkfs.{kind}", "-q", device], check=True, capture_output=True)
        subprocess.run(["mount", device, str(target)], check=True, capture_output=True)
        try:
            yield target
        finally:
            subprocess.run(["umount", str(target)], check=True)
    finally:
        subprocess.run(["losetup", "-d", device], check=True)


@pytest.mark.parametrize("loop_mount", [("xfs", 400 << 20, 4096)], indirect=True, ids=["xfs-4096"])
def test_a_unit_that_4096_byte_sectors_refuse_is_named(kvbench: Kvbench, loop_mount: Path, tmp_path: Path) -> None:
    arguments = ("fio", "--tier", loop_mount, *SHORT, "-o", tmp_path / "run")
    outcome = kvbench(*arguments, "--model", "deepseek-v3", "--connector", "logical")

    assert outcome.code == 2
    assert "is on a device with sectors of 4096 bytes and refuses O_DIRECT with 1124352 bytes" in outcome.err
    assert list(loop_mount.iterdir()) == []


@pytest.mark.parametrize("loop_mount", [("ext4", 400 << 20, 512)], indirect=True, ids=["ext4"])
def test_a_tier_that_fills_up_during_the_layout_is_reported(start: Start, loop_mount: Path, tmp_path: Path) -> None:
    options = ("--model", "qwen3-8b", "--mix", "read", "--numjobs", "1", "--runtime", "1", "--dataset", "200MiB")
    child = start("fio", "--tier", loop_mount, *options, "-o", tmp_path / "run")
    # Somebody else fills the file system as soon as the work directory appears.
    wait_for(lambda: bool(list(loop_mount.glob("kvbench-*"))))
    fill(loop_mount / "other")
    _, err = child.communicate(timeout=120)

    assert child.returncode in (2, 3)
    assert "No space left on device" in err or "free and the data set needs" in err
    assert "Traceback" not in err
    assert [path.name for path in loop_mount.iterdir() if path.name != "lost+found"] == ["other"]


def fill(path: Path) -> None:
    with path.open("wb") as file:
        try:
            while True:
                os.posix_fallocate(file.fileno(), file.seek(0, 2), 8 << 20)
        except OSError:
            return


def our_fio(tmp_path: Path) -> list[tuple[int, str]]:
    """Process ids and working directories of the measuring fio processes of this test."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            cwd = str((entry / "cwd").readlink())
            command = (entry / "cmdline").read_bytes()
            if b"--output=" in command and b"fio" in command and cwd.startswith(str(tmp_path)):
                found.append((int(entry.name), cwd))
        except OSError:
            continue
    return found


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)
