"""Order, resume, signals and failures of a run, with a fake fio on PATH."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FakeFio, Outcome

Kvbench = Callable[..., Outcome]
Start = Callable[..., subprocess.Popen[str]]

SMALL = ("--model", "qwen3-8b", "--mix", "mixed,read", "--numjobs", "1,2", "--runtime", "1", "--dataset", "16MiB")
IDS = [f"tier-2359296-{mix}-j{jobs}" for mix in ("mixed", "read") for jobs in (1, 2)]


def points(run_dir: Path) -> dict[str, dict[str, Any]]:
    return {point["id"]: point for point in json.loads((run_dir / "result.json").read_text())["points"]}


def is_clean(tier: Path) -> bool:
    return not list(tier.iterdir())


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        time.sleep(0.05)


@pytest.mark.slow
def test_every_job_is_parsed_by_fio_before_it_runs_and_data_is_laid_out_first(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path
) -> None:
    outcome = kvbench("fio", "--tier", tier, *SMALL, "-o", tmp_path / "run")

    assert outcome.code == 0, outcome.err
    expected = ["version", "parse " + " ".join(IDS), "parse layout", "run layout"]
    for name in IDS:
        beside = f" {name}-stores" if "mixed" in name else ""
        expected += [f"parse {name}{beside}", f"run {name}"]
    assert fake_fio.log() == expected
    assert is_clean(tier)


@pytest.mark.slow
def test_the_result_holds_what_the_contract_promises(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    logical = ("--connector", "logical", "--label", "rack=7")
    printed = kvbench("fio", "--tier", f"fast={tier}", *SMALL, *logical, "-o", run, "--json").json()
    saved = json.loads((run / "result.json").read_text())

    assert {key: printed[key] for key in saved} == saved
    assert next(iter(saved)) == "schema_version"
    assert {"schema_version", "created", "labels", "environment", "uses", "points"} <= set(saved)
    assert saved["labels"] == {"rack": "7"}
    assert saved["uses"] == [
        {
            "model": "Qwen/Qwen3-8B",
            "tp": 1,
            "kv_dtype": "bfloat16",
            "connector": "logical",
            "engine_version": None,
            "io_bytes": 2359296,
            "block_tokens": 16,
            "units_per_block": 1,
            "parallelism_per_request": 16,
            "windowed_units": 0,
            "window_units": 0,
            "threads": None,
            "active_parameters": 6_945_767_424,
            "pair_flop": 589_824,
            "engine_block_tokens": None,
        }
    ]
    point = next(point for point in saved["points"] if point["id"] == "fast-2359296-mixed-j2")
    promised = {
        *("id", "job", "source", "tier", "driver", "io_bytes", "mix", "numjobs", "clients", "runtime_s"),
        *("latency_source", "status", "reason", "histogram", "read", "write", "warnings"),
    }
    assert promised <= set(point)
    assert set(point["read"]) == {"ios", "bytes", "iops", "bytes_per_s", "latency_ns"}
    assert set(point["read"]["latency_ns"]) == {
        *("mean", "min", "max", "p50", "p90", "p95", "p99", "p99_9", "p99_low", "p99_high", "intervals")
    }
    assert (point["read"]["ios"], point["write"]["ios"], point["latency_source"]) == (3000, 1000, "lat")
    assert point["status"] == "ok"
    read_only = next(point for point in saved["points"] if point["id"] == "fast-2359296-read-j1")
    assert read_only["write"] is None
    histogram = json.loads((run / point["histogram"]).read_text())
    assert histogram["unit"] == "ns"
    assert sum(histogram["read"].values()) == 3000


@pytest.mark.slow
def test_raw_evidence_stays_beside_the_result(kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    kvbench("fio", "--tier", tier, *SMALL, "-o", run)

    for name in [*IDS, "tier-layout"]:
        folder = run / "points" / name
        assert {"job.fio", "fio.json", "fio.err", "fio.log", "command.txt"} <= {file.name for file in folder.iterdir()}
    assert {"result.json", "summary.md", "measurement.json", "tier.fio"} <= {file.name for file in run.iterdir()}


@pytest.mark.slow
def test_models_with_the_same_io_size_share_a_point(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path
) -> None:
    options = ("--model", "qwen3-8b", "--model", "Qwen/Qwen3-VL-8B-Instruct", "--mix", "read", "--numjobs", "1")
    result = kvbench("fio", "--tier", tier, *options, "--dataset", "16MiB", "-o", tmp_path / "run", "--json").json()

    assert [use["model"] for use in result["uses"]] == ["Qwen/Qwen3-8B", "Qwen/Qwen3-VL-8B-Instruct"]
    assert set(fake_fio.runs()) == {"layout", "tier-2359296-read-j1"}
    assert [point["id"] for point in result["points"]] == ["tier-2359296-read-j1"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "reason"),
    [
        pytest.param(28, "fio reports No space left on device (error 28)", id="tier-full"),
        pytest.param(5, "fio reports Input/output error (error 5)", id="io-error"),
        pytest.param("truncated", "fio's output holds no complete fio JSON", id="truncated-json"),
        pytest.param("silent", "fio ended with exit code 1: fio: engine libaio not loadable", id="no-output"),
        pytest.param("die", "fio was killed by SIGKILL", id="fio-killed"),
        pytest.param("no-io", "fio did no I/O", id="no-io"),
    ],
)
def test_a_point_that_fails_says_why_and_the_others_are_measured(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path, what: str | int, reason: str
) -> None:
    fake_fio.on("mixed-j2", what)
    outcome = kvbench("fio", "--tier", tier, *SMALL, "-o", tmp_path / "run")

    assert outcome.code == 3
    saved = points(tmp_path / "run")
    assert list(saved) == IDS
    failed = saved.pop("tier-2359296-mixed-j2")
    assert failed["status"] == "failed"
    assert failed["reason"].startswith(reason)
    assert failed["warnings"] == []
    assert {point["status"] for point in saved.values()} == {"ok"}
    assert "Traceback" not in outcome.err
    assert is_clean(tier)


@pytest.mark.slow
def test_a_fio_that_never_ends_is_stopped_after_the_timeout(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvbench.drivers.fio.driver._POINT_GRACE_S", 0.5)
    monkeypatch.setattr("kvbench.drivers.fio.run._STOP_S", 1.0)
    fake_fio.on("mixed-j1", "stuck")
    fake_fio.on("mixed-j2", "hang")
    outcome = kvbench("fio", "--tier", tier, *SMALL, "-o", tmp_path / "run")

    assert outcome.code == 3
    saved = points(tmp_path / "run")
    reason = "fio did not end in time and was stopped: the tier hangs"
    assert {saved[name]["reason"] for name in IDS[:2]} == {reason}
    assert {saved[name]["status"] for name in IDS[2:]} == {"ok"}
    assert not fio_processes(tmp_path)


@pytest.mark.slow
def test_an_ended_early_point_is_kept_with_a_warning(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path
) -> None:
    fake_fio.on("mixed-j1", "short")
    outcome = kvbench("fio", "--tier", tier, *SMALL, "-o", tmp_path / "run")

    point = points(tmp_path / "run")["tier-2359296-mixed-j1"]
    assert outcome.code == 0
    assert [warning["code"] for warning in point["warnings"]][:1] == ["short-runtime"]
    assert point["warnings"][0]["values"] == {"runtime_s": 0.5, "requested_runtime_s": 1.0}


@pytest.mark.slow
def test_strict_turns_a_warning_into_exit_3(kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path) -> None:
    fake_fio.on("mixed-j1", "short")
    assert kvbench("fio", "--tier", tier, *SMALL, "-o", tmp_path / "run", "--strict").code == 3


@pytest.mark.slow
def test_a_layout_that_fails_skips_the_points_and_cleans_up(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path
) -> None:
    fake_fio.on("layout", 28)
    outcome = kvbench("fio", "--tier", tier, *SMALL, "-o", tmp_path / "run")

    assert outcome.code == 3
    saved = points(tmp_path / "run")
    assert {point["status"] for point in saved.values()} == {"skipped"}
    assert "No space left on device" in saved[IDS[0]]["reason"]
    assert is_clean(tier)


@pytest.mark.slow
def test_a_job_file_that_fio_refuses_stops_the_run_before_anything_is_measured(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path
) -> None:
    fake_fio.on("tier-", "refused")
    outcome = kvbench("fio", "--tier", tier, *SMALL, "-o", tmp_path / "run")

    assert outcome.code == 2
    assert "fio: bad option <nonsense=1>" in outcome.err
    assert fake_fio.runs() == []
    assert is_clean(tier)


@pytest.mark.slow
def test_resume_measures_only_what_is_not_finished(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    fake_fio.on("read-j1", 5)
    assert kvbench("fio", "--tier", tier, *SMALL, "-o", run).code == 3
    before = points(run)
    fake_fio.log_file.unlink()
    fake_fio.on("read-j1", "ok")

    assert kvbench("fio", "--tier", tier, *SMALL, "-o", run, "--resume").code == 0
    assert fake_fio.runs() == ["layout", "tier-2359296-read-j1"]
    after = points(run)
    assert list(after) == IDS
    assert after["tier-2359296-read-j1"]["status"] == "ok"
    assert after["tier-2359296-mixed-j1"] == before["tier-2359296-mixed-j1"]


@pytest.mark.slow
def test_resume_of_a_finished_run_measures_nothing(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    kvbench("fio", "--tier", tier, *SMALL, "-o", run)
    before = (run / "result.json").read_text()
    fake_fio.log_file.unlink()

    assert kvbench("fio", "-o", run, "--resume").code == 0
    assert fake_fio.runs() == []
    assert json.loads((run / "result.json").read_text())["points"] == json.loads(before)["points"]


@pytest.mark.slow
def test_resume_refuses_other_options(kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    kvbench("fio", "--tier", tier, *SMALL, "-o", run)
    outcome = kvbench("fio", "--tier", tier, *SMALL, "--rwmixread", "50", "-o", run, "--resume")

    assert outcome.code == 2
    assert "was started with other options" in outcome.err


def test_resume_without_a_run_is_an_error(
    kvbench: Kvbench, fake_fio: FakeFio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = kvbench("fio", "--resume")

    assert outcome.code == 2
    assert outcome.err.strip() == "kvbench: there is no run below reports/ to resume; name it with -o."


def test_a_used_directory_is_never_reused(kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "precious").write_text("mine")
    outcome = kvbench("fio", "--tier", tier, *SMALL, "-o", run)

    assert outcome.code == 2
    assert "is not empty" in outcome.err
    assert [file.name for file in run.iterdir()] == ["precious"]


def test_dry_run_writes_nothing(kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path) -> None:
    outcome = kvbench("fio", "--tier", tier, *SMALL, "-o", tmp_path / "run", "--dry-run")

    assert outcome.code == 0
    assert all(name in outcome.out for name in IDS)
    assert not (tmp_path / "run").exists()
    assert is_clean(tier)
    assert fake_fio.log() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_what_finished_stops_fio_and_cleans_up(
    start: Start, fake_fio: FakeFio, tier: Path, tmp_path: Path, number: signal.Signals
) -> None:
    fake_fio.on("mixed-j2", "hang")
    run = tmp_path / "run"
    child = start("fio", "--tier", tier, *SMALL, "-o", run)
    wait_for(lambda: "hanging tier-2359296-mixed-j2" in fake_fio.log(), "the second point")
    child.send_signal(number)
    _, err = child.communicate(timeout=60)

    assert child.returncode == 130
    assert f"stopped by {number.name}; what finished is saved, continue with --resume." in err
    assert "Traceback" not in err
    saved = points(run)
    assert {name: point["status"] for name, point in saved.items()} == {IDS[0]: "ok", IDS[1]: "interrupted"}
    assert saved[IDS[1]]["read"]["ios"] == 3000
    assert "signal tier-2359296-mixed-j2" in fake_fio.log()
    assert is_clean(tier)
    assert not fio_processes(tmp_path)
    assert (run / "summary.md").exists()


def test_a_killed_run_leaves_no_child_and_no_data_and_resumes(
    start: Start, kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path
) -> None:
    fake_fio.on("mixed-j2", "hang")
    run = tmp_path / "run"
    child = start("fio", "--tier", tier, *SMALL, "-o", run)
    wait_for(lambda: "hanging tier-2359296-mixed-j2" in fake_fio.log(), "the second point")
    child.kill()
    child.communicate()

    wait_for(lambda: is_clean(tier), "the guard to remove the data")
    wait_for(lambda: not fio_processes(tmp_path), "the guard to stop fio")
    assert list(points(run)) == IDS[:1]
    fake_fio.on("mixed-j2", "ok")
    assert kvbench("fio", "--tier", tier, *SMALL, "-o", run, "--resume").code == 0
    assert [point["status"] for point in points(run).values()] == ["ok"] * 4


def fio_processes(tmp_path: Path) -> list[int]:
    """Living processes of the fake fio of this test (a zombie has no command line)."""
    program = str(tmp_path / "bin" / "fio").encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if program in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_without_fio_the_error_says_how_to_get_it(
    kvbench: Kvbench, tier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = kvbench("fio", "--tier", tier, *SMALL, "-o", tmp_path / "run")

    assert outcome.code == 2
    assert outcome.err.startswith("kvbench: fio is not installed; install it ('apt-get install fio'")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("version", "said"), [("fio-3.1", "too old"), ("fio-2.14", "too old"), ("nonsense", "say its version")]
)
def test_an_old_or_strange_fio_is_refused(
    kvbench: Kvbench,
    fake_fio: FakeFio,
    tier: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    said: str,
) -> None:
    monkeypatch.setenv("FAKE_FIO_VERSION", version)
    outcome = kvbench("fio", "--tier", tier, *SMALL, "-o", tmp_path / "run")

    assert outcome.code == 2
    assert said in outcome.err


@pytest.mark.slow
def test_two_tiers_are_measured_one_after_the_other(kvbench: Kvbench, fake_fio: FakeFio, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    options = ("--model", "qwen3-8b", "--mix", "read", "--numjobs", "1", "--runtime", "1", "--dataset", "16MiB")
    outcome = kvbench("fio", "--tier", tmp_path / "a", "--tier", tmp_path / "b", *options, "-o", tmp_path / "run")

    assert outcome.code == 0
    assert fake_fio.runs() == ["layout", "a-2359296-read-j1", "layout", "b-2359296-read-j1"]


def test_a_crash_of_ours_exits_70_and_asks_for_a_report(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("kvbench.run.runner.run", broken)
    outcome = kvbench("fio", "--tier", tier, *SMALL, "-o", tmp_path / "run")

    assert outcome.code == 70
    assert "this is a bug in kvbench" in outcome.err
    assert is_clean(tier)


@pytest.mark.slow
def test_a_mix_is_readers_beside_paced_stores_and_says_so(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path
) -> None:
    assert kvbench("fio", "--tier", tier, *SMALL, "-o", tmp_path / "run").code == 0
    for name, point in points(tmp_path / "run").items():
        storing = point["conditions"]["storing_jobs"]
        assert (storing is not None) == ("mixed" in name)
        assert (point["write"] is not None) == ("mixed" in name)


@pytest.mark.slow
def test_a_mix_whose_stores_find_no_pace_fails_alone(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path
) -> None:
    fake_fio.on("pace", 5)
    assert kvbench("fio", "--tier", tier, *SMALL, "-o", tmp_path / "run").code == 3
    found = points(tmp_path / "run")
    assert {name: point["status"] for name, point in found.items()} == {
        name: "failed" if "mixed" in name else "ok" for name in IDS
    }
    assert "Input/output error" in found["tier-2359296-mixed-j1"]["reason"]
