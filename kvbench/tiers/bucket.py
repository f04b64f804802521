"""A bucket as a tier: everything below a prefix of this run's own, which a marker object names, removed at the end.

A run works below ``<prefix>/kvbench-<token>/`` and writes down every key before it writes the object. At the end it
deletes these keys, and looks below that prefix for nothing to be left. After SIGKILL nobody does: ``clean_bucket``
removes the prefixes whose marker names a process that is dead.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from kvbench.errors import Interrupted, KvbenchError, MeasurementError, TierError
from kvbench.record.results import TierPlace
from kvbench.tiers import endpoint as endpoints
from kvbench.tiers.directory import (
    DEFAULT_DATASET_BYTES,
    Workspace,
    this_machine,
    why_at_work,
)
from kvbench.tiers.endpoint import S3Endpoint
from kvbench.tiers.guard import Guard
from kvbench.tiers.mounts import Mount
from kvbench.tiers.removal import MARKER_BYTES, WORK_PREFIX, Kept, parse_marker
from kvbench.tiers.s3_requests import Requests
from kvbench.tiers.tier import Ordinary

if TYPE_CHECKING:
    from kvbench.tiers.tier import Kind

SCHEME = "s3://"
MARKER_NAME = ".owner.json"

_OURS = re.compile(rf"{WORK_PREFIX}[0-9a-f]{{16}}/")


@dataclass(frozen=True, slots=True)
class BucketSpace(Workspace):
    """This run's own prefix: every key that may exist below it, and whether a request may still be under way."""

    tier: BucketTier
    prefix: str
    requests: Requests
    keys: set[str] = field(default_factory=set)
    unsettled: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class BucketTier(Ordinary):
    """A bucket and a prefix ('' or one that ends in a slash) at the endpoint of the AWS settings."""

    name: str
    bucket: str
    prefix: str
    endpoint: S3Endpoint

    @property
    def mount(self) -> Mount | None:
        """A bucket is not mounted."""
        return None

    @property
    def kind(self) -> Kind:
        """A bucket."""
        from kvbench.tiers.bucket_kind import KIND

        return KIND

    @property
    def shared(self) -> bool | None:
        """Whoever has keys reads it, from any host."""
        return True

    @property
    def place(self) -> TierPlace | None:
        """The bucket, its prefix and its endpoint."""
        return TierPlace(f"{self.bucket}/{self.prefix}", self.endpoint.url, self.endpoint.region)

    @property
    def needs_yes(self) -> bool:
        """Unless the endpoint is known as a loopback or private address."""
        return not self.endpoint.is_nearby(self.bucket)

    @property
    def storage(self) -> str:
        """The bucket, whatever prefix is used."""
        return f"bucket {self.endpoint.url} {self.bucket}"

    def facts(self) -> dict[str, str | int | None]:
        """Where the requests go and how; no key is part of it."""
        signed = "left out (UNSIGNED-PAYLOAD)" if self.endpoint.encrypted else "SHA-256, inside the latency of a write"
        return {
            "path": f"{SCHEME}{self.bucket}/{self.prefix}",
            "filesystem": "none: S3 objects",
            "client": f"obstore {_version('obstore')}; with --driver fio its http engine",
            "endpoint": self.endpoint.url,
            "region": self.endpoint.region,
            "addressing": "virtual-hosted" if self.endpoint.is_virtual_hosted(self.bucket) else "path",
            "payload_signature": signed,
        }

    def default_dataset_bytes(self) -> int:
        """4 GiB: S3 does not say how much room there is."""
        return DEFAULT_DATASET_BYTES

    def require_space(self, dataset_bytes: int) -> None:
        """S3 does not say how much room there is; a quota shows when the data is written."""

    def workspace(self, run_dir: Path) -> AbstractContextManager[Workspace]:
        """A fresh prefix with its marker; needs the rights to list, write and delete, so it shows that they exist."""
        return _workspace(self, run_dir)


def inspect(name: str, target: str) -> BucketTier:
    """``s3://bucket/prefix`` as a tier; TierError for a bad name or endpoint. Nothing is requested."""
    bucket, _, prefix = target.removeprefix(SCHEME).partition("/")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}", bucket):
        raise TierError(f"{target} names no bucket; write it like s3://bucket/prefix.")
    prefix = prefix.strip("/")
    if not re.fullmatch(r"[A-Za-z0-9!_.*'()/=+-]*", prefix) or "//" in prefix or {".", ".."} & set(prefix.split("/")):
        raise TierError(f"the prefix of {target} has characters that S3 clients disagree on; use letters and digits.")
    found = endpoints.from_environment(os.environ, Path.home())
    return BucketTier(name, bucket, f"{prefix}/" if prefix else "", found)


def clean_bucket(target: str, dry_run: bool, older_than_s: float | None = None) -> list[tuple[str, Kept | None]]:
    """Remove what dead runs left below ``s3://bucket/prefix``; every URL found and why it stays, None when it does not.

    Only prefixes whose marker says that a process of this host, now dead, made them; with ``older_than_s`` also those
    of any other host that are older: a pod that is gone cannot be asked. TierError when the bucket cannot be used.
    """
    tier = inspect("clean", target)
    requests = Requests(tier.endpoint, tier.bucket)
    try:
        found = [(prefix, _why_kept(requests, prefix, older_than_s)) for prefix in _own_prefixes(requests, tier)]
        if not dry_run:
            found = [(prefix, kept or _why_not_emptied(requests, prefix)) for prefix, kept in found]
    finally:
        requests.close()
    return [(f"{SCHEME}{tier.bucket}/{prefix}", kept) for prefix, kept in found]


def _own_prefixes(requests: Requests, tier: BucketTier) -> list[str]:
    """Prefixes that have the form of ours; whose they are their markers say."""
    listed = requests.children(tier.prefix + WORK_PREFIX)
    return [prefix for prefix in listed if _OURS.fullmatch(prefix.removeprefix(tier.prefix))]


@contextmanager
def _workspace(tier: BucketTier, run_dir: Path) -> Iterator[Workspace]:
    requests = Requests(tier.endpoint, tier.bucket)
    token = secrets.token_hex(8)
    prefix = f"{tier.prefix}{WORK_PREFIX}{token}/"
    requests.sizes(prefix)
    keeps_versions = TierError(
        f"the bucket {tier.bucket} keeps old versions, so the data set would stay after it is deleted; "
        "name a bucket that never had versioning."
    )
    if requests.keeps_versions():
        raise keeps_versions
    space = BucketSpace(run_dir, token, tier, prefix, requests)
    marker = {**this_machine(), "pid": os.getpid(), "token": token, "created": datetime.now(UTC).isoformat()}
    try:
        version = requests.put(prefix + MARKER_NAME, json.dumps(marker).encode())
        if version is not None:
            # These keys may not ask about versioning, but the answer to a PUT tells. To delete a version is one more
            # right; without it the marker stays as an old version.
            with suppress(TierError):
                requests.delete_version(prefix + MARKER_NAME, version)
            raise keeps_versions
        with _guarded(token):
            yield space
    except KvbenchError as error:
        said = _remove(space)
        if said:
            error.args = (f"{error} {said}",)
        raise
    except BaseException:
        _remove(space)
        raise
    else:
        said = _remove(space)
        if said:
            raise MeasurementError(said)


@contextmanager
def _guarded(token: str) -> Iterator[None]:
    """Processes that carry the token end before anything is deleted, also when kvbench is killed; no directory goes."""
    guard = Guard(token, None)
    try:
        yield
    finally:
        guard.release()


def _remove(space: BucketSpace) -> str | None:
    """Delete every key that was written down and see that nothing is left; what to say when something is."""
    try:
        return _try_to_remove(space)
    except Interrupted:
        # Signals are ignored by now: finish, then end.
        _try_to_remove(space)
        raise


def _try_to_remove(space: BucketSpace) -> str | None:
    left = (
        f"What this run wrote below {space.prefix} in the bucket {space.requests.bucket} could not be removed"
        "{}; run 'kvbench clean' with the same --tier when the service works again."
    )
    requests = space.requests
    try:
        if space.unsettled:
            requests = Requests(requests.endpoint, requests.bucket, tries=1)
        requests.delete(sorted(space.keys))
        if space.unsettled:
            return left.format(" for certain, because a request is still under way")
        _empty(requests, space.prefix)
    except Interrupted:
        raise
    except KvbenchError:
        return left.format("")
    finally:
        requests.close()
    return None


def _empty(requests: Requests, prefix: str) -> None:
    """Delete everything below one of our own prefixes; the marker goes last, so that a second try finds it."""
    found, marker = requests.sizes(prefix), prefix + MARKER_NAME
    requests.delete([key for key in found if key != marker])
    requests.delete([marker] if marker in found else [])


def _why_not_emptied(requests: Requests, prefix: str) -> Kept | None:
    try:
        _empty(requests, prefix)
    except TierError as error:
        return Kept(f"it could not be removed whole: {str(error).rstrip('.')}", "stuck")
    return None


def _why_kept(requests: Requests, prefix: str, older_than_s: float | None) -> Kept | None:
    try:
        marker = parse_marker(requests.get(prefix + MARKER_NAME, MARKER_BYTES + 1))
        age_s = (datetime.now(UTC) - datetime.fromisoformat(marker.created or "")).total_seconds()
    except (TierError, ValueError, TypeError, OverflowError):
        return Kept("its marker cannot be read", "odd")
    if not prefix.endswith(f"{WORK_PREFIX}{marker.token}/"):
        return Kept("its marker is that of another", "odd")
    at_work = why_at_work(marker, age_s, older_than_s)
    return None if at_work is None else Kept(at_work, "apart")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"
