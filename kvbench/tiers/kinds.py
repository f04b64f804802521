"""Every kind of tier. Adding one is its module and a line in KINDS.

The table is no part of the package itself: the guard imports that as a bare script, without any library.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvbench.tiers import bucket_kind, device_kind, directory_kind, memory
from kvbench.tiers.tier import Kind, Tier

DIRECTORY = "directory"

# The first kind that claims a target has it; what none of them claims is taken for a directory that is not there.
KINDS: dict[str, Kind] = {
    "memory": memory.KIND,
    "bucket": bucket_kind.KIND,
    "block device": device_kind.KIND,
    DIRECTORY: directory_kind.KIND,
}


def named(target: str) -> Kind | None:
    """The kind of a target whose text tells; None for a path, which is not looked at."""
    return next((kind for kind in KINDS.values() if not kind.on_path and kind.claims(target)), None)


def kind_of(target: str) -> Kind:
    """The kind of a target; a path is looked at, and a mount that hangs keeps who looks."""
    on_path = (kind for kind in KINDS.values() if kind.on_path and kind.claims(target))
    return named(target) or next(on_path, KINDS[DIRECTORY])


def inspect(name: str, target: str, allow_destroy: Sequence[str] = ()) -> Tier:
    """``target`` as a tier; TierError with the next step when it cannot be measured."""
    return kind_of(target).inspect(name, target, allow_destroy)


def name_of(target: str) -> str:
    """What a target is called unless the user names it; it is not looked at."""
    return _by_text(target).name_of(target)


def driver_names() -> tuple[str, ...]:
    """Every driver that a user can ask for."""
    return tuple(dict.fromkeys(driver for kind in KINDS.values() for driver in kind.programs))


def program_of(target: str, driver: str) -> str:
    """The program that measures a target for a user who asks for ``driver``; the target is not looked at."""
    return _by_text(target).program_of(driver)


def _by_text(target: str) -> Kind:
    """The kind that the text tells; paths are called and measured alike, whatever they lead to."""
    return named(target) or KINDS[DIRECTORY]
