"""Every case of the field's bug reports that concerns fio results (ids: GitHub owner/repo#number), through import."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvbench.checks import voiding
from kvbench.formats.fio.importer import imported_points
from kvbench.formats.fio.read import decode, parse_all
from kvbench.record import results
from kvbench.record.results import PointResult
from tests.conftest import Outcome
from tests.factories import DATA, fio_document, fio_job, fio_side, shared_data

Run = Callable[..., Outcome]
MS = 10**6
MIB = 1 << 20
STEADY = {9 * MS: 3000, 11 * MS: 3000}
NOTE = "note: both iodepth >= 1 and synchronous I/O engine are selected, queue depth will be capped at 1\n"


def job(name: str = "kv", bins: dict[int, int] | None = None, **options: Any) -> dict[str, Any]:
    """A job that reads 1 MiB blocks of a 400 GiB file, clean unless the options say otherwise."""
    usual = {"rw": "randread", "bs": "1m", "size": "400g"}
    return fio_job(name, fio_side(STEADY if bins is None else bins, MIB), **(usual | options))


def points(text: str) -> list[PointResult]:
    return [item.point for item in imported_points(parse_all(text, "x.json"), "t", "x.json")]


def only(document: dict[str, Any], before: str = "") -> PointResult:
    (point,) = points(before + json.dumps(document, indent=1))
    return point


def codes(point: PointResult) -> list[str]:
    return [warning.code for warning in point.warnings]


def without_bins(entry: dict[str, Any]) -> dict[str, Any]:
    for side in ("read", "write"):
        entry[side].get("lat_ns", {}).pop("bins", None)
    return entry


@pytest.mark.parametrize("count", [1, 4])
def test_d1_notes_before_the_json(count: int) -> None:
    """axboe/fio#1333, #1934: the numbers are read, and the real depth is said."""
    entry = job(ioengine="psync", iodepth="8") | {"iodepth_level": {"1": 100.0}}
    point = only(fio_document(entry), NOTE * count)
    assert (point.status, codes(point)) == ("ok", ["queue-depth"])
    bare = job(ioengine="psync", iodepth="8")
    assert codes(only(fio_document(bare), NOTE))[0] == "queue-depth"


def test_d1_without_the_note_the_depth_levels_tell() -> None:
    """With --output=FILE the note disappears (fio 3.33)."""
    entry = job(ioengine="psync", iodepth="8") | {"iodepth_level": {"1": 100.0}}
    assert codes(only(fio_document(entry))) == ["queue-depth"]


def test_d2_an_error_fails_the_job_whatever_its_numbers_say(kvbench: Run, tmp_path: Path) -> None:
    """axboe/fio#731: complete statistics below an error line; exit code 3, no verdict from it."""
    source = tmp_path / "x.json"
    source.write_text(
        "fio: io_u error on file x: No space left on device\n" + json.dumps(fio_document(job() | {"error": 28}))
    )
    assert kvbench("import", source, "-o", tmp_path / "run").code == 3
    (point,) = results.load(tmp_path / "run").points
    assert (point.status, point.warnings) == ("failed", ())
    assert "No space left on device" in (point.reason or "")


def test_d2_the_recorded_error_run() -> None:
    text = (shared_data("fio") / "f02_fio-3.13_error-run_preamble.txt").read_text()
    (point,) = points(text)
    assert point.status == "failed"
    assert "Illegal byte sequence" in (point.reason or "")


@pytest.mark.parametrize(
    ("bs", "kb_base", "size"),
    [("1M", None, MIB), ("1MiB", None, 10**6), ("1MiB", "1000", MIB), ("1Mi", "1000", 10**6), ("1m,1m,1m", None, MIB)],
)
def test_d3_size_suffixes(bs: str, kb_base: str | None, size: int) -> None:
    """axboe/fio#1618: 1MiB is a million bytes with the default kb_base."""
    extra: dict[str, Any] = {} if kb_base is None else {"kb_base": kb_base}
    entry = fio_job("kv", fio_side(STEADY, size), rw="randread", bs=bs, size="400g", **extra)
    point = only(fio_document(entry))
    assert (point.io_bytes, codes(point)) == (size, [])


def test_d4_bandwidth_is_bytes() -> None:
    """masonr/yet-another-bench-script#120: bw is KiB/s, bw_bytes is bytes/s, and only one of them is believed."""
    side = fio_side(STEADY, MIB)
    assert only(fio_document(job())).read.bytes_per_s == 100 * MIB  # type: ignore[union-attr]
    old = {key: value for key, value in side.items() if key != "bw_bytes"}
    point = only(fio_document(fio_job("kv", old, rw="randread", bs="1m", size="400g"), version="fio-3.1"))
    assert point.read is not None
    assert point.read.bytes_per_s == 100 * MIB
    mistaken = side | {"bw": side["bw_bytes"]}
    assert only(fio_document(fio_job("kv", mistaken, rw="randread", bs="1m"))).status == "failed"


def test_d5_the_page_cache() -> None:
    """Crosstalk-Solutions/project-nomad#1154: 5,060 MiB/s reported, 340 real."""
    assert codes(only(fio_document(job(), direct="0"))) == ["buffered"]
    assert voiding(only(fio_document(job(), direct="0"))) == ["buffered"]
    idle = [{"name": "sda", "read_ios": 0, "write_ios": 0, "read_sectors": 0}]
    cached = only(fio_document(job()) | {"disk_util": idle})
    assert codes(cached) == ["reads-not-from-device"]
    assert cached.conditions.cache_state == "cached"
    busy = [{"name": "sda", "read_ios": 6000, "read_sectors": 6000 * 1024 * 4}]
    assert codes(only(fio_document(job()) | {"disk_util": busy})) == []


def test_d5_the_null_engine_is_no_storage() -> None:
    text = (shared_data("fio") / "o1_fio-3.33_status-interval_4docs.json").read_text()
    (point,) = points(text)
    assert point.read is not None
    assert (point.read.ios, point.runtime_s) == (2_995_724, 3.003)
    assert "too-fast" in voiding(point)


@pytest.mark.parametrize("empty", ["zeros", "no percentiles", "absent"])
def test_d6_a_direction_without_io_is_no_data(empty: str) -> None:
    """axboe/fio#1478: 3.13 writes 17 zeros, 3.19 and later no percentile key."""
    zeros = {"min": 0, "max": 0, "mean": 0.0, "percentile": {"50.000000": 0, "99.000000": 0}}
    idle = fio_side(None) | ({"lat_ns": zeros, "clat_ns": zeros} if empty == "zeros" else {})
    entry = job() | {"write": idle}
    if empty == "absent":
        del entry["write"]
    point = only(fio_document(entry))
    assert (point.mix, point.write, codes(point)) == ("read", None, [])


def test_d7_percentiles_are_never_averaged() -> None:
    """scylladb/scylla-monitoring#1886: eight processes, one quick: no p50 of the whole can be computed without bins."""
    quick = without_bins(job(bins={300 * MS: 200}, numjobs="2"))
    slow = without_bins(job(bins={1700 * MS: 35}, numjobs="2"))
    point = only(fio_document(quick, slow))
    assert point.read is not None
    assert point.read.latency_ns is not None
    assert (point.read.latency_ns.p50, point.read.latency_ns.p99) == (None, None)
    warning = next(warning for warning in point.warnings if warning.code == "percentiles-not-mergeable")
    assert (warning.values["read_p99_low_ns"], warning.values["read_p99_high_ns"]) == (300 * MS, 1700 * MS)


def test_d7_a_tail_from_a_handful_of_samples_is_marked() -> None:
    assert codes(only(fio_document(job(bins={15_000 * MS: 4})))) == ["few-samples"]


def test_d7_d23_servers_merge_exactly_from_their_bins() -> None:
    """axboe/fio#1881: no "All clients" entry, ``global options`` a list; p99 as the merged bins have it."""
    text = (shared_data("fio") / "o2_fio-3.41_client-mode_jsonplus_2servers.txt").read_text()
    (point,) = points(text)
    assert point.read is not None
    assert point.read.latency_ns is not None
    seen = point.read.latency_ns
    assert (point.read.ios, point.clients, point.numjobs) == (2869, ("client 1", "client 2"), 4)
    assert [round((value or 0) / 1e6, 3) for value in (seen.p50, seen.p95, seen.p99, seen.p99_9)] == [
        1.286, 2.933, 32.113, 61.08,
    ]  # fmt: skip
    assert "littles-law" not in codes(point)


@pytest.mark.parametrize("named", [True, False])
def test_d10_keys_and_hosts_do_not_leave_the_file(kvbench: Run, tmp_path: Path, named: bool) -> None:
    """Keys in global and in job options, logins in URIs, servers in client mode: none is written."""
    secret: dict[str, Any] = {
        "http_s3_key": "hush",
        "http_pass": "hush",
        "sse_customer_key": "hush",
        "uri": "nbd://me:hush@host/x",
    }
    document = fio_document(job(**({} if named else secret)), **(secret if named else {}))
    entry = document.pop("jobs")[0] | {"hostname": "hush-host", "port": 8765}
    source = tmp_path / "x.json"
    source.write_text(json.dumps(document | {"client_stats": [entry]}))
    outcome = kvbench("import", source, "-o", tmp_path / "run", "--json")
    texts = [path.read_text() for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert outcome.code == 0
    assert not [text for text in (*texts, outcome.out, outcome.err) if "hush" in text]


def test_d11_reads_of_objects_that_may_not_exist_are_void() -> None:
    """engines/http.c to 3.42: a 404 is a full read; exit 0, error 0."""
    (recorded,) = points((shared_data("fio") / "o3_fio-3.41_http-s3_404-counted-as-success.txt").read_text())
    assert recorded.status == "ok"
    assert voiding(recorded) == ["objects-not-proven"]


@pytest.mark.parametrize(
    ("changes", "proven"),
    [({}, True), ({"bs": "2m"}, False), ({"numjobs": "1"}, False), ({"filename": "/kvb/other"}, False)],
    ids=["same objects", "other size", "fewer jobs", "other names"],
)
def test_d11_the_writes_of_the_same_objects_are_the_proof(changes: dict[str, Any], proven: bool) -> None:
    options: dict[str, Any] = {
        "ioengine": "http",
        "size": "1g",
        "numjobs": "2",
        "filename_format": "/kvb/$jobnum",
        "http_mode": "s3",
    }
    read = job("read", **options)
    write = fio_job("write", None, fio_side(STEADY, MIB), rw="write", bs="1m", **options)
    write["job options"] |= changes
    found = {point.job: codes(point) for point in points(json.dumps(fio_document(write, read | {"groupid": 1})))}
    assert ("objects-not-proven" not in found["read"]) is proven


@pytest.mark.parametrize(
    ("error", "options", "said"),
    [
        (22, {}, "refuses O_DIRECT"),
        (11, {}, "fs.aio-max-nr"),
        (1, {"ioengine": "io_uring"}, "seccomp profile"),
        (13, {}, "fsGroup"),
        (5, {}, "Input/output error"),
        (4294967295, {"ioengine": "http"}, "an error of its I/O engine"),
        (-1, {"ioengine": "http"}, "an error of its I/O engine"),
    ],
    ids=["D12 EINVAL", "D15 no aio slots", "D16 io_uring blocked", "D17 rights", "EIO", "no errno", "minus one"],
)
def test_errors_are_explained(error: int, options: dict[str, Any], said: str) -> None:
    point = only(fio_document(job(**options) | {"error": error}))
    assert point.status == "failed"
    assert said in (point.reason or "")


def test_d17_an_invalidation_that_failed_is_said_unless_direct() -> None:
    """axboe/fio#1060: the run goes on and its reads may be cached."""
    line = "fio: cache invalidation of /dev/sdb failed: Permission denied\n"
    assert codes(only(fio_document(job(), direct="0"), line)) == ["cache-not-invalidated", "buffered"]
    assert codes(only(fio_document(job()), line)) == []


def test_d18_a_group_of_two_block_sizes() -> None:
    """axboe/fio#2132: 8,388,608 bytes in 68 operations are neither 64 KiB nor 1 MiB."""
    side = fio_side({MS: 64}, 65536)
    other = {"io_bytes": 8_388_608, "bw_bytes": 8_388_608 // 60, "bw": 8_388_608 // 60 // 1024}
    side |= other | {"total_ios": 68, "iops": 68 / 60, "lat_ns": fio_side({MS: 68}, 1)["lat_ns"]}
    point = only(fio_document(fio_job("restore-64k", side, rw="read", bs="1M")))
    assert (point.io_bytes, codes(point)[0]) == (123_362, "block-size")


@pytest.mark.parametrize(
    ("options", "dataset"),
    [
        ({"size": "1g", "numjobs": "16"}, 16 << 30),
        ({"size": "1g", "numjobs": "16", "filename": "/dev/x"}, 1 << 30),
        ({"size": "1g", "numjobs": "16", "filename": "/dev/x", "offset_increment": "1g"}, 16 << 30),
        ({"size": "2g", "numjobs": "3", "filename": "/dev/x", "offset_increment": "1g"}, 4 << 30),
        ({"size": "1g", "numjobs": "16", "filename_format": "same"}, 1 << 30),
        ({"size": "1g", "numjobs": "4", "nrfiles": "8"}, 4 << 30),
        ({"size": "", "filesize": "1g", "nrfiles": "2", "numjobs": "4"}, 8 << 30),
        ({"size": "100%", "numjobs": "4"}, None),
    ],
)
def test_d19_distinct_bytes(options: dict[str, Any], dataset: int | None) -> None:
    """axboe/fio#1693, TKperf#47: ``size`` is of each job, and a shared name is one file."""
    entry = job(**options)
    if not options["size"]:
        del entry["job options"]["size"]
    assert only(fio_document(entry)).conditions.dataset_bytes == dataset


def test_d19_re_reads_are_counted() -> None:
    point = only(fio_document(job(size="1g")))
    assert codes(point) == ["re-read"]
    assert point.warnings[0].values["re_read_factor"] == round(6000 / 1024, 2)


def client(name: str, host: str, bins: bool = True, **changes: Any) -> dict[str, Any]:
    entry = job(name) if bins else without_bins(job(name))
    return entry | {"hostname": host, "port": 8765} | changes


def summed() -> dict[str, Any]:
    """fio's own sum over two servers."""
    total = fio_side({9 * MS: 6000, 11 * MS: 6000}, MIB)
    return fio_job("All clients", total) | {"job options": {}}


@pytest.mark.parametrize("with_sum", [True, False])
def test_d23_the_sum_over_servers_is_not_added_to_its_parts(with_sum: bool) -> None:
    """axboe/fio#1881, #610: 93,198 IOPS, not 186,000."""
    document = fio_document()
    del document["jobs"]
    entries = [client("kv", "a"), client("kv", "b"), *([summed()] if with_sum else [])]
    (point,) = points(json.dumps(document | {"client_stats": entries}))
    assert point.read is not None
    assert (point.read.ios, point.read.iops, point.numjobs) == (12_000, 200, 2)
    assert codes(point) == []


def test_d23_the_sum_has_percentiles_since_3_39() -> None:
    document = fio_document(version="fio-3.41")
    del document["jobs"]
    entries = [client("kv", "a", bins=False), client("kv", "b", bins=False)]
    (point,) = points(json.dumps(document | {"client_stats": [*entries, without_bins(summed())]}))
    assert point.read is not None
    assert point.read.latency_ns is not None
    assert point.read.latency_ns.p99 == 11 * MS
    (alone,) = points(json.dumps(document | {"client_stats": entries}))
    assert codes(alone) == ["percentiles-not-mergeable"]


def test_d23_several_sections_and_own_options_per_server() -> None:
    """fio 3.39 and later: ``global options`` is a list, one object for every server."""
    sections = [
        {"hostname": host, "port": 8765, "iodepth": "1", "direct": direct} for host, direct in (("a", "1"), ("b", "0"))
    ]
    document = fio_document(version="fio-3.41") | {"global options": sections}
    del document["jobs"]
    entries = [client("one", "a"), client("two", "b", groupid=1)]
    found = points(json.dumps(document | {"client_stats": entries}))
    assert [(point.job, point.conditions.direct) for point in found] == [("one", True), ("two", False)]


def test_d23_without_job_options_nothing_is_assumed() -> None:
    """louwrentius/fio-plot#155: no options in client_stats; depth, engine and data set are then unknown."""
    entry = client("kv", "a")
    del entry["job options"]
    document = fio_document()
    document.pop("jobs")
    (point,) = points(json.dumps({**document, "global options": {}, "client_stats": [entry]}))
    seen = point.conditions
    assert (seen.iodepth, seen.ioengine, seen.direct, seen.dataset_bytes) == (None, None, None, None)
    assert codes(point) == []


def test_d24_the_last_complete_document_counts_and_a_cut_is_said() -> None:
    """axboe/fio#672: --status-interval writes cumulative documents."""
    early, late = (json.dumps(fio_document(job(bins=bins)), indent=1) for bins in ({10 * MS: 3000}, STEADY))
    (whole,) = points(f"{early}\n{late}\n")
    assert whole.read is not None
    assert (whole.read.ios, codes(whole)) == (6000, [])
    (cut,) = points(f"{early}\n{late[:-40]}")
    assert cut.read is not None
    assert cut.read.ios == 3000
    assert "cut-off" in codes(cut)


def test_several_runs_in_one_file() -> None:
    """Different jobs are all read; two runs of the same jobs cannot be told from a status, unless the counts fall."""
    one, two = (json.dumps(fio_document(job(name)), indent=1) for name in ("a", "b"))
    assert [point.job for point in points(f"{one}\n{two}")] == ["a", "b"]
    assert [point.job for point in points(f"[{one},{two}]")] == ["a", "b"]
    shorter = json.dumps(fio_document(job("a", bins={10 * MS: 3000})), indent=1)
    (last,) = points(f"{one}\n{shorter}")
    assert "several-runs" in codes(last)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_byte_order_marks(encoding: str) -> None:
    """PowerShell's > writes UTF-16."""
    text = json.dumps(fio_document(job()))
    mark = "\ufeff" if encoding.endswith(("-le", "-be")) else ""
    (point,) = points(decode((mark + text).encode(encoding)))
    assert point.status == "ok"


def test_an_interrupted_run_says_so_where_it_was_cut() -> None:
    """fio 3.33 writes complete JSON after SIGINT: error 0, only shorter."""
    short = fio_job("short", fio_side({10 * MS: 146}, MIB, 1463), rw="randread", bs="1m", size="400g")
    text = "\nfio: terminating on signal 2\n" + json.dumps(fio_document(job("whole"), short | {"groupid": 1}))
    found = {point.job: point for point in points(text)}
    assert {name: point.status for name, point in found.items()} == {"whole": "ok", "short": "interrupted"}
    assert "signal" in (found["short"].reason or "")


def test_unified_reporting() -> None:
    """Only ``mixed``: a pure read job has hidden nothing; a mixed one is refused. ``both`` (3.27) has all three."""
    side = fio_side(STEADY, MIB)
    pure = {key: value for key, value in job().items() if key not in ("read", "write")} | {"mixed": side}
    point = only(fio_document(pure))
    assert point.read is not None
    assert (point.mix, point.read.ios, point.write, codes(point)) == ("read", 6000, None, [])
    pure["job options"]["rw"] = "randrw"
    assert only(fio_document(pure)).status == "failed"
    both = job() | {"mixed": side}
    assert only(fio_document(both)).read == point.read


def test_gtod_reduce_leaves_rates_and_no_latency() -> None:
    bare = {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0}
    entry = job(gtod_reduce="1")
    entry["read"] |= {"lat_ns": bare, "clat_ns": bare}
    point = only(fio_document(entry))
    assert point.read is not None
    assert (point.read.iops, point.read.latency_ns, codes(point)) == (100, None, ["no-latency"])


def old_side(version: str) -> dict[str, Any]:
    """A direction as fio of that version wrote it: 6,000 reads of 1 MiB in 60 s, 9 ms p50, 11 ms p99."""
    major, minor = (int(part) for part in version.split("."))
    usec: dict[str, Any] = {
        "min": 9000,
        "max": 11_000,
        "mean": 10_000.0,
        "percentile": {"50.000000": 9000, "99.000000": 11_000, "0.00": 0},
    }
    kib = (major, minor) < (2, 21)
    side: dict[str, Any] = {"io_bytes": 6000 * (1024 if kib else MIB), "bw": 102_400, "iops": 100, "runtime": 60_000}
    if (major, minor) > (2, 1):
        side["total_ios"] = 6000
    nanoseconds = {key: value * 1000 for key, value in usec.items() if key != "percentile"}
    if major < 3:
        return side | {"clat": usec, "lat": {key: usec[key] for key in ("min", "max", "mean")}}
    nanoseconds["percentile"] = {"50.000000": 9 * MS, "99.000000": 11 * MS}
    if (major, minor) >= (3, 19):
        nanoseconds["N"] = 6000
    if (major, minor) >= (3, 2):
        side["bw_bytes"] = 100 * MIB
    return side | {"clat_ns": nanoseconds, "lat_ns": {key: nanoseconds[key] for key in ("min", "max", "mean")}}


@pytest.mark.parametrize(
    "version", ["2.1", "2.2", "2.20", "2.21", "2.99", "3.0", "3.1", "3.2", "3.13", "3.19", "3.36", "3.42"]
)
def test_every_version_gives_the_same_numbers(version: str) -> None:
    entry = fio_job("kv", old_side("3.0" if version == "2.99" else version), rw="randread", bs="1m", size="400g")
    entry["write"] = {}
    point = only(fio_document(entry, version=f"fio-{version}"))
    assert point.read is not None
    assert point.read.latency_ns is not None
    assert (point.read.ios, point.read.bytes, point.read.bytes_per_s) == (6000, 6000 * MIB, 100 * MIB)
    assert (point.read.latency_ns.p50, point.read.latency_ns.p99) == (9 * MS, 11 * MS)
    assert (point.io_bytes, point.latency_source) == (MIB, "clat")
    assert codes(point) == []  # lat and clat have the same mean: nothing was left out


def test_old_json_plus_numbers_its_buckets() -> None:
    """fio 2.x json+: bin 1000 is the bucket, not the latency (stat.c plat_idx_to_val)."""
    side = old_side("2.20")
    del side["clat"]["percentile"]
    # Buckets 64 x 7 + 10 .. : 2^(7-1) x (64 + 10.5) = 4768 us and 4832 us.
    side["clat"] |= {"min": 4700, "max": 4900, "mean": 4800.0}
    side["clat"]["bins"] = {"458": 3000, "459": 3000, "0": 0, "FIO_IO_U_PLAT_BITS": 6, "FIO_IO_U_PLAT_VAL": 64}
    entry = fio_job("kv", side, rw="randread", bs="1m", size="400g") | {"write": {}}
    point = only(fio_document(entry, version="fio-2.20"))
    assert point.read is not None
    assert point.read.latency_ns is not None
    assert (point.read.latency_ns.p50, point.read.latency_ns.p99) == (4_768_000, 4_832_000)


def test_not_a_number_in_c_spelling() -> None:
    """fio prints %f: accepted where JSON has no word for it, and never shown as a number."""
    text = (
        json.dumps(fio_document(job()))
        .replace('"stddev": 0.0', '"stddev" : -nan')
        .replace('"mean": 10000000.0', '"mean":nan')
    )
    (point,) = points(text)
    assert point.read is not None
    assert point.read.latency_ns is not None
    assert (point.read.latency_ns.mean, point.read.latency_ns.p99) == (None, 11 * MS)


def test_a_percentile_may_exceed_the_maximum_by_a_bin() -> None:
    """axboe/fio#1984: a percentile is the middle of a bin, up to 0.8 % above the largest latency."""
    entry = without_bins(job())
    entry["read"]["lat_ns"] |= {"max": round(11 * MS / 1.008)}
    assert only(fio_document(entry)).status == "ok"
    entry["read"]["lat_ns"] |= {"max": 10 * MS}
    assert only(fio_document(entry)).status == "failed"


def test_failed_operations_have_no_latency_sample() -> None:
    """A failing operation is in total_ios, not in lat_ns.N (fio 3.33)."""
    entry = job()
    entry["read"] |= {"total_ios": 6003, "iops": 6003 / 60}
    point = only(fio_document(entry))
    assert point.warnings[0].values == {"failed_ios": 3}


def test_of_slat_only_its_absence_is_believed() -> None:
    """With disable_lat=1 fio 3.33 reports a mean slat of two hours."""
    entry = job(ioengine="libaio")
    entry["read"] = fio_side(STEADY, MIB, kind="clat_ns") | {
        "slat_ns": {"min": 0, "max": 1e15, "mean": 7e12, "N": 6000}
    }
    del entry["read"]["lat_ns"]
    point = only(fio_document(entry))
    assert (codes(point), point.conditions.submission_ns) == (["completion-latency"], None)
    entry["read"]["slat_ns"] = {"min": 0, "max": 0, "mean": 0.0, "N": 0}
    assert codes(only(fio_document(entry))) == []


@pytest.mark.parametrize("option", ["rate_iops", "thinktime", "rate"])
def test_a_paced_job_is_not_idle_by_accident(option: str) -> None:
    point = only(fio_document(job(bins={MS: 3000}, **{option: "50"})))
    assert codes(point) == ["paced"]


def test_verification_reads_are_no_mix() -> None:
    """fio reads after it wrote; the two never ran together."""
    entry = fio_job(
        "kv", fio_side({MS: 6000}, MIB, 6000), fio_side(STEADY, MIB), rw="randwrite", bs="1m", verify="crc32c"
    )
    point = only(fio_document(entry))
    assert (point.mix, point.read, codes(point)) == ("write", None, [])


def test_a_group_of_readers_and_writers_was_never_asked_for_a_mix() -> None:
    """axboe/fio#2132: two sections in one group; the options are the last one's."""
    entry = fio_job(
        "a", fio_side({10 * MS: 6000}, MIB), fio_side({5 * MS: 3000}, MIB), rw="randwrite", bs="1m", size="400g"
    )
    assert "wrong-mix" not in codes(only(fio_document(entry | {"job_runtime": 120_000})))


def test_a_run_of_a_few_ms_says_nothing_about_littles_law() -> None:
    entry = fio_job("kv", fio_side({12_000: 1}, 4096, 1), rw="randread", bs="4k", size="4k", time_based="0")
    assert codes(only(fio_document(entry))) == ["few-samples"]


def test_real_client_and_grouped_runs() -> None:
    """Recorded with fio 3.33: two servers with plain JSON, and one group of two sections with different block sizes."""
    (apart,) = points((DATA / "fio" / "fio-3.33_two-servers.json").read_text())
    assert apart.read is not None
    assert (apart.numjobs, len(apart.clients), apart.mix) == (4, 2, "mixed")
    assert codes(apart) == ["percentiles-not-mergeable", "re-read"]
    (grouped,) = points((DATA / "fio" / "fio-3.33_two-sections.json").read_text())
    assert codes(grouped) == ["block-size", "re-read"]
    assert grouped.numjobs == 2
