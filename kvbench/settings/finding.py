"""What is wrong with a configuration, one finding for each thing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvbench.border.escaping import escaped

Severity = Literal["error", "warning", "note"]
Engine = Literal["refuses", "ignores", "accepts"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class SettingsFinding:
    """One thing to know: ``where`` is the path of the key, ``engine`` what the engine itself does about it.

    An error is a configuration that does not do what it says, a warning one that may not; a note is never a fault.
    """

    severity: Severity
    code: str
    where: str
    message: str
    hint: str
    engine: Engine = "accepts"


def join(where: str, name: object) -> str:
    """The path of a key below another one."""
    return f"{where}.{shown(name)}" if where else shown(name)


def shown(name: object) -> str:
    """A name from a foreign file, fit for one line."""
    text = escaped(str(name))
    return text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}..."
