"""Just enough S3 to make a bucket: one PUT signed with AWS Signature Version 4, from the standard library.

Source of the algorithm: AWS General Reference, "Signature Version 4 signing process".
"""

from __future__ import annotations

import hashlib
import hmac
import time
import urllib.error
import urllib.request
from urllib.parse import urlsplit

from tests.lab.state import LabError, S3Server

_REGION = "us-east-1"


def make_bucket(server: S3Server) -> None:
    """Create the server's bucket; LabError when it refuses."""
    request = urllib.request.Request(
        f"{server.endpoint}/{server.bucket}", method="PUT", headers=_signed_headers(server, f"/{server.bucket}")
    )
    # Loopback only: a proxy of this host must not see it.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60):
            return
    except (urllib.error.URLError, OSError) as error:
        raise LabError(f"the bucket {server.bucket} cannot be made at {server.endpoint}: {error}") from None


def _signed_headers(server: S3Server, path: str) -> dict[str, str]:
    now = time.gmtime()
    day, moment = time.strftime("%Y%m%d", now), time.strftime("%Y%m%dT%H%M%SZ", now)
    empty = hashlib.sha256(b"").hexdigest()
    host = urlsplit(server.endpoint).netloc
    headers = {"host": host, "x-amz-content-sha256": empty, "x-amz-date": moment}
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    canonical = f"PUT\n{path}\n\n{lines}\n{names}\n{empty}"
    scope = f"{day}/{_REGION}/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{server.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    credential = f"Credential={server.access_key}/{scope}"
    headers["Authorization"] = f"AWS4-HMAC-SHA256 {credential}, SignedHeaders={names}, Signature={signature}"
    return headers
