"""What a connector stores for each model, and what a prompt moves (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvbench.connectors.stored import Group, Stored
from kvbench.connectors.transfer import Transfer, transfer
from kvbench.connectors.view import read_amplification, write_amplification
from kvbench.layout.sized import SizedModel
from kvbench.report.columns import Column, narrow, words
from kvbench.report.sheet import Sheet
from kvbench.units import format_bytes, format_count, format_tokens


@dataclass(frozen=True, slots=True)
class Unit:
    """Groups of a model that are alike, and how many of them there are."""

    model: str
    group: Group
    count: int


def _layers(row: Unit) -> str:
    return f"{row.group.layers} {row.group.kind}" + (f", {row.count} groups" if row.count > 1 else "")


def _aligned(row: Unit) -> str:
    return "4096" if row.group.aligned_4096 else "512" if row.group.aligned_512 else "no"


UNITS: tuple[Column[Unit], ...] = (
    words("model", "model", lambda row: row.model),
    words("layers", "layers", _layers),
    words("tokens_per_unit", "tokens/unit", lambda row: format_count(row.group.tokens_per_unit), right=True),
    words("units", "units", lambda row: format_count(row.group.units), right=True),
    words("padded_bytes", "unit B", lambda row: format_count(row.group.padded_bytes), right=True, falls=1),
    words("padded", "", lambda row: format_bytes(row.group.padded_bytes), right=True),
    words("aligned", "O_DIRECT", _aligned, right=True, falls=2),
)


def units(found: Sequence[tuple[SizedModel, Stored]], connector: str) -> Sheet:
    """One row for each kind of unit of each model."""
    versions = {stored.engine_version for _, stored in found} - {None}
    title = f"Stored by connector {connector}" + "".join(f" of vLLM {version}" for version in versions)
    rows = [
        Unit(sized.model, group, count)
        for sized, stored in found
        for group, count in Counter(map(_unnumbered, stored.groups)).items()
    ]
    several = any(row.group.units > 1 for row in rows)
    return narrow(title, UNITS, rows, *(column.key for column in UNITS if several or column.key != "units"))


def _unnumbered(group: Group) -> Group:
    return replace(group, index=0)


@dataclass(frozen=True, slots=True)
class Prompt:
    """What one prompt of one model moves."""

    sized: SizedModel
    stored: Stored
    moved: Transfer


def _between(least: int, most: int, text: str) -> str:
    return text if least == most else f"<= {text}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _written_units(row: Prompt) -> str:
    most = row.moved.written.units
    return _between(row.moved.written_least.units, most, format_count(most))


def _written_bytes(row: Prompt) -> str:
    most = row.moved.written.bytes
    return _between(row.moved.written_least.bytes, most, format_bytes(most))


def _read_units(row: Prompt) -> str:
    most = row.moved.read.units
    return _between(row.moved.read_least.units, most, format_count(most))


def _read_bytes(row: Prompt) -> str:
    most = row.moved.read.bytes
    return _between(row.moved.read_least.bytes, most, format_bytes(most))


TRANSFERS: tuple[Column[Prompt], ...] = (
    words("model", "model", lambda row: row.sized.model),
    words("tokens", "prompt", lambda row: format_tokens(row.moved.tokens), right=True),
    words("parallelism", "in flight", lambda row: format_count(row.stored.parallelism_per_request), right=True),
    words("written_units", "stored as", _written_units, right=True, falls=3),
    words("written", "written", _written_bytes, right=True),
    words("write_x", "x KV", lambda row: _ratio(write_amplification(row.sized, row.moved)), right=True, falls=1),
    words("read_units", "restored from", _read_units, right=True, falls=4),
    words("read", "read", _read_bytes, right=True),
    words("read_x", "x kept", lambda row: _ratio(read_amplification(row.sized, row.moved)), right=True, falls=2),
)


def transfers(found: Sequence[tuple[SizedModel, Stored]], tokens: Sequence[int]) -> Sheet:
    """One row for each model and prompt: units and bytes each way, and how that amplifies the KV."""
    rows = [Prompt(sized, stored, transfer(stored, count)) for sized, stored in found for count in tokens]
    return narrow("One prompt stored and restored", TRANSFERS, rows)
