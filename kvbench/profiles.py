"""Where the shipped profiles are: beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def profiles_dir() -> Path:
    """The folder with models/, tiers/, prefill/, mixes/ and plans/."""
    inside = _PACKAGE / "profiles"
    return inside if inside.is_dir() else _PACKAGE.parent / "profiles"
