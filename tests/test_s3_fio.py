# ruff: noqa: F401, F811
"""fio's http engine on buckets: real fio, a real S3 server; what it names exists, what it prints holds no key.

Debian's fio lacks the engine. KVBENCH_FIO_HTTP names a directory with a fio that has it, or with the engine alone as a
file called ``http``; without it, and where the fio on PATH lacks it, these tests are skipped.
"""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvbench.drivers.fio.run import Finished
from kvbench.drivers.fio_http import job as http_job
from kvbench.drivers.fio_http.private import Keys, cleaned
from kvbench.drivers.s3 import client
from kvbench.drivers.settings import JobSettings
from kvbench.errors import MeasurementError, TierError
from kvbench.run.plan import Point
from kvbench.tiers.directory import is_at_work
from tests.conftest import FakeFio
from tests.lab.state import S3Server
from tests.s3_servers import Fault, Proxy, Request, nanio_server, use_http_engine
from tests.test_s3 import BLOCK, Kvbench, Start, _until, objects, options, points, proxy, removed_from, requests, server

ODD_SECRET = "ab/+=c#def;ghi:jk,l%m&n*o(p)q'r`s\"t\\u~v?w"
OBJECTS = (32 << 20) // BLOCK


@pytest.fixture(scope="module")
def nanio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server whose secret key holds what cuts a value in fio's job files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "token_hex", lambda count: ODD_SECRET)
        entered = nanio_server(tmp_path_factory.mktemp("nanio"))
        found = entered.__enter__()
    yield found
    entered.__exit__(None, None, None)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fio with the http engine, first on PATH."""
    use_http_engine(monkeypatch)


def asked(server: S3Server, out: Path, **changes: str) -> list[str]:
    """A short run with fio."""
    return options(server, out, driver="fio", **changes)


def measured(request: Request, kind: str) -> bool:
    """Whether fio made the request: kvbench itself lays the objects out by PUT of other names of the same form."""
    return request.method == kind and "/kvbench_" in request.path and "x-amz-storage-class" in request.headers


def require_no_key(server: S3Server, out: Path, *texts: str) -> None:
    written = [path for path in out.rglob("*") if path.is_file()]
    assert [path for path in written if path.name == "fio.json"]
    for key in (server.secret_key, server.access_key, json.dumps(server.secret_key)[1:-1]):
        assert not [path for path in written if key.encode() in path.read_bytes()]
        assert not [text for text in texts if key in text]


def test_fio_measures_objects_that_exist(
    engine: None, kvbench: Kvbench, server: S3Server, proxy: Proxy, tmp_path: Path
) -> None:
    before, out = objects(server), tmp_path / "run"
    done = kvbench(*asked(server, out, mix="mixed,read,write", numjobs="2", dataset="64MiB"))
    assert done.code == 0, done.err
    count = (64 << 20) // BLOCK
    laid = count - count // 4
    for point in points(out):
        assert (point["driver"], point["status"], point["reason"]) == ("fio", "ok", None)
        assert (point["conditions"]["ioengine"], point["conditions"]["failed_ios"]) == ("http", 0)
        for way in ("read", "write"):
            side = point[way]
            assert (side is not None) == (point["mix"] in (way, "mixed"))
            assert side is None or side["bytes"] == side["ios"] * BLOCK
        room = count // 4 if point["mix"] == "write" else laid
        assert point["conditions"]["dataset_bytes"] == room // 2 * 2 * BLOCK
        assert point["conditions"]["objects_written"] is (True if point["read"] else None)
        assert (out / point["histogram"]).exists()
        assert (out / point["series"]).exists()
        assert point["latency_source"] == "lat"
    assert objects(server) == before
    put = {one.path for one in proxy.requests if one.method == "PUT" and "/stored/" in one.path}
    read = {one.path for one in proxy.requests if measured(one, "GET")}
    assert len(read) == laid // 2 * 2
    assert read <= put
    assert not {one.path for one in proxy.requests if measured(one, "PUT") and "/stored/" in one.path} - put
    require_no_key(server, out, done.out, done.err)


def test_no_key_is_seen_while_fio_runs(
    engine: None, start: Start, server: S3Server, proxy: Proxy, tmp_path: Path
) -> None:
    before, out = objects(server), tmp_path / "run"
    child = start(*asked(server, out, runtime="60"))
    _until(lambda: [one for one in proxy.requests if measured(one, "GET")])
    (fio,) = children(child.pid, "fio")
    line = Path(f"/proc/{fio}/cmdline").read_bytes().decode()
    assert "job.fio" in line
    for key in (server.secret_key, server.access_key):
        assert key not in line
        assert not [path for path in out.rglob("*") if path.is_file() and key.encode() in path.read_bytes()]
    child.send_signal(signal.SIGINT)
    output, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    (point,) = points(out)
    assert (point["status"], point["read"]["ios"] > 0) == ("interrupted", True)
    assert objects(server) == before
    require_no_key(server, out, output, err)


def children(process: int, name: str) -> list[int]:
    """Ids of the children of a process with this program name."""
    found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(child) for child in found if Path(f"/proc/{child}/comm").read_text().strip() == name]


def test_fio_does_not_outlive_a_killed_run(
    engine: None, start: Start, server: S3Server, proxy: Proxy, tmp_path: Path
) -> None:
    before = objects(server)
    child = start(*asked(server, tmp_path / "run", runtime="60", mix="write"))
    _until(lambda: [one for one in proxy.requests if measured(one, "PUT")])
    (fio,) = children(child.pid, "fio")
    child.kill()
    child.wait()
    _until(lambda: not is_at_work(fio))
    target = f"s3://{server.bucket}/pre"
    _until(lambda: removed_from(target, dry_run=True))
    assert len(removed_from(target, dry_run=False)) == 1
    assert objects(server) == before


def test_an_object_that_goes_during_a_round_is_noticed(
    engine: None, kvbench: Kvbench, server: S3Server, proxy: Proxy, tmp_path: Path
) -> None:
    """fio takes the 404 for a full read."""
    gone: list[str] = []

    def delete(request: Request) -> None:
        if measured(request, "GET") and not gone:
            gone.append(request.path.removeprefix(f"/{server.bucket}/"))
            requests(server).delete(gone)

    proxy.choose = delete
    done = kvbench(*asked(server, tmp_path / "run"))
    (point,) = points(tmp_path / "run")
    assert (done.code, point["status"], point["read"]) == (3, "failed", None)
    laid = OBJECTS - OBJECTS // 4
    assert f"1 of {laid} objects of the data set are gone" in point["reason"]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault("silent"), "did not end in time and was stopped"),
        (Fault("answer", 503, "SlowDown"), "HTTP status code 503"),
        (Fault("close"), "an error of its I/O engine"),
        (Fault("truncate"), "an error of its I/O engine"),
    ],
    ids=lambda value: value.kind if isinstance(value, Fault) else None,
)
def test_a_service_that_fails_fails_the_point(
    engine: None, kvbench: Kvbench, server: S3Server, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    fault: Fault, said: str,
) -> None:  # fmt: skip
    # The data set is written under the same limit, by a machine that may be busy.
    monkeypatch.setattr(client, "TIMEOUT_S", 3.0 if fault.kind == "silent" else client.TIMEOUT_S)
    before, seen = objects(server), []

    def go_wrong(request: Request) -> Fault | None:
        if measured(request, "GET"):
            seen.append(request)
        return fault if measured(request, "GET") and len(seen) > 2 else None

    proxy.choose = go_wrong
    began = time.monotonic()
    done = kvbench(*asked(server, tmp_path / "run"))
    (point,) = points(tmp_path / "run")
    assert (done.code, point["status"]) == (3, "failed")
    assert said in point["reason"]
    assert time.monotonic() - began < 60
    assert objects(server) == before


def test_a_session_token_needs_a_fio_that_knows_it(
    engine: None, kvbench: Kvbench, server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "a-session-token")
    done = kvbench(*asked(server, tmp_path / "run"))
    knows = subprocess.run(["fio", "--enghelp=http"], capture_output=True, text=True, check=False).stdout
    if "http_s3_security_token" not in knows:
        assert (done.code, "knows no session token" in done.err) == (2, True)
    assert not [path for path in (tmp_path / "run").rglob("*") if path.is_file() and b"a-session" in path.read_bytes()]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tier": "s3://{}/a+b"}, "fio cannot express the name"),
        ({"tier": "s3://{}/" + "/".join(["x" * 120] * 4)}, "fio cannot express the name"),
        ({"access": "sequential"}, "objects have no order"),
    ],
)
def test_what_fio_cannot_do_is_refused(
    engine: None, kvbench: Kvbench, server: S3Server, tmp_path: Path, changes: dict[str, str], said: str
) -> None:
    given = {name: value.format(server.bucket) for name, value in changes.items()}
    done = kvbench(*asked(server, tmp_path / "run", **given))
    assert (done.code, said in done.err) == (2, True)


def test_a_fio_without_the_engine_is_one_sentence(
    fake_fio: FakeFio, kvbench: Kvbench, server: S3Server, tmp_path: Path
) -> None:
    before = objects(server)
    done = kvbench(*asked(server, tmp_path / "run"))
    assert done.code == 2
    assert "this fio has no http engine; leave out --driver fio." in done.err
    assert objects(server) == before


@pytest.mark.parametrize("secret", ["SE$CRET", "SE CRET", " SECRET", "SE\nCRET", "SÉCRET", "SECRET" * 21])
def test_a_key_that_fio_would_change_is_refused_without_showing_it(secret: str) -> None:
    with pytest.raises(TierError) as caught:
        Keys.of({"access_key_id": "K", "secret_access_key": secret})
    assert secret not in str(caught.value)


def test_keys_are_taken_out_of_what_fio_printed() -> None:
    keys = Keys("KEYID", 'se"cret', "SESSION")
    secret = {"http_s3_keyid": keys.key_id, "http_s3_key": keys.secret, "http_s3_security_token": keys.token}
    document = {"fio version": "fio-3.33", "global options": secret, "jobs": [{"jobname": "j", "job options": secret}]}
    found = cleaned(Finished(0, "fio: note\n" + json.dumps(document, indent=1) + "\n", "", timed_out=False), keys)
    assert "fio: note" in found.output
    assert "jobname" in found.output
    assert not [key for key in ("KEYID", "cret", "SESSION") if key in found.output]
    assert "KEYID" not in repr(keys)


@pytest.mark.parametrize(
    "finished",
    [
        Finished(1, 'fio: failed parsing http_s3_key=se"cret\n', "", timed_out=False),
        Finished(1, "", 'bad: se"cret', timed_out=False),
        Finished(0, json.dumps({"jobs": [{"jobname": 'se"cret'}]}, indent=1), "", timed_out=False),
    ],
)
def test_a_key_in_another_place_is_never_written(finished: Finished) -> None:
    with pytest.raises(MeasurementError, match="was not kept"):
        cleaned(finished, Keys("KEYID", 'se"cret'))


def test_every_object_that_fio_asks_for_is_named() -> None:
    settings = JobSettings(1, 64 << 20, block_sizes=(BLOCK,), layout="file-per-block")
    found = http_job.objects_of("p/", BLOCK, settings.blocks_of(BLOCK))
    assert len(found.reads) + len(found.slots) == settings.blocks_of(BLOCK)
    for mix, keys in (("read", found.reads), ("write", found.slots)):
        point = Point("x", "t", "fio", BLOCK, mix, 3)  # type: ignore[arg-type]
        share = http_job.share_of(point, found)
        names = {f"{keys[0].removesuffix(f'_0_{BLOCK}')}_{at * BLOCK}_{BLOCK}" for at in range(3 * share)}
        assert names <= set(keys)
