"""Block devices, really: XFS on 512 and 4096-byte sectors, and which devices are refused untouched."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvbench.errors import TierError
from kvbench.tiers import block
from kvbench.tiers.block import Kernel
from tests.lab.state import Loop
from tests.tiers.conftest import Run

Doctor = Callable[..., dict[str, Any]]
MakeLoop = Callable[..., Loop]

ONE_READ = ("--mix", "read", "--numjobs", "2")


def digest(loop: Loop) -> str:
    with Path(loop.backing_file).open("rb") as file:
        return hashlib.sha256(file.read(8 << 20)).hexdigest()


def refusal(target: str | Path) -> str:
    """What the rules say about writing to a device; empty when nothing uses it."""
    kernel = Kernel.here()
    device = block.identify(str(target), kernel)
    try:
        block.require_unused(device, kernel)
        block.require_exclusive(device)
    except TierError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("xfs", [512, 4096], indirect=True, ids=["sector-512", "sector-4096"])
def test_xfs_is_measured_on_its_device(xfs: Loop, run_fio: Run, doctor: Doctor) -> None:
    assert xfs.mount is not None
    measured = run_fio("--tier", f"xfs={xfs.mount}", "--model", "openai/gpt-oss-120b", "--numjobs", "1,2")
    assert measured.code == 0, measured.err
    assert {point["status"] for point in measured.points()} == {"ok"}
    assert {point["conditions"]["filesystem"] for point in measured.points()} == {"xfs"}
    for point in measured.points():
        if point["read"]:
            assert point["conditions"]["device_read_bytes"] >= point["read"]["bytes"] * 0.9
    found = doctor(xfs.mount)
    assert found["kind"] == f"local xfs on {xfs.device}"
    findings = {finding["check"]: finding["observed"] for finding in found["findings"]}
    assert findings["O_DIRECT"] == f"takes multiples of {xfs.sector_bytes} bytes"
    assert findings["page cache"] == "bypassed by O_DIRECT"
    assert list(Path(xfs.mount).iterdir()) == []


@pytest.mark.parametrize(("xfs", "code"), [(512, 0), (4096, 2)], indirect=["xfs"], ids=["sector-512", "sector-4096"])
def test_a_unit_of_whole_512_byte_sectors_needs_such_sectors(xfs: Loop, code: int, run_fio: Run) -> None:
    # DeepSeek-V3's block is 1,124,352 bytes: 2,196 sectors of 512 bytes, 274.5 of 4096.
    measured = run_fio("--tier", str(xfs.mount), "--model", "deepseek-v3", *ONE_READ)
    assert measured.code == code, measured.err
    if code:
        assert "is on a device with sectors of 4096 bytes and refuses O_DIRECT with 1124352 bytes" in measured.err


def test_an_unused_loop_device_is_free(fresh_loop: MakeLoop, doctor: Doctor) -> None:
    loop = fresh_loop("free", 4096)
    found = doctor(loop.device)
    assert {finding["status"] for finding in found["findings"]} == {"ok"}
    assert found["facts"]["logical_sector_bytes"] == 4096
    assert found["facts"]["size_bytes"] == 400 << 20
    assert refusal(loop.device) == ""


def test_a_mounted_device_is_refused_under_every_name_and_untouched(
    fresh_loop: MakeLoop, doctor: Doctor, tmp_path: Path
) -> None:
    loop = fresh_loop("mounted", xfs=True)
    link = tmp_path / "by-id"
    link.symlink_to(loop.device)
    node = tmp_path / "node"
    number = Path(loop.device).stat().st_rdev
    subprocess.run(["mknod", str(node), "b", str(number >> 8), str(number & 0xFF)], check=True)
    before = digest(loop)
    for name in (loop.device, link, node):
        assert f"is mounted at {loop.mount}" in refusal(name), name
        findings = {finding["check"]: finding for finding in doctor(name)["findings"]}
        assert findings["unused"]["status"] == "problem"
        assert f"measure the directory {loop.mount} instead" in findings["unused"]["next_step"]
    assert digest(loop) == before


def test_a_loop_device_over_a_mounted_one_is_refused_and_the_other_way_round(fresh_loop: MakeLoop) -> None:
    below = fresh_loop("below")
    done = subprocess.run(["losetup", "--show", "-f", below.device], capture_output=True, text=True, check=True)
    above = done.stdout.strip()
    try:
        assert f"is part of {Path(above).name} (a loop device)" in refusal(below.device)
    finally:
        subprocess.run(["losetup", "-d", above], check=True)


def test_another_loop_device_over_the_image_of_a_mounted_one_is_refused(fresh_loop: MakeLoop) -> None:
    mounted = fresh_loop("image", xfs=True)
    done = subprocess.run(["losetup", "--show", "-f", mounted.backing_file], capture_output=True, text=True, check=True)
    other = done.stdout.strip()
    try:
        # The kernel grants exclusive use of the other one: it does not know that their bytes are the same.
        assert f"{Path(mounted.device).name} is mounted at {mounted.mount}" in refusal(other)
    finally:
        subprocess.run(["losetup", "-d", other], check=True)


def test_swap_is_refused(fresh_loop: MakeLoop) -> None:
    loop = fresh_loop("swap")
    subprocess.run(["mkswap", loop.device], check=True, capture_output=True)
    done = subprocess.run(["swapon", "--priority", "0", loop.device], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"this host takes no swap: {done.stderr.strip()}")
    try:
        assert "is swap space" in refusal(loop.device)
    finally:
        subprocess.run(["swapoff", loop.device], check=True)
    assert refusal(loop.device) == ""


def test_a_device_that_a_program_owns_is_refused(fresh_loop: MakeLoop) -> None:
    import os

    loop = fresh_loop("owned")
    owner = os.open(loop.device, os.O_RDONLY | os.O_EXCL)
    try:
        assert "cannot be opened for exclusive use" in refusal(loop.device)
    finally:
        os.close(owner)


def test_members_and_file_systems_are_recognised_on_a_real_device(fresh_loop: MakeLoop, doctor: Doctor) -> None:
    loop = fresh_loop("signed")
    subprocess.run(["mkfs.xfs", "-q", "-f", loop.device], check=True)
    contents = {finding["check"]: finding for finding in doctor(loop.device)["findings"]}["contents"]
    assert (contents["status"], contents["observed"]) == ("note", "holds xfs")
