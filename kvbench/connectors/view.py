"""What a connector stores, as JSON, without printing it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from kvbench.connectors.stored import Group, Stored
from kvbench.connectors.transfer import Transfer, transfer
from kvbench.layout.sized import SizedModel
from kvbench.layout.sizing import context


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


def notes(found: Sequence[tuple[SizedModel, Stored]]) -> list[str]:
    """The warnings of each model, and once the notes of the connector, as lines of text."""
    lines = [f"{sized.model}: {text}." for sized, stored in found for text in stored.warnings]
    notes = dict.fromkeys(f"{stored.connector}: {text}." for _, stored in found for text in stored.notes)
    return [*lines, *notes]
