"""``kvbench fio`` on real block devices. Every device here is a loop device that the test made for itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kvbench.tiers import device_tier
from tests.conftest import ROOT, require_fio
from tests.lab.processes import run
from tests.lab.state import Loop
from tests.tiers.conftest import Run, program, wait_for
from tests.tiers.test_loop_devices import digest

MakeLoop = Callable[..., Loop]

QWEN = ("--model", "qwen3-8b", "--numjobs", "1,2")
READS = (*QWEN, "--mix", "read")


def fill(loop: Loop) -> None:
    """Random data over the whole device: it counts as written."""
    size = Path(loop.backing_file).stat().st_size
    with Path(loop.device).open("wb", buffering=0) as file:
        block = os.urandom(1 << 20)
        for _ in range(size >> 20):
            file.write(block)
        os.fsync(file.fileno())


def codes(point: dict[str, object]) -> set[str]:
    return {warning["code"] for warning in point["warnings"]}  # type: ignore[attr-defined]


def test_reads_need_no_consent_and_change_nothing(fresh_loop: MakeLoop, run_fio: Run) -> None:
    loop = fresh_loop("data", size=128 << 20)
    fill(loop)
    before = digest(loop)
    measured = run_fio("--tier", f"blk={loop.device}", *READS)

    assert measured.code == 0, measured.err
    assert digest(loop) == before
    for point in measured.points():
        assert (point["status"], point["write"]) == ("ok", None)
        assert point["conditions"]["cache_state"] == "cold"
        assert "unwritten-data" not in codes(point)
        folder = (measured.run_dir / point["source"]).parent
        assert " --readonly " in (folder / "command.txt").read_text()
        text = (folder / "job.fio").read_text()
        assert re.search(rf"; (/proc/self/fd/\d+) is '{loop.device}', which .*\n(.*\n)*filename=\1\n", text)
        assert "allow_file_create=0\n" in text
        assert "rw=randread\n" in text
    facts = measured.result["tiers"]["blk"]
    assert (facts["path"], facts["access"], facts["logical_sector_bytes"]) == (loop.device, "read only", 512)
    assert not [path for path in measured.run_dir.iterdir() if path.name.startswith("kvbench-")]


def test_a_device_that_was_never_written_is_reported(fresh_loop: MakeLoop, run_fio: Run) -> None:
    measured = run_fio("--tier", f"blk={fresh_loop('empty').device}", *READS)
    assert measured.code == 0, measured.err
    assert all("unwritten-data" in codes(point) for point in measured.points())


def test_the_page_cache_of_a_device_is_seen_and_dropped(fresh_loop: MakeLoop) -> None:
    loop, size = fresh_loop("cached"), 8 << 20
    tier = device_tier.inspect("t", loop.device, [])
    # The kernel drops a device's pages when the last one closes it, so this stays open.
    with Path(loop.device).open("rb") as file:
        assert len(file.read(size)) == size
        assert device_tier.cached_fraction(tier, size) == 1.0
        assert device_tier.drop_cached(tier, size) == "dropped"
        assert device_tier.cached_fraction(tier, size) == 0.0


@pytest.mark.parametrize("consent", [None, "/dev/disk/by-id/x", "link"])
def test_writes_need_the_resolved_path_and_nothing_else_will_do(
    fresh_loop: MakeLoop, run_fio: Run, tmp_path: Path, consent: str | None
) -> None:
    loop = fresh_loop("precious")
    before = digest(loop)
    link = tmp_path / "link"
    link.symlink_to(loop.device)
    allow = [] if consent is None else ["--allow-destroy", str(link) if consent == "link" else consent]
    measured = run_fio("--tier", f"blk={link}", *QWEN, *allow)

    assert measured.code == 2
    assert loop.device in measured.err
    assert digest(loop) == before
    assert not measured.run_dir.exists()


def test_with_consent_everything_is_measured_and_the_device_stays_usable(
    fresh_loop: MakeLoop, run_fio: Run, tmp_path: Path
) -> None:
    loop = fresh_loop("scratch", 4096)
    measured = run_fio("--tier", f"blk={loop.device}", *QWEN, "--allow-destroy", loop.device)

    assert measured.code == 0, measured.err
    assert [(point["mix"], point["numjobs"]) for point in measured.points()] == [
        (mix, jobs) for mix in ("mixed", "read", "write") for jobs in (1, 2)
    ]
    for point in measured.points():
        assert point["status"] == "ok"
        assert not codes(point) & {"unwritten-data", "reads-not-from-device", "page-cache", "littles-law"}
        command = ((measured.run_dir / point["source"]).parent / "command.txt").read_text()
        assert ("--readonly" in command) == (point["mix"] == "read")
    target = tmp_path / "after"
    target.mkdir()
    run(["mkfs.xfs", "-q", "-f", loop.device])
    run(["mount", loop.device, target])
    run(["umount", target])


def test_nothing_is_written_beyond_the_data_set(fresh_loop: MakeLoop, run_fio: Run) -> None:
    loop = fresh_loop("sparse")
    measured = run_fio("--tier", f"blk={loop.device}", *QWEN, "--allow-destroy", loop.device)
    assert measured.code == 0, measured.err
    with Path(loop.backing_file).open("rb") as file:
        first_hole = os.lseek(file.fileno(), 0, os.SEEK_HOLE)
        assert first_hole <= 64 << 20
        with pytest.raises(OSError, match="No such device or address"):
            os.lseek(file.fileno(), 64 << 20, os.SEEK_DATA)


def test_a_mounted_device_is_refused_even_with_consent(fresh_loop: MakeLoop, run_fio: Run) -> None:
    loop = fresh_loop("mounted", xfs=True)
    before = digest(loop)
    for options in ((*QWEN, "--allow-destroy", loop.device), READS):
        measured = run_fio("--tier", f"blk={loop.device}", *options)
        assert measured.code == 2
        assert f"is mounted at {loop.mount}" in measured.err
    assert digest(loop) == before


def test_consent_for_something_else_is_refused(fresh_loop: MakeLoop, run_fio: Run, tier: Path) -> None:
    loop = fresh_loop("other")
    measured = run_fio("--tier", tier, *READS, "--allow-destroy", loop.device)
    assert measured.code == 2
    assert "is not the resolved path of a tier of this run" in measured.err


def test_a_unit_that_its_sectors_refuse_is_named(fresh_loop: MakeLoop, run_fio: Run) -> None:
    loop = fresh_loop("native", 4096)
    measured = run_fio("--tier", f"blk={loop.device}", "--model", "deepseek-v3", "--mix", "read", "--numjobs", "1")
    assert measured.code == 2
    assert "has sectors of 4096 bytes and refuses O_DIRECT with 1124352 bytes" in measured.err


def test_a_data_set_beyond_the_end_is_refused(fresh_loop: MakeLoop, run_fio: Run) -> None:
    loop = fresh_loop("small", size=100 << 20)
    measured = run_fio("--tier", f"blk={loop.device}", *READS, "--dataset", "200MiB")
    assert measured.code == 2
    assert "has 100 MiB and the data set needs 200 MiB; use a smaller --dataset." in measured.err


def test_a_run_that_writes_asks_again_when_it_is_resumed(fresh_loop: MakeLoop, run_fio: Run) -> None:
    loop = fresh_loop("resumed")
    first = run_fio("--tier", f"blk={loop.device}", *QWEN, "--mix", "mixed", "--allow-destroy", loop.device)
    assert first.code == 0, first.err
    # Make one point unfinished, as an interrupted run leaves it.
    result = json.loads((first.run_dir / "result.json").read_text())
    result["points"][-1]["status"] = "interrupted"
    (first.run_dir / "result.json").write_text(json.dumps(result))

    def again(*options: str) -> subprocess.CompletedProcess[str]:
        command = program("fio", "--resume", "-o", first.run_dir, *options)
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)

    refused = again()
    assert (refused.returncode, f"--allow-destroy {loop.device}" in refused.stderr) == (2, True)
    assert again("--allow-destroy", loop.device).returncode == 0


def test_the_device_is_claimed_while_it_is_measured_and_free_after_a_kill(fresh_loop: MakeLoop, tmp_path: Path) -> None:
    require_fio()
    loop = fresh_loop("claimed", xfs=False)
    run(["mkfs.xfs", "-q", "-f", loop.device])
    target, run_dir = tmp_path / "target", tmp_path / "run"
    target.mkdir()
    options = [
        "--connector",
        "logical",
        "--model",
        "qwen3-8b",
        "--mix",
        "read",
        "--numjobs",
        "1",
        "--runtime",
        "60",
        "--dataset",
        "64MiB",
    ]
    child = subprocess.Popen(
        [*program("fio", "--tier", f"blk={loop.device}"), *options, "-o", str(run_dir)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: list(run_dir.glob("points/*-read-j1/fio.log")))
        refused = subprocess.run(
            ["mount", loop.device, str(target)], capture_output=True, text=True, check=False, timeout=60
        )
        assert refused.returncode != 0
        assert "busy" in refused.stderr or "already mounted" in refused.stderr
    finally:
        child.kill()
        child.wait()
    wait_for(lambda: not users_of(loop.device))
    run(["mount", loop.device, target])
    run(["umount", target])


def users_of(device: str) -> list[int]:
    """Processes that hold the device open."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(link) == device for link in (entry / "fd").iterdir()):  # noqa: PTH115
                found.append(int(entry.name))
        except OSError:
            continue
    return found
