"""``kvbench import``: results that fio made elsewhere, judged, and written without secrets."""

from __future__ import annotations

import csv
import json
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvbench.formats.fio.importer import imported_points
from kvbench.formats.fio.read import parse_all
from kvbench.record import results
from kvbench.record.results import Observation
from tests.conftest import Outcome
from tests.factories import DATA, GPT_OSS_BLOCK, fio_document, fio_job, fio_side, plain, shared_data, write_json

Run = Callable[..., Outcome]
MS = 10**6
# 6,000 operations in 60 s that take 10 ms on average: exactly one job's work.
STEADY = {9 * MS: 3000, 11 * MS: 3000}
TWICE = {19 * MS: 1500, 21 * MS: 1500}

GOLDEN = """\
KV blocks

 model                 TP   KV dtype   block       on storage       one I/O   connector
 ──────────────────────────────────────────────────────────────────────────────────────
 openai/gpt-oss-120b    2   bfloat16   16 tokens    1.125 MiB   1,179,648 B   logical

Measured on nvme

       I/O   mix    jobs   side   IO/s   MiB/s   p50 ms   p99 ms   95 % interval   distrust
 ───────────────────────────────────────────────────────────────────────────────────────────────────────
 1.125 MiB   read      1   read    100   112.5     9.00     11.0     one section   (cache state unknown)

"""


def job(name: str = "kv", **changes: Any) -> dict[str, Any]:
    """A clean pure read job of gpt-oss-120b's block."""
    options = {"rw": "randread", "bs": "1152k", "numjobs": "1", "size": "400g"}
    return fio_job(name, fio_side(STEADY, GPT_OSS_BLOCK), **(options | changes))


def points_of(document: dict[str, Any]) -> list[Observation]:
    """The points of one document."""
    return imported_points(parse_all(json.dumps(document), "a file"), "tier", "a file")


def only(document: dict[str, Any]) -> results.PointResult:
    """The one point of a document."""
    (found,) = points_of(document)
    return found.point


def codes(point: results.PointResult) -> list[str]:
    """The codes of a point's warnings."""
    return [warning.code for warning in point.warnings]


def test_whole_stdout(kvbench: Run, tmp_path: Path) -> None:
    source = write_json(tmp_path / "fio.json", fio_document(job()))
    outcome = kvbench("import", f"nvme={source}", "--model", "gpt-oss-120b", "--tp", "2", "-o", tmp_path / "run")
    assert outcome.code == 0
    assert outcome.err == f"run directory: {tmp_path}/run\n"
    assert plain(outcome.out) == plain(GOLDEN)
    run = results.load(tmp_path / "run")
    (point,) = run.points
    assert (point.id, point.tier, point.source, point.numjobs, point.mix) == ("nvme-kv", "nvme", "fio.json", 1, "read")
    assert point.conditions.dataset_bytes == 400 << 30
    assert point.conditions.requested_runtime_s == 60
    histogram = results.load_histogram(tmp_path / "run", point, "read")
    assert histogram is not None
    assert dict(histogram.bins) == STEADY
    assert (tmp_path / "run" / "summary.md").read_text().startswith("# kvbench run run\n")
    assert json.loads((tmp_path / "run" / "imported" / "nvme.json").read_text()) == [fio_document(job())]


def test_json_is_the_result_file(kvbench: Run, tmp_path: Path) -> None:
    source = write_json(tmp_path / "fio.json", fio_document(job()))
    data = kvbench("import", source, "-o", tmp_path / "run", "--json", "--label", "a=b=c", "--tp", "2").json()
    assert data.pop("run_dir") == str(tmp_path / "run")
    assert data == json.loads((tmp_path / "run" / "result.json").read_text())
    assert data["labels"] == {"a": "b=c"}


def test_a_failed_job_is_data_and_exit_3(kvbench: Run, tmp_path: Path) -> None:
    broken = job("bad") | {"error": 28}
    source = tmp_path / "fio.json"
    source.write_text("fio: pid=1, err=28/file:x, error=No space left\n" + json.dumps(fio_document(job(), broken)))
    outcome = kvbench("import", source, "-o", tmp_path / "run", "--tp", "2")
    assert outcome.code == 3
    run = results.load(tmp_path / "run")
    assert [(point.job, point.status, codes(point)) for point in run.points] == [
        ("kv", "ok", []),
        ("bad", "failed", []),
    ]
    assert run.points[1].reason is not None
    assert run.points[1].reason.startswith("fio reports No space left on device (error 28): fio: pid=1")


def test_a_failed_import_does_not_advise_resuming(kvbench: Run, tmp_path: Path) -> None:
    source = write_json(tmp_path / "x.json", fio_document(job() | {"error": 28}))
    assert "--resume" not in kvbench("import", source, "-o", tmp_path / "run").out


def test_two_files_of_one_name_are_both_kept_or_refused(kvbench: Run, tmp_path: Path) -> None:
    one = write_json(tmp_path / "a" / "fio.json", fio_document(job()))
    other = write_json(tmp_path / "b" / "fio.json", fio_document(fio_job("kv", fio_side(TWICE, GPT_OSS_BLOCK))))
    outcome = kvbench("import", one, other, "-o", tmp_path / "run", "--tp", "2")
    if outcome.code == 2:
        assert outcome.err.count("\n") == 1
        return
    run = results.load(tmp_path / "run")
    assert [point.read.ios for point in run.points if point.read] == [6000, 3000]
    assert len(list((tmp_path / "run" / "imported").iterdir())) == 4


def test_one_name_for_different_jobs_of_one_file_is_numbered(kvbench: Run, tmp_path: Path) -> None:
    document = fio_document(job("a b"), job("a-b"), job("a?b"))
    source = write_json(tmp_path / "x.json", document)
    assert kvbench("import", source, "-o", tmp_path / "run", "--tp", "2").code == 0
    run = results.load(tmp_path / "run")
    assert [(point.id, point.job) for point in run.points] == [("x-a-b", "a b"), ("x-a-b-2", "a-b"), ("x-a-b-3", "a?b")]
    assert len({point.histogram for point in run.points}) == 3


def test_processes_of_one_job_are_merged_exactly() -> None:
    document = json.loads((DATA / "fio" / "fio-3.33_json-plus.json").read_text())
    (_, found) = points_of(document)
    entries = [entry for entry in document["jobs"] if entry["jobname"] == "apart"]
    bins: dict[int, int] = {}
    for entry in entries:
        for ns, count in entry["read"]["lat_ns"]["bins"].items():
            bins[int(ns)] = bins.get(int(ns), 0) + count
    samples = sorted(ns for ns, count in bins.items() for _ in range(count))
    read = found.point.read
    assert read is not None
    assert read.latency_ns is not None
    assert dict(found.histograms["read"].bins) == bins
    assert (found.point.numjobs, read.ios) == (2, len(samples))
    assert read.iops == pytest.approx(sum(entry["read"]["iops"] for entry in entries))
    assert read.bytes_per_s == sum(entry["read"]["bw_bytes"] for entry in entries)
    assert read.latency_ns.p50 == samples[len(samples) // 2 - 1]
    assert read.latency_ns.p99 == samples[-(-len(samples) * 99 // 100) - 1]
    assert read.latency_ns.min == min(entry["read"]["lat_ns"]["min"] for entry in entries)
    assert read.latency_ns.max == max(entry["read"]["lat_ns"]["max"] for entry in entries)


def test_processes_without_bins_have_no_merged_percentile() -> None:
    entries = [job(numjobs="2"), job(numjobs="2")]
    for entry in entries:
        del entry["read"]["lat_ns"]["bins"]
    point = only(fio_document(*entries))
    assert point.read is not None
    assert point.read.latency_ns is not None
    assert (point.numjobs, point.read.ios, point.read.latency_ns.p99) == (2, 12_000, None)
    assert point.read.latency_ns.mean == 10 * MS
    assert codes(point) == ["percentiles-not-mergeable"]
    assert point.warnings[0].values == {
        "processes": 2, "read_p99_low_ns": 11 * MS, "read_p99_high_ns": 11 * MS,
    }  # fmt: skip


def test_one_failed_process_fails_the_point() -> None:
    assert only(fio_document(job(), job() | {"error": 5})).status == "failed"


def test_sections_of_one_name_that_ran_in_turn_are_not_added() -> None:
    found = points_of(fio_document(job(), job() | {"groupid": 1}))
    assert [item.point.read.iops for item in found if item.point.read] == [100, 100]


def test_a_block_size_that_contradicts_the_options() -> None:
    """axboe/fio#2132: two sections in one group; 8,388,608 bytes in 68 operations are neither 64 KiB nor 1 MiB."""
    side = fio_side({MS: 68}, 1) | {"io_bytes": 8_388_608, "bw_bytes": 8_388_608 // 60, "bw": 8_388_608 // 60 // 1024}
    point = only(fio_document(fio_job("restore-64k", side, rw="read", bs="1M")))
    assert point.io_bytes == 123_362
    assert codes(point)[0] == "block-size"
    assert point.warnings[0].values == {"bs": 1 << 20, "bytes_per_operation": 123_362}


@pytest.mark.parametrize("bs", ["4k,8k", "4k/50:64k/50"])
def test_several_block_sizes_are_said(bs: str) -> None:
    side = fio_side({MS: 1000}, 6144)
    document = fio_document(fio_job("kv", side, rw="read"))
    document["jobs"][0]["job options"]["bssplit" if "/" in bs else "bs"] = bs
    point = only(document)
    assert "block-size" in codes(point)


def test_a_mix_is_what_was_done() -> None:
    both = fio_job("kv", fio_side(TWICE, 4096), fio_side(TWICE, 4096), bs="4k")
    assert only(fio_document(both)).mix == "mixed"
    both["job options"]["rw"] = "randrw:8"
    assert only(fio_document(both)).mix == "mixed"
    assert only(fio_document(fio_job("kv", None, fio_side(STEADY), bs="4k"))).mix == "write"
    assert only(fio_document(job(rw="read"))).mix == "read"


def test_a_group_of_readers_and_writers_is_mixed() -> None:
    both = fio_job("kv", fio_side(TWICE, 4096), fio_side(TWICE, 4096), bs="4k", rw="read")
    assert only(fio_document(both)).mix == "mixed"


def test_conditions_that_the_options_tell() -> None:
    point = only(fio_document(job(iodepth="8", size="225m", numjobs="16", direct="0", ioengine="psync")))
    seen = point.conditions
    assert (seen.iodepth, seen.dataset_bytes, seen.direct, seen.ioengine) == (8, 16 * (225 << 20), False, "psync")
    shared = only(fio_document(job(size="225m", numjobs="16", filename="/dev/x")))
    assert shared.conditions.dataset_bytes == 225 << 20
    assert only(fio_document(job(size="50%"))).conditions.dataset_bytes is None


def test_kb_base_counts_for_the_data_set() -> None:
    assert only(fio_document(job(size="1m", kb_base="1000"))).conditions.dataset_bytes == 10**6


def test_buffered_0_is_direct() -> None:
    document = fio_document(job(buffered="0"))
    del document["global options"]["direct"]
    assert "buffered" not in codes(only(document))


def test_an_object_store_is_not_buffered() -> None:
    document = fio_document(job(ioengine="http"))
    del document["global options"]["direct"]
    assert "buffered" not in codes(only(document))


def test_unified_reporting_is_named() -> None:
    point = only(fio_document(fio_job("kv", unified_rw_reporting="1") | {"mixed": fio_side(STEADY)}))
    assert point.reason != "fio did no I/O"


def test_models_that_were_not_measured(kvbench: Run, tmp_path: Path) -> None:
    source = write_json(tmp_path / "x.json", fio_document(job()))
    outcome = kvbench("import", source, "-o", tmp_path / "run", "--model", "qwen3-8b", "--tp", "2")
    assert outcome.code == 2
    assert outcome.err == (
        "kvbench: Qwen/Qwen3-8B makes I/O of 2,359,296 bytes, and the files measured 1,179,648 bytes; "
        "name another --model or --tp.\n"
    )
    assert not (tmp_path / "run").exists()
    outcome = kvbench("import", source, "-o", tmp_path / "run", "--tp", "2")
    assert outcome.code == 0
    assert outcome.err.startswith(
        "left out: Qwen/Qwen3-8B makes I/O of 2,359,296 bytes; meta-llama/Llama-3.1-70B makes I/O of 5,242,880 bytes "
        "(the files measured 1,179,648 bytes)\n"
    )
    assert [use.model for use in results.load(tmp_path / "run").uses] == ["openai/gpt-oss-120b"]


def test_bad_input_is_a_sentence_and_leaves_nothing(kvbench: Run, tmp_path: Path) -> None:
    for name, content, said in (
        ("gone", None, "cannot be read (No such file or directory); name a file with fio's JSON output."),
        ("empty", "", "holds no complete fio JSON; it is empty."),
        ("cut", json.dumps(fio_document(job()))[:-9], "holds no complete fio JSON; it is cut off or damaged; run fio "
         "again."),
        ("old", json.dumps(fio_document(job(), version="fio-1.60")), "is from fio-1.60; kvbench reads fio 2.1 and "
         "later. Measure again."),
    ):  # fmt: skip
        path = tmp_path / name
        if content is not None:
            path.write_text(content)
        outcome = kvbench("import", path, "-o", tmp_path / "run")
        assert (outcome.code, outcome.out, outcome.err) == (2, "", f"kvbench: {path} {said}\n")
        assert not (tmp_path / "run").exists()


def test_no_jobs_at_all_is_bad_input(kvbench: Run, tmp_path: Path) -> None:
    source = write_json(tmp_path / "x.json", fio_document())
    assert kvbench("import", source, "-o", tmp_path / "run").code == 2


def test_a_used_run_directory_is_never_reused(kvbench: Run, tmp_path: Path) -> None:
    source = write_json(tmp_path / "x.json", fio_document(job()))
    outcome = kvbench("import", source, "-o", tmp_path, "--tp", "2")
    assert outcome.code == 2
    assert outcome.err.endswith("is not empty; name another -o, or continue that run with --resume.\n")


@pytest.mark.parametrize(("tier", "name"), [("t\udcff", "kv"), ("t", "k" * 300)], ids=["not UTF-8", "300 characters"])
def test_odd_names_are_no_crash(kvbench: Run, tmp_path: Path, tier: str, name: str) -> None:
    source = write_json(tmp_path / "x.json", fio_document(job(name)))
    assert kvbench("import", f"{tier}={source}", "-o", tmp_path / "run", "--tp", "2").code == 0


def test_secrets_stay_out_of_everything_that_is_written(kvbench: Run, tmp_path: Path) -> None:
    document = fio_document(job(http_s3_key="hush-1"), http_s3_keyid="hush-2", http_s3_security_token="hush-3")
    source = tmp_path / "x.json"
    source.write_text("fio: note hush-4\n" + json.dumps(document))
    outcome = kvbench("import", source, "-o", tmp_path / "run", "--tp", "2", "--json")
    assert outcome.code == 0
    written = [path.read_text() for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len(written) == 5
    for text in (*written, outcome.out, outcome.err):
        assert "hush" not in text


PUBLISHED = ("cephfs", "rgw-s3", "vpc-block", "vpc-block-probe")


@pytest.mark.slow
def test_the_published_results_exactly(kvbench: Run, tmp_path: Path) -> None:
    folder = shared_data("published")
    files = [folder / f"{name}.json" for name in PUBLISHED]
    assert kvbench("import", *files, "-o", tmp_path / "run", "--tp", "2").code == 0
    run = results.load(tmp_path / "run")
    found = {
        (point.tier, point.job, name): (point, side)
        for point in run.points
        for name, side in (("read", point.read), ("write", point.write))
        if side is not None
    }
    rows = list(csv.DictReader((folder / "expected.tsv").read_text().splitlines(), delimiter="\t"))
    assert set(found) == {(row["tier"], row["job"], row["direction"]) for row in rows}
    for row in rows:
        point, side = found[row["tier"], row["job"], row["direction"]]
        assert side.latency_ns is not None
        assert side.latency_ns.p50 is not None
        assert side.latency_ns.p99 is not None
        assert side.latency_ns.mean is not None
        assert point.io_bytes == int(row["bs"][:-1]) * {"k": 1024, "m": 1 << 20}[row["bs"][-1]]
        assert (point.status, point.latency_source, point.numjobs) == ("ok", "lat", int(row["numjobs"]))
        assert (side.ios, side.bytes_per_s) == (int(row["total_ios"]), int(row["bw_bytes_per_s"]))
        assert round(side.iops, 2) == float(row["iops"])
        assert round(side.bytes_per_s / (1 << 20), 1) == float(row["bw_mib_per_s"])
        for value, column in ((side.latency_ns.p50, "p50_ms"), (side.latency_ns.p99, "p99_ms"),
                              (side.latency_ns.mean, "mean_ms")):  # fmt: skip
            assert round(value / 1e6, 3) == float(row[column]), (row["job"], column)
    assert [use.io_bytes for use in run.uses] == [1_179_648, 2_359_296, 5_242_880]


def published_texts(kvbench: Run, tmp_path: Path) -> dict[str, str]:
    """Everything that an import of the published files writes, by file name."""
    folder = shared_data("published")
    assert kvbench("import", *(folder / f"{name}.json" for name in PUBLISHED), "-o", tmp_path / "run").code == 0
    return {path.name: path.read_text() for path in (tmp_path / "run").rglob("*") if path.is_file()}


@pytest.mark.slow
def test_the_published_keys_and_this_host_are_not_written(kvbench: Run, tmp_path: Path) -> None:
    for name, text in published_texts(kvbench, tmp_path).items():
        for secret in ("exampleSecretKey", "EXAMPLEKEYID"):
            assert secret not in text, name
        assert re.search(rf"\b{re.escape(socket.gethostname())}\b", text) is None, name


@pytest.mark.slow
def test_the_published_endpoint_is_not_written(kvbench: Run, tmp_path: Path) -> None:
    for name, text in published_texts(kvbench, tmp_path).items():
        assert "rgw.example.internal" not in text, name


@pytest.mark.parametrize(
    ("summed_s", "writers", "reading"),
    [(1.93, 1, 1), (31.2, 16, 16), (30.1, 16, 16), (27.0, 16, 16), (46.8, 16, 31), (79.5, 16, 64)],
)
def test_a_group_of_readers_and_paced_writers_is_known_by_its_readers(
    summed_s: float, writers: int, reading: int
) -> None:
    """kvbench's own mixed points: the options are the writers', the name counts the readers, and the summed runtime is
    off by whatever a job waited at its end."""
    name = f"nvme-1179648-mixed-j{reading}"
    both = fio_job(name, fio_side(STEADY, GPT_OSS_BLOCK), fio_side(TWICE, GPT_OSS_BLOCK), bs="1152k", size="400g")
    both["job options"] |= {"rw": "randwrite", "numjobs": str(writers)}
    both["job_runtime"] = round(summed_s * 60_000)
    paced = {**both, "job options": {**both["job options"], "rate": "32110100"}}
    found = only(fio_document(paced))
    assert (found.numjobs, found.conditions.storing_jobs) == (reading, writers)
    # Somebody else's group without a pace may hold anything: all of its jobs count.
    other = only(fio_document(both))
    assert other.conditions.storing_jobs is None
    assert other.numjobs == round(summed_s)
    renamed = only(fio_document({**paced, "jobname": f"mixed-j{reading}-x"}))
    assert (renamed.numjobs, renamed.conditions.storing_jobs) == (round(summed_s), None)


def calls_of(run: Callable[[], object]) -> int:
    """How many functions of Python ``run`` calls: its work, on every machine the same."""
    count = 0

    def counting(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(counting)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["files", "jobs"])
def test_the_work_grows_with_the_number_of_files_and_jobs_and_not_with_its_square(
    kvbench: Run, tmp_path: Path, layout: str
) -> None:
    def calls(number: int) -> int:
        jobs = [job(f"j{each}") | {"groupid": each} for each in range(number)]
        groups = [[one] for one in jobs] if layout == "files" else [jobs]
        folder = tmp_path / f"{layout}-{number}"
        folder.mkdir()
        files = [write_json(folder / f"t{at}.json", fio_document(*group)) for at, group in enumerate(groups)]
        return calls_of(lambda: kvbench("import", *files, "-o", folder / "run"))

    calls(1)
    few, more, most = calls(20), calls(60), calls(180)
    assert (most - more) / (more - few) < 3.3, "three times the work for three times the points"
