"""A run directory that somebody else made, and two processes at once: what is refused, asked for again, or said."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kvbench.cli import main
from kvbench.commands.planning import HookOptions
from kvbench.errors import KvbenchError, ResultFileError, UsageError
from kvbench.record.point import is_point_id, point_id
from kvbench.record.results import inside
from kvbench.run import measurement
from kvbench.run.foreign import LOCK_NAME, locked, require_own_files
from kvbench.run.plan import job_comments
from kvbench.tiers import others
from kvbench.tiers.directory import inspect, workspace
from tests.conftest import ROOT, FakeFio, Outcome, install_fake_fio
from tests.factories import SHIPPED_CSV, use, write_json
from tests.test_runner import fio_processes

pytestmark = pytest.mark.slow

Kvbench = Callable[..., Outcome]
Start = Callable[..., subprocess.Popen[str]]

SMALL = ("--model", "qwen3-8b", "--mix", "read", "--numjobs", "1,2", "--runtime", "1", "--dataset", "16MiB")
FIRST, SECOND = (f"tier-2359296-read-j{jobs}" for jobs in (1, 2))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory whose second point failed, so that there is something to resume."""
    folder = tmp_path_factory.mktemp("begun")
    (folder / "tier").mkdir()
    with pytest.MonkeyPatch.context() as monkeypatch:
        install_fake_fio(folder, monkeypatch).on("read-j2", 5)
        assert main(["fio", "--tier", str(folder / "tier"), *SMALL, "-o", str(folder / "run")]) == 3
    return folder / "run"


@pytest.fixture
def begun(template: Path, fake_fio: FakeFio, tier: Path, tmp_path: Path) -> Path:
    """A copy of that run directory on a tier of this test's own."""
    run = tmp_path / "run"
    shutil.copytree(template, run)
    change(run / "measurement.json", "tiers.0.target", str(tier))
    return run


def change(file: Path, place: str, value: object) -> None:
    """Set one value of a JSON document; ``place`` is like ``points.0.id``."""
    document = json.loads(file.read_text())
    *way, last = [int(part) if part.isdecimal() else part for part in place.split(".")]
    inner: Any = document
    for part in way:
        inner = inner[part]
    inner[last] = value
    write_json(file, document)


def refused(outcome: Outcome, *said: str) -> None:
    assert outcome.code == 2, outcome.err
    *notes, sentence = outcome.err.splitlines()
    assert all(note.startswith("run directory: ") for note in notes)
    assert sentence.startswith("kvbench: ")
    assert sentence.isprintable()
    assert all(text in outcome.err for text in said), outcome.err


# --- commands ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["before_read", "read_counter", "watch"])
def test_a_command_that_lies_in_the_directory_is_shown_and_not_run(
    kvbench: Kvbench, begun: Path, tmp_path: Path, field: str
) -> None:
    proof = tmp_path / "it ran"
    words = ["sh", "-c", f"touch {shlex.quote(str(proof))}; echo 1"]
    change(begun / "measurement.json", field, words)
    option = "--" + field.replace("_", "-")
    wanted = f"{option} {shlex.quote(shlex.join(words))}"

    plain = kvbench("fio", "--resume", "-o", begun)
    refused(plain, f"resume with exactly {wanted}\n")
    refused(kvbench("fio", "--resume", "-o", begun, option, "true"), f"resume with exactly {wanted}\n")
    other = next(name for name in ("--watch", "--before-read") if name != option)
    refused(kvbench("fio", "--resume", "-o", begun, option, shlex.join(words), other, "true"), wanted)
    assert not proof.exists()

    # What the message asks for, taken as it is, is enough.
    again = shlex.split(plain.err.partition("exactly ")[2])
    assert kvbench("fio", "--resume", "-o", begun, *again).code == 0
    assert proof.exists()


def test_a_run_without_commands_resumes_as_ever_and_takes_no_new_one(kvbench: Kvbench, begun: Path) -> None:
    refused(kvbench("fio", "--resume", "-o", begun, "--watch", "true"), "was started without --watch; leave that out")
    assert kvbench("fio", "--resume", "-o", begun).code == 0


def test_a_command_cannot_drive_the_terminal_that_shows_it(kvbench: Kvbench, begun: Path) -> None:
    change(begun / "measurement.json", "watch", ["echo", "\x1b[2J\nrm"])
    refused(kvbench("fio", "--resume", "-o", begun), r"'\x1b[2J\nrm'")


def test_an_interrupted_run_says_which_options_to_repeat(
    start: Start, fake_fio: FakeFio, tier: Path, tmp_path: Path
) -> None:
    fake_fio.on("read-j2", "hang")
    child = start("fio", "--tier", tier, *SMALL, "--watch", "true", "-o", tmp_path / "run")
    wait_for(lambda: f"hanging {SECOND}" in fake_fio.log(), "the second point")
    child.terminate()
    _, err = child.communicate(timeout=60)
    assert "continue with --resume and the same --watch." in err


def test_the_words_of_options() -> None:
    assert HookOptions().commands == {}
    hooks = HookOptions(before_read=("a", "b c"), watch=("d",))
    assert hooks.commands == {"--before-read": ("a", "b c"), "--watch": ("d",)}


# --- fields of measurement.json ---------------------------------------------------------------------------------------

HOSTILE: dict[str, tuple[str, object, str]] = {
    "id-out": ("points.1.id", "../../../../tmp/evil-2359296-read-j2", "no point can be called"),
    "id-absolute": ("points.1.id", "/tmp/evil-2359296-read-j2", "no point can be called"),
    "id-newline": ("points.1.id", "x]\nexec_prerun=touch /tmp/evil\n[-2359296-read-j2", "no point can be called"),
    "id-section": ("points.1.id", "a]b-2359296-read-j2", "no point can be called"),
    "id-option": ("points.1.id", "a=b-2359296-read-j2", "no point can be called"),
    "id-environment": ("points.1.id", "${HOME}-2359296-read-j2", "no point can be called"),
    "id-colon": ("points.1.id", "a:b-2359296-read-j2", "no point can be called"),
    "id-percent": ("points.1.id", "a%n-2359296-read-j2", "no point can be called"),
    "id-global": ("points.1.id", "global", "no point can be called"),
    "id-empty": ("points.1.id", "", "no point can be called"),
    "id-twice": ("points.1.id", FIRST, "two points have one id"),
    "id-of-another": ("points.1.id", "tier-2359296-read-j3", "no point can be called"),
    "tier-unknown": ("points.1.tier", "elsewhere", "is not part of the run"),
    "driver-unknown": ("points.1.driver", "evil", "no point can be called"),
    "lane-driver": ("tiers.0.driver", "evil", "the driver 'evil' is none of fio, replay, memory, s3"),
    "lane-driver-path": ("tiers.0.driver", "../fio", "the driver '../fio' is none of"),
    "lane-name": ("tiers.0.name", "a\n[global]", "no tier can be"),
    "target-newline": ("tiers.0.target", "/tmp\n", "no tier can be"),
    "target-zero": ("tiers.0.target", "/tmp\0", "no tier can be"),
    "mix": ("points.1.mix", "trim", "points.1.mix"),
    "size-zero": ("points.1.io_bytes", 0, "io_bytes is not between 1 and"),
    "size-negative": ("points.1.io_bytes", -4096, "io_bytes is not between 1 and"),
    "size-huge": ("points.1.io_bytes", 10**30, "a number in it is larger than any count"),
    "size-text": ("points.1.io_bytes", "2359296", "points.1.io_bytes: Input should be a valid integer"),
    "size-truth": ("points.1.io_bytes", True, "points.1.io_bytes: Input should be a valid integer"),
    "size-part": ("points.1.io_bytes", 2359296.5, "points.1.io_bytes"),
    "jobs-zero": ("points.1.numjobs", 0, "numjobs is not between 1 and"),
    "jobs-many": ("points.1.numjobs", 10**9, "numjobs is not between 1 and"),
    "files": ("tiers.0.settings.files", 0, "files is not between 1 and"),
    "file-bytes": ("tiers.0.settings.file_bytes", -1, "file_bytes is not between 1 and"),
    "file-bytes-small": ("tiers.0.settings.file_bytes", 4096, "the data set is too small for the point"),
    "file-bytes-huge": ("tiers.0.settings.file_bytes", 1 << 63, "file_bytes is not between 1 and"),
    "runtime": ("tiers.0.settings.runtime_s", 0, "runtime_s is not between 1 and"),
    "runtime-years": ("tiers.0.settings.runtime_s", 10**9, "runtime_s is not between 1 and"),
    "rwmixread": ("tiers.0.settings.rwmixread", 101, "rwmixread is not between 1 and 99"),
    "precision": ("tiers.0.settings.precision", 0, "precision is not between"),
    "layout": ("tiers.0.settings.layout", "file-per-block", "the data set is too small for the point"),
    "block-sizes": ("tiers.0.settings.block_sizes", [0], "a block size is not between"),
    "device": ("tiers.0.settings.device", "write", "is not the kind of tier"),
    "device-unknown": ("tiers.0.settings.device", "x", "tiers.0.settings.device"),
    "bucket": ("tiers.0.target", "s3://bucket/x", "fio stores every block by itself"),
    "memory": ("tiers.0.target", "dram", "is not the kind of tier"),
    "use-size": ("uses.0.io_bytes", 0, "uses.0.io_bytes: Input should be greater than or equal to 1"),
    "use-tokens": ("uses.0.block_tokens", 0, "uses.0.block_tokens: Input should be greater than or equal to 1"),
    "use-tp": ("uses.0.tp", -1, "uses.0.tp: Input should be greater than or equal to 1"),
    "repeats": ("repeats", 0, "repeats is not between"),
    "repeats-huge": ("repeats", 10**400, ""),
    "limit": ("tiers.0.limit_bytes_per_s", 0, "limit_bytes_per_s is not a rate"),
    "no-tier": ("tiers", [], "it names no tier"),
    "points-text": ("points", "all", "points: Input should be a valid"),
}


@pytest.mark.parametrize(("place", "value", "said"), HOSTILE.values(), ids=HOSTILE)
def test_a_field_that_no_kvbench_wrote_is_one_sentence(
    kvbench: Kvbench, begun: Path, fake_fio: FakeFio, tier: Path, tmp_path: Path, place: str, value: object, said: str
) -> None:
    change(begun / "measurement.json", place, value)
    before, runs = listing(tmp_path), len(fake_fio.runs())
    refused(kvbench("fio", "--resume", "-o", begun), said)
    assert len(fake_fio.runs()) == runs
    assert {
        path for path in listing(tmp_path) ^ before if path.name not in ("summary.md", "fio.log", LOCK_NAME)
    } == set()
    assert not list(tier.iterdir())


@pytest.mark.parametrize(
    ("place", "value"),
    [("points.1.numjobs", 2), ("tiers.0.settings.rwmixread", 99), ("tiers.0.settings.runtime_s", 2), ("repeats", 1),
     ("tiers.0.settings.precision", 0.5), ("tiers.0.settings.file_bytes", 3 << 20)],
)  # fmt: skip
def test_a_field_at_its_bound_is_taken(kvbench: Kvbench, begun: Path, place: str, value: object) -> None:
    change(begun / "measurement.json", place, value)
    assert kvbench("fio", "--resume", "-o", begun).code == 0


def test_nested_without_end_is_a_damaged_file(kvbench: Kvbench, begun: Path) -> None:
    (begun / "measurement.json").write_text("[" * 100_000)
    refused(kvbench("fio", "--resume", "-o", begun), "measurement.json is damaged")


def test_the_recorded_example_is_sound() -> None:
    assert measurement.load(ROOT / "reports" / "example" / "run").points


@pytest.mark.parametrize("driver", ["fio", "replay"])
@pytest.mark.parametrize("tier", ["nvme", "a b/c:d%[x]=y", "..", "ä" * 300, "x\ny"])
def test_every_id_that_is_made_is_taken(tier: str, driver: str) -> None:
    made = point_id(tier, 4096, "mixed", 16, driver)
    assert is_point_id(made, 4096, "mixed", 16, driver)
    assert not is_point_id(made, 4096, "mixed", 17, driver)
    assert not is_point_id(f"../{made}", 4096, "mixed", 16, driver)
    assert not is_point_id(f"{made}\n", 4096, "mixed", 16, driver)


def test_a_models_name_stays_in_its_comment() -> None:
    text = job_comments([use(model="x\n[evil]\nexec_prerun=y", engine_version="0.33.0", connector="vllm-fs")])
    assert text.count("\n") == 1
    assert text.startswith(r"; x\n[evil]\nexec_prerun=y, TP 2")
    assert job_comments([use(model="ä/b c", engine_version="0.33.0")]).startswith("; ä/b c, TP 2")


# --- paths ------------------------------------------------------------------------------------------------------------


def listing(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.mark.parametrize("field", ["histogram", "series"])
@pytest.mark.parametrize(
    "name", ["../outside.json", "points/../../outside.json", "{outside}", "link.json", "dir/outside.json"]
)
def test_a_file_outside_is_never_read(kvbench: Kvbench, begun: Path, tmp_path: Path, field: str, name: str) -> None:
    outside = write_json(tmp_path / "outside.json", {"unit": "ns", "read": {"5": 1}})
    (begun / "link.json").symlink_to(outside)
    (begun / "dir").symlink_to(tmp_path, target_is_directory=True)
    change(begun / "result.json", f"points.0.{field}", name.format(outside=outside))
    refused(kvbench("report", begun, "--ttft-csv", SHIPPED_CSV, "-o", tmp_path / "page.html"), "from outside of itself")


def test_a_link_that_stays_inside_is_read(kvbench: Kvbench, begun: Path, tmp_path: Path) -> None:
    (begun / "link.json").symlink_to(f"points/{FIRST}/histogram.json")
    change(begun / "result.json", "points.0.histogram", "link.json")
    assert kvbench("report", begun, "--ttft-csv", SHIPPED_CSV, "-o", tmp_path / "page.html").code == 0


@pytest.mark.parametrize("name", ["x\0y", "a" * 5000, "loop"])
def test_names_that_lead_nowhere(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    if name == "x\0y" or name == "loop":
        with pytest.raises(ResultFileError, match="from outside of itself"):
            inside(tmp_path, name)
    else:
        with pytest.raises(ResultFileError):
            inside(tmp_path, f"../{name}")


@pytest.mark.parametrize("name", ["result.json", "measurement.json"])
def test_the_documents_themselves_are_no_links_out(kvbench: Kvbench, begun: Path, tmp_path: Path, name: str) -> None:
    (begun / name).rename(tmp_path / name)
    (begun / name).symlink_to(tmp_path / name)
    command = ("gate", begun) if name == "result.json" else ("fio", "--resume", "-o", begun)
    refused(kvbench(*command), "from outside of itself")


@pytest.mark.parametrize(("place", "value"), [("io_bytes", -1), ("numjobs", -1), ("mix", "trim"), ("io_bytes", "big")])
def test_a_result_without_sizes_is_one_sentence(kvbench: Kvbench, begun: Path, place: str, value: object) -> None:
    change(begun / "result.json", f"points.0.{place}", value)
    refused(kvbench("gate", begun, "--ttft-csv", SHIPPED_CSV), "result.json is damaged at points.0")


@pytest.mark.parametrize("place", ["io_bytes", "numjobs"])
def test_a_result_of_a_job_that_did_nothing_is_read(kvbench: Kvbench, begun: Path, tmp_path: Path, place: str) -> None:
    change(begun / "result.json", f"points.0.{place}", 0)
    for command in (("gate", begun), ("report", begun, "-o", tmp_path / "page.html"), ("diff", begun, begun)):
        ttft = () if command[0] == "diff" else ("--ttft-csv", SHIPPED_CSV)
        outcome = kvbench(*command, *ttft)
        assert outcome.code in (0, 1, 2, 3), outcome.err


def as_link(place: Path, outside: Path) -> None:
    place.symlink_to(outside)


def as_second_name(place: Path, outside: Path) -> None:
    outside.mkdir(exist_ok=True)
    (outside / "victim").write_text("theirs")
    os.link(outside / "victim", place)


def as_pipe(place: Path, outside: Path) -> None:
    os.mkfifo(place)


@pytest.mark.parametrize("place", ["points/x", "tier.fio", f"points/{SECOND}/job.fio", "summary.md"])
@pytest.mark.parametrize("put", [as_link, as_second_name, as_pipe])
def test_a_resumed_run_writes_into_its_own_files_only(
    kvbench: Kvbench, begun: Path, fake_fio: FakeFio, tmp_path: Path, place: str, put: Callable[[Path, Path], None]
) -> None:
    outside, target = tmp_path / "theirs", begun / place
    outside.mkdir()
    target.unlink(missing_ok=True)
    put(target, outside)
    before = {path: path.read_bytes() for path in listing(outside)}
    runs = len(fake_fio.runs())
    refused(kvbench("fio", "--resume", "-o", begun), f"holds '{place}', ", "resume a copy")
    assert {path: path.read_bytes() for path in listing(outside)} == before
    assert len(fake_fio.runs()) == runs


def test_a_folder_that_is_a_link_is_found(kvbench: Kvbench, begun: Path, tmp_path: Path) -> None:
    (begun / "points").rename(tmp_path / "points")
    (begun / "points").symlink_to(tmp_path / "points", target_is_directory=True)
    refused(kvbench("fio", "--resume", "-o", begun), "holds 'points', a link")


def test_a_copy_without_links_is_resumed(kvbench: Kvbench, begun: Path, tmp_path: Path) -> None:
    (begun / "points").rename(tmp_path / "points")
    (begun / "points").symlink_to(tmp_path / "points", target_is_directory=True)
    os.link(begun / "summary.md", tmp_path / "second name")
    subprocess.run(["cp", "-r", "--no-preserve=links", "-L", begun, tmp_path / "copy"], check=True)
    assert kvbench("fio", "--resume", "-o", tmp_path / "copy").code == 0


def test_the_directory_may_be_named_by_a_link(kvbench: Kvbench, begun: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(begun)
    require_own_files(begun)
    assert kvbench("fio", "--resume", "-o", tmp_path / "latest").code == 0


def test_a_report_writes_through_no_link(kvbench: Kvbench, begun: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (begun / "report-tables").symlink_to(tmp_path / "theirs", target_is_directory=True)
    refused(kvbench("report", begun, "--ttft-csv", SHIPPED_CSV), "report-tables is a link")
    assert not listing(tmp_path / "theirs")


def test_series_of_earlier_rounds_are_read_as_foreign_data(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    fake_fio.on("read-j2", 5)
    assert kvbench("fio", "--tier", tier, *SMALL, "--repeat", "2", "-o", run).code == 3
    fake_fio.on("read-j2", "ok")
    change(
        run / "result.json", "points.0.rounds", json.loads((run / "result.json").read_text())["points"][0]["rounds"][:1]
    )
    (run / "points" / FIRST / "round-1" / "series.json").write_text('[1, null, {"second": []}]')
    outcome = kvbench("fio", "--resume", "-o", run)
    assert "Traceback" not in outcome.err
    assert outcome.code in (0, 2, 3)


# --- two at once ------------------------------------------------------------------------------------------------------


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        time.sleep(0.05)


@contextmanager
def running(start: Start, fake_fio: FakeFio, tier: Path, run: Path) -> Iterator[subprocess.Popen[str]]:
    """A run in another process that stands in its second point."""
    fake_fio.on("read-j2", "hang")
    child = start("fio", "--tier", tier, *SMALL, "-o", run)
    wait_for(lambda: f"hanging {SECOND}" in fake_fio.log(), "the second point")
    try:
        yield child
    finally:
        if child.poll() is None:
            child.terminate()
            child.communicate(timeout=60)


def worker_of(started: int) -> str:
    """The child of the process that was started, which does the work and can be left behind."""
    return Path(f"/proc/{started}/task/{started}/children").read_text().split()[0]


def test_a_run_directory_takes_one_process(
    kvbench: Kvbench, start: Start, fake_fio: FakeFio, tier: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with running(start, fake_fio, tier, run) as child:
        saved = (run / "result.json").read_bytes()
        working = worker_of(child.pid)
        refused(kvbench("fio", "--resume", "-o", run), f"another kvbench (process {working}) is at work in")
        assert (run / "result.json").read_bytes() == saved
    fake_fio.on("read-j2", "ok")
    assert kvbench("fio", "--resume", "-o", run).code == 0


def test_a_killed_run_leaves_no_lock(
    kvbench: Kvbench, start: Start, fake_fio: FakeFio, tier: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with running(start, fake_fio, tier, run) as child:
        working = worker_of(child.pid)
        child.kill()
        child.communicate()
    wait_for(lambda: not list(tier.iterdir()), "the guard")
    fake_fio.on("read-j2", "ok")
    assert (run / LOCK_NAME).read_text() == working
    assert kvbench("fio", "--resume", "-o", run).code == 0


def test_two_fresh_runs_cannot_take_one_directory(
    tmp_path: Path, kvbench: Kvbench, fake_fio: FakeFio, tier: Path
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with locked(run):
        refused(kvbench("fio", "--tier", tier, *SMALL, "-o", run), "name another -o")
    assert not (run / "result.json").exists()


def test_a_file_system_without_locks_is_said_and_used(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    outcome = kvbench("fio", "--tier", tier, *SMALL, "-o", tmp_path / "run")
    assert outcome.code == 0
    assert "lies on a file system without locks (No locks available)" in outcome.err


def test_a_lock_is_no_way_out_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK_NAME).symlink_to(tmp_path / "theirs")
    with pytest.raises(UsageError), locked(tmp_path / "run"):
        pass
    assert not (tmp_path / "theirs").exists()


def codes_of(run: Path) -> Mapping[str, list[str]]:
    saved = json.loads((run / "result.json").read_text())["points"]
    return {point["id"]: [warning["code"] for warning in point["warnings"]] for point in saved}


@pytest.mark.parametrize("same_directory", [True, False])
def test_two_runs_on_one_tier_warn_each_other(
    start: Start, fake_fio: FakeFio, tier: Path, tmp_path: Path, same_directory: bool
) -> None:
    """The one that starts says so at once, and all of its points carry it; the other one is the next test."""
    other_tier = tier if same_directory else tmp_path / "tier-2"
    other_tier.mkdir(exist_ok=True)
    with running(start, fake_fio, tier, tmp_path / "first") as first:
        fake_fio.on("read-j2", "ok")
        second = start("fio", "--tier", f"tier={other_tier}", *SMALL, "-o", tmp_path / "second")
        _, err = second.communicate(timeout=120)
        assert second.returncode == 0
        assert "at work on this tier, and each run measures the others as well" in err
        assert first.poll() is None
    assert all("other-runs" in codes for codes in codes_of(tmp_path / "second").values())


def test_a_run_notices_one_that_started_later(start: Start, fake_fio: FakeFio, tier: Path, tmp_path: Path) -> None:
    fake_fio.on("read-j1", "hang")
    child = start("fio", "--tier", tier, *SMALL, "-o", tmp_path / "run")
    wait_for(lambda: f"hanging {FIRST}" in fake_fio.log(), "the first point")
    with others.announced(inspect("t", str(tier)), "0123456789abcdef"):
        for process in fio_processes(tmp_path):
            os.kill(process, signal.SIGKILL)
        _, err = child.communicate(timeout=120)
    assert child.returncode == 3, err
    assert "another kvbench is at work" not in err
    assert codes_of(tmp_path / "run")[SECOND][0] == "other-runs"


@pytest.fixture
def whole_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host as it is, other tests' runs included."""
    monkeypatch.setattr(others, "_SOCKETS", Path("/proc/net/unix"))


def count_beside(tier: Path, token: str) -> int:
    with others.announced(inspect("t", str(tier)), token) as presence:
        return presence.others([token])


def test_a_marker_that_is_renewed_is_another_run_and_an_old_one_is_not(tier: Path) -> None:
    found = inspect("t", str(tier))
    with workspace(found) as own:
        assert count_beside(tier, own.token) == 0
        foreign = tier / "kvbench-0123456789abcdef"
        foreign.mkdir()
        assert count_beside(tier, own.token) == 0, "no marker"
        marker = foreign / ".kvbench-owner.json"
        marker.write_text("{}")
        assert count_beside(tier, own.token) == 1
        hour_ago = time.time() - 3600
        os.utime(marker, (hour_ago, hour_ago))
        assert count_beside(tier, own.token) == 0
        marker.unlink()
        marker.symlink_to("/dev/zero")
        assert count_beside(tier, own.token) == 0, "a link is no marker"


def test_a_directory_with_a_name_that_is_none_of_ours_is_nobody(tier: Path) -> None:
    with workspace(inspect("t", str(tier))) as own:
        for name in ("kvbench-x", "kvbench-0123456789abcdef0", "kvbench-0123456789ABCDEF", "kvbench-0\n23456789abcdef"):
            (tier / name).mkdir()
            (tier / name / ".kvbench-owner.json").write_text("{}")
        assert count_beside(tier, own.token) == 0


def test_a_run_renews_its_own_marker(tier: Path) -> None:
    with workspace(inspect("t", str(tier))) as own:
        marker = own.path / ".kvbench-owner.json"
        os.utime(marker, (1, 1))
        assert count_beside(tier, own.token) == 0
        assert time.time() - marker.stat().st_mtime < 60


@pytest.mark.usefixtures("whole_host")
def test_a_name_is_given_back_when_its_process_is_killed(tier: Path, tmp_path: Path) -> None:
    """Another directory of the same file system, in another process, which cannot clean up."""
    own = "fedcba9876543210"
    (tmp_path / "tier-2").mkdir()
    code = (
        "import sys, time\nfrom kvbench.tiers import others\nfrom kvbench.tiers.directory import inspect\n"
        "with others.announced(inspect('t', sys.argv[1]), '0123456789abcdef'):\n print('here', flush=True)\n"
        " time.sleep(600)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code, tmp_path / "tier-2"], stdout=subprocess.PIPE, cwd=ROOT)
    try:
        with others.announced(inspect("t", str(tier)), own) as presence:
            assert child.stdout is not None
            assert child.stdout.readline() == b"here\n"
            assert "0123456789abcdef" in others._here(presence.place)
            child.kill()
            child.wait()
            assert "0123456789abcdef" not in others._here(presence.place)
            assert own in others._here(presence.place)
        assert own not in others._here(presence.place)
    finally:
        child.kill()
        child.communicate()


def test_a_run_is_not_its_own_neighbour(kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path) -> None:
    """With --repeat all lanes hold their data at the same time."""
    (tmp_path / "tier-2").mkdir()
    both = ("--tier", f"a={tier}", "--tier", f"b={tmp_path / 'tier-2'}", "--repeat", "2")
    assert kvbench("fio", *both, *SMALL, "-o", tmp_path / "run").code == 0
    found = codes_of(tmp_path / "run")
    assert len(found) == 4
    assert not any("other-runs" in codes for codes in found.values())


def test_every_refusal_here_is_the_users_turn() -> None:
    assert issubclass(ResultFileError, KvbenchError)
    assert (ResultFileError.exit_code, UsageError.exit_code) == (2, 2)
