"""Where requests go: the URL that the user gave, checked, whether it may be somebody else's machine, and the API key.

The key is taken from OPENAI_API_KEY only, sent to the endpoint's own host only, and written nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from kvbench.errors import MeasurementError, UsageError
from kvbench.host import own_network

Api = Literal["completions", "chat"]

API_PATHS: dict[Api, str] = {"completions": "/completions", "chat": "/chat/completions"}
KEY_VARIABLE = "OPENAI_API_KEY"
_PORTS = {"http": 80, "https": 443}
_SHORTEST_PART = 8
_SHORTEST_TAIL = 3


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One server: scheme, host, port, and the path before ``/completions``; ``api`` when the URL itself names it."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    prefix: str
    api: Api | None = None

    @property
    def origin(self) -> str:
        """``http://host:port``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def url(self) -> str:
        """The base URL as requests use it."""
        return self.origin + self.prefix

    def path(self, api: Api) -> str:
        """The path that requests of ``api`` are posted to."""
        return self.prefix + API_PATHS[api]


def parse_url(text: str) -> Endpoint:
    """The endpoint of ``http://host:8000``, ``.../v1`` or the whole path to an API; UsageError for anything else.

    Credentials and query strings are refused unseen: a URL ends up in logs, results and process lists.
    """
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        raise UsageError("--url is not a URL; write it like http://127.0.0.1:8000.") from None
    if "@" in parts.netloc:
        raise UsageError("--url holds credentials; put the key into OPENAI_API_KEY and leave it out of the URL.")
    if parts.query or parts.fragment:
        raise UsageError("--url has a query or fragment, which may hold secrets; give the URL without it.")
    if parts.scheme == "http":
        scheme: Literal["http", "https"] = "http"
    elif parts.scheme == "https":
        scheme = "https"
    else:
        raise UsageError(f"--url {text!r} is no http or https URL; write it like http://127.0.0.1:8000.")
    if not parts.hostname or any(ord(character) <= 32 or ord(character) > 126 for character in text.strip()):
        raise UsageError(f"--url {text!r} names no host; write it like http://127.0.0.1:8000.")
    prefix, api = _split_path(parts.path)
    return Endpoint(scheme, parts.hostname, port or _PORTS[scheme], prefix, api)


def is_nearby(endpoint: Endpoint) -> bool:
    """Whether every address of the host is loopback or private; MeasurementError when the name has no address."""
    found = own_network.is_nearby(endpoint.host, endpoint.port)
    if found is None:
        raise MeasurementError(f"the host name {endpoint.host} has no address here; check --url and the name service.")
    return found


def needs_yes(endpoint: Endpoint) -> bool | None:
    """Whether measuring it needs ``--yes``; None when its name has no address here."""
    found = own_network.is_nearby(endpoint.host, endpoint.port)
    return None if found is None else not found


def require_nearby(endpoint: Endpoint, *, yes: bool) -> None:
    """UsageError for an endpoint that is not loopback or private, unless the user said ``--yes``."""
    if not yes and not is_nearby(endpoint):
        raise UsageError(
            f"{endpoint.host} is not a loopback or private address, and prompts there may cost money; look at "
            "--dry-run, then repeat with --yes."
        )


def key_of(variables: Mapping[str, str]) -> str | None:
    """The key, or None where the variable is unset or empty; UsageError (without the value) for an impossible one."""
    key = variables.get(KEY_VARIABLE, "").strip()
    if not key:
        return None
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(f"{KEY_VARIABLE} holds blanks or characters that no HTTP header can carry; set it anew.")
    return key


def redact(text: str, key: str | None) -> str:
    """The text without the key; a server may repeat it, or its first or last half, in an error message."""
    if key is None:
        return text
    half = max(len(key) // 2, _SHORTEST_PART)
    for part in (key, key[:half], key[-half:]):
        text = text.replace(part, "***")
    for length in range(half, _SHORTEST_TAIL, -1):
        # A text that was cut in the middle of the key.
        if text.endswith(key[:length]):
            return text[:-length] + "***"
    return text


def _split_path(path: str) -> tuple[str, Api | None]:
    trimmed = path.rstrip("/")
    # The longer path ends with the shorter one.
    for api in ("chat", "completions"):
        if trimmed.endswith(API_PATHS[api]):
            return trimmed.removesuffix(API_PATHS[api]), api
    # A bare host means the usual place; any other path is taken as it is.
    return trimmed or "/v1", None
