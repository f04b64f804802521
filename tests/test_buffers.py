"""The memory that I/O lands in: where it is, what is left of it, how the device split what went there, what is said."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvbench.checks.requests import by_lane
from kvbench.decide.crossover import Goal
from kvbench.decide.decision import Wanted
from kvbench.decide.runs import LoadedRun
from kvbench.drivers import region
from kvbench.drivers.fio.job import render_points, run_environment
from kvbench.drivers.region import Memory, huge_option, memory_for, require_given
from kvbench.drivers.settings import Buffers, JobSettings
from kvbench.errors import MeasurementError, TierError
from kvbench.host import environment
from kvbench.record import results
from kvbench.record.comparison import compare
from kvbench.record.point import Point
from kvbench.record.requests import requests_each
from kvbench.record.results import PointResult, Round, RunResult
from kvbench.report import memory as memory_report
from kvbench.report.scene import Scene, scene_of
from kvbench.report.tables.measured import measured, short_measured
from kvbench.report.tables.memory import memory
from kvbench.run import measurement
from kvbench.tiers import device
from kvbench.tiers.mounts import DeviceCounters, Mount
from tests.conftest import Outcome
from tests.factories import GPT_OSS_BLOCK, conditions, direction, point

Kvbench = Callable[..., Outcome]
MIB = 1 << 20
ENGINE_BLOCK = 2304 << 10


def address(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a tmpfs with options of its own, unmounted at the end."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    made: list[Path] = []

    def mount(options: str) -> Path:
        place = tmp_path / f"shm{len(made)}"
        place.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            pytest.skip(f"this host mounts no tmpfs with {options}: {done.stderr.strip()}")
        made.append(place)
        return place

    yield mount
    for place in made:
        subprocess.run(["umount", str(place)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """ext4 on a loop device, which nobody else uses: its requests are ours."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("losetup", "mkfs.ext4"))):
        pytest.skip("a file system on a loop device needs root, losetup and mkfs.ext4")
    image, place = tmp_path / "image", tmp_path / "disk"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(256 * MIB)
    done = subprocess.run(["losetup", "--show", "-f", str(image)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"this host gives no loop device: {done.stderr.strip()}")
    loop = done.stdout.strip()
    try:
        subprocess.run(["mkfs.ext4", "-q", loop], check=True)
        subprocess.run(["mount", loop, str(place)], check=True)
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=False)
        subprocess.run(["losetup", "-d", loop], check=True)


@pytest.mark.parametrize("kind", ["engine", "own"])
@pytest.mark.parametrize("size", [4096, 100_001, 3 * MIB])
def test_every_block_has_a_page_aligned_place_of_its_own(kind: Buffers, size: int) -> None:
    places = memory_for(kind, 5, size).places
    begins = [address(place) for place in places]
    assert [len(place) for place in places] == [size] * 5
    assert {begin % mmap.PAGESIZE for begin in begins} == {0}
    assert all(abs(one - other) >= size for one in begins for other in begins if one != other)
    assert len(set(begins)) == 5


def test_the_engines_blocks_lie_in_one_region_without_a_name(tmpfs: Callable[[str], Path]) -> None:
    folder = tmpfs("size=8M,huge=never")
    found = memory_for("engine", 4, MIB, folder)
    begins = [address(place) for place in found.places]
    assert begins == [begins[0] + number * MIB for number in range(4)]
    assert found.described == f"one populated region in {folder}, as the engine's"
    assert list(folder.iterdir()) == []
    status = os.statvfs(folder)
    assert (status.f_blocks - status.f_bfree) * status.f_frsize == 4 * MIB


@pytest.mark.slow
def test_nothing_is_left_after_a_kill(tmpfs: Callable[[str], Path]) -> None:
    folder = tmpfs("size=8M")
    script = (
        "import sys, time; from pathlib import Path; from kvbench.drivers.region import memory_for;"
        "kept = memory_for('engine', 4, 1 << 20, Path(sys.argv[1])); print(kept.described, flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline().startswith("one populated region")
        assert os.statvfs(folder).f_bfree * mmap.PAGESIZE == 4 * MIB
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    assert list(folder.iterdir()) == []
    assert os.statvfs(folder).f_bfree * mmap.PAGESIZE == 8 * MIB


def test_a_small_shared_memory_is_left_alone_and_it_is_said(tmpfs: Callable[[str], Path]) -> None:
    folder = tmpfs("size=8M")
    found = memory_for("engine", 8, MIB, folder)
    assert found.described == (
        f"anonymous shared memory, because {folder} has 8 MiB free and 8 MiB of blocks in flight would fill it"
    )
    assert [len(place) for place in found.places] == [MIB] * 8
    assert os.statvfs(folder).f_bfree * mmap.PAGESIZE == 8 * MIB
    assert memory_for("engine", 7, MIB, folder).described.startswith("one populated region")


def test_a_folder_that_cannot_be_used_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Mount("/", "tmpfs", "tmpfs", "rw", "0:9")
    monkeypatch.setattr(region, "mount_of", lambda _: shared)
    found = memory_for("engine", 2, MIB, tmp_path / "none")
    assert found.described.endswith(f"because {tmp_path / 'none'} cannot be used (No such file or directory)")
    assert len(found.places) == 2
    # Memory that is mapped from a disk's file system is written back to the disk.
    monkeypatch.setattr(region, "mount_of", lambda _: replace(shared, filesystem="ext4"))
    found = memory_for("engine", 2, MIB, tmp_path)
    assert found.described.endswith(f"because {tmp_path} is on ext4 and no tmpfs")


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    8192 kB\n")
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    (group / "cgroup.controllers").write_text("memory\n")
    assert environment.memory_left_bytes(tmp_path) == 8 * MIB
    (group / "memory.max").write_text(f"{6 * MIB}\n")
    (group / "memory.current").write_text(f"{5 * MIB}\n")
    (group / "memory.stat").write_text(f"anon 7\ninactive_file {MIB}\n")
    assert environment.memory_left_bytes(tmp_path) == 2 * MIB
    left = environment.memory_left_bytes(tmp_path)
    monkeypatch.setattr(environment, "memory_left_bytes", lambda: left)
    assert memory_for("engine", 2, MIB).described == (
        "anonymous shared memory, because 2 MiB of memory are left and 2 MiB of blocks in flight would fill it"
    )
    assert memory_for("engine", 1, MIB).described == "one populated region in /dev/shm, as the engine's"


def test_the_limit_of_an_old_container_counts(tmp_path: Path) -> None:
    group = tmp_path / "sys/fs/cgroup/memory"
    group.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("4:memory:/\n")
    assert environment.memory_left_bytes(tmp_path) is None
    (group / "memory.limit_in_bytes").write_text(f"{6 * MIB}\n")
    (group / "memory.usage_in_bytes").write_text(f"{5 * MIB}\n")
    assert environment.memory_left_bytes(tmp_path) == MIB


def huge_memory(blocks: int, folder: Path) -> Memory:
    """Memory on huge pages; the test is skipped where the kernel gives none."""
    try:
        return memory_for("huge", blocks, ENGINE_BLOCK, folder)
    except MeasurementError as error:
        pytest.skip(str(error))


@pytest.mark.slow
def test_huge_pages_are_looked_up_not_believed(tmpfs: Callable[[str], Path]) -> None:
    folder = tmpfs("size=64M,huge=always")
    found = huge_memory(8, folder)
    begins = [address(place) for place in found.places]
    assert begins == [begins[0] + number * ENGINE_BLOCK for number in range(8)]
    assert begins[0] % region.HUGE_BYTES == 0
    assert region.huge_bytes("self", begins[0], 8 * ENGINE_BLOCK) >= 7 * ENGINE_BLOCK
    assert found.described == f"one region in {folder} on huge pages"
    assert list(folder.iterdir()) == []
    # A tmpfs without them is passed over.
    assert huge_memory(2, tmpfs("size=64M,huge=never")).described.startswith("anonymous")


def test_without_huge_pages_the_what_if_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region, "huge_bytes", lambda *_: 0)
    with pytest.raises(MeasurementError, match="no huge pages"):
        memory_for("huge", 2, MIB)
    with pytest.raises(TierError, match="leave out --buffers huge"):
        require_given("huge")
    require_given("engine")


def test_huge_pages_of_a_range_come_from_smaps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    smaps = (
        "7f0000000000-7f0000400000 rw-s 00000000 00:01 5 /x\nRss: 4096 kB\nShmemPmdMapped:     2048 kB\n"
        "7f0000400000-7f0000800000 rw-p 00000000 00:00 0\nAnonHugePages:      4096 kB\nFilePmdMapped: 0 kB\n"
    )
    monkeypatch.setattr(region, "Path", lambda _: tmp_path / "smaps")
    (tmp_path / "smaps").write_text(smaps)
    assert region.huge_bytes(1) == 6 * MIB
    assert region.huge_bytes(1, 0x7F0000400000, 1) == 4 * MIB
    assert region.huge_bytes(1, 0x7F0000800000, 1) == 0
    (tmp_path / "smaps").unlink()
    assert region.huge_bytes(1) == 0


def test_the_mount_option_that_decides() -> None:
    assert huge_option("rw,relatime,size=24731184k,huge=within_size") == "huge=within_size"
    assert huge_option("rw,nohuge") is None


def job(buffers: Buffers, *, published: bool = False) -> list[str]:
    settings = JobSettings(files=1, file_bytes=64 * MIB, buffers=buffers, published=published)
    one = Point("t-1179648-read-j1", "t", "fio", GPT_OSS_BLOCK, "read", 1)
    lines = render_points([one], Path("/t"), settings).splitlines()
    return [line for line in lines if "mem" in line or line.startswith("; run it")]


def test_fio_gets_the_nearest_that_it_offers() -> None:
    assert job("engine") == ["mem=mmapshared"]
    assert job("own") == job("engine", published=True) == []
    needed, *lines = job("huge")
    assert needed == "; run it with GLIBC_TUNABLES=glibc.malloc.hugetlb=1"
    assert lines == ["mem=malloc", "iomem_align=2097152"]
    settings = JobSettings(files=1, file_bytes=MIB)
    assert run_environment(replace(settings, buffers="huge")) == {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    assert run_environment(settings) == {}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--tier", "dram", "--buffers", "huge"), "no tier of this run is read into memory"),
        (("--buffers", "small"), "is not one of 'engine', 'own', 'huge'"),
        (("--buffers", "own", "--published"), "leaves memory to fio"),
    ],
)
def test_buffers_that_make_no_sense_are_refused(
    kvbench: Kvbench, fake_fio: object, tmp_path: Path, arguments: Sequence[str], said: str
) -> None:
    tier = () if "--tier" in arguments else ("--tier", str(tmp_path))
    outcome = kvbench("fio", *tier, "--dry-run", "--allow-shared", *arguments)
    assert (outcome.code, said in outcome.err) == (2, True), outcome.err


@pytest.mark.parametrize(
    ("options", "wanted"), [((), "engine"), (("--buffers", "huge"), "huge"), (("--published",), "own")]
)
def test_the_plan_names_the_buffers(
    kvbench: Kvbench, fake_fio: object, tmp_path: Path, options: Sequence[str], wanted: str
) -> None:
    outcome = kvbench("fio", "--tier", tmp_path, "--dry-run", "--allow-shared", "--json", *options)
    assert [plan["settings"]["buffers"] for plan in outcome.json()["tiers"]] == [wanted]


def test_a_run_from_before_there_was_a_choice_had_buffers_of_its_own(tmp_path: Path) -> None:
    settings = JobSettings(files=1, file_bytes=MIB, buffers="engine")
    plan = measurement.TierPlan("t", "/t", settings)
    measurement.save(measurement.Measurement((plan,), (), ()), tmp_path)
    assert measurement.load(tmp_path).tiers[0].settings.buffers == "engine"
    file = tmp_path / measurement.MEASUREMENT_NAME
    said = json.loads(file.read_text())
    del said["tiers"][0]["settings"]["buffers"]
    file.write_text(json.dumps(said))
    assert measurement.load(tmp_path).tiers[0].settings.buffers == "own"


@pytest.mark.parametrize(
    ("moved", "requests", "each"),
    [
        (1_000_000, 1500, 1.5),
        (1_050_000, 1500, 1.5),
        (1_050_001, 1500, None),  # somebody else read as well
        (949_999, 1500, None),  # a cache answered
        (None, 1500, None),
        (1_000_000, None, None),
        (1_000_000, 0, None),
    ],
)
def test_requests_for_each_read_are_ours_or_unknown(
    moved: int | None, requests: int | None, each: float | None
) -> None:
    seen = conditions(device_read_bytes=moved, device_read_requests=requests)
    one = point(read=direction(1000, 100, 1000), conditions=seen)
    assert requests_each(one, "read") == each
    assert requests_each(one, "write") is None


def test_a_stacked_device_counts_the_disks_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, numbers in (("dm-0", "253:0"), ("md0", "9:0"), ("sda", "8:0"), ("sdb", "8:16")):
        (tmp_path / "devices" / name / "slaves").mkdir(parents=True)
        (tmp_path / "devices" / name / "dev").write_text(numbers + "\n")
    (tmp_path / "dev/block").mkdir(parents=True)
    (tmp_path / "dev/block/253:0").symlink_to(tmp_path / "devices/dm-0")
    (tmp_path / "dev/block/8:0").symlink_to(tmp_path / "devices/sda")
    (tmp_path / "devices/dm-0/slaves/md0").symlink_to(tmp_path / "devices/md0")
    for name in ("sda", "sdb"):
        (tmp_path / "devices/md0/slaves" / name).symlink_to(tmp_path / "devices" / name)
    counted = {
        "253:0": DeviceCounters(100, 50, 1, 1), "9:0": DeviceCounters(100, 50, 2, 2),
        "8:0": DeviceCounters(60, 50, 5, 7), "8:16": DeviceCounters(40, 50, 4, 7),
    }  # fmt: skip
    monkeypatch.setattr(device, "device_counters", counted.get)
    stacked, plain = (Mount("/x", "xfs", "/dev/x", "rw", numbers) for numbers in ("253:0", "8:0"))
    assert device.counters_of(stacked, tmp_path) == DeviceCounters(100, 50, 9, 14)
    assert device.counters_of(plain, tmp_path) == counted["8:0"]
    assert device.counters_of(replace(plain, device_numbers="0:40"), tmp_path) is None


def split(each: float, tier: str = "nvme", **changes: Any) -> PointResult:
    """A read point whose reads were ``each`` device requests; ``buffers`` and ``rounds`` may be given."""
    seen = conditions(
        device_read_bytes=6000 * GPT_OSS_BLOCK, device_read_requests=round(6000 * each),
        buffers=changes.pop("buffers", "engine"), buffer_memory="one region in /dev/shm on huge pages",
    )  # fmt: skip
    return point(tier=tier, id=f"{tier}-read", conditions=seen, **changes)


def test_tiers_that_split_otherwise_are_told() -> None:
    run = RunResult("now", points=(split(1.0), split(1.26, "disk"), split(1.25, "other", numjobs=2)))
    found = by_lane(run)
    assert [[warning.code for warning in one.warnings] for one in found.points] == [
        ["requests-by-tier"], ["requests-by-tier"], [],
    ]  # fmt: skip
    assert found.points[0].warnings[0].values == {
        "direction": "read", "requests": 1.0, "other_requests": 1.26, "other_point": "disk-read",
    }  # fmt: skip
    assert by_lane(found) == found
    alike = RunResult("now", points=(split(1.0), split(1.25, "disk")))
    assert by_lane(alike) == alike
    # What is no longer so is no longer said.
    assert by_lane(replace(found, points=(found.points[0], *alike.points[1:]))) == alike


def in_rounds(rates: Sequence[float], requests: Sequence[float], buffers: str, **changes: Any) -> PointResult:
    rounds = tuple(
        Round(1, 5.0, rate, read_requests_each=each) for rate, each in zip(rates, requests, strict=True)
    )  # fmt: skip
    return split(requests[0], rounds=rounds, buffers=buffers, **changes)


ENGINE = in_rounds([100e6, 102e6, 98e6], [1.3, 1.32, 1.28], "engine")
HUGE = in_rounds([150e6, 153e6, 147e6], [1.01, 1.02, 1.0], "huge")


def test_diff_compares_requests() -> None:
    found = compare(RunResult("a", points=(ENGINE,)), RunResult("b", points=(HUGE,)))
    assert {item.metric: item.outcome for item in found if item.metric != "p99"} == {
        "bandwidth": "faster", "requests": "fewer",
    }  # fmt: skip
    back = compare(RunResult("b", points=(HUGE,)), RunResult("a", points=(ENGINE,)))
    assert [item.outcome for item in back if item.metric != "p99"] == ["slower", "more"]
    unseen = compare(RunResult("a", points=(point(),)), RunResult("b", points=(HUGE,)))
    assert "requests" not in [item.metric for item in unseen]


def scene(found: list[LoadedRun]) -> Scene:
    """The runs as the tables of a report see them."""
    return scene_of((), found, Wanted(None, None, Goal()))


def test_the_tables_show_requests_where_a_device_was_seen() -> None:
    with_device, without = RunResult("now", points=(split(1.25),)), RunResult("now", points=(point(),))
    device, plain_run = [LoadedRun("a", Path("a"), with_device)], [LoadedRun("a", Path("a"), without)]
    table = short_measured(device)
    at = table.headings.index("requests")
    assert [row[at] for row in table.texts] == ["1.25"]
    assert at in table.right
    assert "requests" not in short_measured(plain_run).headings
    sheet = measured(scene(device))
    (row,) = sheet.rows
    (cell,) = [cell for cell, column in zip(row, sheet.columns, strict=True) if column.key == "requests_each"]
    assert (cell.text, cell.value) == ("1.25", 1.25)
    (cell,) = [cell for cell, column in zip(row, sheet.columns, strict=True) if column.key == "buffer_memory"]
    assert cell.text == "one region in /dev/shm on huge pages"
    plain = measured(scene(plain_run))
    assert not {"requests_each", "buffer_memory"} & {column.key for column in plain.columns}
    assert {len(row) for row in plain.rows} == {len(plain.columns)}


def runs(*points: PointResult, **environment: object) -> list[LoadedRun]:
    """A run for each point, on one machine unless ``environment`` names another for the last."""
    found = [RunResult("now", points=(one,), environment={"kernel": "6.18"}) for one in points]
    found[-1] = replace(found[-1], environment={"kernel": "6.18", **environment})
    return [LoadedRun(f"run{number}", Path("x"), run) for number, run in enumerate(found)]


def test_the_report_says_what_huge_pages_would_bring() -> None:
    (advice,) = memory_report.advice(runs(ENGINE, HUGE))
    (sentence,) = advice.words
    assert sentence.startswith(
        "nvme: the CPU tier on a tmpfs with huge=always reads 1.50 times as fast here (95 % 1.37"
    )
    assert "1.125 MiB, 1 at once; 1.29 device requests for each read and 1.01 with them" in sentence
    (how,) = advice.choice
    assert "mount -o remount,huge=always /dev/shm" in how
    assert "hostPath" in how
    (row,) = memory(scene(runs(HUGE, ENGINE))).rows
    assert [row[at].text for at in (7, 10, 11)] == ["1.50", "1.29", "1.01"]


def test_the_report_says_nothing_that_was_not_measured() -> None:
    own = replace(ENGINE, conditions=replace(ENGINE.conditions, buffers="own"))
    for unlike in (
        runs(ENGINE),
        runs(ENGINE, ENGINE),
        runs(own, HUGE),
        runs(ENGINE, replace(HUGE, numjobs=2)),
        runs(ENGINE, replace(HUGE, driver="replay")),
        runs(ENGINE, HUGE, kernel="6.1"),
    ):
        assert (memory_report.advice(unlike), memory(scene(unlike)).rows) == ((), ())
    (advice,) = memory_report.advice(runs(ENGINE, replace(HUGE, rounds=HUGE.rounds[:1])))
    assert "in one round only" in advice.words[0]
    noisy = in_rounds([60e6, 240e6, 100e6], [1.3, 1.0, 1.1], "huge")
    (advice,) = memory_report.advice(runs(ENGINE, noisy))
    assert "cannot be told apart" in advice.words[0]
    assert not advice.choice[0].startswith("To have it")


MEASURED = ("--model", "qwen3-8b", "--numjobs", "2", "--dataset", "96MiB", "--runtime", "1", "--mix", "read")


def measure(kvbench: Kvbench, disk: Path, output: Path, *options: str) -> PointResult:
    outcome = kvbench("fio", "--tier", f"t={disk}", *MEASURED, "--allow-shared", "--json", "-o", output, *options)
    assert outcome.code == 0, outcome.err
    (found,) = results.load(output).points
    (printed,) = outcome.json()["points"]
    assert printed["conditions"]["device_read_requests"] == found.conditions.device_read_requests
    return found


@pytest.mark.slow
def test_replayed_requests_are_counted_and_kept(kvbench: Kvbench, disk: Path, tmp_path: Path) -> None:
    """On a device of its own a read is a request at least, and never fewer than on huge pages."""
    engine = measure(kvbench, disk, tmp_path / "engine", "--driver", "replay")
    each = requests_each(engine, "read")
    assert each is not None
    assert each >= 1
    assert engine.conditions.buffers == "engine"
    assert engine.conditions.buffer_memory == "one populated region in /dev/shm, as the engine's"
    assert engine.rounds[0].read_requests_each == each
    with suppress(TierError):
        require_given("huge")
        huge = measure(kvbench, disk, tmp_path / "huge", "--driver", "replay", "--buffers", "huge")
        fewer = requests_each(huge, "read")
        assert fewer is not None
        assert 1 <= fewer <= each + 0.05
        compared = kvbench("diff", tmp_path / "engine", tmp_path / "huge", "--json").json()["differences"]
        assert [item["metric"] for item in compared] == ["bandwidth", "p99", "requests"]


@pytest.mark.fio
def test_fio_reads_into_huge_pages_when_told(kvbench: Kvbench, disk: Path, tmp_path: Path) -> None:
    if shutil.which("fio") is None:
        pytest.skip("fio is not installed")
    engine = measure(kvbench, disk, tmp_path / "engine", "--driver", "fio")
    assert engine.conditions.buffer_memory == "anonymous shared memory of each job (fio's mem=mmapshared)"
    assert "mem=mmapshared" in (tmp_path / "engine" / engine.source).with_name("job.fio").read_text()
    each = requests_each(engine, "read")
    assert each is not None
    assert each >= 1
    try:
        require_given("huge")
    except TierError as error:
        pytest.skip(str(error))
    huge = measure(kvbench, disk, tmp_path / "huge", "--driver", "fio", "--buffers", "huge")
    fewer = requests_each(huge, "read")
    assert fewer is not None
    assert 1 <= fewer <= each + 0.05
