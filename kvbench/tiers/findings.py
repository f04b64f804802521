"""What an examination of a host or a tier found, with the next step for every problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from kvbench.errors import KvbenchError, TierError

Status = Literal["ok", "note", "problem"]
Value = str | int | bool | None


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. A problem stops a measurement, a note limits what it means; both say what to do."""

    check: str
    status: Status
    observed: str
    next_step: str | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A tier: what kind it is, its facts, and what was found."""

    name: str
    target: str
    kind: str
    facts: Mapping[str, Value]
    findings: tuple[Finding, ...]


def unusable(
    name: str, target: str, error: KvbenchError, *, check: str = "tier", kind: str = "nothing to measure"
) -> Diagnosis:
    """The diagnosis of what cannot be looked at, with the error as its next step."""
    return Diagnosis(name, target, kind, {}, (Finding(check, "problem", "unusable", str(error)),))


def required(check: str, fine: str, require: Callable[[], None]) -> Finding:
    """``fine`` when ``require`` raises no TierError, else a problem with its text."""
    try:
        require()
    except TierError as error:
        return Finding(check, "problem", "no", str(error))
    return Finding(check, "ok", fine)
