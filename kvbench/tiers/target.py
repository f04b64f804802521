"""What a run measures, whatever its kind. Adding a kind of tier is its file and a line in KINDS."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from kvbench.errors import TierError, UsageError
from kvbench.tiers import block, bucket, device_tier, directory, memory, parents
from kvbench.tiers.bucket import BucketTier
from kvbench.tiers.device_tier import DeviceTier
from kvbench.tiers.directory import DirectoryTier, Workspace
from kvbench.tiers.memory import MemoryTier
from kvbench.tiers.mounts import Mount


class Tier(Protocol):
    """A place where KV blocks can live, looked at and found usable; nothing has been written yet."""

    @property
    def name(self) -> str:
        """What the user calls it."""

    @property
    def mount(self) -> Mount | None:
        """The mount whose counters and link belong to it, or None."""

    @property
    def driver(self) -> str:
        """The driver that measures it unless the user asks for another."""

    def facts(self) -> Mapping[str, str | int | None]:
        """What it is, for the result file; what cannot be known says why."""

    def default_dataset_bytes(self) -> int:
        """The data set that it gets without --dataset."""

    def require_space(self, dataset_bytes: int) -> None:
        """TierError unless the data set fits."""

    def require_direct_io(self, space: Workspace, sizes: Sequence[int]) -> None:
        """TierError unless every I/O size can be measured without this host's caches."""

    def require_aligned(self, sizes: Sequence[int]) -> None:
        """TierError for an I/O size that is known, without touching the tier, not to be a whole number of sectors."""

    def workspace(self, run_dir: Path) -> AbstractContextManager[Workspace]:
        """Where this run works; everything in it is removed at the end, also after SIGKILL."""


# The drivers that measure each kind.
_DRIVERS: Mapping[type, frozenset[str]] = {
    MemoryTier: frozenset({"memory"}),
    BucketTier: frozenset({"s3", "fio"}),
    DeviceTier: frozenset({"fio"}),
    DirectoryTier: frozenset({"fio", "replay"}),
}

_Claims = Callable[[str], bool]
_Inspect = Callable[[str, str, Sequence[str]], Tier]

# The first kind that claims a target inspects it; a directory claims all that is left.
KINDS: tuple[tuple[_Claims, _Inspect], ...] = (
    (memory.claims, lambda name, target, allow_destroy: memory.inspect(name)),
    (bucket.claims, lambda name, target, allow_destroy: bucket.inspect(name, target)),
    (block.is_block_device, device_tier.inspect),
    (lambda target: True, lambda name, target, allow_destroy: directory.inspect(name, target)),
)


def inspect(name: str, target: str, allow_destroy: Sequence[str] = ()) -> Tier:
    """``target`` as a tier; TierError with the next step when it cannot be measured."""
    return next(look for claims, look in KINDS if claims(target))(name, target, allow_destroy)


def require_fitting(tier: Tier, driver: str, *, on_device: bool) -> None:
    """TierError unless the driver, planned for a block device or not, measures this kind of tier."""
    taken = next(drivers for kind, drivers in _DRIVERS.items() if isinstance(tier, kind))
    if driver not in taken or on_device != isinstance(tier, DeviceTier):
        raise TierError(
            f"{tier.name} is not the kind of tier that this run was planned for; start a new run with another -o."
        )


def require_nearby(tiers: Iterable[Tier], *, yes: bool) -> None:
    """UsageError for a bucket behind an endpoint that is not loopback or private, unless the user said ``--yes``."""
    for tier in tiers:
        if not yes and needs_yes(tier):
            raise UsageError(
                f"the S3 endpoint of {tier.name} is not known as a loopback or private address, and requests and "
                "traffic there may cost money; look at --dry-run, then repeat with --yes."
            )


def needs_yes(tier: Tier) -> bool:
    """Whether measuring the tier needs ``--yes``: requests to it may be billed."""
    return isinstance(tier, BucketTier) and not tier.endpoint.is_nearby(tier.bucket)


def require_unshared(tiers: Iterable[Tier], *, allow_shared: bool) -> None:
    """TierError for a directory that others can rename in, unless the user said ``--allow-shared``."""
    for tier in tiers:
        why = None if allow_shared else shared_by(tier)
        if why is not None:
            raise TierError(
                f"others could rename what kvbench makes on {tier.name}: {why}. Nothing was written; name a directory "
                "that only you may write to, have its owner set the sticky bit (chmod +t), or repeat with "
                "--allow-shared: kvbench then holds its own directory open, and a point fails when its name is changed."
            )


def shared_by(tier: Tier) -> str | None:
    """Why others can rename what kvbench makes on the tier, or None: also for what is no directory."""
    return parents.shared_by(tier.path, tier.mount) if isinstance(tier, DirectoryTier) else None


def require_consent(tiers: Sequence[tuple[Tier, bool]], allow_destroy: Sequence[str]) -> None:
    """TierError unless every device is named that would be written (``True``); UsageError for a name of no tier."""
    devices = [(tier, writes) for tier, writes in tiers if isinstance(tier, DeviceTier)]
    for tier, writes in devices:
        if writes:
            block.require_consent(tier.device, allow_destroy)
    paths = [str(tier.path) for tier, _ in devices]
    strangers = [path for path in allow_destroy if path not in paths]
    if strangers:
        raise UsageError(
            f"--allow-destroy {strangers[0]} is not the resolved path of a tier of this run "
            f"({', '.join(paths) or 'none is a block device'}); nothing was touched."
        )
