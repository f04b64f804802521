"""Every driver's program by name. Adding one is its package and a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from kvbench.drivers import Program
from kvbench.drivers.replay.blocks import least_blocks
from kvbench.drivers.s3.objects import least_objects
from kvbench.errors import UsageError
from kvbench.tiers.directory import Workspace
from kvbench.tiers.findings import Finding
from kvbench.tiers.kinds import driver_names


def _fio() -> Program:
    from kvbench.drivers.fio.driver import FioProgram

    return FioProgram.find()


def _fio_http() -> Program:
    from kvbench.drivers.fio_http.driver import FioHttpProgram

    return FioHttpProgram.find()


def _memory() -> Program:
    from kvbench.drivers.memory import MemoryProgram

    return MemoryProgram()


def _replay() -> Program:
    from kvbench.drivers.replay.driver import ReplayProgram

    return ReplayProgram()


def _s3() -> Program:
    from kvbench.drivers.s3.driver import S3Program

    return S3Program.find()


def _fio_findings(space: Workspace | None) -> Iterator[Finding]:
    from kvbench.drivers.fio import trial

    return trial.findings(space)


def _fio_http_findings(space: Workspace | None) -> Iterator[Finding]:
    from kvbench.drivers.fio_http import trial

    return trial.findings()


def _s3_findings(space: Workspace | None) -> Iterator[Finding]:
    from kvbench.drivers.s3 import trial

    return trial.findings()


@dataclass(frozen=True, slots=True)
class Entry:
    """A program: how it is found, and what it needs and says before that.

    ``least_blocks``, of a program that stores every block by itself: how many of each size the job counts need.
    ``findings``: whether it works here, in the work space of a tier that has one.
    """

    find: Callable[[], Program]
    least_blocks: Callable[[Sequence[int]], int] | None = None
    findings: Callable[[Workspace | None], Iterator[Finding]] = lambda space: iter(())


# Their modules are loaded when one is used: some take a library that not everybody has.
PROGRAMS: dict[str, Entry] = {
    "fio": Entry(_fio, None, _fio_findings),
    "fio-http": Entry(_fio_http, least_objects, _fio_http_findings),
    "replay": Entry(_replay, least_blocks),
    "memory": Entry(_memory),
    "s3": Entry(_s3, least_objects, _s3_findings),
}


def find_programs(names: Iterable[str]) -> dict[str, Program]:
    """The named programs; ToolError when one cannot be used here, with what to install."""
    return {name: PROGRAMS[name].find() for name in dict.fromkeys(names)}


def findings(names: Iterable[str], space: Workspace | None) -> Iterator[Finding]:
    """What the named programs say of themselves here."""
    for name in names:
        yield from PROGRAMS[name].findings(space)


def require_known(name: str) -> str:
    """``name`` if a driver is called so; UsageError with the choice otherwise."""
    if name not in driver_choice():
        raise UsageError(f"--driver {name!r}: choose from {', '.join(driver_choice())}.")
    return name


def driver_choice() -> list[str]:
    """The drivers that a user can ask for; which program one is, the kind of tier says."""
    known = driver_names()
    return sorted(known, key=[*PROGRAMS, *known].index)
