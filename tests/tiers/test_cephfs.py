"""CephFS, really: what is measured there, what the mount says about itself, and an OSD that hangs or goes away."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvbench.tiers import probe
from tests.conftest import ROOT
from tests.lab.ceph import start_osd
from tests.lab.processes import pid_of, run, unmount
from tests.lab.state import Ceph
from tests.tiers.conftest import Run, program, resume, signal_osds, wait_for

Doctor = Callable[..., dict[str, Any]]

PAUSE_S = 6
STANDSTILL = re.compile(r"(?:no|hardly any) reads for (\d+) s")
# An OSD takes up to 10 s to end, and some more to come back.
AWAY_RUN_S = 45


@pytest.fixture
def folder(ceph: Ceph) -> Path:
    return Path(ceph.mount)


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("kvbench-*"))


def test_reads_writes_and_the_mix_are_measured_with_whole_latencies(folder: Path, run_fio: Run) -> None:
    measured = run_fio("--tier", f"cephfs={folder}", "--model", "qwen3-8b", "--numjobs", "1,4")

    assert measured.code == 0, measured.err
    assert measured.result["tiers"]["cephfs"]["ceph_pool"] == "cephfs_data"
    assert [(point["mix"], point["numjobs"]) for point in measured.points()] == [
        (mix, jobs) for mix in ("mixed", "read", "write") for jobs in (1, 4)
    ]
    for point in measured.points():
        assert (point["status"], point["latency_source"]) == ("ok", "lat")
        codes = [warning["code"] for warning in point["warnings"]]
        assert "ceph-fuse" in codes
        assert "littles-law" not in codes
        job = measured.fio(point)
        for name in ("read", "write"):
            if point[name] is None:
                continue
            ours, theirs = point[name]["latency_ns"], job[name]
            assert ours["p99"] == theirs["lat_ns"]["percentile"]["99.000000"]
            # io_submit blocks on FUSE: nearly all of an operation's life is submission, which clat leaves out.
            assert theirs["slat_ns"]["mean"] > theirs["clat_ns"]["mean"]
            assert ours["mean"] >= theirs["slat_ns"]["mean"]
    assert leftovers(folder) == []


def test_the_mount_says_client_pool_layout_and_copies(ceph: Ceph, folder: Path, doctor: Doctor) -> None:
    found = doctor(folder, CEPH_CONF=ceph.conf)
    assert found["kind"] == "CephFS through ceph-fuse"
    facts = found["facts"]
    assert (facts["ceph_client"], facts["ceph_pool"]) == ("ceph-fuse", "cephfs_data")
    assert (facts["ceph_stripe_unit_bytes"], facts["ceph_stripe_count"], facts["ceph_object_bytes"]) == (
        4 << 20,
        1,
        4 << 20,
    )
    assert (facts["ceph_copies"], facts["ceph_osds_up"]) == (1, len(ceph.osds))
    (meaning,) = [finding for finding in found["findings"] if finding["check"] == "meaning"]
    assert "128 KiB" in meaning["observed"]
    assert leftovers(folder) == []


def test_a_directory_in_another_pool_says_so(ceph: Ceph, doctor: Doctor) -> None:
    if ceph.replicated is None:
        pytest.skip("the lab runs one OSD: no second copy (python -m tests.lab up --osds 2)")
    facts = doctor(ceph.replicated, CEPH_CONF=ceph.conf)["facts"]
    assert (facts["ceph_pool"], facts["ceph_copies"]) == ("cephfs_two_copies", 2)


def test_a_mounted_sub_directory_says_its_pool_too(ceph: Ceph, folder: Path, doctor: Doctor, tmp_path: Path) -> None:
    shared, mounted = folder / f"sub-{os.getpid()}", tmp_path / "mounted"
    shared.mkdir()
    mounted.mkdir()
    options = ["-n", "client.fuse", f"--client_mountpoint=/{shared.name}", f"--pid-file={tmp_path}/fuse.pid"]
    run(["ceph-fuse", "-c", ceph.conf, *options, mounted], log=tmp_path / "fuse.log")
    try:
        facts = doctor(mounted, CEPH_CONF=ceph.conf)["facts"]
        assert (facts["ceph_pool"], facts["ceph_object_bytes"], facts["ceph_copies"]) == ("cephfs_data", 4 << 20, 1)
        assert leftovers(mounted) == []
    finally:
        unmount(mounted)
        shared.rmdir()


def test_one_copy_and_two_are_measured_side_by_side(ceph: Ceph, folder: Path, run_fio: Run) -> None:
    if ceph.replicated is None:
        pytest.skip("the lab runs one OSD: no second copy (python -m tests.lab up --osds 2)")
    tiers = ("--tier", f"one={folder}", "--tier", f"two={ceph.replicated}")
    options = ("--model", "qwen3-8b", "--mix", "write", "--numjobs", "1", "--repeat", "2")
    measured = run_fio(*tiers, *options, env={"CEPH_CONF": ceph.conf})

    assert measured.code == 0, measured.err
    seen = {name: (facts["ceph_pool"], facts["ceph_copies"]) for name, facts in measured.result["tiers"].items()}
    assert seen == {"one": ("cephfs_data", 1), "two": ("cephfs_two_copies", 2)}
    assert [(point["tier"], point["status"]) for point in measured.points()] == [("one", "ok"), ("two", "ok")]
    assert leftovers(folder) == leftovers(Path(ceph.replicated)) == []


def test_without_the_clusters_keys_the_copies_are_unknown(folder: Path, doctor: Doctor) -> None:
    facts = doctor(folder, CEPH_CONF="/nowhere/ceph.conf")["facts"]
    assert facts["ceph_pool"] == "cephfs_data"
    assert str(facts["ceph_copies"]).startswith("unknown: ")


def test_o_direct_bypasses_the_page_cache_of_ceph_fuse(folder: Path, doctor: Doctor) -> None:
    findings = {finding["check"]: finding for finding in doctor(folder)["findings"]}
    assert findings["O_DIRECT"]["observed"] == "takes any size"
    assert findings["page cache"]["status"] == "ok"
    assert findings["fio libaio"]["status"] == "ok"


def start_read(target: Path, run_dir: Path, seconds: int, *more: str) -> subprocess.Popen[str]:
    command = program("fio", "--tier", f"cephfs={target}", "--model", "qwen3-8b", "--mix", "read", "--numjobs", "2")
    options = ["--connector", "logical", "--runtime", str(seconds), "--dataset", "64MiB", "-o", str(run_dir), *more]
    return subprocess.Popen([*command, *options], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def progressed(run_dir: Path) -> bool:
    """Whether fio has reported a rate for the point: its reads are under way."""
    logs = list(run_dir.glob("points/*-read-j2/fio.log"))
    return any("r=" in log.read_text(errors="replace") for log in logs)


def the_point(run_dir: Path) -> dict[str, Any]:
    (point,) = json.loads((run_dir / "result.json").read_text())["points"]
    assert isinstance(point, dict)
    return point


def test_osds_that_hang_in_mid_run_are_survived_and_show(
    ceph: Ceph, folder: Path, pause: Callable[[], None], tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    child = start_read(folder, run_dir, PAUSE_S + 6)
    wait_for(lambda: progressed(run_dir))
    pause()
    time.sleep(PAUSE_S)
    resume(ceph)
    _, err = child.communicate(timeout=120)

    assert child.returncode == 0, err
    point = the_point(run_dir)
    assert point["status"] == "ok"
    # One operation of each job waited for as long as the OSDs did.
    assert point["read"]["latency_ns"]["max"] >= (PAUSE_S - 1) * 10**9
    # A whole second less at each end: the pause does not start with a second, and what waited may end in its last one.
    stood_still = [(event, match) for event in point["events"] if (match := STANDSTILL.fullmatch(event["text"]))]
    assert max((int(match[1]) for _, match in stood_still), default=0) >= PAUSE_S - 2, point["events"]
    series = json.loads((run_dir / point["series"]).read_text())
    usual = max(entry["read"]["iops"] for entry in series)
    for event, match in stood_still:
        (entry,) = [entry for entry in series if entry["second"] == event["second"]]
        assert entry["events"] == [event["text"]]
        paused = series[event["second"] - 1 : event["second"] - 1 + int(match[1])]
        assert all(entry["read"]["iops"] < 0.05 * usual for entry in paused)
    assert "events" in [warning["code"] for warning in point["warnings"]]
    assert leftovers(folder) == []


def test_a_mount_whose_osds_hang_does_not_answer(ceph: Ceph, folder: Path, pause: Callable[[], None]) -> None:
    assert probe.answers(folder)
    pause()
    # Not the 10 s of doctor: Ceph 16.2 did not recover its PGs ("laggy") from a pause that long.
    assert not probe.answers(folder, seconds=2)
    resume(ceph)
    wait_for(lambda: not leftovers(folder))


def test_an_interrupt_while_the_osds_hang_ends_and_saves(
    ceph: Ceph, folder: Path, pause: Callable[[], None], tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    child = start_read(folder, run_dir, 60)
    wait_for(lambda: progressed(run_dir))
    pause()
    time.sleep(1)
    child.send_signal(signal.SIGINT)
    time.sleep(2)
    resume(ceph)
    _, err = child.communicate(timeout=120)

    assert child.returncode == 130, err
    assert "Traceback" not in err
    assert the_point(run_dir)["status"] == "interrupted"
    wait_for(lambda: not leftovers(folder))


def test_with_two_copies_an_osd_that_goes_away_and_comes_back_is_survived(ceph: Ceph, tmp_path: Path) -> None:
    if ceph.replicated is None:
        pytest.skip("the lab runs one OSD: no second copy (python -m tests.lab up --osds 2)")
    run_dir, leaving = tmp_path / "run", ceph.osds[-1]
    state = f"ceph -c {ceph.conf} osd stat"
    child = start_read(Path(ceph.replicated), run_dir, AWAY_RUN_S, "--watch", state)
    try:
        wait_for(lambda: progressed(run_dir))
        signal_osds([leaving], signal.SIGTERM)
        wait_for(lambda: pid_of(Path(leaving.pid_file)) is None)
        time.sleep(2)
    finally:
        if pid_of(Path(leaving.pid_file)) is None:
            start_osd(leaving)
    _, err = child.communicate(timeout=120)

    assert child.returncode == 0, err
    point = the_point(run_dir)
    assert point["status"] == "ok"
    changes = [event for event in point["events"] if " -> " in event["text"]]
    gone = next(event for event in changes if f"-> {len(ceph.osds)} osds: 1 up" in event["text"])
    back = next(event for event in changes if f"1 up, 2 in -> {len(ceph.osds)} osds: 2 up" in event["text"])
    assert 1 <= gone["second"] < back["second"] <= AWAY_RUN_S + 5
    assert "What happened during the runs" in (run_dir / "summary.md").read_text()
    wait_for(lambda: f"{len(ceph.osds)} up" in run(["ceph", "-c", ceph.conf, "osd", "stat"]), 90)
