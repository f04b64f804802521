"""The tiers of the published study as figures with their source, to set a user's own tier beside them.

They are read once from profiles/tiers/*.yaml. A figure that contradicts itself is shipped with the reason (``warning``)
rather than left out: it is what readers of the study have before their eyes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kvbench.border import bounded
from kvbench.errors import InputFileError
from kvbench.profiles import profiles_dir
from kvbench.record.results import Mix
from kvbench.units import NS_PER_MS

_Positive = Annotated[int, Field(gt=0)]
_Milliseconds = Annotated[float, Field(gt=0)]
_Text = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class ReferencePoint:
    """One published direction of one point; ``warning`` says why the figure cannot be right as published."""

    io_bytes: int
    mix: Mix
    direction: Literal["read", "write"]
    numjobs: int
    bytes_per_s: int
    p50_ns: int
    p99_ns: int
    mean_ns: int | None
    warning: str | None

    @property
    def iops(self) -> float:
        """Operations per second, from the published bytes per second."""
        return self.bytes_per_s / self.io_bytes


@dataclass(frozen=True, slots=True)
class ReferenceTier:
    """A published tier: what it is, who measured it how, and what to keep in mind about all its points."""

    id: str
    name: str
    kind: str
    source: str
    method: str
    warnings: tuple[str, ...]
    points: tuple[ReferencePoint, ...]


class _PointFile(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    io_bytes: _Positive
    mix: Mix
    direction: Literal["read", "write"]
    numjobs: _Positive
    bytes_per_s: _Positive
    p50_ms: _Milliseconds
    p99_ms: _Milliseconds
    mean_ms: _Milliseconds | None = None
    warning: _Text | None = None


class _TierFile(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: _Text
    kind: _Text
    source: _Text
    method: _Text
    warnings: list[_Text] = []
    points: Annotated[list[_PointFile], Field(min_length=1)]


@cache
def reference_tiers() -> tuple[ReferenceTier, ...]:
    """Every shipped reference tier, in the order of its file's name."""
    return tuple(read_tier(path) for path in sorted((profiles_dir() / "tiers").glob("*.yaml")))


def read_tier(path: Path) -> ReferenceTier:
    """One reference tier from its file; InputFileError with the first thing that is wrong."""
    try:
        (content,) = bounded.yaml_of(bounded.read_bytes(path, bounded.MOST_CONFIG_BYTES).decode())
    except (OSError, ValueError) as error:
        raise InputFileError(f"{path} cannot be read as YAML ({error}); repair it or install kvbench again.") from None
    try:
        found = _TierFile.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputFileError(f"{path}: {where}: {first['msg']}; repair it or install kvbench again.") from None
    points = tuple(map(_point, found.points))
    return ReferenceTier(path.stem, found.name, found.kind, found.source, found.method, tuple(found.warnings), points)


def matching(
    tiers: Sequence[ReferenceTier], io_bytes: int, mix: Mix, direction: str, numjobs: int
) -> list[tuple[ReferenceTier, ReferencePoint]]:
    """What the reference tiers published for exactly this I/O: nothing is interpolated between sizes or job counts."""
    wanted = (io_bytes, mix, direction, numjobs)
    return [
        (tier, point)
        for tier in tiers
        for point in tier.points
        if (point.io_bytes, point.mix, point.direction, point.numjobs) == wanted
    ]


def _point(found: _PointFile) -> ReferencePoint:
    return ReferencePoint(
        io_bytes=found.io_bytes,
        mix=found.mix,
        direction=found.direction,
        numjobs=found.numjobs,
        bytes_per_s=found.bytes_per_s,
        p50_ns=_ns(found.p50_ms),
        p99_ns=_ns(found.p99_ms),
        mean_ns=None if found.mean_ms is None else _ns(found.mean_ms),
        warning=found.warning,
    )


def _ns(milliseconds: float) -> int:
    return round(milliseconds * NS_PER_MS)
