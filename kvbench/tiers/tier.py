"""What a tier says of itself, and what its kind can do: the rest of the program asks nothing else about either.

A kind is a module with a class that has these members (``Ordinary`` has what most do not need) and a ``Kind``, and one
line in ``kinds.KINDS``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from kvbench.record.results import TierPlace
from kvbench.tiers.findings import Diagnosis, Finding
from kvbench.tiers.mounts import Mount
from kvbench.tiers.removal import Kept

if TYPE_CHECKING:
    from kvbench.tiers.directory import Workspace

DeviceUse = Literal["read", "write"]


class Tier(Protocol):
    """A place where KV blocks can live, looked at and found usable; nothing has been written yet."""

    @property
    def name(self) -> str:
        """What the user calls it."""

    @property
    def kind(self) -> Kind:
        """What holds for every tier of its kind."""

    @property
    def mount(self) -> Mount | None:
        """The mount whose counters and link belong to it, or None."""

    @property
    def shared(self) -> bool | None:
        """Whether other hosts can read what this one writes; None where that cannot be seen."""

    @property
    def place(self) -> TierPlace | None:
        """Where an engine finds it, None where it could not use it by a name."""

    @property
    def needs_yes(self) -> bool:
        """Whether measuring it needs ``--yes``: requests to it may be billed."""

    @property
    def storage(self) -> str:
        """What two runs have in common when they disturb each other: a file system, a device, a bucket, memory."""

    @property
    def directory(self) -> Path | None:
        """The directory in which runs of other hosts show themselves, or None."""

    @property
    def device_use(self) -> DeviceUse | None:
        """How a block device may be used; None for what is none."""

    @property
    def consent_path(self) -> str | None:
        """What ``--allow-destroy`` has to repeat before anything but kvbench's own may be overwritten, or None."""

    @property
    def slow_opens(self) -> bool:
        """Whether a server or a program answers every open of a file, so that an engine's own calls cost more."""

    def facts(self) -> Mapping[str, str | int | None]:
        """What it is, for people only; what cannot be known says why."""

    def would(self, dataset: str) -> str:
        """What a run would do with a data set of that size, up to the preposition before the target."""

    def renamed_by(self) -> str | None:
        """Why others can rename what kvbench makes there, as a sentence without a full stop, or None."""

    def unmounted(self) -> str | None:
        """Why it is probably not what the user means, or None."""

    def default_dataset_bytes(self) -> int:
        """The data set that it gets without --dataset."""

    def require_consent(self, allow_destroy: Sequence[str]) -> None:
        """TierError unless the user said that it may be written."""

    def require_space(self, dataset_bytes: int) -> None:
        """TierError unless the data set fits."""

    def require_direct_io(self, space: Workspace, sizes: Sequence[int]) -> None:
        """TierError unless every I/O size can be measured without this host's caches."""

    def require_aligned(self, sizes: Sequence[int]) -> None:
        """TierError for an I/O size that is known, without touching the tier, not to be a whole number of sectors."""

    def workspace(self, run_dir: Path) -> AbstractContextManager[Workspace]:
        """Where this run works; everything in it is removed at the end, also after SIGKILL."""


class Ordinary:
    """What holds for a tier unless its kind says otherwise: nobody else's, free, no device, without odd sizes."""

    __slots__ = ()

    @property
    def shared(self) -> bool | None:
        """Of this host alone."""
        return False

    @property
    def place(self) -> TierPlace | None:
        """No engine finds it."""
        return None

    @property
    def needs_yes(self) -> bool:
        """Nobody sends a bill."""
        return False

    @property
    def directory(self) -> Path | None:
        """No directory."""
        return None

    @property
    def device_use(self) -> DeviceUse | None:
        """No block device."""
        return None

    @property
    def consent_path(self) -> str | None:
        """Only what kvbench makes itself is written."""
        return None

    @property
    def slow_opens(self) -> bool:
        """The kernel answers."""
        return False

    def would(self, dataset: str) -> str:
        """It would get a data set of its own."""
        return f"write {dataset} below"

    def renamed_by(self) -> str | None:
        """Nothing has a name that others can change."""
        return None

    def unmounted(self) -> str | None:
        """It is what it is called."""
        return None

    def require_consent(self, allow_destroy: Sequence[str]) -> None:
        """Only what kvbench makes itself is written."""

    def require_direct_io(self, space: Workspace, sizes: Sequence[int]) -> None:
        """No cache of this host takes part."""

    def require_aligned(self, sizes: Sequence[int]) -> None:
        """Any size will do."""


# What the named drivers find out about themselves here, in the work space if there is one.
DriverFindings = Callable[[Iterable[str], "Workspace | None"], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class Cleaning:
    """How to clean: only look, also what is older than that though its host cannot be asked, also what is others'."""

    dry_run: bool
    older_than_s: float | None = None
    any_owner: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What holds for every tier of a kind, and what can be done with a target before it is known to be usable.

    ``programs``: what measures it, by the name of the driver that a user asks for, the default first. ``on_path``: its
    targets are paths of this host, so that only a look tells which kind one is.
    """

    claims: Callable[[str], bool]
    inspect: Callable[[str, str, Sequence[str]], Tier]
    examine: Callable[[str, str, DriverFindings], Diagnosis]
    clean: Callable[[str, Cleaning], Sequence[tuple[str, Kept | None]]]
    programs: Mapping[str, str]
    name_of: Callable[[str], str]
    on_path: bool = False

    @property
    def driver(self) -> str:
        """The driver that measures it unless the user asks for another."""
        return next(iter(self.programs))

    def program_of(self, driver: str) -> str:
        """The program that is meant by a driver's name here."""
        return self.programs.get(driver, driver)
