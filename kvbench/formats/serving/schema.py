"""What the formats of serving results share at the border: lenient about missing keys, strict about wrong types."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ValidationError

from kvbench.errors import InputFileError
from kvbench.formats.numbers import number

# No time, length or count of a serving run can be larger; nanoseconds since 1970 have 19 digits.
_LARGEST = 1e20
# Of the keys that lead to a fault, so much is repeated.
_LONGEST_STEP = 40


def _number(value: Any) -> Any:
    return number(value, -_LARGEST, _LARGEST, "no number of a serving run can be this large")


def _text(value: Any) -> Any:
    if value is not None and not isinstance(value, str):
        raise ValueError("something else stands where a text should")
    return value or None


def _setting(value: Any) -> Any:
    """A number of the client's settings; anything else, such as a list to sweep over, is "not said"."""
    try:
        return _number(value) if isinstance(value, int | float) else None
    except ValueError:
        return None


def _rate(value: Any) -> Any:
    """Requests per second; infinite stands for all at once, a word such as ``trace`` for "not said"."""
    if isinstance(value, str):
        return math.inf if value.strip().lower() in ("inf", "infinity") else None
    return value if isinstance(value, float) and value == math.inf else _setting(value)


Number = Annotated[float | None, BeforeValidator(_number)]
Text = Annotated[str | None, BeforeValidator(_text)]
Setting = Annotated[float | None, BeforeValidator(_setting)]
Rate = Annotated[float | None, BeforeValidator(_rate)]


Parsed = TypeVar("Parsed", bound=BaseModel)


def parsed(schema: type[Parsed], document: Any, path: Path, tool: str) -> Parsed:
    """The document as ``schema``; InputFileError that names the first field which is not what the tool writes."""
    try:
        return schema.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part)[:_LONGEST_STEP] for part in first["loc"]) or "the whole"
        said = first["msg"].removeprefix("Value error, ")
        raise InputFileError(
            f"{path} looks like a result of {tool}, but {where} is not what it writes ({said}); "
            "name a file as the tool wrote it."
        ) from None


def count(value: float | None) -> int | None:
    """A whole number that is not negative, else None."""
    return int(value) if value is not None and value >= 0 and float(value).is_integer() else None


def seconds(value: float | None, unit: float = 1.0) -> float | None:
    """A time of that unit in seconds; None for what is not recorded: zero, negative or missing."""
    return value * unit if value is not None and value > 0 else None


def share(value: float | None, unit: float = 1.0) -> float | None:
    """A share from 0 to 1; None for what cannot be one."""
    scaled = None if value is None else value * unit
    return scaled if scaled is not None and 0 <= scaled <= 1 else None


def workload(**named: Any) -> tuple[tuple[str, str], ...]:
    """What was sent, by name, as texts that are equal where the values are; without what the file does not say."""
    known = {name: value for name, value in named.items() if value not in (None, "", [], {})}
    return tuple((name.replace("_", " "), _canonical(value)) for name, value in known.items())


def _canonical(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _section(value: Any) -> Any:
    return value if isinstance(value, dict) else None


# In front of a section that a run can be judged without: another version may have something else in its place.
Optional = BeforeValidator(_section)
