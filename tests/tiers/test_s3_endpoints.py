"""S3 endpoints, really: found from the AWS settings, their keys never shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.lab.state import S3Server

Doctor = Callable[..., dict[str, Any]]


def test_an_endpoint_is_found_and_its_keys_stay_hidden(s3: S3Server, doctor: Doctor) -> None:
    found = doctor(
        f"s3://{s3.bucket}/prefix",
        AWS_ENDPOINT_URL=s3.endpoint,
        AWS_ACCESS_KEY_ID=s3.access_key,
        AWS_SECRET_ACCESS_KEY=s3.secret_key,
    )
    statuses = {finding["check"]: finding["status"] for finding in found["findings"]}
    assert found["kind"] == f"S3 at {s3.endpoint}"
    assert (statuses["endpoint"], statuses["credentials"]) == ("ok", "ok")
    assert s3.secret_key not in str(found)


def test_an_endpoint_that_is_gone_is_a_problem(doctor: Doctor) -> None:
    found = doctor("s3://bucket/prefix", AWS_ENDPOINT_URL="http://127.0.0.1:9")
    statuses = {finding["check"]: finding["status"] for finding in found["findings"]}
    assert statuses["endpoint"] == "problem"
