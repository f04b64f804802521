"""The S3 endpoint that the AWS settings of this user name, looked at without a request and without reading a key."""

from __future__ import annotations

import configparser
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from kvbench.errors import TierError

_DEFAULT_REGION = "us-east-1"
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where S3 requests would go. ``has_keys``: whether credentials are configured; they are not kept."""

    url: str
    region: str
    has_keys: bool


def from_environment(variables: Mapping[str, str], home: Path) -> Endpoint:
    """The endpoint of the AWS variables or ~/.aws/config, else Amazon's of the region; TierError for a bad URL."""
    profile = variables.get("AWS_PROFILE", "default")
    config = _section(Path(variables.get("AWS_CONFIG_FILE", home / ".aws" / "config")), profile, prefixed=True)
    region = variables.get("AWS_REGION") or variables.get("AWS_DEFAULT_REGION") or config.get("region", _DEFAULT_REGION)
    given = variables.get("AWS_ENDPOINT_URL_S3") or variables.get("AWS_ENDPOINT_URL") or config.get("endpoint_url")
    url = given or f"https://s3.{region}.amazonaws.com"
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise TierError("the S3 endpoint is no http or https URL; set AWS_ENDPOINT_URL to one like http://host:7480.")
    if parts.username or parts.password:
        raise TierError("the S3 endpoint's URL holds credentials; put them into AWS_ACCESS_KEY_ID and its companion.")
    files = Path(variables.get("AWS_SHARED_CREDENTIALS_FILE", home / ".aws" / "credentials"))
    in_variables = bool(variables.get("AWS_ACCESS_KEY_ID") and variables.get("AWS_SECRET_ACCESS_KEY"))
    has_keys = in_variables or "aws_access_key_id" in {**config, **_section(files, profile, prefixed=False)}
    return Endpoint(url, region, has_keys)


def listens(endpoint: Endpoint, seconds: float = 5.0) -> bool:
    """Whether the endpoint's port accepts a connection."""
    parts = urlsplit(endpoint.url)
    try:
        with socket.create_connection((parts.hostname, parts.port or _PORTS[parts.scheme]), timeout=seconds):
            return True
    except OSError:
        return False


def _section(file: Path, profile: str, *, prefixed: bool) -> dict[str, str]:
    # ~/.aws/config calls every section but the default "profile NAME"; the credentials file does not.
    name = f"profile {profile}" if prefixed and profile != "default" else profile
    parser = configparser.RawConfigParser()
    try:
        parser.read(file, encoding="utf-8")
    except (configparser.Error, OSError, UnicodeDecodeError):
        return {}
    return dict(parser.items(name)) if parser.has_section(name) else {}
