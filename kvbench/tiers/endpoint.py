"""The S3 endpoint that the AWS settings of this user name, looked at without a request and without reading a key."""

from __future__ import annotations

import configparser
import ipaddress
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from kvbench.errors import TierError
from kvbench.host import own_network

_DEFAULT_REGION = "us-east-1"
_PORTS = {"http": 80, "https": 443}
# botocore's isVirtualHostableS3Bucket (1.43): what else a bucket is called, it stays in the path.
_HOST_LABEL = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)")


@dataclass(frozen=True, slots=True)
class S3Endpoint:
    """Where S3 requests would go. ``has_keys``: whether credentials are configured; they are not kept.

    ``virtual_hosted``: a bucket whose name allows it is part of the host name, else of the path. ``ca_bundle``: a file
    of certificates to trust beside the system's.
    """

    url: str
    region: str
    has_keys: bool
    virtual_hosted: bool = False
    ca_bundle: Path | None = None

    @property
    def encrypted(self) -> bool:
        """Whether requests go over TLS."""
        return urlsplit(self.url).scheme == "https"

    def is_virtual_hosted(self, bucket: str) -> bool:
        """Whether ``bucket`` goes into the host name: no names are below an address, a certificate is for one."""
        labels = [bucket] if self.encrypted else bucket.split(".")
        return (
            self.virtual_hosted
            and len(bucket) > 2
            and not _is_address(urlsplit(self.url).hostname or "")
            and all(_HOST_LABEL.fullmatch(label) for label in labels)
        )

    def url_of(self, bucket: str) -> str:
        """The URL that a client needs for ``bucket``: the endpoint, or the bucket's own host."""
        if not self.is_virtual_hosted(bucket):
            return self.url
        parts = urlsplit(self.url)
        return parts._replace(netloc=f"{bucket}.{parts.netloc}").geturl()

    def is_nearby(self, bucket: str) -> bool:
        """Whether requests for ``bucket`` go to a loopback or private address; not when its name has none here."""
        parts = urlsplit(self.url_of(bucket))
        return bool(own_network.is_nearby(parts.hostname or "", parts.port or _PORTS[parts.scheme]))


def from_environment(variables: Mapping[str, str], home: Path) -> S3Endpoint:
    """The endpoint of the AWS variables or ~/.aws/config, else Amazon's of the region; TierError for a bad URL."""
    profile = profile_of(variables) or "default"
    config_file = _file(variables.get("AWS_CONFIG_FILE"), home, "config")
    config = {
        **_section(config_file, f"profile {profile}" if profile != "default" else profile),
        **_section(_file(variables.get("AWS_SHARED_CREDENTIALS_FILE"), home, "credentials"), profile),
    }
    service = _nested(_section(config_file, f"services {config.get('services')}").get("s3", ""))
    region = variables.get("AWS_REGION") or variables.get("AWS_DEFAULT_REGION") or config.get("region", _DEFAULT_REGION)
    given = (
        variables.get("AWS_ENDPOINT_URL_S3")
        or variables.get("AWS_ENDPOINT_URL")
        or service.get("endpoint_url")
        or config.get("endpoint_url")
    )
    url = (given or f"https://s3.{region}.amazonaws.com").rstrip("/")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise TierError("the S3 endpoint is no http or https URL; set AWS_ENDPOINT_URL to one like http://host:7480.")
    if parts.username or parts.password:
        raise TierError("the S3 endpoint's URL holds credentials; put them into AWS_ACCESS_KEY_ID and its companion.")
    in_variables = bool(variables.get("AWS_ACCESS_KEY_ID") and variables.get("AWS_SECRET_ACCESS_KEY"))
    has_keys = in_variables or "aws_access_key_id" in config
    style = _nested(config.get("s3", "")).get("addressing_style", "auto")
    bundle = variables.get("AWS_CA_BUNDLE") or config.get("ca_bundle")
    return S3Endpoint(
        url,
        region,
        has_keys,
        # AWS wants the bucket in the host name, everybody else's gateway can do with the path.
        virtual_hosted=style == "virtual" or (style == "auto" and given is None),
        ca_bundle=Path(bundle).expanduser() if bundle else None,
    )


def profile_of(variables: Mapping[str, str]) -> str | None:
    """The profile that the variables name, in the order of botocore (configprovider.py, 1.43), which finds the keys."""
    return variables.get("AWS_DEFAULT_PROFILE") or variables.get("AWS_PROFILE")


def listens(endpoint: S3Endpoint, seconds: float = 5.0) -> bool:
    """Whether the endpoint's port accepts a connection."""
    parts = urlsplit(endpoint.url)
    try:
        with socket.create_connection((parts.hostname, parts.port or _PORTS[parts.scheme]), timeout=seconds):
            return True
    except OSError:
        return False


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _file(given: str | None, home: Path, name: str) -> Path:
    return Path(given).expanduser() if given else home / ".aws" / name


def _section(file: Path, name: str) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(file, encoding="utf-8")
    except (configparser.Error, OSError, UnicodeDecodeError):
        return {}
    return dict(parser.items(name)) if parser.has_section(name) else {}


def _nested(text: str) -> dict[str, str]:
    """The lines ``name = value`` of a nested setting, as ``s3`` is in ~/.aws/config."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}
