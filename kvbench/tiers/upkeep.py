"""What kvbench left on a tier: found, removed, or left alone with the reason."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kvbench.errors import UsageError
from kvbench.tiers import bucket, directory
from kvbench.tiers.guard import remove_marked

_AGE = re.compile(r"([0-9]+)([mhd])")
_SECONDS = {"m": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True, slots=True)
class Cleaned:
    """One tier: what was removed (or would be), and ``(place, why)`` of what stays."""

    tier: str
    removed: tuple[str, ...]
    kept: tuple[tuple[str, str], ...] = ()


def clean(target: str, *, dry_run: bool, older_than_s: float | None) -> Cleaned:
    """Remove what dead runs of kvbench left in a directory or below a bucket's prefix, and nothing else.

    Only places with kvbench's own marker are looked at. TierError when the tier cannot be used.
    """
    if target.startswith(bucket.SCHEME):
        objects = bucket.clean_bucket(target, dry_run, older_than_s)
        return Cleaned(
            target,
            tuple(place for place, why in objects if why is None),
            tuple((place, why) for place, why in objects if why is not None),
        )
    place = Path(target).expanduser()
    found = directory.leftovers(directory.inspect("clean", str(place)).path, older_than_s)
    dead = [path for path, why in found if why is None]
    for path in dead if not dry_run else ():
        remove_marked(path)
    stuck = [(str(path), "could not be removed: check your rights") for path in dead if not dry_run and path.exists()]
    removed = [str(path) for path in dead if dry_run or not path.exists()]
    return Cleaned(target, tuple(removed), (*stuck, *((str(path), why) for path, why in found if why is not None)))


def parse_age(text: str) -> int:
    """Seconds of an age such as ``30m``, ``12h`` or ``7d``."""
    match = _AGE.fullmatch(text)
    if match is None:
        raise UsageError(f"--older-than {text!r}: write an age like 30m, 12h or 7d.")
    return int(match[1]) * _SECONDS[match[2]]
