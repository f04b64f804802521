"""Every driver's program by name. Adding one is its package and a line here.

What finds a program and tries it out is named, not imported: a call loads only the drivers that it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name

from kvbench.drivers import Program
from kvbench.drivers.replay.blocks import least_blocks
from kvbench.drivers.s3.objects import least_objects
from kvbench.errors import UsageError
from kvbench.tiers.directory import Workspace
from kvbench.tiers.findings import Finding
from kvbench.tiers.kinds import driver_names


@dataclass(frozen=True, slots=True)
class ProgramEntry:
    """A program: the ``module:function`` that finds it, and what it needs and says before that.

    ``least_blocks``, of a program that stores every block by itself: how many of each size the job counts need.
    ``findings``, a ``module:function`` too: whether it works here, in the work space of a tier that has one.
    """

    find: str
    least_blocks: Callable[[Sequence[int]], int] | None = None
    findings: str | None = None


PROGRAMS: dict[str, ProgramEntry] = {
    "fio": ProgramEntry("kvbench.drivers.fio.driver:FioProgram.find", None, "kvbench.drivers.fio.trial:findings"),
    "fio-http": ProgramEntry(
        "kvbench.drivers.fio_http.driver:FioHttpProgram.find", least_objects, "kvbench.drivers.fio_http.trial:findings"
    ),
    "replay": ProgramEntry("kvbench.drivers.replay.driver:ReplayProgram", least_blocks),
    "memory": ProgramEntry("kvbench.drivers.memory:MemoryProgram"),
    "s3": ProgramEntry("kvbench.drivers.s3.driver:S3Program.find", least_objects, "kvbench.drivers.s3.trial:findings"),
}


def find_programs(names: Iterable[str]) -> dict[str, Program]:
    """The named programs; ToolError when one cannot be used here, with what to install."""
    return {name: _found(name) for name in dict.fromkeys(names)}


def findings(names: Iterable[str], space: Workspace | None) -> Iterator[Finding]:
    """What the named programs say of themselves here."""
    for name in names:
        text = PROGRAMS[name].findings
        if text is not None:
            told: Callable[[Workspace | None], Iterator[Finding]] = resolve_name(text)
            yield from told(space)


def _found(name: str) -> Program:
    find: Callable[[], Program] = resolve_name(PROGRAMS[name].find)
    return find()


def require_known(name: str) -> str:
    """``name`` if a driver is called so; UsageError with the choice otherwise."""
    if name not in driver_choice():
        raise UsageError(f"--driver {name!r}: choose from {', '.join(driver_choice())}.")
    return name


def driver_choice() -> list[str]:
    """The drivers that a user can ask for; which program one is, the kind of tier says."""
    known = driver_names()
    return sorted(known, key=[*PROGRAMS, *known].index)
