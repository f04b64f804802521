"""Files that somebody else wrote, read with bounds on size, depth and numbers; beyond them is one short ValueError.

Python's own parsers read what exhausts memory or the stack of everything that walks the data afterwards.
"""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any, Literal

# Real files nest a dozen levels; what nests this deep was made to break readers.
MOST_LEVELS = 100
# Beyond any count of bytes, operations or nanoseconds, and well within what a float can hold.
LARGEST_INTEGER = 10**40
# Sums and products of what kvbench itself records stay far below what a float holds.
LARGEST_NUMBER = 10**25
# Parsed JSON takes about five times its size in memory.
MOST_JSON_BYTES = 256 << 20
MOST_CONFIG_BYTES = 16 << 20
_MOST_FROM_ALIASES = 10_000_000
_MIB = 1 << 20

_CONTAINERS = frozenset({dict, list})
_NUMBERS = frozenset({int, float})

# What NaN and infinity become: null ("not recorded"), kept as they are, or a reason to refuse the file.
Odd = Literal["null", "keep", "refuse"]


def read_bytes(path: Path, most: int = MOST_JSON_BYTES, *, regular: bool = False) -> bytes:
    """The content of a file; ValueError beyond ``most`` bytes, or with ``regular`` for pipes and devices.

    A pipe that the user names is read, one inside somebody's directory would keep us waiting for ever.
    """
    if regular and not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is no regular file")
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it is larger than {most // _MIB} MiB")
    return content


def json_of(text: str | bytes, odd: Odd = "keep", pairs: Any = None) -> Any:
    """The JSON value of a text; ValueError when it is damaged or beyond the bounds. ``pairs`` checks each object."""
    hooks: dict[str, Any] = {} if odd == "keep" else {"parse_constant": _NO_NUMBER[odd]}
    try:
        value = json.loads(text, object_pairs_hook=pairs, **hooks)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at line {error.lineno}") from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    require_bounded(value, finite=odd == "refuse")
    return value


def yaml_of(text: str) -> list[Any]:
    """The YAML documents of a text, without empty ones; ValueError when it is damaged or beyond the bounds."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        found = [document for document in yaml.load_all(text, Loader=loader) if document is not None]
    except yaml.YAMLError:
        raise ValueError("it is no YAML") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    # A few lines of nested aliases stand for more data than any memory holds.
    require_bounded(found, most_values=min(_MOST_FROM_ALIASES, 1000 + 100 * len(text)))
    return found


def require_bounded(value: Any, *, finite: bool = False, most_values: int | None = None) -> None:
    """ValueError when data nest too deep, are too many, or hold a number beyond all bounds (floats: ``finite``)."""
    most = LARGEST_NUMBER if finite else LARGEST_INTEGER
    level, left = [value], most_values
    for _ in range(MOST_LEVELS):
        below: list[Any] = []
        for item in level:
            if left is not None and (left := left - 1) < 0:
                raise ValueError("it repeats its own parts too often")
            children = list(item.values()) if type(item) is dict else item if type(item) is list else [item]
            kinds = set(map(type, children))
            # The bins of histograms are most of a large file: looked at as a whole.
            if not kinds.isdisjoint(_CONTAINERS):
                below += [child for child in children if type(child) in _CONTAINERS]
            if not kinds.isdisjoint(_NUMBERS):
                _require_numbers(children, most, finite=finite)
        if not below:
            return
        level = below
    raise ValueError(_TOO_DEEP)


def _require_numbers(values: list[Any], most: int, *, finite: bool) -> None:
    whole = [value for value in values if type(value) is int]
    # What is not a number compares false with everything: floats one by one.
    odd = finite and not all(-most < value < most for value in values if type(value) is float)
    if odd or (whole and not -most < min(whole) <= max(whole) < most):
        raise ValueError("a number in it is larger than any count")


def _null(_: str) -> None:
    return None


def _refuse(text: str) -> None:
    raise ValueError(f"{text} stands where a number should")


_NO_NUMBER = {"null": _null, "refuse": _refuse}
_TOO_DEEP = f"it nests more than {MOST_LEVELS} levels"
