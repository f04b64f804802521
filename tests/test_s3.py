"""Buckets measured against a real S3 server: counts, proofs and clean-up, never a speed."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import botocore.auth
import pytest

from kvbench.drivers.s3 import client, load
from kvbench.drivers.s3.objects import Objects
from kvbench.record.recorder import Recorder
from kvbench.tiers import bucket, endpoint
from kvbench.tiers.directory import this_machine
from kvbench.tiers.s3_requests import Requests
from tests.conftest import ROOT, Outcome
from tests.lab.state import S3Server
from tests.s3_servers import Fault, Proxy, Request, nanio_server, new_bucket

Kvbench = Callable[..., Outcome]
Start = Callable[..., "subprocess.Popen[str]"]

BLOCK = 2_359_296
STRANGER = "kvbench-00000000000000ff"
TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def nanio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server that checks signatures."""
    with nanio_server(tmp_path_factory.mktemp("nanio")) as server:
        yield server


@pytest.fixture
def server(nanio: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> S3Server:
    """The server with a bucket of the test's own, which the AWS variables name, and somebody's objects in it."""
    found = new_bucket(nanio)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", found.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", found.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", found.secret_key)
    for key in ("precious", "pre/precious", f"pre/{STRANGER}/precious", "pre/kvbench-notes/precious"):
        requests(found).put(key, b"somebody's")
    return found


@pytest.fixture
def proxy(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy in front of the server, which the AWS variables name instead."""
    found = Proxy(server.endpoint)
    monkeypatch.setenv("AWS_ENDPOINT_URL", found.url)
    yield found
    found.close()


@functools.cache
def requests(server: S3Server) -> Requests:
    """Requests to the server itself, with the keys of the environment."""
    return Requests(endpoint.S3Endpoint(server.endpoint, "us-east-1", has_keys=True), server.bucket)


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the pauses after a failure, where how long they are is not what is tested."""
    monkeypatch.setattr(load, "_LONGEST_PAUSE_S", 0.03)


# What the program does as a child process with shorter waits.
SHORT_WAITS = """
import sys
from kvbench.cli import main
from kvbench.drivers.s3.load import Load
from kvbench.tiers import s3_requests
Load.settle.__defaults__, s3_requests._READ_S = (1.0,), 1
sys.exit(main(sys.argv[1:]))
"""


def objects(server: S3Server) -> dict[str, int]:
    """Everything in the bucket."""
    return requests(server).sizes("")


def removed_from(target: str, *, dry_run: bool, older_than_s: float | None = None) -> list[str]:
    """What was, or would be, removed; what stays is left out."""
    return [place for place, why in bucket.clean_bucket(target, dry_run, older_than_s) if why is None]


def options(server: S3Server, out: Path, **changes: str) -> list[str]:
    """A short run on the bucket."""
    values = {
        "tier": f"s3://{server.bucket}/pre", "model": "qwen3-8b", "connector": "vllm-obj", "mix": "read",
        "numjobs": "2", "runtime": "1", "dataset": "32MiB", **changes,
    }  # fmt: skip
    return ["fio", *(word for name, value in values.items() for word in (f"--{name}", value)), "-o", str(out)]


def points(out: Path) -> list[dict[str, Any]]:
    """The points of a run."""
    found: list[dict[str, Any]] = json.loads((out / "result.json").read_text())["points"]
    return found


def test_a_bucket_is_measured_like_any_other_tier(
    kvbench: Kvbench, server: S3Server, proxy: Proxy, tmp_path: Path
) -> None:
    before, out = objects(server), tmp_path / "run"
    done = kvbench(*options(server, out, mix="mixed,read,write", numjobs="1,2", dataset="64MiB"))
    assert done.code == 0, done.err
    count = (64 << 20) // BLOCK
    for point in points(out):
        assert (point["driver"], point["status"], point["reason"]) == ("s3", "ok", None)
        assert point["conditions"]["failed_ios"] == 0
        assert point["conditions"]["buffers"] == "engine"
        assert point["conditions"]["buffer_memory"] == "one populated region in /dev/shm, as the engine's"
        for way in ("read", "write"):
            side = point[way]
            assert (side is not None) == (point["mix"] in (way, "mixed"))
            assert side is None or side["bytes"] == side["ios"] * BLOCK
        laid = count // 4 if point["mix"] == "write" else count - count // 4
        assert point["conditions"]["dataset_bytes"] == laid * BLOCK
        assert point["conditions"]["objects_written"] is (True if point["read"] else None)
        assert (out / point["histogram"]).exists()
        assert (out / point["series"]).exists()
    assert objects(server) == before
    measured = [one for one in proxy.requests if "/kvbench_" in one.path]
    assert {one.size for one in measured if one.method == "PUT"} == {BLOCK}
    assert not [one for one in measured if "uploads" in one.path or one.method == "POST"]
    assert len({one.path for one in measured if one.method == "GET"}) == count - count // 4
    # In clear text the body is part of the signature.
    assert all(len(one.headers["x-amz-content-sha256"]) == 64 for one in measured if one.method == "PUT")
    assert {one.path.split("/")[2] for one in proxy.requests if one.method == "PUT"} == {"pre"}


def test_no_key_is_written_or_printed(kvbench: Kvbench, server: S3Server, proxy: Proxy, tmp_path: Path) -> None:
    proxy.choose = lambda request: (
        Fault("answer", 403, "SignatureDoesNotMatch")
        if "/kvbench_" in request.path and request.method == "GET"
        else None
    )
    out = tmp_path / "run"
    done = kvbench(*options(server, out))
    assert done.code == 3
    written = [path for path in out.rglob("*") if path.is_file()]
    assert written
    for secret in (server.secret_key, server.access_key):
        assert not [path for path in written if secret.encode() in path.read_bytes()]
        assert secret not in done.out + done.err


def test_reads_come_back_to_an_object_only_after_all_others(
    kvbench: Kvbench, server: S3Server, proxy: Proxy, tmp_path: Path
) -> None:
    assert kvbench(*options(server, tmp_path / "run", numjobs="1")).code == 0
    read = [one.path for one in proxy.requests if one.method == "GET" and "/kvbench_" in one.path][1:]
    count = len(set(read))
    assert count == 11
    assert all(len(set(read[at : at + count])) == count for at in range(0, len(read) - count, count))


def test_a_session_token_is_sent(
    kvbench: Kvbench, server: S3Server, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "a-session-token")
    out = tmp_path / "run"
    kvbench(*options(server, out))
    assert {one.headers["x-amz-security-token"] for one in proxy.requests} == {"a-session-token"}
    assert not [path for path in out.rglob("*") if path.is_file() and b"a-session-token" in path.read_bytes()]


def test_keys_come_from_a_profile_too(
    kvbench: Kvbench, server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "credentials"
    file.write_text(f"[lab]\naws_access_key_id={server.access_key}\naws_secret_access_key={server.secret_key}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_PROFILE", "lab")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    done = kvbench(*options(server, tmp_path / "run"))
    assert done.code == 0, done.err
    monkeypatch.setenv("AWS_PROFILE", "absent")
    done = kvbench(*options(server, tmp_path / "other"))
    assert (done.code, "'absent' does not exist" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "x" * 40}, "SignatureDoesNotMatch: the secret key is wrong"),
        ({"AWS_ACCESS_KEY_ID": "NOBODY"}, "InvalidAccessKeyId"),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "there are no S3 credentials"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "no connection: check AWS_ENDPOINT_URL"),
        ({"AWS_ENDPOINT_URL": "ftp://127.0.0.1:9"}, "no http or https URL"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:99999"}, "no http or https URL"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:port"}, "no http or https URL"),
        ({"AWS_ENDPOINT_URL": "http://[::1"}, "no http or https URL"),
        ({"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}, "check HTTP_PROXY and NO_PROXY"),
    ],
)
def test_wrong_settings_are_one_sentence(
    kvbench: Kvbench,
    server: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    said: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    done = kvbench(*options(server, tmp_path / "run"))
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err


def test_a_clock_that_is_wrong_is_said(
    kvbench: Kvbench, server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server itself refuses: only the clock that the request is signed with is another."""
    right = botocore.auth.get_current_datetime
    monkeypatch.setattr(
        botocore.auth, "get_current_datetime", lambda *given, **named: right(*given, **named) - timedelta(hours=1)
    )
    done = kvbench(*options(server, tmp_path / "run"))
    assert done.code == 2
    assert "RequestTimeTooSkewed: this host's clock is off" in done.err


@pytest.mark.parametrize(
    ("target", "said"),
    [("s3://nosuchbucket/pre", "NoSuchBucket"), ("s3:///pre", "names no bucket"), ("s3://abc/a//b", "prefix")],
)
def test_a_wrong_bucket_is_one_sentence(
    kvbench: Kvbench, server: S3Server, tmp_path: Path, target: str, said: str
) -> None:
    done = kvbench(*options(server, tmp_path / "run", tier=f"t={target}"))
    assert (done.code, said in done.err) == (2, True)


def measured_requests(kind: str, *, after: int = 6) -> Callable[[Request], bool]:
    """Whether a request is one of a round, from the ``after``-th on: that many are connections and first requests."""
    seen: list[Request] = []

    def is_one(request: Request) -> bool:
        if "/kvbench_" in request.path and request.method == kind:
            seen.append(request)
            return len(seen) > after
        return False

    return is_one


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault("silent"), "no answer in time: the endpoint hangs"),
        (Fault("close"), "the connection broke"),
        (Fault("truncate"), "the connection broke"),
        (Fault("answer", 503, "SlowDown"), "SlowDown: the service asks to slow down"),
        (Fault("answer", 403, "RequestTimeTooSkewed"), "this host's clock is off"),
        (Fault("answer", 403, "ExpiredToken"), "the session token has expired"),
        (Fault("answer", 404, "NoSuchKey"), "an object that was written is gone"),
        (Fault("answer", 500, "InternalError"), "the service answered InternalError"),
        (Fault("answer", 301, "PermanentRedirect"), "the bucket is in another region or at another endpoint"),
    ],
    ids=lambda value: f"{value.kind}-{value.code}" if isinstance(value, Fault) and value.kind == "answer" else None,
)
def test_a_service_that_fails_for_good_fails_the_point(
    kvbench: Kvbench,
    server: S3Server,
    proxy: Proxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
    said: str,
) -> None:
    shorten(monkeypatch)
    # The data set is written under the same limit, by a machine that may be busy.
    monkeypatch.setattr(client, "TIMEOUT_S", 3.0 if fault.kind == "silent" else client.TIMEOUT_S)
    goes_wrong, before = measured_requests("GET"), objects(server)
    proxy.choose = lambda request: fault if goes_wrong(request) else None
    done = kvbench(*options(server, tmp_path / "run", runtime="6"))
    assert done.code == 3, done.err
    (point,) = points(tmp_path / "run")
    assert point["status"] == "failed"
    assert said in point["reason"]
    assert point["conditions"]["failed_ios"] > 0
    assert point["read"]["ios"] == sum(json.loads((tmp_path / "run" / point["histogram"]).read_text())["read"].values())
    assert objects(server) == before


def test_writes_fail_the_same_way(kvbench: Kvbench, server: S3Server, proxy: Proxy, tmp_path: Path) -> None:
    goes_wrong = measured_requests("PUT", after=1)
    proxy.choose = lambda request: Fault("answer", 403, "QuotaExceeded") if goes_wrong(request) else None
    assert kvbench(*options(server, tmp_path / "run", mix="write")).code == 3
    (point,) = points(tmp_path / "run")
    assert (point["status"], "quota" in point["reason"]) == ("failed", True)


def test_a_service_that_dies_leaves_what_it_cannot_delete_and_says_so(
    kvbench: Kvbench, server: S3Server, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten(monkeypatch)
    goes_wrong, before = measured_requests("GET"), objects(server)

    def die(request: Request) -> Fault | None:
        if goes_wrong(request):
            proxy.close()
        return None

    proxy.choose = die
    done = kvbench(*options(server, tmp_path / "run", runtime="5"))
    (point,) = points(tmp_path / "run")
    assert (done.code, point["status"]) == (3, "failed")
    assert "could not be removed" in done.err
    assert "kvbench clean" in done.err
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
    assert objects(server) != before
    target = f"s3://{server.bucket}/pre"
    # This very process wrote the marker, and it lives.
    assert removed_from(target, dry_run=False) == []


def test_a_busy_service_is_counted_and_never_hidden_in_a_latency(
    kvbench: Kvbench, server: S3Server, proxy: Proxy, tmp_path: Path
) -> None:
    goes_wrong, seen = measured_requests("GET"), []

    def sometimes(request: Request) -> Fault | None:
        if not goes_wrong(request):
            return None
        seen.append(request)
        # Every fifth would hit one job again and again: while it pauses, the other makes the four between.
        return Fault("answer", 503, "SlowDown") if len(seen) in refused else None

    refused = (1, 4)
    proxy.choose = sometimes
    done = kvbench(*options(server, tmp_path / "run"))
    assert done.code == 0, done.err
    (point,) = points(tmp_path / "run")
    assert point["status"] == "ok"
    assert point["conditions"]["failed_ios"] == len(refused)
    assert "failed-operations" in {warning["code"] for warning in point["warnings"]}
    evidence = json.loads((tmp_path / "run" / "points" / point["id"] / "requests.json").read_text())
    assert sum(evidence["failed_requests"].values()) == len(refused)


def test_a_slow_service_is_slow(kvbench: Kvbench, server: S3Server, proxy: Proxy, tmp_path: Path) -> None:
    goes_wrong = measured_requests("GET", after=0)
    proxy.choose = lambda request: Fault("slow", seconds=0.2) if goes_wrong(request) else None
    assert kvbench(*options(server, tmp_path / "run")).code == 0
    (point,) = points(tmp_path / "run")
    assert point["read"]["latency_ns"]["min"] >= 200_000_000


def test_a_busy_service_is_asked_again_while_the_data_is_written(
    kvbench: Kvbench, server: S3Server, proxy: Proxy, tmp_path: Path
) -> None:
    seen: list[Request] = []

    def first_three(request: Request) -> Fault | None:
        if request.method == "PUT" and "/kvbench_" in request.path:
            seen.append(request)
            return Fault("answer", 503, "SlowDown") if len(seen) <= 3 else None
        return None

    proxy.choose = first_three
    assert kvbench(*options(server, tmp_path / "run")).code == 0
    (evidence,) = (tmp_path / "run" / "points").glob("*-layout/requests.json")
    assert json.loads(evidence.read_text())["repeated_requests"] == 3


def test_objects_that_are_gone_are_noticed_before_they_are_read(
    kvbench: Kvbench, server: S3Server, tmp_path: Path
) -> None:
    script = tmp_path / "delete.py"
    script.write_text(
        "import os\nfrom kvbench.tiers.endpoint import S3Endpoint\nfrom kvbench.tiers.s3_requests import Requests\n"
        f"found = Requests(S3Endpoint(os.environ['AWS_ENDPOINT_URL'], 'us-east-1', True), {server.bucket!r})\n"
        "found.delete([key for key in found.sizes('') if '/stored/' in key][:1])\n"
    )
    done = kvbench(*options(server, tmp_path / "run", **{"before-read": f"{sys.executable} {script}"}))
    (point,) = points(tmp_path / "run")
    assert (done.code, point["status"]) == (3, "failed")
    assert "1 of 11 objects of the data set are gone" in point["reason"]


def test_a_bucket_that_keeps_versions_is_refused(
    kvbench: Kvbench, server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Requests, "keeps_versions", lambda self: True)
    done = kvbench(*options(server, tmp_path / "run"))
    assert (done.code, "never had versioning" in done.err) == (2, True)


def test_a_bucket_that_kept_versions_once_is_refused(
    kvbench: Kvbench, server: S3Server, proxy: Proxy, tmp_path: Path
) -> None:
    """It leaves a delete marker for every object (seen on radosgw 16.2); nanio has no versions."""
    said = b"<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>"
    proxy.choose = lambda request: Fault("answer", 200, body=said) if "versioning" in request.path else None
    done = kvbench(*options(server, tmp_path / "run"))
    assert (done.code, "never had versioning" in done.err) == (2, True)
    assert not [one for one in proxy.requests if one.method == "PUT"]


def test_versions_are_noticed_where_nobody_may_ask_about_them(
    kvbench: Kvbench, server: S3Server, proxy: Proxy, tmp_path: Path
) -> None:
    """GetBucketVersioning is a right of its own; the version of the marker goes, and no delete marker comes for it."""

    def versioned(request: Request) -> Fault | None:
        if "versioning" in request.path:
            return Fault("answer", 403, "AccessDenied")
        answers = {
            "PUT": Fault("answer", 200, headers={"x-amz-version-id": "v1"}, body=b""),
            "DELETE": Fault("answer", 200, body=b""),
        }
        return answers.get(request.method)

    proxy.choose = versioned
    done = kvbench(*options(server, tmp_path / "run"))
    assert done.code == 2
    assert "never had versioning" in done.err
    (written,) = [one for one in proxy.requests if one.method == "PUT"]
    gone = [one.path for one in proxy.requests if one.method in ("DELETE", "POST")]
    assert gone == [f"{written.path}?versionId=v1"]


def test_every_job_has_an_object_to_write(kvbench: Kvbench, server: S3Server, tmp_path: Path) -> None:
    """A quarter of the objects is room: with fewer than one for a job, jobs had nothing to do."""
    asked = {"mix": "write,mixed", "numjobs": "3"}
    done = kvbench(*options(server, tmp_path / "few", dataset=str(11 * BLOCK), **asked))
    assert (done.code, "and 12 are needed" in done.err) == (2, True)
    done = kvbench(*options(server, tmp_path / "run", dataset=str(12 * BLOCK), **asked))
    assert done.code == 0, done.err
    assert "Exception" not in done.err


def test_a_job_that_crashes_is_no_round_with_a_job_less(server: S3Server) -> None:
    """A bug must not look like a slower service."""
    tier = bucket.inspect("t", f"s3://{server.bucket}/pre")
    no_room = Objects(BLOCK, ("pre/read",), ())
    with pytest.raises(ZeroDivisionError):
        load.Load(client.ObjectClient(tier), no_room, [Recorder(), Recorder()], 0, seed=1).run(5, lambda seconds: None)


@pytest.mark.parametrize("more", [0, -7, 7])
def test_a_block_comes_to_its_place_and_nowhere_else(server: S3Server, more: int) -> None:
    """Also when the object has not the length that its place has."""
    content = os.urandom(700_000)
    requests(server).put("pre/block", content)
    memory = memoryview(bytearray(b"x" * (len(content) + 64)))
    place = memory[16 : 16 + len(content) + more]
    came = client.ObjectClient(bucket.inspect("t", f"s3://{server.bucket}/pre")).get("pre/block", place)
    assert came == len(content)
    common = min(len(content), len(place))
    assert bytes(place[:common]) == content[:common]
    assert bytes(memory[:16]) == b"x" * 16
    assert set(bytes(memory[16 + common :])) == {ord("x")}
    requests(server).delete(["pre/block"])


def test_clean_says_what_it_keeps(kvbench: Kvbench, server: S3Server) -> None:
    token = "0123456789abcdef"
    marker = {**this_machine(), "pid": 1, "token": token, "created": "2026-01-01T00:00:00+00:00", "host": "another"}
    requests(server).put(f"pre/kvbench-{token}/.owner.json", json.dumps(marker).encode())
    target = f"s3://{server.bucket}/pre"
    done = kvbench("clean", "--tier", target)
    assert f"kept {target}/kvbench-{token}/: made on another, by a process that cannot be asked from here" in done.out
    assert f"kept {target}/{STRANGER}/: its marker cannot be read" in done.out
    assert kvbench("clean", "--tier", target, "--older-than", "1d").out.startswith(f"removed {target}/kvbench-{token}/")


def test_a_run_is_resumed(kvbench: Kvbench, server: S3Server, proxy: Proxy, tmp_path: Path) -> None:
    goes_wrong, out = measured_requests("PUT"), tmp_path / "run"
    proxy.choose = lambda request: Fault("answer", 403, "QuotaExceeded") if goes_wrong(request) else None
    asked = options(server, out, mix="write,read", numjobs="1")
    assert kvbench(*asked).code == 3
    proxy.choose = lambda request: None
    done = kvbench(*asked, "--resume")
    assert done.code == 0, done.err
    assert [point["status"] for point in points(out)] == ["ok", "ok"]


@pytest.mark.parametrize("missing", ["obstore", "botocore"])
def test_what_is_missing_is_named(
    kvbench: Kvbench, server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    for module in (missing, f"{missing}.store", f"{missing}.session"):
        monkeypatch.setitem(sys.modules, module, None)
    done = kvbench(*options(server, tmp_path / "run"))
    assert (done.code, "pip install 'kvbench[s3]'" in done.err) == (2, True)


def test_a_plan_asks_the_service_nothing(kvbench: Kvbench, server: S3Server, proxy: Proxy, tmp_path: Path) -> None:
    done = kvbench(*options(server, tmp_path / "run"), "--dry-run")
    assert (done.code, proxy.requests) == (0, [])
    assert f"{server.bucket}/pre: would write 32 MiB below s3://{server.bucket}/pre" in done.out


def test_what_does_not_fit_objects_is_refused(kvbench: Kvbench, server: S3Server, tmp_path: Path) -> None:
    done = kvbench(*options(server, tmp_path / "run", access="sequential"))
    assert (done.code, "--access sequential" in done.err) == (2, True)
    done = kvbench("jobs", "--tier", f"s3://{server.bucket}/pre", "--model", "qwen3-8b")
    assert (done.code, "no fio job" in done.err, done.out) == (2, True, "")


def test_another_driver_is_refused(kvbench: Kvbench, server: S3Server, tmp_path: Path) -> None:
    done = kvbench(*options(server, tmp_path / "run", driver="replay"))
    assert (done.code, "measured by s3" in done.err) == (2, True)
    done = kvbench(*options(server, tmp_path / "run", tier=str(tmp_path), driver="s3"))
    assert done.code == 2


def _until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_the_bucket_as_it_was(
    start: Start, server: S3Server, proxy: Proxy, tmp_path: Path, number: signal.Signals
) -> None:
    before, out = objects(server), tmp_path / "run"
    child = start(*options(server, out, runtime="60"))
    _until(lambda: len([one for one in proxy.requests if "/stored/" in one.path and one.method == "GET"]) > 10)
    child.send_signal(number)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    (point,) = points(out)
    assert point["status"] == "interrupted"
    assert point["read"]["ios"] > 0
    assert objects(server) == before


def test_an_interruption_does_not_wait_for_an_endpoint_that_hangs(
    server: S3Server, proxy: Proxy, tmp_path: Path
) -> None:
    goes_wrong, stuck = measured_requests("GET"), []

    def hang(request: Request) -> Fault | None:
        if goes_wrong(request):
            stuck.append(request)
        return Fault("silent") if stuck else None

    proxy.choose = hang
    asked = [sys.executable, "-c", SHORT_WAITS, *options(server, tmp_path / "run", runtime="60")]
    with subprocess.Popen(
        asked, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as child:
        try:
            _until(lambda: stuck)
            child.send_signal(signal.SIGINT)
            _, err = child.communicate(timeout=60)
        finally:
            child.kill()
    assert child.returncode == 130, err
    assert "could not be removed" in err


def test_a_killed_run_is_cleaned_up_later(
    start: Start, kvbench: Kvbench, server: S3Server, proxy: Proxy, tmp_path: Path
) -> None:
    before, target = objects(server), f"s3://{server.bucket}/pre"
    child = start(*options(server, tmp_path / "run", runtime="60", mix="mixed"))
    _until(lambda: len([one for one in proxy.requests if "/stored/" in one.path and one.method == "GET"]) > 10)
    assert removed_from(target, dry_run=False) == [], "its owner lives"
    child.kill()
    child.wait()
    assert len(objects(server)) > len(before)
    proxy.requests.clear()
    (found,) = removed_from(target, dry_run=True)
    assert len(objects(server)) > len(before)
    assert removed_from(target, dry_run=False) == [found]
    assert objects(server) == before
    # Lists are of names that begin with ours, and of what is below a prefix whose marker says that it is ours.
    lists = {one.path.partition("prefix=")[2].partition("&")[0] for one in proxy.requests if "list-type=2" in one.path}
    own = found.removeprefix(f"s3://{server.bucket}/")
    assert {name.replace("%2F", "/") for name in lists} == {"pre/kvbench-", own}


@pytest.mark.parametrize(
    ("changes", "removed", "removed_when_old"),
    [
        ({}, True, True),
        ({"pid": os.getpid()}, False, False),
        ({"host": "another"}, False, True),
        ({"boot": "another"}, False, True),
        ({"host": "another", "created": (datetime.now(UTC) + timedelta(hours=1)).isoformat()}, False, False),
        ({"token": "0123456789abcdee"}, False, False),
        ({"pid": "no number"}, False, False),
    ],
)
def test_only_the_work_of_the_dead_is_removed(
    server: S3Server, changes: dict[str, object], removed: bool, removed_when_old: bool
) -> None:
    token = "0123456789abcdef"
    marker = {**this_machine(), "pid": 4_194_304, "token": token, "created": "2026-01-01T00:00:00+00:00", **changes}
    requests(server).put(f"pre/kvbench-{token}/.owner.json", json.dumps(marker).encode())
    requests(server).put(f"pre/kvbench-{token}/stored/x", b"x")
    target = f"s3://{server.bucket}/pre"
    kept = objects(server)
    assert bool(removed_from(target, dry_run=True)) == removed
    assert bool(removed_from(target, dry_run=True, older_than_s=60)) == removed_when_old
    assert objects(server) == kept
    bucket.clean_bucket(target, dry_run=False, older_than_s=60)
    assert (objects(server) == kept) != removed_when_old
    assert f"pre/{STRANGER}/precious" in objects(server)


RIGHT = json.dumps(
    {**this_machine(), "pid": 4_194_304, "token": TOKEN, "created": "2026-01-01T00:00:00+00:00"}
).encode()
FORGED = {
    "Infinity": RIGHT.replace(b"4194304", b"Infinity"),
    "a process id of 400 digits": RIGHT.replace(b"4194304", b"1" + b"0" * 400),
    "True": RIGHT.replace(b"4194304", b"true"),
    "nested": b"[" * 2000,
    "nested, 100,000": b"[" * 100_000,
    "16 MiB": RIGHT + b" " * (16 << 20),
    "empty": b"",
    "no text": b"\xff\xfe",
    "no time": RIGHT.replace(b"2026-01-01T", b"soon"),
    "a time without a zone": RIGHT.replace(b"+00:00", b""),
    "a number for the time": RIGHT.replace(b'"2026-01-01T00:00:00+00:00"', b"5"),
}


@pytest.mark.parametrize("content", FORGED.values(), ids=FORGED)
def test_a_forged_marker_is_kept_and_stops_no_other(kvbench: Kvbench, server: S3Server, content: bytes) -> None:
    target, other = f"s3://{server.bucket}/pre", TOKEN[::-1]
    requests(server).put(f"pre/kvbench-{TOKEN}/.owner.json", content)
    requests(server).put(f"pre/kvbench-{TOKEN}/stored/x", b"x")
    requests(server).put(f"pre/kvbench-{other}/.owner.json", RIGHT.replace(TOKEN.encode(), other.encode()))
    done = kvbench("clean", "--tier", target)
    assert (done.code, done.err) == (0, "")
    assert f"kept {target}/kvbench-{TOKEN}/: its marker cannot be read\n" in done.out
    # The near miss beside it.
    assert f"removed {target}/kvbench-{other}/\n" in done.out
    assert f"pre/kvbench-{TOKEN}/stored/x" in objects(server)


def test_a_marker_without_end_is_read_no_further_than_a_marker_goes(
    kvbench: Kvbench, server: S3Server, proxy: Proxy
) -> None:
    requests(server).put(f"pre/kvbench-{TOKEN}/.owner.json", RIGHT)
    # It says 1 GiB, and gives 16 KiB in pieces before it falls silent: whoever wants it all waits for a timeout.
    head = RIGHT + b" " * (16 << 10)
    said = {"content-length": str(1 << 30)}
    endless = Fault("answer", 200, body=head, headers=said)
    proxy.choose = lambda one: endless if one.method == "GET" and one.path.endswith("/.owner.json") else None
    done = kvbench("clean", "--tier", f"s3://{server.bucket}/pre")
    assert (done.code, f"kvbench-{TOKEN}/: its marker cannot be read" in done.out) == (0, True)
    assert f"pre/kvbench-{TOKEN}/.owner.json" in objects(server)
    asked = [one for one in proxy.requests if one.method == "GET" and one.path.endswith(f"{TOKEN}/.owner.json")]
    assert len(asked) == 1


def test_a_host_name_of_a_marker_does_not_steer_the_terminal(kvbench: Kvbench, server: S3Server) -> None:
    marker = {**json.loads(RIGHT), "host": "\x1b]0;x\x07\nremoved everything"}
    requests(server).put(f"pre/kvbench-{TOKEN}/.owner.json", json.dumps(marker).encode())
    done = kvbench("clean", "--tier", f"s3://{server.bucket}/pre")
    assert "made on \\x1b]0;x\\x07\\nremoved everything, by a process" in done.out
    assert "\x1b" not in done.out


def test_what_cannot_be_deleted_is_named_and_stops_no_other(kvbench: Kvbench, server: S3Server, proxy: Proxy) -> None:
    target, other = f"s3://{server.bucket}/pre", TOKEN[::-1]
    for token in (TOKEN, other):
        marker = RIGHT.replace(TOKEN.encode(), token.encode())
        requests(server).put(f"pre/kvbench-{token}/.owner.json", marker)
        requests(server).put(f"pre/kvbench-{token}/x", b"x")
    lists = [0]

    def refuse_the_first(request: Request) -> Fault | None:
        # The first prefix's objects are deleted first, in one request.
        lists[0] += request.method == "POST"
        return Fault("answer", 403, "AccessDenied") if request.method == "POST" and lists[0] == 1 else None

    proxy.choose = refuse_the_first
    done = kvbench("clean", "--tier", target, "--json")
    (found,) = json.loads(done.out)["tiers"]
    assert (done.code, found["removed"]) == (3, [f"{target}/kvbench-{other}/"])
    assert found["stuck"] == [f"{target}/kvbench-{TOKEN}/"]
    assert dict(found["kept"])[f"{target}/kvbench-{TOKEN}/"].startswith("it could not be removed whole: ")
    assert {f"pre/kvbench-{TOKEN}/.owner.json", f"pre/kvbench-{TOKEN}/x"} <= set(objects(server))
    proxy.choose = lambda request: None
    assert kvbench("clean", "--tier", target).code == 0
    assert f"pre/kvbench-{TOKEN}/x" not in objects(server)


def test_a_zombie_does_not_keep_its_objects(server: S3Server) -> None:
    with subprocess.Popen(["true"]) as child:
        _until(lambda: Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
        token = "0123456789abcdef"
        marker = {**this_machine(), "pid": child.pid, "token": token, "created": "2026-01-01T00:00:00+00:00"}
        requests(server).put(f"pre/kvbench-{token}/.owner.json", json.dumps(marker).encode())
        assert len(removed_from(f"s3://{server.bucket}/pre", dry_run=False)) == 1


def test_more_objects_than_one_request_deletes(server: S3Server) -> None:
    found = requests(server)
    for number in range(3):
        found.put(f"many/{number}", b"x")
    found.delete([f"many/{number}" for number in range(1003)])
    assert found.sizes("many/") == {}


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for loopback that nobody trusts, with its key."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl is not installed")
    file = tmp_path / "both.pem"
    # A certificate of a CA is no server's for rustls.
    extensions = ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", *extensions]
    names: list[str | Path] = ["-keyout", file, "-out", tmp_path / "ca.pem"]
    subprocess.run(
        [program, "req", *made, *names],
        check=True,
        capture_output=True,
    )
    file.write_bytes(file.read_bytes() + (tmp_path / "ca.pem").read_bytes())
    return file


def test_a_private_ca_is_trusted_when_it_is_named(
    kvbench: Kvbench, server: S3Server, certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Proxy(server.endpoint, certificate)
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    done = kvbench(*options(server, tmp_path / "refused"))
    assert (done.code, "AWS_CA_BUNDLE" in done.err) == (2, True)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    done = kvbench(*options(server, tmp_path / "run", mix="mixed"))
    assert done.code == 0, done.err
    written = [one for one in proxy.requests if one.method == "PUT" and "/kvbench_" in one.path]
    assert {one.headers["x-amz-content-sha256"] for one in written} == {"UNSIGNED-PAYLOAD"}
    proxy.close()


def test_doctor_asks_for_the_bucket(kvbench: Kvbench, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def bucket_finding(name: str) -> dict[str, Any]:
        (tier,) = json.loads(kvbench("doctor", "--tier", f"t=s3://{name}/pre", "--json").out)["tiers"]
        found: dict[str, Any] = {finding["check"]: finding for finding in tier["findings"]}["bucket"]
        return found

    before = objects(server)
    assert bucket_finding(server.bucket)["status"] == "ok"
    missing = bucket_finding("nosuchbucket")
    assert (missing["status"], "NoSuchBucket" in missing["next_step"]) == ("problem", True)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x" * 40)
    wrong = bucket_finding(server.bucket)
    assert (wrong["status"], "the secret key is wrong" in wrong["next_step"]) == ("problem", True)
    assert objects(server) == before


def test_a_public_endpoint_is_not_measured_without_yes(
    kvbench: Kvbench, server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    assert kvbench(*options(server, out, mix="write")).code == 0
    for public in ("http://192.0.2.1", "https://no-such-host.invalid"):
        monkeypatch.setenv("AWS_ENDPOINT_URL", public)
        for asked in (options(server, tmp_path / "other"), ["fio", "--resume", "-o", str(out)]):
            done = kvbench(*asked)
            assert (done.code, "repeat with --yes" in done.err) == (2, True)
        assert not (tmp_path / "other").exists()
        done = kvbench(*options(server, tmp_path / "other"), "--dry-run")
        assert (done.code, "needs --yes" in done.out) == (0, True)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://no-such-host.invalid")
    done = kvbench(*options(server, tmp_path / "other"), "--yes")
    assert (done.code, "no connection: check AWS_ENDPOINT_URL" in done.err) == (2, True)
