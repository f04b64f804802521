"""Mutations of text and of JSON data, each drawn from a seeded generator (pure)."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

# Values that readers did not expect: beyond ranges, of another type, or acting where they are shown.
ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 101, 2**31, 2**63, 2**64, -(2**63), 10**30, 10**400, 0.5, -0.0, 1e-320, 1e308, -1e308,
    float("inf"), float("-inf"), float("nan"), "", "x", "0", "-1", "1e999", "nan", "[red]x[/]", "\x1b[31m", "\u202e",
    "a\nb", "\udc80", "=1+1", "<b>&", "|`*", "../../x", "/dev/zero", "$(x)", "x" * 5000,
    [], {}, [[]], [{}], [None], {"": None},
)  # fmt: skip
_CUT_INTO = (
    "",
    "0",
    "-",
    '"',
    "{",
    "[",
    "}",
    "]",
    ",",
    ":",
    "\n",
    "\0",
    "\\",
    "1e999",
    "NaN",
    "\x1b[2J",
    "#",
    ";",
    "=",
    # Deeper than Python's parsers go.
    "[" * 3000,
    '{"a":' * 3000,
)

Path_ = tuple[str | int, ...]


def mutated_text(text: str, random: Random) -> str:
    """``text`` with one to four places cut, doubled, swapped or replaced."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        at, length = random.randrange(len(text) + 1), min(int(random.expovariate(0.1)), 200)
        piece = text[at : at + length]
        text = random.choice(_TEXT_CHANGES)(text, at, piece, random)
    return text[:200_000]


def mutated_data(data: Any, random: Random) -> Any:
    """A copy of JSON data with one to four places changed."""
    changed = copy.deepcopy(data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        places = list(_places(changed))
        if places:
            container, key = random.choice(places)
            random.choice(_DATA_CHANGES)(container, key, random)
    return changed


def dumped(data: Any) -> str:
    """The data as JSON text, lone surrogates as escapes and infinities as Python spells them."""
    return json.dumps(data)


def _places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        item = waiting.pop()
        keys: list[Any] = (
            list(item) if isinstance(item, dict) else list(range(len(item))) if isinstance(item, list) else []
        )
        for key in keys:
            found.append((item, key))
            waiting.append(item[key])
    return found


def _nested(value: Any, random: Random) -> Any:
    for _ in range(random.choice((2, 60, 90, 110, 400))):
        value = [value] if random.random() < 0.5 else {"a": value}
    return value


def _replace(container: Any, key: Any, random: Random) -> None:
    container[key] = copy.deepcopy(random.choice(ODD))


def _scale(container: Any, key: Any, random: Random) -> None:
    value = container[key]
    if isinstance(value, int | float) and not isinstance(value, bool):
        # A number that was made odd before may be beyond what a float holds.
        with suppress(OverflowError):
            container[key] = value * random.choice((-1, 0, 2, 1000, 1e9, 1e-9, 10**18))


def _delete(container: Any, key: Any, random: Random) -> None:
    del container[key]


def _wrap(container: Any, key: Any, random: Random) -> None:
    container[key] = _nested(container[key], random)


def _rename(container: Any, key: Any, random: Random) -> None:
    if isinstance(container, dict):
        container[random.choice([str(odd) for odd in ODD[:38]] + [str(other) for other in container])] = container.pop(
            key
        )


def _exchange(container: Any, key: Any, random: Random) -> None:
    other = random.choice(list(container) if isinstance(container, dict) else range(len(container)))
    container[key], container[other] = container[other], container[key]


def _repeat(container: Any, key: Any, random: Random) -> None:
    if isinstance(container[key], list) and len(container[key]) < 1000:
        container[key] = container[key] * random.choice((2, 20))


_DATA_CHANGES: tuple[Callable[[Any, Any, Random], None], ...] = (
    _replace, _replace, _replace, _scale, _delete, _wrap, _rename, _exchange, _repeat,
)  # fmt: skip


def _cut(text: str, at: int, piece: str, random: Random) -> str:
    return text[:at] + text[at + len(piece) :]


def _end(text: str, at: int, piece: str, random: Random) -> str:
    return text[:at]


def _double(text: str, at: int, piece: str, random: Random) -> str:
    return text[:at] + piece * random.choice((2, 2, 50)) + text[at + len(piece) :]


def _put(text: str, at: int, piece: str, random: Random) -> str:
    return text[:at] + random.choice(_CUT_INTO) + text[at + len(piece) :]


def _odd(text: str, at: int, piece: str, random: Random) -> str:
    return text[:at] + str(random.choice(ODD)) + text[at:]


def _move(text: str, at: int, piece: str, random: Random) -> str:
    rest = text[:at] + text[at + len(piece) :]
    place = random.randrange(len(rest) + 1)
    return rest[:place] + piece + rest[place:]


_TEXT_CHANGES: tuple[Callable[[str, int, str, Random], str], ...] = (_cut, _end, _double, _put, _odd, _move)
