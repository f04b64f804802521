"""Where a configuration puts blocks: the tiers of ``--tier``, as they are named to the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from kvbench.errors import UsageError
from kvbench.record.results import RunResult, TierPlace
from kvbench.tiers import endpoint as endpoints
from kvbench.tiers.shared import place_was
from kvbench.units import is_one_line

SCHEME = "s3://"
_PORTS = range(1, 65536)


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory, as the engine's host sees it."""

    root: str
    kind: Literal["fs"] = "fs"

    @property
    def name(self) -> str:
        """What it is called in a sentence."""
        return self.root


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket and a prefix ('' or without slashes at its ends) at an endpoint, host and port without a scheme."""

    bucket: str
    prefix: str
    host: str
    scheme: str
    region: str
    ca_bundle: str = ""
    kind: Literal["obj"] = "obj"

    @property
    def name(self) -> str:
        """What it is called in a sentence."""
        return f"{SCHEME}{self.bucket}/{self.prefix}".rstrip("/")


@dataclass(frozen=True, slots=True)
class Peers:
    """Other instances that blocks are fetched from; None leaves the engine's default."""

    host: str | None = None
    port: int | None = None
    kind: Literal["p2p"] = "p2p"

    @property
    def name(self) -> str:
        """What it is called in a sentence."""
        return "p2p"


Place = Directory | Bucket | Peers


def parse_place(text: str, variables: Mapping[str, str], home: Path) -> Place:
    """The place of one ``--tier``, a bucket at the endpoint of the AWS settings; UsageError for anything else."""
    if not is_one_line(text):
        raise UsageError("--tier holds a control character; name a plain directory, bucket or host.")
    kind, separator, target = text.partition("=")
    if text.startswith(SCHEME) or (kind == "obj" and target.startswith(SCHEME)):
        return bucket_of(text if text.startswith(SCHEME) else target, endpoints.from_environment(variables, home))
    if kind == "fs" and target:
        return Directory(str(Path(target).expanduser().absolute()))
    if kind == "p2p" and (target or not separator):
        return _peers(target)
    raise UsageError(f"--tier {_shown(text)}: write fs=DIR, s3://bucket/prefix, or p2p=HOST:PORT.")


def recorded_place(run: RunResult, tier: str) -> Place | None:
    """Where a run's tier is for an engine; None where the run does not say it, or not as an engine takes it."""
    traits = run.tier_traits.get(tier)
    found = place_was(run.tiers.get(tier, {})) if traits is None or traits.place is None else traits.place
    return None if found is None else engine_place(found)


def engine_place(found: TierPlace) -> Place | None:
    """The same as an engine is told it; None for what it could not take."""
    if not is_one_line(found.path):
        return None
    if found.endpoint_url is None:
        return Directory(found.path)
    bucket, _, prefix = found.path.partition("/")
    parts = urlsplit(found.endpoint_url)
    if not bucket or not parts.netloc or "@" in parts.netloc:
        return None
    return Bucket(bucket, prefix.strip("/"), parts.netloc, parts.scheme, found.region)


def bucket_of(url: str, endpoint: endpoints.S3Endpoint) -> Bucket:
    """The bucket of an ``s3://`` URL at an endpoint; UsageError for one that holds more than a bucket and a prefix."""
    bucket, _, prefix = url.removeprefix(SCHEME).partition("/")
    if not bucket or any(character in url for character in "@?#"):
        raise UsageError("--tier s3://...: write s3://bucket/prefix, without credentials or parameters.")
    parts = urlsplit(endpoint.url)
    return Bucket(
        bucket, prefix.strip("/"), parts.netloc, parts.scheme, endpoint.region,
        "" if endpoint.ca_bundle is None else str(endpoint.ca_bundle),
    )  # fmt: skip


def _peers(target: str) -> Peers:
    host, separator, port = target.rpartition(":") if ":" in target else (target, "", "")
    number = int(port) if port.isascii() and port.isdecimal() and len(port) < 6 else 0
    if (separator and number not in _PORTS) or (separator and not host):
        raise UsageError(f"--tier p2p={_shown(target)}: write p2p=HOST:PORT with a port from 1 to 65535.")
    return Peers(host or None, number or None)


def _shown(text: str) -> str:
    # What stands before an @ may be a password.
    return repr(text if "@" not in text else "...")
