"""What a run may not do before the user said so: write a device, cause costs, work where others can rename."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvbench.errors import TierError, UsageError
from kvbench.tiers.tier import Tier


def require_fitting(tier: Tier, driver: str, *, on_device: bool) -> None:
    """TierError unless the driver, planned for a block device or not, measures this kind of tier."""
    if driver not in tier.kind.programs or on_device != (tier.device_use is not None):
        raise TierError(
            f"{tier.name} is not the kind of tier that this run was planned for; start a new run with another -o."
        )


def require_nearby(tiers: Iterable[Tier], *, yes: bool) -> None:
    """UsageError for a bucket behind an endpoint that is not loopback or private, unless the user said ``--yes``."""
    for tier in tiers:
        if not yes and tier.needs_yes:
            raise UsageError(
                f"the S3 endpoint of {tier.name} is not known as a loopback or private address, and requests and "
                "traffic there may cost money; look at --dry-run, then repeat with --yes."
            )


def require_unshared(tiers: Iterable[Tier], *, allow_shared: bool) -> None:
    """TierError for a directory that others can rename in, unless the user said ``--allow-shared``."""
    for tier in tiers:
        why = None if allow_shared else tier.renamed_by()
        if why is not None:
            raise TierError(
                f"others could rename what kvbench makes on {tier.name}: {why}. Nothing was written; name a directory "
                "that only you may write to, have its owner set the sticky bit (chmod +t), or repeat with "
                "--allow-shared: kvbench then holds its own directory open, and a point fails when its name is changed."
            )


def require_consent(tiers: Sequence[tuple[Tier, bool]], allow_destroy: Sequence[str]) -> None:
    """TierError unless every device is named that would be written (``True``); UsageError for a name of no tier."""
    for tier, writes in tiers:
        if writes:
            tier.require_consent(allow_destroy)
    paths = [tier.consent_path for tier, _ in tiers if tier.consent_path is not None]
    strangers = [path for path in allow_destroy if path not in paths]
    if strangers:
        raise UsageError(
            f"--allow-destroy {strangers[0]} is not the resolved path of a tier of this run "
            f"({', '.join(paths) or 'none is a block device'}); nothing was touched."
        )
