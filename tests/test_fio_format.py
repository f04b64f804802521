"""fio's output in all the shapes that people have, and the numbers that stand in it."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass
from typing import Any

import pytest

from kvbench.errors import InputFileError
from kvbench.formats.fio import read as fio
from kvbench.formats.fio.options import duration_s, is_set, size_bytes
from kvbench.formats.fio.point import direction_of, failure_of
from tests.factories import DATA, fio_document, fio_job, fio_side, shared_data

BINS = {1_000_000: 50, 2_000_000: 49, 9_000_000: 1}


def text_with(bins: dict[int, int]) -> str:
    """One document with one read job of these latencies."""
    return json.dumps(fio_document(fio_job("kv", fio_side(bins))), indent=2)


def text_of(**changes: Any) -> str:
    """One document with one read job; ``changes`` replace keys of the read side."""
    return json.dumps(fio_document(fio_job("kv", fio_side(BINS) | changes)), indent=2)


def read_of(text: str) -> fio.FioDirection:
    """The read side of the only job of a document."""
    (job,) = fio.parse(text, "a file").jobs
    assert job.read is not None
    return job.read


def test_numbers_of_a_plain_document() -> None:
    output = fio.parse(text_of(), "a file")
    assert (output.version, output.preamble, output.interrupted) == ("fio-3.33", "", False)
    (job,) = output.jobs
    assert (job.name, job.error, job.runtime_s, job.write) == ("kv", 0, 60.0, None)
    assert job.options["ioengine"] == "libaio"
    read = read_of(text_of())
    assert (read.ios, read.bytes, read.bytes_per_s) == (100, 409_600, 6826)
    assert read.iops == pytest.approx(100 / 60)
    assert read.latency is not None
    assert (read.latency.source, read.latency.samples, read.latency.mean_ns) == ("lat", 100, 1_570_000)
    assert (read.latency.min_ns, read.latency.max_ns) == (1_000_000, 9_000_000)
    direction = direction_of(read)
    assert direction is not None
    assert direction.latency_ns is not None
    assert (direction.latency_ns.p50, direction.latency_ns.p99, direction.latency_ns.p99_9) == (
        10**6,
        2 * 10**6,
        9 * 10**6,
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("note: both iodepth >= 1 and synchronous I/O engine are selected, queue depth will be capped at 1\n", ""),
        ("fio: {not json\n{ nor this\n", "\n"),
        ("\ufeff", ""),
        ("\ufeffnote\n", ""),
        ("\n\n  ", "\n\n"),
        ("{}\n", "\n{}\n[]\n"),
        ('{"fio version": "fio-3.33", "jobs": []}\n', ""),
        ("", "\nfio: terminating\n"),
        ("", '\n{"fio version": "fio-3.33", "jobs": [{"jobname": "cut", '),
    ],
    ids=["note", "braces", "BOM", "BOM and note", "blanks", "other JSON", "earlier document", "text after", "cut off"],
)
def test_text_around_the_document(before: str, after: str) -> None:
    assert read_of(before + text_of() + after).ios == 100


def test_the_preamble_is_kept() -> None:
    assert fio.parse("one\ntwo\n" + text_of(), "x").preamble == "one\ntwo"
    assert fio.parse("fio: terminating on signal 2\n" + text_of(), "x").interrupted


def test_the_last_complete_document_wins() -> None:
    early, late = text_with({10**6: 1}), text_with({10**6: 2})
    assert read_of(early + "\n" + late).ios == 2
    for length in (10, len(late) // 2, len(late) - 1):
        assert read_of(early + "\n" + late[:length]).ios == 1


def test_a_tab_in_a_description_is_accepted() -> None:
    document = fio_document(fio_job("kv", fio_side(BINS), description="a\tb"))
    (job,) = fio.parse(json.dumps(document).replace("\\t", "\t"), "x").jobs
    assert job.options["description"] == "a\tb"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "x.json holds no complete fio JSON; it is empty."),
        (" \n", "x.json holds no complete fio JSON; it is empty."),
        ("hello\nworld", "x.json holds no complete fio JSON; it begins with 'hello'."),
        (text_of()[:-3], "x.json holds no complete fio JSON; it is cut off or damaged; run fio again."),
        ("\ufeff" + text_of()[:-3], "x.json holds no complete fio JSON; it is cut off or damaged; run fio again."),
        ("note\n" + text_of()[:-3], "x.json holds no complete fio JSON; it is cut off or damaged; run fio again."),
        ("{}", "x.json holds no complete fio JSON; it is cut off or damaged; run fio again."),
        ("[1, 2]", "x.json holds no complete fio JSON; it begins with '[1, 2]'."),
        (
            '{"fio version": "fio-3.33"}',
            "x.json is not fio output that kvbench reads (jobs: Field required); make it with fio ",
        ),
        (
            json.dumps(fio_document(version="fio-1.60")),
            "x.json is from fio-1.60; kvbench reads fio 2.1 and later. Measure again.",
        ),
        (text_of(total_ios="many"), "x.json is not fio output that kvbench reads (jobs.0.read.total_ios: "),
        (text_of(lat_ns=3), "x.json is not fio output that kvbench reads (jobs.0.read.lat_ns: "),
    ],
)
def test_what_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(InputFileError) as caught:
        fio.parse(text, "x.json")
    assert str(caught.value).startswith(sentence)


DAMAGED = {
    "NaN minimum": {"lat_ns": {"min": float("nan"), "N": 1, "mean": 1, "max": 1, "bins": {"1": 1}}},
    "infinite maximum": {"lat_ns": {"min": 1, "N": 1, "mean": 1, "max": float("inf"), "bins": {"1": 1}}},
    "NaN percentile": {"lat_ns": {"min": 1, "N": 1, "mean": 1, "max": 1, "percentile": {"99.0": float("nan")}}},
    "bin name": {"lat_ns": {"min": 1, "N": 1, "mean": 1, "max": 1, "bins": {"x": 1}}},
    "percentile name": {"lat_ns": {"min": 1, "N": 1, "mean": 1, "max": 1, "percentile": {"x": 1}}},
}


@pytest.mark.parametrize("name", DAMAGED)
def test_values_that_are_no_numbers(name: str) -> None:
    """Defensively accepted as not recorded, or refused in one sentence."""
    try:
        fio.parse(text_of(**DAMAGED[name]), "x")
    except InputFileError:
        return


def test_deep_nesting_is_damage() -> None:
    with pytest.raises(InputFileError):
        fio.parse('{"fio version": "fio-3.33", "jobs": ' + "[" * 100_000, "x")


@pytest.mark.parametrize(("missing", "said"), [("min", "unknown to"), ("max", "to unknown ns")])
def test_a_mean_beyond_the_one_bound_that_is_there_is_said(missing: str, said: str) -> None:
    side = fio_side(BINS)
    side["lat_ns"] = {**side["lat_ns"], "mean": 1 if missing == "max" else 1e15}
    del side["lat_ns"][missing]
    (job,) = fio.parse(json.dumps(fio_document(fio_job("kv", side))), "x").jobs
    assert job.problem is not None
    assert said in job.problem


def test_an_error_job_fails_whatever_its_numbers_say() -> None:
    lines = ["fio: pid=1, err=28/file:filesetup.c:1, error=No space left on device"]
    (job,) = fio.parse(json.dumps(fio_document(fio_job("kv", fio_side(BINS), error=28))), "x").jobs
    assert failure_of(job, lines) == f"fio reports No space left on device (error 28): {lines[0]}"
    (odd,) = fio.parse(json.dumps(fio_document(fio_job("kv", fio_side(BINS), error=4294967295))), "x").jobs
    assert failure_of(odd) == "fio reports an error of its I/O engine"
    (idle,) = fio.parse(json.dumps(fio_document(fio_job("kv"))), "x").jobs
    assert failure_of(idle) == "fio did no I/O"
    (good,) = fio.parse(text_of(), "x").jobs
    assert failure_of(good, lines) is None


def test_idle_directions_are_no_data() -> None:
    zeros = {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "percentile": {"50.000000": 0, "99.000000": 0}}
    old = fio_side(None) | {"lat_ns": zeros, "clat_ns": zeros}
    for idle in (fio_side(None), old, {}):
        (job,) = fio.parse(json.dumps(fio_document(fio_job("kv", fio_side(BINS)) | {"write": idle})), "x").jobs
        assert job.write is None
        assert direction_of(job.write) is None
    absent = fio_job("kv", fio_side(BINS))
    del absent["write"]
    assert fio.parse(json.dumps(fio_document(absent)), "x").jobs[0].write is None


def test_clat_alone_is_named() -> None:
    latency = read_of(json.dumps(fio_document(fio_job("kv", fio_side(BINS, kind="clat_ns"))))).latency
    assert latency is not None
    assert (latency.source, latency.samples) == ("clat", 100)


def test_without_any_percentile_there_is_no_latency() -> None:
    bare = {"min": 0, "max": 0, "mean": 0.0, "N": 0}
    assert read_of(text_of(lat_ns=bare, clat_ns=bare)).latency is None  # gtod_reduce=1
    averages = {"min": 1, "max": 3, "mean": 2.0, "N": 100}
    assert read_of(text_of(lat_ns=averages, clat_ns=averages)).latency is None  # plain JSON without percentiles


def test_percentiles_without_bins() -> None:
    side = fio_side(BINS)
    del side["lat_ns"]["bins"]
    latency = read_of(json.dumps(fio_document(fio_job("kv", side)))).latency
    assert latency is not None
    assert latency.histogram is None
    assert latency.percentiles_ns == {50.0: 10**6, 90.0: 2 * 10**6, 95.0: 2 * 10**6, 99.0: 2 * 10**6, 99.9: 9 * 10**6}
    direction = direction_of(read_of(json.dumps(fio_document(fio_job("kv", side)))))
    assert direction is not None
    assert direction.latency_ns is not None
    assert (direction.latency_ns.p99, direction.latency_ns.p99_low, direction.latency_ns.p99_high) == (
        2_000_000,
        None,
        None,
    )


def test_old_documents_have_no_sample_count_and_no_bw_bytes() -> None:
    side = fio_side(BINS)
    del side["lat_ns"]["N"], side["bw_bytes"]
    read = read_of(json.dumps(fio_document(fio_job("kv", side), version="fio-3.1")))
    assert read.bytes_per_s == 6 * 1024
    assert read.latency is not None
    assert read.latency.samples == 100


SECRETS: dict[str, Any] = {
    "http_s3_key": "s3cr3t-1",
    "http_s3_keyid": "s3cr3t-2",
    "http_s3_security_token": "s3cr3t-3",
    "http_pass": "s3cr3t-4",
    "http_swift_auth_token": "s3cr3t-5",
    "http_s3_sse_customer_key": "s3cr3t-6",
    "PASSWORD": "s3cr3t-7",
}


def test_secrets_are_gone_from_options_and_raw_documents() -> None:
    for document in (fio_document(fio_job("kv", fio_side(BINS)), **SECRETS), fio_document(fio_job("kv", **SECRETS))):
        found = fio.read(json.dumps(document), "x")
        (job,), (raw,) = found.outputs[0].jobs, found.documents
        assert "s3cr3t" not in json.dumps(job.options)
        assert job.options["ioengine"] == "libaio"
        assert "s3cr3t" not in json.dumps(raw)
        assert raw["jobs"][0]["read"] == document["jobs"][0]["read"]
        assert raw["jobs"][0]["jobname"] == "kv"


def test_the_user_of_a_login_is_gone() -> None:
    (job,) = fio.parse(json.dumps(fio_document(fio_job("kv", http_user="someone"))), "x").jobs
    assert job.options["http_user"] == "<removed>"


def test_the_recorded_document() -> None:
    output = fio.parse((DATA / "fio" / "fio-3.33_json-plus.json").read_text(), "recorded")
    assert [(job.name, job.error) for job in output.jobs] == [("grouped", 0), ("apart", 0), ("apart", 0)]
    for job in output.jobs:
        for side in (job.read, job.write):
            assert side is not None
            assert side.bytes == side.ios * 65536
            assert side.latency is not None
            assert side.latency.source == "lat"
            assert side.latency.histogram is not None
            assert side.latency.histogram.samples == side.ios == side.latency.samples


@pytest.mark.parametrize(
    ("text", "base", "size"),
    [
        ("2304k", 1024, 2_359_296), ("1152K", 1024, 1_179_648), ("5m", 1024, 5_242_880), ("4096", 1024, 4096),
        ("1M", 1024, 1 << 20), ("1MB", 1024, 1 << 20), ("1Mi", 1024, 1 << 20), ("1MiB", 1024, 10**6),
        ("1MiB", 1000, 1 << 20), ("1M", 1000, 10**6), ("1Mi", 1000, 10**6), (" 4k ", 1024, 4096), ("2g", 1024, 2 << 30),
        ("4k,8k", 1024, None), ("50%", 1024, None), ("", 1024, None), (None, 1024, None), ("-4k", 1024, None),
    ],
)  # fmt: skip
def test_fio_sizes(text: str | None, base: int, size: int | None) -> None:
    assert size_bytes(text, base) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60", 60.0), ("1m", 60.0), ("500ms", 0.5), ("2h", 7200.0), ("10us", 1e-5), ("1:30", None), (None, None)],
)
def test_fio_times(text: str | None, seconds: float | None) -> None:
    assert duration_s(text) == (None if seconds is None else pytest.approx(seconds))


def test_fio_switches() -> None:
    assert [is_set({"x": value}, "x") for value in ("", "1", "true", "0", "false")] == [True, True, True, False, False]
    assert not is_set({}, "x")


@dataclass(frozen=True)
class Truth:
    """What a recorded file is known to hold for one direction of one job."""

    job: str
    side: str
    p50_ms: float
    p99_ms: float
    iops: float
    bytes_per_s: int
    error: int


TRUTH = re.compile(r"(\S+)/(read|write): p50=(\S+)ms p99=(\S+)ms IOPS=(\S+) BW=(\d+) B/s \(.*\) err=(\d+)")


def test_recorded_files_against_their_known_values() -> None:
    folder = shared_data("fio")
    rows = list(
        csv.DictReader((folder / "SOURCES.tsv").read_text().splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    )
    read = 0
    for row in rows:
        path = folder / row["file"].removeprefix("dev/")
        if not path.is_file():
            continue
        assert_true(fio.parse(path.read_text(), path.name), row["true values (from the file)"])
        read += 1
    assert read > 0


def assert_true(output: fio.FioOutput, known: str) -> None:
    """Compare a parsed file with its line of known values."""
    wanted = []
    for part in known.split(" | "):
        match = TRUTH.fullmatch(part)
        assert match is not None, part
        job, side, p50, p99, iops, rate, error = match.groups()
        wanted.append(Truth(job, side, float(p50), float(p99), float(iops), int(rate), int(error)))
    found = [
        (job, name, side) for job in output.jobs for name, side in (("read", job.read), ("write", job.write)) if side
    ]
    named = [
        (job.name if job.host is None else f"{job.name}@{job.host.rpartition(':')[0]}", name) for job, name, _ in found
    ]
    assert named == [(truth.job, truth.side) for truth in wanted]
    for (job, _, side), truth in zip(found, wanted, strict=True):
        direction = direction_of(side)
        assert direction is not None
        assert direction.latency_ns is not None
        assert direction.latency_ns.p50 == pytest.approx(truth.p50_ms * 1e6, rel=1e-5)
        assert direction.latency_ns.p99 == pytest.approx(truth.p99_ms * 1e6, rel=1e-5)
        assert direction.iops == pytest.approx(truth.iops, abs=0.01)
        assert direction.bytes_per_s == truth.bytes_per_s
        assert job.error == truth.error
