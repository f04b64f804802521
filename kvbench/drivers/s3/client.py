"""Whole-object requests with obstore, chosen by measurement (benchmarks/s3_clients.py): no retries, no parts.

Considered: boto3 and aiobotocore (1.5 to 3 times the CPU for a byte, in Python under one lock), minio (1.2 to 1.5
times for writes), awscrt (1.3 times, and its client repeats requests and splits objects by itself).
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kvbench.errors import TierError, ToolError
from kvbench.tiers.bucket import BucketTier
from kvbench.tiers.s3_answers import FATAL, code_in, explain
from kvbench.tiers.s3_requests import INSTALL, credentials

if TYPE_CHECKING:
    from typing_extensions import Buffer

# One request from connect to the last byte. An engine that waits longer has recomputed the block long ago.
TIMEOUT_S = 30.0
_CONNECT_S = 5.0
# obstore joins a whole body into a fresh buffer. In parts a GiB takes 0.63 instead of 0.72 s of CPU on a light server
# (nanio, obstore 0.12, 2.25 MiB); on RGW it makes no difference that could be seen.
_CHUNK_BYTES = 256 << 10
# Below what servers wait before they close a silent connection (uvicorn: 5 s), so that no request meets a closed one.
_IDLE_S = 4.0


class RequestFailed(Exception):
    """One request failed; ``fatal`` when another one would as well. The text holds no key of the user's."""

    def __init__(self, code: str) -> None:
        """The S3 error code, or what happened to the connection."""
        super().__init__(explain(code))
        self.code, self.fatal = code, code in FATAL


class ObjectClient:
    """PUT and GET of whole objects; safe to share between threads, each request in flight has its own connection."""

    def __init__(self, tier: BucketTier) -> None:
        """Find credentials and read the CA file; ToolError without obstore, TierError without credentials."""
        obstore, store = _modules()
        found = credentials()
        if found is None:
            raise TierError(
                "there are no S3 credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                "or write ~/.aws/credentials."
            )
        self._obstore = obstore
        self._store = store.S3Store(
            tier.bucket,
            endpoint=tier.endpoint.url_of(tier.bucket),
            region=tier.endpoint.region,
            virtual_hosted_style_request=tier.endpoint.is_virtual_hosted(tier.bucket),
            # Over TLS nobody signs the body (AWS SDKs do not); in clear text the signature protects it.
            unsigned_payload=tier.endpoint.encrypted,
            credential_provider=found,
            client_options=_options(tier),
            # A repeated request would hide its first try in a latency.
            retry_config={"max_retries": 0},
        )

    def put(self, key: str, content: Buffer) -> None:
        """Write an object with one PutObject request; RequestFailed."""
        try:
            self._obstore.put(self._store, key, content, use_multipart=False)
        except Exception as error:
            raise RequestFailed(code_in(str(error))) from None

    def get(self, key: str, into: memoryview | None = None) -> int:
        """Read an object to its last byte and return how many came; RequestFailed.

        What comes is copied to its place ``into``, as far as that has room, as a client of the engine's does.
        """
        try:
            came = 0
            for part in self._obstore.get(self._store, key).stream(min_chunk_size=_CHUNK_BYTES):
                if into is not None:
                    room = into[came : came + len(part)]
                    room[:] = memoryview(part)[: len(room)]
                came += len(part)
            return came
        except Exception as error:
            raise RequestFailed(code_in(str(error))) from None


def require_installed() -> str:
    """obstore's version; ToolError with what to install."""
    return str(_modules()[0].__version__)


def _modules() -> tuple[Any, Any]:
    try:
        import obstore
        from obstore import store
    except ImportError:
        raise ToolError(f"an S3 tier needs obstore, which is not installed; {INSTALL}.") from None
    return obstore, store


def _options(tier: BucketTier) -> dict[str, Any]:
    options: dict[str, Any] = {
        "allow_http": True,
        # One connection for each request in flight, as HTTP/1.1 has it: HTTP/2 would share one.
        "http1_only": True,
        "timeout": timedelta(seconds=TIMEOUT_S),
        "connect_timeout": timedelta(seconds=_CONNECT_S),
        "pool_idle_timeout": timedelta(seconds=_IDLE_S),
    }
    bundle = tier.endpoint.ca_bundle
    if bundle is not None and tier.endpoint.encrypted:
        try:
            options["root_certificate"] = bundle.read_bytes()
        except OSError as error:
            raise TierError(f"AWS_CA_BUNDLE {bundle} cannot be read ({error.strerror}); name a PEM file.") from None
    return options
