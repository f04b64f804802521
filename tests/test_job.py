"""fio job files: whole texts, the published job, and fio's own opinion of every one."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvbench.drivers.fio.job import (
    MAX_SHARED_FILES,
    data_file_names,
    fio_path,
    render_layout,
    render_points,
)
from kvbench.drivers.fio.pace import Stores, has_stores, stores_beside
from kvbench.drivers.settings import JobSettings
from kvbench.errors import TierError, UsageError
from kvbench.record.results import Access, Direction, LatencyNs, Mix
from kvbench.run.measurement import Method, plan_tier
from kvbench.run.plan import points_for
from kvbench.tiers.directory import DirectoryTier
from tests.conftest import Outcome
from tests.factories import GPT_OSS_BLOCK, use

Run = Callable[..., Outcome]
MIB = 1 << 20
ACCESS: tuple[Access, ...] = ("random", "sequential")
UNITLESS = ("bs", "size", "runtime", "numjobs", "rwmixread", "iodepth", "direct", "time_based")

GOLDEN = """\
[global]
directory=/mnt/nvme
direct=1
ioengine=libaio
iodepth=1
runtime=60
time_based=1
group_reporting=1
lat_percentiles=1
thread=1
randrepeat=0
scramble_buffers=1
write_bw_log=series
write_iops_log=series
write_lat_log=series
log_avg_msec=1000
per_job_logs=0

[nvme-1179648-mixed-j1]
rw=randrw
rwmixread=75
bs=1179648
size=266600448
numjobs=1
stonewall
file_service_type=random
filename=kvbench.0:kvbench.1

[nvme-1179648-mixed-j2]
rw=randrw
rwmixread=75
bs=1179648
size=133300224
numjobs=2
stonewall
filename_format=kvbench.$jobnum

[nvme-1179648-read-j1]
rw=randread
bs=1179648
size=266600448
numjobs=1
stonewall
file_service_type=random
filename=kvbench.0:kvbench.1

[nvme-1179648-read-j2]
rw=randread
bs=1179648
size=133300224
numjobs=2
stonewall
filename_format=kvbench.$jobnum

[nvme-1179648-write-j1]
rw=randwrite
bs=1179648
size=266600448
numjobs=1
stonewall
file_service_type=random
filename=kvbench.0:kvbench.1

[nvme-1179648-write-j2]
rw=randwrite
bs=1179648
size=133300224
numjobs=2
stonewall
filename_format=kvbench.$jobnum
"""

GOLDEN_PUBLISHED = """\
[global]
directory=/mnt/nvme
direct=1
ioengine=libaio
iodepth=1
runtime=60
time_based=1
group_reporting=1
lat_percentiles=1

[nvme-1179648-mixed-j16]
rw=randrw
rwmixread=75
bs=1179648
size=235929600
numjobs=16
stonewall
filename_format=kvbench.$jobnum

[nvme-1179648-read-j16]
rw=read
bs=1179648
size=235929600
numjobs=16
stonewall
filename_format=kvbench.$jobnum
"""

GOLDEN_LAYOUT = """\
[layout]
directory=/mnt/nvme
direct=1
ioengine=libaio
iodepth=1
thread=1
group_reporting=1
rw=write
bs=1048576
size=134217728
numjobs=2
filename_format=kvbench.$jobnum
refill_buffers=1
end_fsync=1
"""


def sections(text: str) -> dict[str, dict[str, str]]:
    """The options of every section of a job file, with [global] merged in as fio does."""
    found: dict[str, dict[str, str]] = {}
    current: dict[str, str] = {}
    for line in filter(None, text.splitlines()):
        if line.startswith("["):
            current = found.setdefault(line[1:-1], {})
        else:
            name, _, value = line.partition("=")
            assert name not in current, f"{name} stands twice"
            current[name] = value
    general = found.pop("global", {})
    return {name: general | options for name, options in found.items()}


def test_whole_job_text() -> None:
    points = points_for([use()], [("nvme", "fio")], ["mixed", "read", "write"], [1, 2])
    assert render_points(points, Path("/mnt/nvme"), JobSettings(2, 128 * MIB)) == GOLDEN


def test_stores_are_a_section_of_the_readers_group() -> None:
    points = points_for([use()], [("nvme", "fio")], ["mixed", "read"], [2])
    text = render_points(points, Path("/mnt/nvme"), JobSettings(2, 128 * MIB), stores=Stores(3, 1.5))
    mixed, stores, read = sections(text).values()
    assert list(sections(text)) == [points[0].id, f"{points[0].id}-stores", points[1].id]
    assert (mixed["rw"], mixed["numjobs"], "stonewall" in mixed) == ("randread", "2", True)
    # Without a stonewall it runs at the same time; together 1.5 stores a second.
    assert (stores["rw"], stores["numjobs"], "stonewall" in stores) == ("randwrite", "3", False)
    assert int(stores["rate"]) * 3 == pytest.approx(1.5 * GPT_OSS_BLOCK, abs=3)
    # Each roams over all files, also where every reader could have one of its own.
    assert mixed["filename"] == stores["filename"] == "kvbench.0:kvbench.1"
    assert "filename_format" in read
    assert not any("rwmixread" in options for options in (mixed, stores, read))


@pytest.mark.parametrize(
    ("mix", "settings", "expected"),
    [
        ("mixed", JobSettings(1, MIB), True),
        ("read", JobSettings(1, MIB), False),
        ("write", JobSettings(1, MIB), False),
        ("mixed", JobSettings(1, MIB, published=True), False),
        ("mixed", JobSettings(1, MIB, layout="file-per-block"), False),
    ],
)
def test_only_mixed_points_on_large_files_have_stores_of_their_own(
    mix: Mix, settings: JobSettings, expected: bool
) -> None:
    (point,) = points_for([use()], [("t", "fio")], [mix], [1])
    assert has_stores(point, settings) == expected


def direction(iops: float, latency_ms: float) -> Direction:
    return Direction(100, 100 * MIB, iops, iops * MIB, LatencyNs(mean=latency_ms * 1e6))


def test_the_first_guess_is_what_readers_alone_would_do() -> None:
    # 16 jobs that wait 25 ms for a read would do 640 a second; a third of that, 100 ms each, keeps 21 in flight.
    found = stores_beside(16, 75, direction(200, 25), direction(67, 100))
    assert found.jobs == 16
    assert found.per_s == pytest.approx(640 / 3)
    half = stores_beside(1, 50, direction(200, 2), direction(67, 1))
    assert half.jobs == 1
    assert half.per_s == pytest.approx(500)


@pytest.mark.parametrize("cost", [0.5, 3.0, 8.0])
def test_the_pace_settles_whatever_a_store_costs(cost: float) -> None:
    """A tier of 1000 operations a second, of which a store takes ``cost``."""
    stores = Stores(1, 300.0)
    for _ in range(40):
        reads = max(1000 - cost * stores.per_s, 1.0)
        stores = stores_beside(4, 75, direction(reads, 4), direction(stores.per_s, 1), stores)
    assert stores.per_s / (1000 - cost * stores.per_s) == pytest.approx(1 / 3, rel=0.02)


def test_a_tier_that_hardly_reads_still_gets_a_pace() -> None:
    assert stores_beside(1, 75, direction(0.0, 0), None).per_s > 0
    assert Stores(1, 0.01).bytes_per_s_of_each(10) == 1


def test_whole_published_job_text() -> None:
    points = points_for([use()], [("nvme", "fio")], ["mixed", "read"], [16])
    text = render_points(points, Path("/mnt/nvme"), JobSettings(16, 225 * MIB, published=True))
    assert text == GOLDEN_PUBLISHED


def test_whole_layout_text() -> None:
    assert render_layout(Path("/mnt/nvme"), JobSettings(2, 128 * MIB)) == GOLDEN_LAYOUT
    assert data_file_names(3) == ["kvbench.0", "kvbench.1", "kvbench.2"]


def test_sequential_access_is_for_pure_mixes() -> None:
    points = points_for([use()], [("t", "fio")], ["mixed", "read", "write"], [1])
    found = sections(render_points(points, Path("/t"), JobSettings(1, 2 * MIB, access="sequential")))
    assert [options["rw"] for options in found.values()] == ["randrw", "read", "write"]


@given(
    st.lists(st.integers(1, 1 << 24), min_size=1, max_size=3, unique=True),
    st.lists(st.integers(1, 40), min_size=1, max_size=3, unique=True),
    st.integers(1, 64),
    st.integers(1, 99),
    st.booleans(),
)
def test_sizes_are_plain_bytes_and_groups_hold_one_size(
    sizes: list[int], numjobs: list[int], extra_mib: int, share: int, published: bool
) -> None:
    uses = [use(io_bytes=size) for size in sizes]
    points = points_for(uses, [("a tier", "fio")], ["mixed", "read", "write"], numjobs)
    planned = JobSettings(max(numjobs), max(sizes) + extra_mib * MIB, 7, share, "random", published)
    found = sections(render_points(points, Path("/t"), planned))
    assert len(found) == len(points) == len(sizes) * 3 * len(numjobs)
    for point in points:
        options = found[point.id]
        assert all(options[name].isdecimal() for name in UNITLESS if name in options)
        assert options["bs"] == str(point.io_bytes)
        assert options["numjobs"] == str(point.numjobs)
        assert "stonewall" in options  # one fio group for each point, so that no two sizes share percentiles
        files = 1 if "filename_format" in options else planned.files
        assert int(options["size"]) % (point.io_bytes * files) == 0
        assert int(options["size"]) // files <= planned.file_bytes
        assert ("rwmixread" in options) == (point.mix == "mixed")


@pytest.mark.parametrize("path", ["/a#b", "/a;b", "/a$b", "/a'b", '/a"b', "/a\\b", "/a\nb", "/a\tb", "/a`b", "/a "])
def test_paths_that_fio_cannot_express_are_refused(path: str) -> None:
    with pytest.raises(TierError, match=r"fio cannot express the path .* bind-mount or link the directory"):
        fio_path(Path(path))


@pytest.mark.parametrize(
    ("path", "text"), [("/a:b", "/a\\:b"), ("/a b", "/a b"), ("/a=b", "/a=b"), ("/ä%,[x]", "/ä%,[x]")]
)
def test_paths_that_fio_can_express(path: str, text: str) -> None:
    assert fio_path(Path(path)) == text


def test_a_data_set_below_one_block_is_refused() -> None:
    points = points_for([use()], [("t", "fio")], ["read"], [4])
    with pytest.raises(UsageError, match=r"less than one block of 1179648; use --dataset 4718592 or more"):
        render_points(points, Path("/t"), JobSettings(4, MIB))


def test_jobs_command_refuses_a_small_data_set(kvbench: Run, tier: Path) -> None:
    outcome = kvbench("jobs", "--tier", tier, "--model", "gpt-oss-120b", "--connector", "logical", "--dataset", "16MiB")
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err == (
        "kvbench: a data set of 16 MiB gives each of 16 jobs less than one block of 1.125 MiB; "
        "use --dataset 33554432 (32 MiB) or more, or fewer --numjobs.\n"
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--mix", "foo"], "kvbench: --mix 'foo': choose from mixed, read, write."),
        (["--numjobs", "0"], "kvbench: --numjobs '0': write whole numbers from 1, separated by commas, like 1,16."),
        (["--access", "x"], "kvbench: Invalid value for '--access': 'x' is not one of 'random', 'sequential'."),
        (["--fio-layout", "x"], "kvbench: Invalid value for '--fio-layout': 'x' is not one of 'large-files', "),
        (["--gpu-arch", "x"], "kvbench: Invalid value for '--gpu-arch': 'x' is not one of 'sm90', 'sm100'."),
        (["--engine-version", "x"], "kvbench: --engine-version 'x' is not a vLLM release known here; known: 0.24.0"),
        (["--connector", "x"], "kvbench: unknown connector 'x'; known: logical"),
        (["--dataset", "4G"], "kvbench: '4G' is ambiguous; write 4GiB (powers of 1024) or 4GB (1000)."),
        (["--tp", "3"], "kvbench: "),
        (["--rwmixread", "100"], "kvbench: --rwmixread "),
    ],
)
def test_bad_options_of_jobs(kvbench: Run, tier: Path, options: list[str], sentence: str) -> None:
    outcome = kvbench("jobs", "--tier", tier, "--model", "gpt-oss-120b", *options)
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith(sentence)
    assert outcome.err.count("\n") == 1


def test_jobs_of_a_missing_directory(kvbench: Run, tmp_path: Path) -> None:
    outcome = kvbench("jobs", "--tier", tmp_path / "no")
    assert outcome.code == 2
    assert outcome.err == f"kvbench: the tier directory {tmp_path}/no does not exist; create it or name another.\n"


# The study's options by hand; its 1152k, 2304k, 5m and 225m in bytes (natoscott/benchmarks, fio 3.40 job options).
STUDY_GENERAL = {
    "direct": "1", "ioengine": "libaio", "iodepth": "1", "size": "235929600", "runtime": "60", "time_based": "1",
    "group_reporting": "1", "lat_percentiles": "1", "stonewall": "",
}  # fmt: skip
STUDY_MODELS = {"gpt-oss-120b": "1179648", "Qwen/Qwen3-8B": "2359296", "meta-llama/Llama-3.1-70B": "5242880"}
STUDY_RW: dict[Mix, dict[str, str]] = {
    "mixed": {"rw": "randrw", "rwmixread": "75"}, "read": {"rw": "read"}, "write": {"rw": "write"}
}  # fmt: skip


def test_the_published_job_option_by_option(kvbench: Run, tier: Path, tmp_path: Path) -> None:
    target = tmp_path / "job.fio"
    models = list(itertools.chain.from_iterable(("--model", model) for model in STUDY_MODELS))
    outcome = kvbench("jobs", "--tier", f"t={tier}", *models, "--tp", "2", "--published", "-o", target)
    assert (outcome.code, outcome.out) == (0, "")
    found = sections(target.read_text())
    wanted = {
        f"t-{size}-{mix}-j{jobs}": STUDY_GENERAL | rw | {"bs": size, "numjobs": jobs, "directory": str(tier)}
        for size in STUDY_MODELS.values()
        for mix, rw in STUDY_RW.items()
        for jobs in ("1", "16")
    }
    # Only the names of the data files are our own.
    assert {options.pop("filename_format") for options in found.values()} == {"kvbench.$jobnum"}
    assert found == wanted


def test_every_published_size_is_whole_blocks_of_225_mib() -> None:
    for size in STUDY_MODELS.values():
        assert 225 * MIB % int(size) == 0
    assert int(STUDY_MODELS["gpt-oss-120b"]) == GPT_OSS_BLOCK == 1152 * 1024


def parse_only(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What fio says about a job file without running it."""
    job_file = folder / "job.fio"
    job_file.write_text(text)
    command = ["fio", "--parse-only", job_file.name]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=30)


@pytest.mark.fio
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(1, 1 << 14).map(lambda count: count * 512), min_size=1, max_size=3, unique=True),
    st.lists(st.sampled_from([1, 2, 4, 16, 64, 256]), min_size=1, max_size=2, unique=True),
    st.sampled_from(ACCESS),
    st.booleans(),
    st.sampled_from(["/t", "/a b:c", "/ä=,%[x]", "/" + "long/" * 60]),
)
def test_fio_accepts_every_job_file(
    tmp_path: Path, sizes: list[int], numjobs: list[int], access: Access, published: bool, directory: str
) -> None:
    points = points_for(
        [use(io_bytes=size) for size in sizes], [("x.y_z ü", "fio")], ["mixed", "read", "write"], numjobs
    )
    planned = JobSettings(max(numjobs), max(sizes) + MIB, 5, 50, access, published)
    for text in (render_points(points, Path(directory), planned), render_layout(Path(directory), planned)):
        answer = parse_only(text, tmp_path)
        assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", ""), text


@pytest.mark.fio
def test_fio_accepts_many_jobs_beside_one(tmp_path: Path) -> None:
    tier = DirectoryTier("t", tmp_path, None, 64 << 30)
    plan = plan_tier(tier, "t", "fio", Method((1, 512), (MIB,), runtime_s=1))
    assert plan.settings.files == MAX_SHARED_FILES
    points = points_for([use(io_bytes=MIB)], [("t", "fio")], ["read"], [1, 512])
    assert parse_only(render_points(points, Path("/t"), plan.settings), tmp_path).returncode == 0
