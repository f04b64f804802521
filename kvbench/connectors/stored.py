"""The neutral description of what a connector stores, shared by every connector."""

from __future__ import annotations

from dataclasses import dataclass

from kvbench.layout.kv import Kind


@dataclass(frozen=True, slots=True)
class Group:
    """One kind of unit: ``bytes`` of KV for ``tokens_per_unit`` tokens, stored as ``padded_bytes``.

    ``units`` of them hold those tokens (one for each rank where every rank stores its own). ``page_bytes`` are the
    engine's page sizes on a rank. A restore needs the newest ``window_units`` blocks only (None: all); of every
    ``kept[1]`` blocks only the last ``kept[0]`` are stored (None: all), or of a prompt only the newest ``window_units``
    where ``newest_only`` says so; ``per_step`` marks a state that is stored at
    the end of a scheduler step, once or more for a prompt.
    """

    index: int
    kind: Kind
    layers: int
    tokens_per_unit: int
    bytes: int
    padded_bytes: int
    units: int = 1
    page_bytes: tuple[int, ...] = ()
    window_units: int | None = None
    kept: tuple[int, int] | None = None
    per_step: bool = False
    newest_only: bool = False

    @property
    def aligned_512(self) -> bool:
        """Whether O_DIRECT accepts the unit on 512-byte sectors."""
        return self.padded_bytes % 512 == 0

    @property
    def aligned_4096(self) -> bool:
        """Whether O_DIRECT accepts the unit on 4096-byte sectors."""
        return self.padded_bytes % 4096 == 0


@dataclass(frozen=True, slots=True)
class UnitCalls:
    """System calls (or requests) for one unit, in order: to look it up, to store it anew, and to load it."""

    lookup: tuple[str, ...]
    store: tuple[str, ...]
    load: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """What reaches storage for one model: its groups, and how many units one request has in flight.

    ``threads`` is what all requests together have in flight at most, None where no such limit is known.
    ``unit`` is what a unit is on storage. ``rank_block_bytes`` is one block of the engine on one rank of each pipeline
    stage, and ``engine_block_tokens`` its tokens, None where no engine is involved. ``partial_blocks`` says that a
    block that is not full is stored too; ``over_reads`` that a restore reads every stored unit of a windowed group;
    ``leaves_last_block`` that a restore of whole blocks stops short of the prompt's last token.
    ``warnings`` concern this model, ``notes`` everyone who uses the connector in this version.
    """

    connector: str
    engine_version: str | None
    block_tokens: int
    parallelism_per_request: int
    groups: tuple[Group, ...]
    unit: str = "block"
    engine_block_tokens: int | None = None
    rank_block_bytes: tuple[int, ...] = ()
    partial_blocks: bool = False
    over_reads: bool = False
    leaves_last_block: bool = False
    calls: UnitCalls | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    threads: int | None = None

    def units_per_block(self, group: Group) -> int:
        """How many units of a group hold ``block_tokens`` tokens."""
        return self.block_tokens // group.tokens_per_unit * group.units

    @property
    def stored_bytes_per_block(self) -> int:
        """Bytes on storage for one block of ``block_tokens`` tokens, over all groups."""
        return sum(group.padded_bytes * self.units_per_block(group) for group in self.groups)
