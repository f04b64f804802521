"""Schemas of plain data, made once each: making one takes longer than reading most files with it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")


def schema_of(kind: type[T]) -> TypeAdapter[T]:
    """What reads, checks and writes values of a kind; pydantic is loaded by the first call."""
    made: TypeAdapter[T] = _made(kind)  # type: ignore[arg-type]  # mypy does not know that types have a hash
    return made


@cache
def _made(kind: type[Any]) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
