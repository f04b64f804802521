"""What kvbench left on a tier: found, removed, or left alone with the reason."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvbench.errors import UsageError
from kvbench.tiers import kinds
from kvbench.tiers.tier import Cleaning

_AGE = re.compile(r"([0-9]+)([mhd])")
_SECONDS = {"m": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True, slots=True)
class Cleaned:
    """One tier: what was removed (or would be), ``(place, why)`` of what stays, and what of that should have gone."""

    tier: str
    removed: tuple[str, ...]
    kept: tuple[tuple[str, str], ...] = ()
    stuck: tuple[str, ...] = ()


def clean(target: str, *, dry_run: bool, older_than_s: float | None, any_owner: bool = False) -> Cleaned:
    """Remove what dead runs of kvbench left in a directory or below a bucket's prefix, and nothing else.

    Only places with kvbench's own marker are looked into. TierError when the tier cannot be used.
    """
    found = kinds.kind_of(target).clean(target, Cleaning(dry_run, older_than_s, any_owner))
    return Cleaned(
        target,
        tuple(place for place, kept in found if kept is None),
        tuple((place, kept.why) for place, kept in found if kept is not None),
        tuple(place for place, kept in found if kept is not None and kept.kind == "stuck"),
    )


def parse_age(text: str) -> int:
    """Seconds of an age such as ``30m``, ``12h`` or ``7d``."""
    match = _AGE.fullmatch(text)
    if match is None:
        raise UsageError(f"--older-than {text!r}: write an age like 30m, 12h or 7d.")
    return int(match[1]) * _SECONDS[match[2]]
