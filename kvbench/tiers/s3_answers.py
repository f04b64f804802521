"""What an S3 service or the way to it answers when a request fails, as one sentence and the next step (pure)."""

from __future__ import annotations

import re

# Error codes of the S3 API ("Error responses" of the reference); radosgw 16.2 and nanio 0.1.7 send the same.
_SAID = {
    "AccessDenied": "the keys may not do this; allow them to list, read, write and delete below the prefix",
    "InvalidAccessKeyId": "the service does not know the access key; check AWS_ACCESS_KEY_ID or the profile",
    "SignatureDoesNotMatch": "the secret key is wrong; check AWS_SECRET_ACCESS_KEY or the profile",
    "InvalidToken": "the session token is not valid; check AWS_SESSION_TOKEN",
    "ExpiredToken": "the session token has expired; get a new one",
    "RequestTimeTooSkewed": "this host's clock is off by more than the service allows; set it (chronyc makestep)",
    "NoSuchBucket": "there is no such bucket at this endpoint; create it or name another",
    "NoSuchKey": "an object that was written is gone; look for a lifecycle rule or somebody who deletes",
    "PermanentRedirect": "the bucket is in another region or at another endpoint; set AWS_REGION or AWS_ENDPOINT_URL",
    "AuthorizationHeaderMalformed": "the bucket is in another region; set AWS_REGION to it",
    "SlowDown": "the service asks to slow down; use fewer --numjobs",
    "ServiceUnavailable": "the service is overloaded; use fewer --numjobs",
    "QuotaExceeded": "a quota of the bucket or the user is used up; use a smaller --dataset",
    "Timeout": "no answer in time: the endpoint hangs; look at its health",
    "Certificate": "the certificate is not trusted; name its CA's file with AWS_CA_BUNDLE",
    "Connect": "no connection: check AWS_ENDPOINT_URL, the network and that the service runs",
    "Answer": "the answer is not one of S3: check AWS_ENDPOINT_URL and proxies on the way",
    "Broken": "the connection broke before the answer was complete; look at the service and at proxies on the way",
}
# No repetition helps; a wrong key or a hung endpoint would only be measured again and again.
FATAL = frozenset(_SAID) - {"SlowDown", "ServiceUnavailable", "Connect", "Answer", "Broken"}

# Codes of no service: what happened on the way.
_OURS = frozenset({"Timeout", "Certificate", "Connect", "Answer", "Broken"})

# obstore 0.12 keeps the answer's body and the kind of failure (object_store's HttpErrorKind) in the text of the
# exception, and nowhere else.
_CODE = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"status code: (\d{3})")
_CERTIFICATE = re.compile(r"(?i)invalid peer certificate|certificate verify failed")
_KIND = re.compile(r"HttpError \{\s*kind: (\w+)")
# A redirect without a Location, which is how Amazon answers for a bucket of another region, or one of a PUT.
_REDIRECT = re.compile(r"inner: BareRedirect|status code: 30[1278]\b")
_NO_S3 = "ETag Header missing from response"


def code_in(text: str) -> str:
    """The S3 error code, the HTTP status or the kind of failure in an exception's text; never another part of it."""
    if found := _CODE.search(text):
        return found[1]
    if _REDIRECT.search(text):
        return "PermanentRedirect"
    if _NO_S3 in text:
        return "Answer"
    if found := _STATUS.search(text):
        return f"HTTP {found[1]}"
    if _CERTIFICATE.search(text):
        return "Certificate"
    kind = _KIND.search(text)
    return kind[1] if kind and kind[1] in ("Timeout", "Connect") else "Broken"


def explain(code: str) -> str:
    """What a code means and what to do."""
    said = _SAID.get(code)
    if said is None:
        return f"the service answered {code}; look at its log"
    return said if code in _OURS else f"{code}: {said}"
