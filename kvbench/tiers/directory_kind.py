"""A directory as a kind of tier: tried out in a marked sub-directory of its own, and cleaned of dead runs' ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from kvbench.errors import TierError
from kvbench.tiers import block, directory, filesystems, probe
from kvbench.tiers.block import Kernel
from kvbench.tiers.device import queue_findings
from kvbench.tiers.directory import DirectoryTier, Workspace
from kvbench.tiers.findings import Diagnosis, Finding, unusable
from kvbench.tiers.removal import Kept
from kvbench.tiers.tier import Cleaning, DriverFindings, Kind
from kvbench.units import format_bytes

_MEGABYTE = 1 << 20


def name_of(target: str) -> str:
    """What a path is called unless the user names it: its last part."""
    return Path(target).expanduser().resolve().name or "root"


def clean(target: str, wanted: Cleaning) -> Sequence[tuple[str, Kept | None]]:
    """What dead runs left in the directory; TierError when it is none."""
    place = directory.inspect("clean", target).path
    found = directory.clean(place, dry_run=wanted.dry_run, older_than_s=wanted.older_than_s, any_owner=wanted.any_owner)
    return [(str(item.path), item.kept) for item in found]


def _inspect(name: str, target: str, allow_destroy: Sequence[str]) -> DirectoryTier:
    return directory.inspect(name, target)


def _examine(name: str, target: str, drivers: DriverFindings) -> Diagnosis:
    try:
        tier = directory.inspect(name, target)
    except TierError as error:
        return unusable(name, target, _not_a_device(target) or error)
    facts = tier.facts()
    looked_at = [*_place(tier), _space(tier), *_renamers(tier), *_in_workspace(tier, drivers)]
    findings = (*looked_at, *queue_findings(facts), *_warnings(tier))
    return Diagnosis(name, target, filesystems.describe(tier.mount), facts, findings)


def _not_a_device(target: str) -> TierError | None:
    """What is wrong with a name below /dev that is no directory: it is a device's, mistyped."""
    if target.startswith("/dev/") and not Path(target).is_dir():
        try:
            block.identify(target, Kernel.here())
        except TierError as error:
            return error
    return None


def _place(tier: DirectoryTier) -> Iterator[Finding]:
    said = tier.unmounted()
    if said is not None:
        yield Finding("mount point", "note", said, "mount it, unless the root file system is what you mean to measure")


def _space(tier: DirectoryTier) -> Finding:
    wanted = tier.default_dataset_bytes()
    free = format_bytes(tier.free_bytes)
    try:
        tier.require_space(max(wanted, _MEGABYTE))
    except TierError as error:
        return Finding("free space", "problem", free, str(error))
    return Finding("free space", "ok", f"{free}; the default data set is {format_bytes(wanted)}")


def _renamers(tier: DirectoryTier) -> Iterator[Finding]:
    """The finding that others can rename what kvbench makes, where they can."""
    why = tier.renamed_by()
    if why is not None:
        hint = "kvbench fio wants --allow-shared here; a directory that only you may write to needs none"
        yield Finding("shared", "note", why, hint)


def _in_workspace(tier: DirectoryTier, drivers: DriverFindings) -> Iterator[Finding]:
    """The findings of the checks that need a sub-directory."""
    try:
        with directory.workspace(tier) as space:
            yield Finding("sub-directory", "ok", "can be created, written and removed")
            yield from _direct_io(space)
            yield from drivers(KIND.programs.values(), space)
    except TierError as error:
        yield Finding("sub-directory", "problem", "cannot be created", str(error))


def _direct_io(space: Workspace) -> Iterator[Finding]:
    size = probe.smallest_direct_size(space.place)
    if size is None:
        yield Finding("O_DIRECT", "problem", "refused", "name a directory on a file system that supports O_DIRECT")
        return
    rule = "any size" if size == probe.UNALIGNED else f"multiples of {size} bytes"
    yield Finding("O_DIRECT", "ok", f"takes {rule}")
    pages = probe.direct_io_leaves_pages(space.place)
    if pages:
        hint = "the page cache takes part: use a data set above this host's memory, or another mount"
        yield Finding("page cache", "note", f"{pages:.0%} of a file's pages are cached after O_DIRECT", hint)
    elif pages is not None:
        yield Finding("page cache", "ok", "bypassed by O_DIRECT")


def _warnings(tier: DirectoryTier) -> Iterator[Finding]:
    said = filesystems.warning(tier.mount)
    if said is not None:
        observed, _, hint = said.rpartition("; ")
        yield Finding("meaning", "note", observed, hint)


KIND = Kind(
    claims=lambda target: Path(target).expanduser().is_dir(),
    inspect=_inspect,
    examine=_examine,
    clean=clean,
    programs={"fio": "fio", "replay": "replay"},
    name_of=name_of,
    on_path=True,
)
