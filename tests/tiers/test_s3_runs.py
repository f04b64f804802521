"""Runs on the lab's RGW and nanio: measured, proven, and left as they were."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from kvbench.tiers import bucket
from kvbench.tiers.endpoint import S3Endpoint
from kvbench.tiers.s3_requests import Requests
from tests.conftest import ROOT
from tests.lab.state import S3Server
from tests.s3_servers import use_http_engine
from tests.tiers.conftest import program

PREFIX = "runs"


@pytest.fixture(autouse=True)
def aws_settings(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The AWS variables name the server under test and nothing else."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def objects(s3: S3Server) -> dict[str, int]:
    """What is below the prefix of these tests."""
    return Requests(S3Endpoint(s3.endpoint, "us-east-1", has_keys=True), s3.bucket).sizes(f"{PREFIX}/")


def command(s3: S3Server, out: Path, *more: str) -> list[str]:
    """A short run on the server's bucket."""
    return program(
        "fio", "--tier", f"t=s3://{s3.bucket}/{PREFIX}", "--connector", "vllm-obj", "--runtime", "2", "--dataset",
        "64MiB", "--model", "qwen3-8b", "-o", out, *more,
    )  # fmt: skip


def test_a_real_service_is_measured_and_left_as_it_was(s3: S3Server, tmp_path: Path) -> None:
    before, out = objects(s3), tmp_path / "run"
    asked = command(s3, out, "--numjobs", "1,4", "--json")
    done = subprocess.run(asked, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    for point in json.loads(done.stdout)["points"]:
        assert (point["status"], point["conditions"]["failed_ios"]) == ("ok", 0)
        assert point["conditions"]["objects_written"] is (True if point["read"] else None)
        # The jobs keep one request each in flight, and what they do between two requests is little.
        codes = {warning["code"] for warning in point["warnings"]}
        assert not codes & {"littles-law", "objects-not-proven", "block-size"}
    assert objects(s3) == before
    written = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
    assert s3.secret_key.encode() not in written
    assert s3.access_key.encode() not in written


def test_fio_measures_a_real_service_and_shows_no_key(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_http_engine(monkeypatch)
    before, out = objects(s3), tmp_path / "run"
    asked = command(s3, out, "--numjobs", "4", "--driver", "fio", "--json")
    done = subprocess.run(asked, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    for point in json.loads(done.stdout)["points"]:
        assert (point["status"], point["conditions"]["failed_ios"]) == ("ok", 0)
        assert point["conditions"]["objects_written"] is (True if point["read"] else None)
    assert objects(s3) == before
    written = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
    for key in (s3.secret_key, s3.access_key):
        assert key.encode() not in written
        assert key not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("changes", "target", "said"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "x" * 40}, None, "the secret key is wrong"),
        ({"AWS_ACCESS_KEY_ID": "NOBODY"}, None, "does not know the access key"),
        ({}, "t=s3://nosuchbucket/x", "there is no such bucket"),
    ],
)
def test_a_real_service_refuses_with_a_sentence(
    s3: S3Server, tmp_path: Path, changes: dict[str, str], target: str | None, said: str
) -> None:
    asked = command(s3, tmp_path / "run", "--mix", "read", "--numjobs", "1", *(["--tier", target] if target else []))
    if target:
        asked = [word for word in asked if word != f"t=s3://{s3.bucket}/{PREFIX}"]
        asked.pop(asked.index("--tier"))
    done = subprocess.run(asked, capture_output=True, text=True, cwd=ROOT, check=False, env={**os.environ, **changes})
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_a_killed_run_on_a_real_service_is_cleaned_up(s3: S3Server, tmp_path: Path) -> None:
    before, target = objects(s3), f"s3://{s3.bucket}/{PREFIX}"
    child = subprocess.Popen(
        command(s3, tmp_path / "run", "--mix", "mixed", "--numjobs", "2", "--runtime", "60"), cwd=ROOT,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not [key for key in objects(s3) if "/written/" in key]:
            assert time.monotonic() < deadline, "nothing was written"
            time.sleep(0.2)
    finally:
        child.kill()
        child.wait()
    assert len(objects(s3)) > len(before)
    assert len(bucket.clean_bucket(target, dry_run=False)) == 1
    assert objects(s3) == before
