"""Every driver by name, as the ``module:function`` that finds its program. Adding one is its package and a line here.

They are named, not imported: a call loads only the drivers that it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pkgutil import resolve_name

from kvbench.drivers import Program
from kvbench.errors import UsageError

PROGRAMS: dict[str, str] = {
    "fio": "kvbench.drivers.fio.driver:FioProgram.find",
    "replay": "kvbench.drivers.replay.driver:ReplayProgram",
    "memory": "kvbench.drivers.memory:MemoryProgram",
    "s3": "kvbench.drivers.s3.driver:S3Program.find",
}


def find_programs(names: Iterable[str]) -> dict[str, Program]:
    """The named drivers' programs; ToolError when one cannot be used here, with what to install."""
    return {name: _finder(name)() for name in dict.fromkeys(names)}


def _finder(name: str) -> Callable[[], Program]:
    finder: Callable[[], Program] = resolve_name(PROGRAMS[name])
    return finder


def require_known(name: str) -> str:
    """``name`` if a driver is called so; UsageError with the choice otherwise."""
    if name not in PROGRAMS:
        raise UsageError(f"--driver {name!r}: choose from {', '.join(PROGRAMS)}.")
    return name
