"""The shipped profiles of models (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from kvbench.layout.sized import SizedModel
from kvbench.report.columns import Column, narrow, words
from kvbench.report.sheet import Sheet
from kvbench.units import format_count

Named = tuple[str, SizedModel]

COLUMNS: tuple[Column[Named], ...] = (
    words("name", "name", lambda row: row[0]),
    words("model", "model", lambda row: row[1].model, falls=2),
    words("architecture", "architecture", lambda row: row[1].model_type or "", falls=1),
    words("bytes_per_token", "B/token", lambda row: format_count(row[1].bytes_per_token), right=True),
    words("growing_bytes_per_token", "growing", lambda row: format_count(row[1].growing_bytes_per_token), right=True),
)


def profiles(sized: Mapping[str, SizedModel]) -> Sheet:
    """One row for each profile: the name to use, the architecture, the bytes per token of one copy."""
    return narrow(f"{len(sized)} shipped profiles", COLUMNS, sized.items())
