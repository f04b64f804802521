"""The neutral description of what a connector stores, shared by every connector."""

from __future__ import annotations

from dataclasses import dataclass

from kvbench.layout.kv import Kind


@dataclass(frozen=True, slots=True)
class Group:
    """One kind of unit: ``bytes`` of KV for ``tokens_per_unit`` tokens, stored as ``padded_bytes``."""

    index: int
    kind: Kind
    layers: int
    tokens_per_unit: int
    bytes: int
    padded_bytes: int

    @property
    def aligned_512(self) -> bool:
        """Whether O_DIRECT accepts the unit on 512-byte sectors."""
        return self.padded_bytes % 512 == 0

    @property
    def aligned_4096(self) -> bool:
        """Whether O_DIRECT accepts the unit on 4096-byte sectors."""
        return self.padded_bytes % 4096 == 0


@dataclass(frozen=True, slots=True)
class Stored:
    """What reaches storage for one model: its groups, and how many units one request has in flight."""

    connector: str
    engine_version: str | None
    block_tokens: int
    parallelism_per_request: int
    groups: tuple[Group, ...]

    @property
    def stored_bytes_per_block(self) -> int:
        """Bytes on storage for one block of ``block_tokens`` tokens, over all groups."""
        return sum(group.padded_bytes for group in self.groups)
