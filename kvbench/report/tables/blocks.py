"""What one KV block of each model weighs, and the I/O that it makes (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from kvbench.decide.runs import LoadedRun
from kvbench.record.results import Use
from kvbench.report.columns import Column, Short, name, narrow, number, sheet, words
from kvbench.report.scene import Scene
from kvbench.report.sheet import Cell, Sheet
from kvbench.units import format_bytes, format_count

TITLE = "KV blocks"


def _stored_units(use: Use) -> int:
    return use.units_per_block + use.windowed_units


def _io(use: Use) -> str:
    units = _stored_units(use)
    return f"{format_count(use.io_bytes)} B" + (f" x {units}" if units > 1 else "")


def _connector(use: Use) -> Cell:
    return Cell(f"{use.connector} {use.engine_version or ''}".rstrip(), use.connector)


COLUMNS: tuple[Column[Use], ...] = (
    name("model", "model", lambda use: use.model),
    number("tp", "TP", lambda use: use.tp, format_count, "--tp"),
    name("kv_dtype", "KV dtype", lambda use: use.kv_dtype, short=Short(falls=1)),
    number("block_tokens", "tokens of a block", lambda use: use.block_tokens, format_count, "--block-tokens"),
    words("block", "block", lambda use: f"{use.block_tokens} tokens", falls=2),
    number(
        "block_bytes",
        "block on storage",
        lambda use: use.io_bytes * _stored_units(use),
        format_bytes,
        "one I/O x I/Os of a block and of its windows",
        short=Short("on storage"),
    ),
    number(
        "io_bytes",
        "one I/O",
        lambda use: use.io_bytes,
        lambda size: f"{format_count(size)} B",
        "model geometry and connector",
    ),
    words("ios", "one I/O", _io, right=True),
    number("units_per_block", "I/Os of a block", lambda use: use.units_per_block, format_count, "connector"),
    number("windowed_units", "and of its windows", lambda use: use.windowed_units, format_count, "connector"),
    number(
        "parallelism",
        "in parallel",
        lambda use: use.parallelism_per_request,
        format_count,
        "connector: reads in flight for one request",
    ),
    Column("connector", "connector", _connector),
)


def blocks(scene: Scene) -> Sheet:
    """One row for each use of the runs."""
    return sheet("blocks", TITLE, COLUMNS, dict.fromkeys(use for run in scene.runs for use in run.result.uses))


def short_blocks(runs: Sequence[LoadedRun]) -> Sheet:
    """The same in short."""
    uses = [use for run in runs for use in run.result.uses]
    return narrow(TITLE, COLUMNS, uses, "model", "tp", "kv_dtype", "block", "block_bytes", "ios", "connector")
