"""A bucket as a kind of tier: what tells one, how it is examined, and how it is cleaned."""

from __future__ import annotations

from collections.abc import Sequence

from kvbench.errors import KvbenchError
from kvbench.tiers import bucket, endpoint, s3_requests
from kvbench.tiers.bucket import SCHEME, BucketTier
from kvbench.tiers.findings import Diagnosis, Finding, Value, required, unusable
from kvbench.tiers.removal import Kept
from kvbench.tiers.tier import Cleaning, DriverFindings, Kind


def _inspect(name: str, target: str, allow_destroy: Sequence[str]) -> BucketTier:
    return bucket.inspect(name, target)


def _examine(name: str, target: str, drivers: DriverFindings) -> Diagnosis:
    """The endpoint that the AWS settings name, whether it listens, and one HEAD request; no key is shown."""
    try:
        tier = bucket.inspect(name, target)
    except KvbenchError as error:
        return unusable(name, target, error, check="endpoint", kind="S3")
    found = tier.endpoint
    answered = endpoint.listens(found)
    hint = None if answered else "check AWS_ENDPOINT_URL, the network and the proxy settings"
    findings = [
        Finding("endpoint", "ok" if answered else "problem", "listens" if answered else "does not listen", hint)
    ]
    keys, problem = _keys()
    findings.append(Finding("credentials", "ok" if problem is None else "problem", keys, problem))
    if answered and problem is None:
        findings.append(required("bucket", "is there, and these keys may list it", lambda: _head(tier)))
    findings += drivers(KIND.programs.values(), None)
    facts: dict[str, Value] = {"endpoint": found.url, "region": found.region, **tier.facts()}
    return Diagnosis(name, target, f"S3 at {found.url}", facts, tuple(findings))


def _keys() -> tuple[str, str | None]:
    """What the chain of credentials gives, and what to do about it."""
    try:
        if s3_requests.credentials() is not None:
            return "found", None
    except KvbenchError as error:
        return "cannot be looked for", str(error)
    hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write ~/.aws/credentials"
    return "none in the environment, in ~/.aws or from this machine's role", hint


def _head(tier: BucketTier) -> None:
    requests = s3_requests.Requests(tier.endpoint, tier.bucket)
    try:
        requests.head()
    finally:
        requests.close()


def _clean(target: str, wanted: Cleaning) -> Sequence[tuple[str, Kept | None]]:
    return bucket.clean_bucket(target, wanted.dry_run, wanted.older_than_s)


KIND = Kind(
    claims=lambda target: target.startswith(SCHEME),
    inspect=_inspect,
    examine=_examine,
    clean=_clean,
    # With fio it is the http engine that measures objects.
    programs={"s3": "s3", "fio": "fio-http"},
    name_of=lambda target: target.removeprefix(SCHEME).strip("/"),
)
