"""The shipped profiles of models, and the shipped prefill curves (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from kvbench.layout.sized import SizedModel
from kvbench.prefill.samples import Samples
from kvbench.report.columns import Column, narrow, words
from kvbench.report.sheet import Sheet
from kvbench.units import format_count, format_tokens

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


NamedCurve = tuple[str, Samples]


def _lengths(row: NamedCurve) -> str:
    lengths = [sample.prompt_tokens for sample in row[1].rows]
    return f"{len(lengths)} from {format_tokens(lengths[0])} to {format_tokens(lengths[-1])} tokens"


CURVES: tuple[Column[NamedCurve], ...] = (
    words("name", "--ttft-csv", lambda row: row[0]),
    words("model", "model", lambda row: row[1].model or ""),
    words("samples", "samples", _lengths, falls=2),
    words("source", "source", lambda row: row[1].source, falls=1),
)


def curves(found: Mapping[str, Samples]) -> Sheet:
    """One row for each curve: the name to give to --ttft-csv, and what it is of."""
    return narrow(f"Shipped prefill curves ({len(found)})", CURVES, found.items())
