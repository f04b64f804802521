"""What a connector stores, as JSON and as table cells, without printing it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace

from kvbench.connectors.stored import Group, Stored
from kvbench.connectors.transfer import Transfer, transfer
from kvbench.layout.sized import SizedModel
from kvbench.layout.sizing import context
from kvbench.units import format_bytes, format_count, format_tokens

Rows = list[list[str]]


def stored_json(sized: SizedModel, stored: Stored, tokens: Sequence[int]) -> dict[str, object]:
    """The JSON object of one connector, with what prompts of ``tokens`` move."""
    return {
        "name": stored.connector,
        "engine_version": stored.engine_version,
        "unit": stored.unit,
        "block_tokens": stored.block_tokens,
        "engine_block_tokens": stored.engine_block_tokens,
        "rank_block_bytes": list(stored.rank_block_bytes),
        "stored_bytes_per_block": stored.stored_bytes_per_block,
        "parallelism_per_request": stored.parallelism_per_request,
        "groups": [_group_json(group) for group in stored.groups],
        "calls": None if stored.calls is None else asdict(stored.calls),
        "requests": [_transfer_json(sized, transfer(stored, count)) for count in tokens],
        "warnings": [*stored.warnings, *stored.notes],
    }


def _group_json(group: Group) -> dict[str, object]:
    return {**asdict(group), "aligned_512": group.aligned_512, "aligned_4096": group.aligned_4096}


def _transfer_json(sized: SizedModel, moved: Transfer) -> dict[str, object]:
    return {
        "tokens": moved.tokens,
        "units_written": moved.written.units,
        "bytes_written": moved.written.bytes,
        "units_written_least": moved.written_least.units,
        "bytes_written_least": moved.written_least.bytes,
        "units_read": moved.read.units,
        "bytes_read": moved.read.bytes,
        "units_read_least": moved.read_least.units,
        "bytes_read_least": moved.read_least.bytes,
        "write_amplification": write_amplification(sized, moved),
        "read_amplification": read_amplification(sized, moved),
    }


def write_amplification(sized: SizedModel, moved: Transfer) -> float | None:
    """Bytes written over one copy of what every layer computes for the prompt; None when that is nothing."""
    computed = (sized.bytes_per_token + sized.index_bytes_per_token) * moved.tokens + sized.state_bytes
    return moved.written.bytes / computed if computed else None


def read_amplification(sized: SizedModel, moved: Transfer) -> float | None:
    """Bytes read over one copy of what the request keeps, windows honoured; None when that is nothing."""
    kept = context(sized.layout, sized.kv_dtype, sized.tp, moved.tokens, sized.dcp).bytes
    return moved.read.bytes / kept if kept else None


def stored_table(found: Sequence[tuple[SizedModel, Stored]], connector: str) -> tuple[str, list[str], Rows]:
    """Title, columns and rows of the table of units; equal groups of a model share a row."""
    versions = {stored.engine_version for _, stored in found} - {None}
    title = f"Stored by connector {connector}" + "".join(f" of vLLM {version}" for version in versions)
    several = any(group.units > 1 for _, stored in found for group in stored.groups)
    columns = ["model", "layers", "tokens/unit", *["units"] * several, "unit B", "", "O_DIRECT"]
    rows = [
        [sized.model, *_unit_row(group, count, several=several)]
        for sized, stored in found
        for group, count in Counter(map(_unnumbered, stored.groups)).items()
    ]
    return title, columns, rows


def _unnumbered(group: Group) -> Group:
    return replace(group, index=0)


def _unit_row(group: Group, count: int, *, several: bool) -> list[str]:
    aligned = "4096" if group.aligned_4096 else "512" if group.aligned_512 else "no"
    layers = f"{group.layers} {group.kind}" + (f", {count} groups" if count > 1 else "")
    size = group.padded_bytes
    units = [format_count(group.units)] * several
    return [layers, format_count(group.tokens_per_unit), *units, format_count(size), format_bytes(size), aligned]


def transfers_table(found: Sequence[tuple[SizedModel, Stored]], tokens: Sequence[int]) -> tuple[str, list[str], Rows]:
    """Title, columns and rows of what prompts move: units and bytes each way, and how that amplifies the KV."""
    columns = ["model", "prompt", "in flight", "stored as", "written", "x KV", "restored from", "read", "x kept"]
    rows = [_transfer_row(sized, stored, count) for sized, stored in found for count in tokens]
    return "One prompt stored and restored", columns, rows


def _transfer_row(sized: SizedModel, stored: Stored, tokens: int) -> list[str]:
    moved = transfer(stored, tokens)
    return [
        sized.model,
        format_tokens(tokens),
        format_count(stored.parallelism_per_request),
        _between(moved.written_least.units, moved.written.units, format_count(moved.written.units)),
        _between(moved.written_least.bytes, moved.written.bytes, format_bytes(moved.written.bytes)),
        _ratio(write_amplification(sized, moved)),
        _between(moved.read_least.units, moved.read.units, format_count(moved.read.units)),
        _between(moved.read_least.bytes, moved.read.bytes, format_bytes(moved.read.bytes)),
        _ratio(read_amplification(sized, moved)),
    ]


def _between(least: int, most: int, text: str) -> str:
    return text if least == most else f"<= {text}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def notes(found: Sequence[tuple[SizedModel, Stored]]) -> list[str]:
    """The warnings of each model, and once the notes of the connector, as lines of text."""
    lines = [f"{sized.model}: {text}." for sized, stored in found for text in stored.warnings]
    notes = dict.fromkeys(f"{stored.connector}: {text}." for _, stored in found for text in stored.notes)
    return [*lines, *notes]
