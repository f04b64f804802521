"""What a run measures, a directory or a block device, behind one set of functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kvbench.errors import UsageError
from kvbench.tiers import block, device_tier, directory
from kvbench.tiers.device_tier import DeviceTier
from kvbench.tiers.directory import DirectoryTier, Workspace

Tier = DirectoryTier | DeviceTier


def inspect(name: str, target: str, allow_destroy: Sequence[str] = ()) -> Tier:
    """``target`` as a tier; TierError with the next step when it cannot be measured."""
    if block.is_block_device(target):
        return device_tier.inspect(name, target, allow_destroy)
    return directory.inspect(name, target)


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


def default_dataset_bytes(tier: Tier) -> int:
    """What a tier gets without --dataset."""
    if isinstance(tier, DeviceTier):
        return device_tier.default_dataset_bytes(tier)
    return directory.default_dataset_bytes(tier)


def require_space(tier: Tier, dataset_bytes: int) -> None:
    """TierError unless the data set fits."""
    if isinstance(tier, DeviceTier):
        device_tier.require_space(tier, dataset_bytes)
    else:
        directory.require_space(tier, dataset_bytes)


def require_direct_io(tier: Tier, space: Workspace, sizes: Sequence[int]) -> None:
    """TierError unless O_DIRECT takes every I/O size."""
    if isinstance(tier, DeviceTier):
        device_tier.require_direct_io(tier, sizes)
    else:
        directory.require_direct_io(tier, space, list(sizes))


@contextmanager
def workspace(tier: Tier, run_dir: Path) -> Iterator[Workspace]:
    """Where a run works: a sub-directory of a directory; of a device, the device itself, claimed, and a folder here."""
    if isinstance(tier, DeviceTier):
        with device_tier.workspace(tier, run_dir) as space:
            yield space
    else:
        with directory.workspace(tier) as space:
            yield space
