"""Keys, answers and settings of S3 tiers, without a server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import botocore.session
import pytest
from botocore.config import Config

from kvbench.checks.data import hot_object
from kvbench.commands.options import parse_tier
from kvbench.drivers import unmeasured
from kvbench.drivers.replay.calls import Buffer
from kvbench.drivers.s3.objects import Shuffled, objects_for
from kvbench.record.point import Point
from kvbench.record.results import Conditions, Direction
from kvbench.tiers import endpoint
from kvbench.tiers.bucket import inspect
from kvbench.tiers.s3_answers import FATAL, code_in, explain


def test_keys_are_distinct_and_look_like_the_engines() -> None:
    found = objects_for("pre/kvbench-1/", 4096, 10)
    assert (len(found.reads), len(found.slots), len({*found.reads, *found.slots})) == (8, 2, 10)
    for key in found.reads:
        root, fan, group, name = key.rsplit("/", 3)
        assert root.startswith("pre/kvbench-1/stored/kvbench_")
        assert root.endswith("_r0")
        assert (len(name), name[:3], f"{name[3:5]}_g0") == (68, fan, group)
    assert all(key.startswith(found.read_prefix) for key in found.reads)
    assert not [key for key in found.slots if key.startswith(found.read_prefix)]


def test_jobs_share_no_slot() -> None:
    found = objects_for("p/", 4096, 40)
    slots = [found.slots_of(job, 3) for job in range(3)]
    assert sorted(sum(slots, ())) == sorted(found.slots)


def test_sizes_have_keys_of_their_own() -> None:
    one, other = objects_for("p/", 4096, 8), objects_for("p/", 8192, 8)
    assert not {*one.reads, *one.slots} & {*other.reads, *other.slots}
    assert one.read_prefix != other.read_prefix


def test_every_key_comes_once_before_one_comes_again() -> None:
    order = Shuffled([str(number) for number in range(50)], seed=1)
    first, second = ([order.next() for _ in range(50)] for _ in range(2))
    assert sorted(first) == sorted(second)
    assert first != second


@pytest.mark.parametrize("size", [8, 4096, 100_001])
def test_no_two_writes_have_the_same_content(size: int) -> None:
    buffer, seen = Buffer(size), set()
    for _ in range(50):
        buffer.renew()
        seen.add(bytes(buffer.view))
    assert {len(one) for one in seen} == {size}
    assert len(seen) == 50


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("status code: 503 Service Unavailable: <Error><Code>SlowDown</Code></Error>", "SlowDown"),
        ("Server returned non-2xx status code: 502 Bad Gateway: <html>", "HTTP 502"),
        ("inner: Http(\n HttpError {\n   kind: Timeout,\n source: reqwest::Error { kind: Request", "Timeout"),
        ("inner: Http(\n HttpError {\n   kind: Connect,\n", "Connect"),
        ("HttpError {\n kind: Connect,\n ... invalid peer certificate: UnknownIssuer", "Certificate"),
        ("HttpError {\n kind: Interrupted,\n", "Broken"),
        ("inner: BareRedirect,", "PermanentRedirect"),
        ("Server returned non-2xx status code: 307 Temporary Redirect: ", "PermanentRedirect"),
        ("Unable to extract metadata from headers: ETag Header missing from response", "Answer"),
        ("something else", "Broken"),
    ],
)
def test_codes_are_found_in_what_the_client_says(text: str, code: str) -> None:
    assert code_in(text) == code
    assert "; " in explain(code) or ": " in explain(code)


def test_what_may_pass_is_not_fatal() -> None:
    assert not {"SlowDown", "ServiceUnavailable", "Connect", "Broken", "HTTP 502", "InternalError"} & FATAL
    assert {"Timeout", "NoSuchBucket", "SignatureDoesNotMatch", "RequestTimeTooSkewed"} <= FATAL


@pytest.mark.parametrize(
    ("settings", "virtual", "url"),
    [
        ("", True, "https://bkt.s3.eu-west-1.amazonaws.com"),
        ("endpoint_url = http://h:7480/\n", False, "http://h:7480"),
        ("services = lab\n[services lab]\ns3 =\n  endpoint_url = http://h:7480\n", False, "http://h:7480"),
        ("endpoint_url = http://h:7480\ns3 =\n  addressing_style = virtual\n", True, "http://bkt.h:7480"),
        (
            "s3 =\n  max_concurrent_requests = 4\n  addressing_style = path\n",
            False,
            "https://s3.eu-west-1.amazonaws.com",
        ),
    ],
)
def test_addressing_follows_the_settings(tmp_path: Path, settings: str, virtual: bool, url: str) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text(f"[default]\nregion = eu-west-1\n{settings}")
    found = endpoint.from_environment({}, tmp_path)
    assert (found.is_virtual_hosted("bkt"), found.url_of("bkt")) == (virtual, url)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "bucket", "virtual"),
    [
        ("https://s3.eu-west-1.amazonaws.com", "my-bucket", True),
        # Amazon's certificate is for one label.
        ("https://s3.eu-west-1.amazonaws.com", "my.bucket", False),
        ("http://rgw.lab:7480", "my.bucket", True),
        ("http://rgw.lab:7480", "MyBucket", False),
        ("http://rgw.lab:7480", "b", False),
        ("http://10.0.0.1:7480", "bkt", False),
        ("http://[fd00::1]:7480", "bkt", False),
    ],
)
def test_a_bucket_is_in_the_host_name_where_botocore_puts_it_there(url: str, bucket: str, virtual: bool) -> None:
    found = endpoint.S3Endpoint(url, "eu-west-1", has_keys=True, virtual_hosted=True)
    assert found.is_virtual_hosted(bucket) == virtual
    assert (found.url_of(bucket) == url) != virtual
    assert virtual == (urlsplit(_asked_by_botocore(found, bucket)).hostname != urlsplit(url).hostname)


def _asked_by_botocore(found: endpoint.S3Endpoint, bucket: str) -> str:
    """Where botocore sends an unmeasured request; it is not sent."""
    session = botocore.session.Session()
    session.set_credentials("id", "key")
    config = Config(s3={"addressing_style": "virtual"})
    client = session.create_client("s3", endpoint_url=found.url, region_name=found.region, config=config)
    return str(client.generate_presigned_url("head_bucket", {"Bucket": bucket}))


def test_the_profile_is_the_one_whose_keys_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore prefers AWS_DEFAULT_PROFILE, takes settings from the credentials file too, and knows a ~ in a name."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "config").write_text(
        "[profile a]\nregion = of-a\nendpoint_url = http://a:1\n[profile b]\nregion = of-b\n"
    )
    (tmp_path / "credentials").write_text("[a]\naws_access_key_id = x\nregion = of-credentials\n")
    variables = {"AWS_CONFIG_FILE": "~/config", "AWS_SHARED_CREDENTIALS_FILE": "~/credentials", "AWS_PROFILE": "b"}
    assert endpoint.from_environment(variables, tmp_path).region == "of-b"
    found = endpoint.from_environment({**variables, "AWS_DEFAULT_PROFILE": "a"}, tmp_path)
    assert (found.region, found.url, found.has_keys) == ("of-credentials", "http://a:1", True)


def test_the_ca_file_is_the_variables_or_the_configs(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text("[default]\nca_bundle = /etc/ca.pem\n")
    assert endpoint.from_environment({}, tmp_path).ca_bundle == Path("/etc/ca.pem")
    assert endpoint.from_environment({"AWS_CA_BUNDLE": "/x.pem"}, tmp_path).ca_bundle == Path("/x.pem")
    assert endpoint.from_environment({}, tmp_path / "absent").ca_bundle is None


def test_a_bucket_is_called_by_its_name_and_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://h:1")
    assert parse_tier("s3://bucket/a/b/") == ("bucket/a/b", "s3://bucket/a/b/")
    assert parse_tier("rgw=s3://bucket") == ("rgw", "s3://bucket")
    tier = inspect("t", "s3://bucket/a/b/")
    assert (tier.bucket, tier.prefix) == ("bucket", "a/b/")
    assert inspect("t", "s3://bucket").prefix == ""
    assert inspect("t", "s3://bucket").facts()["path"] == "s3://bucket/"


def test_a_bucket_holds_objects_in_the_words_of_the_audit() -> None:
    read = Direction(ios=100, bytes=100 * 4096, iops=1.0, bytes_per_s=4096.0, latency_ns=None)
    for driver, engine, word in (
        ("s3", "obstore 0.12.1", "object"),
        ("fio", "http", "object"),
        ("fio", "psync", "block"),
    ):
        point = Point("p", "t", driver, 4096, "read", 1)
        measured = replace(
            unmeasured(point, "ok", None), read=read, conditions=Conditions(dataset_bytes=4096, ioengine=engine)
        )
        warning = hot_object(measured)
        assert warning is not None
        assert (f"1 {word} of" in warning.message, f"many {word}s" in warning.hint) == (True, True)
