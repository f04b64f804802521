"""What one prompt moves: units and bytes that storing it writes, and that restoring it reads."""

from __future__ import annotations

from dataclasses import dataclass

from kvbench.connectors.stored import Group, Stored


@dataclass(frozen=True, slots=True)
class Moved:
    """Units and bytes of one direction."""

    units: int = 0
    bytes: int = 0

    def plus(self, units: int, unit_bytes: int) -> Moved:
        """The sum with so many units of ``unit_bytes``."""
        return Moved(self.units + units, self.bytes + units * unit_bytes)


@dataclass(frozen=True, slots=True)
class Transfer:
    """What a prompt of ``tokens`` tokens moves.

    ``written`` and ``read`` are at most what they say; ``written_least`` and ``read_least`` differ only for states that
    are stored once for each scheduler step, whose number depends on how the prompt was scheduled.
    """

    tokens: int
    written: Moved
    read: Moved
    written_least: Moved
    read_least: Moved


def transfer(stored: Stored, tokens: int) -> Transfer:
    """Units and bytes for a prompt that is stored once and restored once, whole."""
    written, read, written_least, read_least = Moved(), Moved(), Moved(), Moved()
    for group in stored.groups:
        most = _stored_blocks(stored, group, tokens)
        least = min(most, 1) if group.per_step else most
        loaded = _loaded_blocks(stored, group, tokens)
        size = group.padded_bytes
        written, written_least = written.plus(most * group.units, size), written_least.plus(least * group.units, size)
        loaded_least = min(loaded, 1) if group.per_step else loaded
        read, read_least = read.plus(loaded * group.units, size), read_least.plus(loaded_least * group.units, size)
    return Transfer(tokens, written, read, written_least, read_least)


def _stored_blocks(stored: Stored, group: Group, tokens: int) -> int:
    if stored.partial_blocks:
        return -(-tokens // group.tokens_per_unit)
    if group.newest_only and group.window_units is not None:
        return min(group.window_units, _replayed(stored, tokens) // group.tokens_per_unit)
    return _kept(group, tokens // group.tokens_per_unit)


def _replayed(stored: Stored, tokens: int) -> int:
    """Tokens that a repeated prompt finds at most: whole blocks, and its last token is computed."""
    return (tokens - 1) // stored.block_tokens * stored.block_tokens


def _kept(group: Group, blocks: int) -> int:
    if group.kept is None:
        return blocks
    last, every = group.kept
    segments, rest = divmod(blocks, every)
    return segments * last + max(0, rest - (every - last))


def _loaded_blocks(stored: Stored, group: Group, tokens: int) -> int:
    """Blocks that a restore reads, from vLLM's lookup (v1/offloading/scheduler.py): a prompt's windowed groups leave
    its last token to be recomputed, states that are aligned leave its last block."""
    windowed = any(one.window_units is not None for one in stored.groups)
    usable = tokens - 1 if windowed else tokens
    if usable < max(one.tokens_per_unit for one in stored.groups) and not stored.partial_blocks:
        return 0
    if stored.leaves_last_block or any(one.newest_only for one in stored.groups):
        usable -= usable % stored.block_tokens
    if group.newest_only:
        return min(group.window_units or 0, usable // group.tokens_per_unit)
    blocks = _stored_blocks(stored, group, min(tokens, -(-usable // group.tokens_per_unit) * group.tokens_per_unit))
    if group.window_units is None or stored.over_reads:
        return blocks
    return min(blocks, group.window_units)
