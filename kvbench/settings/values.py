"""Whether a value is of the kind that a key takes, by what the engine does with it: int(), float() or bool()."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeGuard

from kvbench.settings.keys import Key, Kind

_SWITCHES = ("true", "false", "1", "0")


def wrong_kind(key: Key, value: Any) -> str | None:
    """What the value should have been, in words, or None when it is right."""
    is_right, wanted = _KINDS[key.kind]
    return None if is_right(value) else wanted


def whole_of(value: Any) -> int | None:
    """The whole number that int() makes of a value that is one already, or None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    text = value.strip() if isinstance(value, str) else ""
    return int(text) if text.isascii() and text.removeprefix("-").isdecimal() and len(text) < 40 else None


def is_on(value: Any) -> bool:
    """Whether bool() of the value is true, as the engine reads its switches."""
    return bool(value)


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return False
        return True
    return is_real(value)


def is_real(value: Any) -> TypeGuard[int | float]:
    """Whether the value is a number already."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, int) and value in (0, 1))


def _is_switch(value: Any) -> bool:
    return _is_flag(value) or (isinstance(value, str) and value.lower() in _SWITCHES)


def _is_list_of(is_one: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(is_one(item) for item in value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_mapping(value: Any) -> bool:
    return isinstance(value, dict)


_KINDS: Mapping[Kind, tuple[Callable[[Any], bool], str]] = MappingProxyType(
    {
        "any": (lambda _: True, ""),
        "text": (_is_text, "text in quotes"),
        "path": (_is_text, "a path in quotes"),
        "whole": (_is_whole, "a whole number without quotes"),
        "count": (lambda value: whole_of(value) is not None, "a whole number, without a unit"),
        "number": (_is_number, "a number, without a unit"),
        "real": (is_real, "a number without quotes"),
        "flag": (_is_flag, "true or false without quotes"),
        "switch": (_is_switch, "true or false"),
        "mapping": (_is_mapping, "an object {...}"),
        "tiers": (_is_list_of(_is_mapping), "a list of objects [{...}]"),
        "configs": (_is_list_of(_is_mapping), "a list of objects [{...}]"),
        "texts": (_is_list_of(_is_text), "a list of texts"),
        "wholes": (_is_list_of(_is_whole), "a list of whole numbers"),
    }
)
