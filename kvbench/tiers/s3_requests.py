"""The few S3 requests that are not measured: is the bucket there, put a marker, list and delete below our own prefix.

botocore makes them: it knows the whole chain of credentials (variables, profiles, SSO, roles, containers, instances)
and every code of an answer. Measured requests are the s3 driver's.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from kvbench.errors import KvbenchError, TierError, ToolError
from kvbench.tiers.endpoint import S3Endpoint, profile_of
from kvbench.tiers.s3_answers import explain

INSTALL = "install it with: pip install 'kvbench[s3]'"

_T = TypeVar("_T")
_NOBODYS = "kvbench-doctor/"
# A HEAD request's answer has no body: botocore then takes the HTTP status for the code.
_STATUS_CODES = {"404": "NoSuchBucket", "403": "AccessDenied", "301": "PermanentRedirect"}
# DeleteObjects takes 1000 keys (S3 API reference), but radosgw 16.2 deletes them one after the other.
_BATCH = 100
_BATCHES_AT_ONCE = 8
# A hung endpoint must not keep Ctrl-C waiting for long.
_CONNECT_S, _READ_S = 5, 10
# Answers to DeleteObjects of services that do not know it, or want the Content-MD5 that botocore stopped sending.
_NO_BATCHES = frozenset({"NotImplemented", "MalformedXML", "InvalidRequest", "MissingContentMD5", "MethodNotAllowed"})


class Requests:
    """Unmeasured requests to one bucket. Every method raises TierError with the next step when it fails."""

    def __init__(self, endpoint: S3Endpoint, bucket: str, tries: int = 2) -> None:
        """Find credentials; nothing is requested from the bucket yet. ToolError without botocore."""
        self.endpoint, self.bucket = endpoint, bucket
        self._client = _attempt(lambda: _client(endpoint, tries), self._where)

    @property
    def _where(self) -> str:
        return f"the bucket {self.bucket} at {self.endpoint.url}"

    def head(self) -> None:
        """Whether the bucket exists and these keys may list it."""
        try:
            self._do("head_bucket")
        except _Refused:
            # The answer to a HEAD request has no text; a list of names that only we make says why.
            self._do("list_objects_v2", Prefix=_NOBODYS, MaxKeys=1)
            raise

    def keeps_versions(self) -> bool:
        """Whether a deleted object would stay as an old version or a delete marker; False when it is not told.

        Markers are left by a bucket with suspended versioning too ("DeleteObject" of the API reference; radosgw 16.2).
        """
        try:
            return self._do("get_bucket_versioning").get("Status") in ("Enabled", "Suspended")
        except TierError:
            return False

    def put(self, key: str, content: bytes) -> str | None:
        """Write a small object; the version that it became, None when the bucket keeps none."""
        version: str | None = self._do("put_object", Key=key, Body=content).get("VersionId")
        return version

    def delete_version(self, key: str, version: str) -> None:
        """Delete one version of an object and leave no delete marker."""
        self._do("delete_object", Key=key, VersionId=version)

    def get(self, key: str, most_bytes: int) -> bytes:
        """The first bytes of an object, at most so many: the connection is closed on the rest.

        No range is asked for, because some services refuse one that ends behind a small object (nanio 0.1.7).
        """
        body = self._do("get_object", Key=key)["Body"]
        with contextlib.closing(body):
            content: bytes = _attempt(lambda: body.read(most_bytes), self._where)
        return content

    def sizes(self, prefix: str) -> dict[str, int]:
        """Bytes of every object below ``prefix``, which is one of our own."""
        return {item["Key"]: item["Size"] for page in self._pages(Prefix=prefix) for item in page.get("Contents", ())}

    def children(self, prefix: str) -> list[str]:
        """Names that begin with ``prefix`` up to their next slash; what is below them is not listed."""
        pages = self._pages(Prefix=prefix, Delimiter="/")
        return [item["Prefix"] for page in pages for item in page.get("CommonPrefixes", ())]

    def delete(self, keys: Sequence[str]) -> None:
        """Delete these objects; one that is not there is no error."""
        batches = [keys[at : at + _BATCH] for at in range(0, len(keys), _BATCH)]
        with ThreadPoolExecutor(_BATCHES_AT_ONCE) as pool:
            for _ in pool.map(self._delete_batch, batches):
                pass

    def _delete_batch(self, keys: Sequence[str]) -> None:
        try:
            answer = self._do("delete_objects", Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True})
        except _Refused as error:
            if error.code not in _NO_BATCHES:
                raise
            for key in keys:
                self._do("delete_object", Key=key)
            return
        for failure in answer.get("Errors", ()):
            raise _Refused(str(failure.get("Code")), self._where)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _pages(self, **options: str) -> Iterator[dict[str, Any]]:
        pages = iter(self._client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, **options))
        while (page := _attempt(lambda: next(pages, None), self._where)) is not None:
            yield page

    def _do(self, operation: str, **options: Any) -> dict[str, Any]:
        answer: dict[str, Any] = _attempt(
            lambda: getattr(self._client, operation)(Bucket=self.bucket, **options), self._where
        )
        return answer


class _Refused(TierError):
    """The service answered with an error code."""

    def __init__(self, code: str, where: str) -> None:
        super().__init__(f"{where} cannot be used: {explain(code)}.")
        self.code = code


def credentials() -> Callable[[], dict[str, Any]] | None:
    """What gives the current keys of the standard chain, as obstore wants them; None when there are none."""
    found = _attempt(lambda: _session().get_credentials(), "S3")
    if found is None:
        return None

    def current() -> dict[str, Any]:
        from datetime import UTC, datetime, timedelta

        keys = _attempt(found.get_frozen_credentials, "S3")
        return {
            "access_key_id": keys.access_key,
            "secret_access_key": keys.secret_key,
            "token": keys.token,
            # botocore renews them; obstore has to ask again before a role's keys can have expired.
            "expires_at": datetime.now(UTC) + timedelta(minutes=5),
        }

    return current


def _session() -> Any:
    try:
        import botocore.session
    except ImportError:
        raise ToolError(f"an S3 tier needs botocore, which is not installed; {INSTALL}.") from None
    session = botocore.session.Session()
    session.register_component("data_loader", _data_loader())
    return session


@functools.cache
def _data_loader() -> Any:
    """botocore's description of S3, read once: it is 0.1 s of CPU for every client (botocore 1.43)."""
    import botocore.session

    return botocore.session.Session().get_component("data_loader")


def _client(endpoint: S3Endpoint, tries: int) -> Any:
    session = _session()
    from botocore.config import Config

    style = "virtual" if endpoint.virtual_hosted else "path"
    # Checksums that are not required make gateways of some age refuse a request (radosgw before 18).
    config = Config(
        connect_timeout=_CONNECT_S,
        read_timeout=_READ_S,
        max_pool_connections=_BATCHES_AT_ONCE,
        retries={"mode": "standard", "total_max_attempts": tries},
        s3={"addressing_style": style},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    verify = str(endpoint.ca_bundle) if endpoint.ca_bundle else None
    return session.create_client(
        "s3", endpoint_url=endpoint.url, region_name=endpoint.region, config=config, verify=verify
    )


def _attempt(action: Callable[[], _T], where: str) -> _T:
    """What ``action`` returns; an error of botocore becomes one sentence that holds no key."""
    try:
        return action()
    except (KvbenchError, StopIteration):
        raise
    except Exception as error:
        raise _translated(error, where) from None


def _translated(error: Exception, where: str) -> Exception:
    from botocore import exceptions

    if isinstance(error, exceptions.ClientError):
        code = str(error.response.get("Error", {}).get("Code", "without a code"))
        return _Refused(_STATUS_CODES.get(code, code), where)
    if isinstance(error, exceptions.NoCredentialsError | exceptions.PartialCredentialsError):
        return TierError(
            "there are no S3 credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write ~/.aws/credentials."
        )
    if isinstance(error, exceptions.ProfileNotFound):
        return TierError(f"the AWS profile {profile_of(os.environ)!r} does not exist; correct AWS_PROFILE.")
    if isinstance(error, exceptions.SSLError):
        return TierError(f"{where}: {explain('Certificate')}.")
    if isinstance(error, exceptions.ReadTimeoutError):
        return TierError(f"{where} cannot be used: {explain('Timeout')}.")
    if isinstance(error, exceptions.ProxyConnectionError):
        return TierError(f"{where} cannot be used: no connection to the proxy; check HTTP_PROXY and NO_PROXY.")
    if isinstance(error, exceptions.HTTPClientError | exceptions.EndpointConnectionError):
        return TierError(f"{where} cannot be used: {explain('Connect')}.")
    if isinstance(error, exceptions.BotoCoreError | ValueError | OSError):
        return TierError(f"{where} cannot be used ({type(error).__name__}); check the AWS settings.")
    return error
