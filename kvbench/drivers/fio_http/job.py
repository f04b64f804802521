"""Job files for fio's http engine and the objects that it will ask for, from points and settings (pure).

The engine makes one object for each block and calls it ``<filename>_<offset>_<bytes>`` (engines/http.c, fio 3.33 and
3.42; with ``http_object_mode=block``, the default, since 3.41). With several files for a job it asks only for the first
one (before 3.41), so all jobs share one name and each has a range of offsets of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from kvbench.drivers.fio.series import log_options
from kvbench.drivers.s3.objects import Objects
from kvbench.drivers.settings import JobSettings
from kvbench.errors import TierError
from kvbench.run.plan import Point
from kvbench.tiers.bucket import BucketTier

# The engine copies "/bucket/key" into 512 bytes and cuts what is longer (engines/http.c); a cut name is another object.
_LONGEST_NAME = 500
# fio ends a value at '#' and ';', expands '$' and strips quotes; the engine does not encode the URL.
_SAFE_NAME = re.compile(r"[A-Za-z0-9_./-]+")

KEY_ID, SECRET, TOKEN = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"


def objects_of(prefix: str, io_bytes: int, count: int) -> Objects:
    """The objects of a block size under fio's names: three quarters to read, a quarter to write."""
    slots = count // 4
    return Objects(
        io_bytes,
        tuple(f"{_file(prefix, 'stored', io_bytes)}_{number * io_bytes}_{io_bytes}" for number in range(count - slots)),
        tuple(f"{_file(prefix, 'written', io_bytes)}_{number * io_bytes}_{io_bytes}" for number in range(slots)),
    )


def share_of(point: Point, objects: Objects) -> int:
    """How many objects each job of a point has for itself; the few that are left over take no part."""
    return len(objects.slots if point.mix == "write" else objects.reads) // point.numjobs


def render(
    points: Sequence[Point], tier: BucketTier, prefix: str, settings: JobSettings, *, session_token: bool
) -> str:
    """The job file that measures ``points``; the keys are names of variables, which fio takes from its environment."""
    parts = [_section("global", _global_options(tier, settings, session_token=session_token))]
    return "\n".join([*parts, *(_section(point.id, _options(point, tier, prefix, settings)) for point in points)])


def require_expressible(tier: BucketTier, prefix: str, settings: JobSettings) -> None:
    """TierError unless fio asks for exactly the objects that are laid out, at this endpoint."""
    parts = urlsplit(tier.endpoint.url)
    if parts.path not in ("", "/"):
        raise TierError("fio's http engine knows no path in the endpoint's URL; leave out --driver fio.")
    if tier.endpoint.encrypted and tier.endpoint.ca_bundle is not None:
        raise TierError("fio's http engine cannot be given a CA file (AWS_CA_BUNDLE); leave out --driver fio.")
    largest = max(settings.block_sizes)
    longest = f"/{tier.bucket}/{_file(prefix, 'written', largest)}_{settings.file_bytes}_{largest}"
    if not _SAFE_NAME.fullmatch(longest) or len(longest) > _LONGEST_NAME:
        raise TierError(
            f"fio cannot express the name of the objects below s3://{tier.bucket}/{tier.prefix}; use a short prefix of "
            "letters, digits, dots, dashes and underscores."
        )


def _file(prefix: str, part: str, io_bytes: int) -> str:
    return f"{prefix}{part}/kvbench_{io_bytes:012x}_r0/block"


def _global_options(tier: BucketTier, settings: JobSettings, *, session_token: bool) -> dict[str, object]:
    return {
        "ioengine": "http",
        # The default is webdav.
        "http_mode": "s3",
        # The engine always puts the bucket into the path.
        "http_host": urlsplit(tier.endpoint.url).netloc,
        "https": "on" if tier.endpoint.encrypted else "off",
        "http_s3_region": tier.endpoint.region,
        "http_s3_keyid": f"${{{KEY_ID}}}",
        "http_s3_key": f"${{{SECRET}}}",
        **({"http_s3_security_token": f"${{{TOKEN}}}"} if session_token else {}),
        "iodepth": 1,
        "thread": 1,
        "runtime": settings.runtime_s,
        "time_based": 1,
        "group_reporting": 1,
        "lat_percentiles": 1,
        "randrepeat": 0,
        "scramble_buffers": 1,
        **log_options(),
    }


def _options(point: Point, tier: BucketTier, prefix: str, settings: JobSettings) -> dict[str, object]:
    objects = objects_of(prefix, point.io_bytes, settings.blocks_of(point.io_bytes))
    range_bytes = share_of(point, objects) * point.io_bytes
    part = "written" if point.mix == "write" else "stored"
    return {
        "rw": {"read": "randread", "write": "randwrite", "mixed": "randrw"}[point.mix],
        **({"rwmixread": settings.rwmixread} if point.mix == "mixed" else {}),
        "filename": f"/{tier.bucket}/{_file(prefix, part, point.io_bytes)}",
        "bs": point.io_bytes,
        "size": range_bytes,
        "offset_increment": range_bytes,
        "numjobs": point.numjobs,
        "stonewall": None,
    }


def _section(name: str, options: dict[str, object]) -> str:
    lines = [key if value is None else f"{key}={value}" for key, value in options.items()]
    return "\n".join([f"[{name}]", *lines, ""])
