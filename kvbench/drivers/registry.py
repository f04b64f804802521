"""Every driver by name. Adding one is its package and a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kvbench.drivers import Program
from kvbench.errors import UsageError


def _fio() -> Program:
    from kvbench.drivers.fio.driver import FioProgram

    return FioProgram.find()


def _memory() -> Program:
    from kvbench.drivers.memory import MemoryProgram

    return MemoryProgram()


def _replay() -> Program:
    from kvbench.drivers.replay.driver import ReplayProgram

    return ReplayProgram()


def _s3() -> Program:
    from kvbench.drivers.s3.driver import S3Program

    return S3Program.find()


PROGRAMS: dict[str, Callable[[], Program]] = {"fio": _fio, "replay": _replay, "memory": _memory, "s3": _s3}


def find_programs(names: Iterable[str]) -> dict[str, Program]:
    """The named drivers' programs; ToolError when one cannot be used here, with what to install."""
    return {name: PROGRAMS[name]() for name in dict.fromkeys(names)}


def require_known(name: str) -> str:
    """``name`` if a driver is called so; UsageError with the choice otherwise."""
    if name not in PROGRAMS:
        raise UsageError(f"--driver {name!r}: choose from {', '.join(PROGRAMS)}.")
    return name
