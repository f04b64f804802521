"""What fio meant, and what it could not have measured: one kind after the other, each with a near miss."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvbench.checks import voiding
from kvbench.formats.fio.importer import imported_points
from kvbench.formats.fio.read import parse_all
from kvbench.record.results import PointResult
from tests.factories import fio_document, fio_job, fio_side, shared_data

MS = 10**6
BLOCK = 2_359_296
# One job busy for 60 s: 6,000 operations of 10 ms on average.
STEADY = {9 * MS: 3000, 11 * MS: 3000}


def job(bins: dict[int, int] | None = None, io_bytes: int = BLOCK, runtime_ms: int = 60_000, **options: Any) -> Any:
    """A clean random read job."""
    usual = {"rw": "randread", "bs": str(io_bytes), "numjobs": "1", "size": "400g"}
    return fio_job("kv", fio_side(bins or STEADY, io_bytes, runtime_ms), **(usual | options))


def points(text: str) -> list[PointResult]:
    """The points of what fio wrote."""
    return [item.point for item in imported_points(parse_all(text, "a file"), "tier", "a file")]


def only(document: dict[str, Any]) -> PointResult:
    """The one point of a document."""
    (found,) = points(json.dumps(document))
    return found


def codes(point: PointResult) -> list[str]:
    """The codes of its warnings."""
    return [warning.code for warning in point.warnings]


def without(document: dict[str, Any], *names: str) -> dict[str, Any]:
    """The document without these global options."""
    kept = {key: value for key, value in document["global options"].items() if key not in names}
    return document | {"global options": kept}


# The recorded cases: file, status, codes of the first point, whether no verdict may rest on it.
FIELD = [
    ("fio_reference_ok", "ok", ["re-read"], False),
    ("fio_dfs_engine", "ok", [], False),
    ("exitall2", "ok", ["short-runtime", "few-samples"], False),
    ("kubestr_wrapper", "ok", ["re-read"], False),
    ("fio237_numjobs_missing", "ok", ["jobs-not-named", "re-read", "completion-latency"], False),
    ("dsync", "ok", ["sync-left-out"], False),
    ("trim_only", "failed", [], False),
    ("appended", "ok", ["several-runs", "few-samples"], False),
    ("fio_ramp_iodepth", "ok", ["re-read"], False),
    ("fio_thousands_of_samples", "ok", ["re-read"], False),
    ("fio_unwritten_extents", "ok", ["reads-not-from-device"], True),
    ("fio_mean_above_p99", "ok", ["impossible-mean"], True),
    ("fio_percentile_list", "ok", ["percentiles-missing", "re-read"], False),
]


@pytest.mark.parametrize(("name", "status", "said", "void"), FIELD)
def test_the_field_files(name: str, status: str, said: list[str], void: bool) -> None:
    point = points((shared_data("field") / f"{name}.json").read_text())[0]
    assert (point.status, codes(point), bool(voiding(point))) == (status, said, void)


def test_numbers_of_the_field_files() -> None:
    folder = shared_data("field")

    def first(name: str) -> PointResult:
        return points((folder / f"{name}.json").read_text())[0]

    assert first("fio_ramp_iodepth").io_bytes == BLOCK
    assert first("fio237_numjobs_missing").numjobs == 4
    assert first("exitall2").warnings[0].values == {"runtime_s": 0.014, "requested_runtime_s": 60.0}
    assert first("trim_only").reason == (
        "fio only trimmed (4,401 trims), which moves no data; run it with a mix of reads or writes"
    )
    assert first("dsync").warnings[0].values == {"syncs": 1159, "sync_mean_ns": 2_320_410}
    dfs = first("fio_dfs_engine").conditions
    assert (dfs.direct, dfs.cache_state) == (None, "unknown")


# Bytes of the ramp


def ramp(more: int, **options: Any) -> PointResult:
    """Depth 16 after a ramp: ``more`` operations' bytes beyond those that were counted."""
    side = fio_side({160 * MS: 6000}, BLOCK)
    total = BLOCK * (6000 + more)
    side |= {"io_bytes": total, "bw_bytes": total // 60, "bw": total // 60 // 1024}
    usual = {"rw": "randread", "bs": "2304k", "iodepth": "16", "size": "400g", "numjobs": "1"}
    return only(fio_document(fio_job("kv", side, **(usual | options))))


def test_bytes_of_the_ramp_that_were_in_flight() -> None:
    assert (ramp(15, ramp_time="2").io_bytes, codes(ramp(15, ramp_time="2"))) == (BLOCK, [])
    # As many without a ramp, and more than can have been in flight, are another block size.
    assert codes(ramp(30)) == ["block-size"]
    assert codes(ramp(60, ramp_time="2")) == ["block-size"]


# Block sizes


@pytest.mark.parametrize(
    "spelled",
    [
        {"bs": "2304k,1m"}, {"bs": "2304k,1m,4k"}, {"bs": "2304k,"}, {"bssplit": "2304k/100"},
        {"bssplit": "2304k/60:2304k/40,4k/100"}, {"bsrange": "2304k-2304k"}, {"bsrange": "2304k:2304k,4k-8k"},
    ],
)  # fmt: skip
def test_a_reader_has_the_read_size(spelled: dict[str, Any]) -> None:
    point = only(fio_document(fio_job("kv", fio_side(STEADY, BLOCK), rw="randread", size="400g", **spelled)))
    assert (point.io_bytes, codes(point)) == (BLOCK, [])


def test_a_writer_has_the_write_size_and_the_default_where_it_is_empty() -> None:
    side = fio_side(STEADY, BLOCK)
    assert codes(only(fio_document(fio_job("kv", None, side, rw="randwrite", bs="4k,2304k")))) == []
    small = fio_side(STEADY, 4096)
    assert codes(only(fio_document(fio_job("kv", small, rw="randread", size="400g", bs=",2304k")))) == []
    assert codes(only(fio_document(fio_job("kv", None, small, rw="randwrite", bs="2304k,,4k")))) == []


@pytest.mark.parametrize(
    "spelled",
    [
        {"bs": "2304k,1m"},
        {"bssplit": "4k/50:2304k/50"},
        {"bsrange": "4k-2304k"},
        {"bs": "2304k,4k", "bs_is_seq_rand": "1"},
    ],
)
def test_mixed_sizes_are_said_and_void(spelled: dict[str, Any]) -> None:
    half = {19 * MS: 1500, 21 * MS: 1500}
    both = fio_job("kv", fio_side(half, BLOCK), fio_side(half, 1 << 20), rw="randrw", size="400g", **spelled)
    point = only(fio_document(both))
    assert "block-size" in voiding(point)
    assert next(iter(spelled.values())) in point.warnings[0].message


# Time


def timed(runtime_ms: int, bins: dict[int, int], **options: Any) -> PointResult:
    """A job with a runtime of 60 s and no time_based in its JSON."""
    return only(without(fio_document(job(bins, runtime_ms=runtime_ms, **options)), "time_based"))


def test_runtime_without_time_based_is_a_cap() -> None:
    """What finished, what ended early, what ran its time and what stalled, told apart."""
    thousand = {10 * MS: 1000}
    size = {"size": str(1000 * BLOCK)}
    finished = timed(10_000, thousand, **size)
    assert ("short-runtime" in codes(finished), finished.conditions.requested_runtime_s) == (False, None)
    assert codes(timed(10_000, thousand, size=str(1100 * BLOCK))) == ["short-runtime"]
    assert "short-runtime" in codes(timed(10_000, thousand, **size, loops="2"))
    assert "short-runtime" not in codes(timed(10_000, thousand, size="1g", io_size=str(1000 * BLOCK)))
    assert "short-runtime" in codes(timed(10_000, thousand, **size, number_ios="2000"))
    assert "short-runtime" not in codes(timed(10_000, thousand, size="400g", number_ios="1000"))
    assert codes(timed(60_000, STEADY)) == []
    # The size of a device is not in the file.
    assert "short-runtime" not in codes(timed(10_000, thousand, size="100%"))


def test_the_sizes_of_a_group_of_sections_are_not_known() -> None:
    """axboe/fio#2132: the options are the last section's; job_runtime shows two jobs where they name one."""
    entry = job({10 * MS: 1000}, runtime_ms=10_000, size=str(1000 * BLOCK))
    assert codes(only(without(fio_document(entry | {"job_runtime": 10_000}), "time_based"))) == []
    two = only(without(fio_document(entry | {"job_runtime": 20_000}), "time_based"))
    assert (two.numjobs, "short-runtime" in codes(two)) == (2, False)


def test_what_ran_in_the_ramp_is_not_missing() -> None:
    thousand = {10 * MS: 1000}
    assert "short-runtime" not in codes(timed(10_000, thousand, size=str(1200 * BLOCK), ramp_time="2"))
    assert "short-runtime" in codes(timed(10_000, thousand, size=str(1400 * BLOCK), ramp_time="2"))


def test_a_stall_has_an_operation_that_took_that_long() -> None:
    hung = {10 * MS: 6000, 15_000 * MS: 1}
    assert "stalled" in codes(only(fio_document(job(hung, runtime_ms=75_000))))
    counted_on = only(fio_document(job(STEADY, runtime_ms=120_000)))
    assert "clock-went-on" in voiding(counted_on)
    assert "stalled" not in codes(counted_on)


# Engines

USER_SPACE = [
    "http", "nbd", "rados", "rbd", "nfs", "gfapi", "gfapi_async", "libhdfs", "libiscsi", "dfs", "ime_psync", "ime_aio",
    "libblkio", "xnvme", "spdk", "sg", "libzbc", "io_uring_cmd", "libcufile", "dev-dax", "libpmem", "rdma", "null",
    "external:/opt/spdk/build/fio/spdk_nvme",
]  # fmt: skip


@pytest.mark.parametrize("engine", USER_SPACE)
def test_engines_without_a_page_cache_are_not_buffered(engine: str) -> None:
    point = only(without(fio_document(job(ioengine=engine)), "direct"))
    assert (point.conditions.direct, "buffered" in codes(point)) == (None, False)


@pytest.mark.parametrize("engine", ["libaio", "io_uring", "psync", "posixaio", "windowsaio", "mmap"])
def test_engines_of_the_kernel_are(engine: str) -> None:
    assert "buffered" in voiding(only(without(fio_document(job(ioengine=engine)), "direct")))
    assert ("buffered" in codes(only(fio_document(job(ioengine=engine))))) == (engine == "mmap")


# Syncs and trims


def test_time_in_syncs_and_trims_is_no_idle_job() -> None:
    """1 ms of writing and 9 ms of fdatasync keep one job busy."""
    entry = fio_job("kv", None, fio_side({MS: 6000}, 4096), rw="randwrite", bs="4k", fdatasync="1")
    assert codes(only(fio_document(entry))) == ["idle-jobs"]
    entry["sync"] = {"total_ios": 0, "lat_ns": {"min": 1, "max": 9 * MS, "mean": 9.0 * MS, "N": 6000}}
    synced = only(fio_document(entry))
    assert codes(synced) == ["sync-left-out"]
    assert synced.conditions.beside_in_flight == pytest.approx(0.9)
    # O_SYNC writes hold their sync: nothing is left out.
    entry["job options"] |= {"fdatasync": "0", "sync": "1"}
    assert codes(only(fio_document(entry))) == []


def test_trims_beside_writes_are_not_the_reason() -> None:
    entry = fio_job("kv", None, fio_side({5 * MS: 6000}, 4096), rw="trimwrite", bs="4k")
    entry["trim"] = {"total_ios": 6000, "lat_ns": {"min": 1, "max": 6 * MS, "mean": 5.0 * MS, "N": 6000}}
    both = only(fio_document(entry))
    assert (both.status, both.mix, codes(both)) == ("ok", "write", [])


# Jobs that nobody named


def unnamed(latency_ms: int, **options: Any) -> PointResult:
    """6,000 operations in 60 s, each so long, from a file that names no number of jobs."""
    entry = fio_job("kv", fio_side({latency_ms * MS: 6000}, BLOCK), rw="randread", bs="2304k", size="400g", **options)
    return only(fio_document(entry))


def test_a_missing_numjobs_is_what_was_in_flight() -> None:
    four = unnamed(80, iodepth="2")
    assert (four.numjobs, codes(four)) == (4, ["jobs-not-named"])
    assert four.warnings[0].values == {"numjobs": 4, "in_flight": 8.0}
    assert (unnamed(10).numjobs, codes(unnamed(10))) == (1, [])
    # Named, or no whole number: then the numbers contradict each other.
    assert codes(unnamed(80, iodepth="2", numjobs="1")) == ["littles-law"]
    assert codes(unnamed(50, iodepth="2")) == ["littles-law"]


# Several runs in one file


def test_runs_of_equal_size_are_told_from_reports_of_one_run() -> None:
    first = fio_document(job(iodepth="1"))
    again = fio_document(job({5 * MS: 6000}, iodepth="1"))
    other = fio_document(job(iodepth="13"))
    assert "several-runs" in codes(points(json.dumps(first) + json.dumps(again))[0])
    assert "several-runs" in codes(points(json.dumps(first) + json.dumps(other))[0])
    hour_later = first | {"timestamp": 3601}
    started = [document | {"jobs": [job() | {"elapsed": 61}]} for document in (first, hour_later)]
    assert "several-runs" in codes(points("\n".join(map(json.dumps, started)))[0])
    # The last report and the result of one run may be the same.
    assert codes(points(json.dumps(first) + json.dumps(first))[0]) == []
    report = fio_document(job({9 * MS: 2000, 11 * MS: 1000}, runtime_ms=30_000, iodepth="1"))
    assert codes(points(json.dumps(report) + json.dumps(first))[0]) == []


# fio's JSON inside another tool's


@pytest.mark.parametrize("depth", [1, 3, 12])
def test_documents_at_any_path(depth: int) -> None:
    value: Any = fio_document(job())
    for level in range(depth):
        value = {"raw": {"size": "100Gi", "result": value}} if level % 2 else [{"samples": [1, value]}]
    assert [point.job for point in points(json.dumps(value))] == ["kv"]


def test_documents_as_text_and_several_of_them() -> None:
    one, two = fio_document(job() | {"jobname": "a"}), fio_document(job() | {"jobname": "b"})
    text = {"pods": [{"stdout": f"note: x\n{json.dumps(one)}\n"}, {"stdout": json.dumps({"result": two})}]}
    assert [point.job for point in points(json.dumps(text, indent=1))] == ["a", "b"]


def test_the_entries_of_the_benchmark_operator() -> None:
    entry = job() | {"hostname": "10.1.2.3", "port": 8765}
    options = fio_document(job())["global options"]
    indexed = [{"uuid": "x", "fio_version": "fio-3.27", "fio": entry, "global_options": options, "sample": 1}]
    (point,) = points(json.dumps(indexed))
    assert (point.job, point.clients, codes(point)) == ("kv", ("client 1",), [])


def test_foreign_json_without_fio_is_still_refused() -> None:
    value: Any = {"fio": {"name": "x"}, "result": "no"}
    for _ in range(40):
        value = [value]
    for text in (json.dumps(value), json.dumps({"raw": {"result": {"jobs": []}}})):
        with pytest.raises(Exception, match="holds no complete fio JSON"):
            parse_all(text, "a file")


# Percentiles


def with_percentiles(changes: dict[str, int | None], bins: bool = False) -> Any:
    """A job whose percentile list is changed; None leaves one out."""
    entry = job({9 * MS: 3000, 10 * MS: 2000, 11 * MS: 1000})
    latency = entry["read"]["lat_ns"]
    latency["percentile"] |= changes
    latency["percentile"] = {key: value for key, value in latency["percentile"].items() if value is not None}
    if not bins:
        del latency["bins"]
    return entry


def test_one_wrong_percentile_is_dropped_and_the_rest_stays() -> None:
    point = only(fio_document(with_percentiles({"99.000000": 500 * MS})))
    assert point.read is not None
    assert point.read.latency_ns is not None
    assert (point.read.latency_ns.p99, point.read.latency_ns.p50) == (None, 9 * MS)
    assert codes(point) == ["percentile-dropped"]
    assert "500,000,000 ns" in point.warnings[0].message
    assert codes(only(fio_document(with_percentiles({"95.000000": 9 * MS - 1000})))) == ["percentile-dropped"]
    counted = only(fio_document(with_percentiles({"99.000000": 10 * MS}, bins=True)))
    assert counted.read is not None
    assert counted.read.latency_ns is not None
    assert (counted.read.latency_ns.p99, codes(counted)) == (11 * MS, ["percentile-dropped"])
    assert codes(only(fio_document(with_percentiles({})))) == []


def test_more_wrong_percentiles_fail_with_their_numbers() -> None:
    failed = only(fio_document(with_percentiles({"99.000000": 500 * MS, "95.000000": 400 * MS})))
    assert failed.status == "failed"
    assert "p95 of 400,000,000 ns" in (failed.reason or "")
    # Of two neighbours either may be wrong.
    assert only(fio_document(with_percentiles({"90.000000": 11 * MS, "95.000000": 10 * MS}))).status == "failed"


def test_a_percentile_list_without_the_median_and_the_tail() -> None:
    said = codes(only(fio_document(with_percentiles({"50.000000": None, "99.000000": None}))))
    assert said == ["percentiles-missing"]
    assert codes(only(fio_document(with_percentiles({"50.000000": None})))) == ["percentiles-missing"]
    # A histogram has every percentile.
    assert codes(only(fio_document(with_percentiles({"99.000000": None}, bins=True)))) == []


def test_fio_takes_the_next_rank_where_a_percentile_is_a_whole_one() -> None:
    """99.9 % of 2,000 is 1,998.0000000000002 in floating point."""
    bins = {10 * MS: 1998, 200 * MS: 2}
    entry = job(bins, runtime_ms=20_380)
    entry["read"]["lat_ns"]["percentile"]["99.900000"] = 200 * MS
    assert only(fio_document(entry, runtime="20")).status == "ok"
    entry["read"]["lat_ns"]["percentile"]["99.900000"] = 100 * MS
    assert codes(only(fio_document(entry, runtime="20"))) == ["percentile-dropped"]
    # Elsewhere the next rank is another percentile.
    odd = job({10 * MS: 1997, 200 * MS: 4}, runtime_ms=20_770)
    odd["read"]["lat_ns"]["percentile"]["99.900000"] = 10 * MS
    assert "percentile-dropped" in codes(only(fio_document(odd, runtime="20")))


# Devices


def from_devices(*disks: dict[str, Any], entries: Any = None) -> PointResult:
    """A steady reader of 6,000 blocks and what the devices counted."""
    return points(json.dumps(fio_document(*(entries or [job()])) | {"disk_util": list(disks)}))[0]


SECTORS = 6000 * BLOCK // 512


@pytest.mark.parametrize(
    ("disks", "void"),
    [
        ([{"name": "sda", "read_ios": 12_000, "read_sectors": SECTORS}], False),
        ([{"name": "sda", "read_ios": 12_000, "read_sectors": round(SECTORS * 0.896)}], False),
        ([{"name": "sda", "read_ios": 12_000, "read_sectors": round(SECTORS * 0.89)}], True),
        ([{"name": "sda", "read_ios": 1, "read_sectors": SECTORS * 7 // 100}], True),
        # A RAID of two: its own line and those of its disks are the same bytes.
        ([{"name": "md0", "read_ios": 6000, "read_sectors": SECTORS, "aggr_read_ios": 3000},
          {"name": "sda", "read_ios": 3000, "read_sectors": SECTORS // 2},
          {"name": "sdb", "read_ios": 3000, "read_sectors": SECTORS // 2}], False),
        ([{"name": "md0", "read_ios": 3000, "read_sectors": SECTORS // 2, "aggr_read_ios": 1500},
          {"name": "sda", "read_ios": 1500, "read_sectors": SECTORS // 4},
          {"name": "sdb", "read_ios": 1500, "read_sectors": SECTORS // 4}], True),
        # Before 3.36 there are only requests: one for each operation can be all of it, fewer cannot.
        ([{"name": "sda", "read_ios": 6000, "read_merges": 0}], False),
        ([{"name": "sda", "read_ios": 4000, "read_merges": 0}], True),
        ([{"name": "sda", "read_ios": 0, "write_ios": 9}], True),
        # Native multipath: the namespace counts nothing at all.
        ([{"name": "nvme0n1", "read_ios": 0, "write_ios": 0, "in_queue": 0}], False),
        ([], False),
    ],
)  # fmt: skip
def test_bytes_of_the_device_in_proportion(disks: list[dict[str, Any]], void: bool) -> None:
    point = from_devices(*disks)
    assert ("reads-not-from-device" in voiding(point)) == void
    assert point.conditions.cache_state == ("cached" if void else "unknown")


def test_the_end_of_a_short_run_is_not_in_the_counters() -> None:
    """fio 3.33 counted none of the reads of a run of 19 ms."""
    short = job({10 * MS: 2}, runtime_ms=20)
    nothing = {"name": "vda", "read_ios": 0, "write_ios": 1}
    document = fio_document(short, runtime="1") | {"disk_util": [nothing]}
    assert "reads-not-from-device" not in codes(only(document))


def test_sequential_reads_share_requests() -> None:
    shared = {"name": "sda", "read_ios": 3000, "read_merges": 3000}
    assert "reads-not-from-device" in codes(from_devices(shared))
    assert "reads-not-from-device" not in codes(from_devices(shared, entries=[job(rw="read")]))


def test_the_counters_are_of_the_whole_run() -> None:
    """Two groups: what one of them lacks cannot be told, what both have is enough for both."""
    two = [job() | {"jobname": "a", "groupid": 0}, job() | {"jobname": "b", "groupid": 1}]
    both = fio_document(*two) | {"disk_util": [{"name": "sda", "read_ios": 9, "read_sectors": 2 * SECTORS}]}
    assert [codes(point) for point in points(json.dumps(both))] == [[], []]
    one = both | {"disk_util": [{"name": "sda", "read_ios": 9, "read_sectors": SECTORS}]}
    assert [voiding(point) for point in points(json.dumps(one))] == [["reads-not-from-device"]] * 2
    buffered = fio_document(two[0], two[1] | {"job options": two[1]["job options"] | {"direct": "0"}})
    beside = buffered | {"disk_util": one["disk_util"]}
    assert [codes(point) for point in points(json.dumps(beside))] == [[], ["buffered"]]
