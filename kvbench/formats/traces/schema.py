"""What the fields of trace files may hold, shared by the formats (the border)."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kvbench.formats.traces.record import LONGEST_S, MOST_TOKENS

Tokens = Annotated[int, Field(ge=0, le=MOST_TOKENS)]
Seconds = Annotated[float, Field(ge=-LONGEST_S, le=LONGEST_S)]
BlockTokens = Annotated[int, Field(ge=1, le=1 << 20)]
Ids = list[int] | list[str]
Name = int | str


class TraceRecord(BaseModel):
    """A line or document of a trace: numbers are numbers, and what kvbench does not need is left alone."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


def reason_of(error: ValidationError) -> str:
    """The first fault in a few words."""
    fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in fault["loc"] if part not in ("list[int]", "list[str]", "int", "str"))
    text = fault["msg"].partition(" at line")[0]
    return f"{where}: {text}" if where else text
