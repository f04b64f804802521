"""How the points of a tier are measured: the settings that every driver gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvbench.record.results import Access, Mix
from kvbench.record.rounds import StopRule
from kvbench.tiers.tier import DeviceUse

DataLayout = Literal["large-files", "file-per-block"]
Buffers = Literal["engine", "own", "huge"]


@dataclass(frozen=True, slots=True)
class JobSettings:
    """How the points are measured. ``file_bytes`` is the size of each of the ``files`` data files.

    On a block device (``device``: read only, or written as well) they are ranges of it, one behind the other.
    With a file for each block (``layout``) they are only a budget, which the ``block_sizes`` share evenly.
    ``engine_version`` is the release whose calls are replayed, for a driver that replays an engine.
    ``buffers`` is the kind of memory that the I/O lands in; a run from before there was a choice had its own.
    """

    files: int
    file_bytes: int
    runtime_s: int = 60
    rwmixread: int = 75
    access: Access = "random"
    published: bool = False
    auto: bool = False
    precision: float = 0.10
    device: DeviceUse | None = None
    layout: DataLayout = "large-files"
    block_sizes: tuple[int, ...] = ()
    engine_version: str | None = None
    buffers: Buffers = "own"

    def read_percent(self, mix: Mix) -> int:
        """The share of reads in a mix, in percent."""
        return {"read": 100, "write": 0, "mixed": self.rwmixread}[mix]

    @property
    def dataset_bytes(self) -> int:
        """Bytes that are laid out on the tier."""
        return self.files * self.file_bytes

    @property
    def stop_rule(self) -> StopRule:
        """When a point is done: after ``runtime_s``, or with ``auto`` as soon as enough is known."""
        return StopRule(self.auto, self.runtime_s, precision=self.precision)

    def blocks_of(self, io_bytes: int) -> int:
        """With a file for each block: how many of a block size take the place of each of the ``files``."""
        return self.file_bytes // max(1, len(self.block_sizes)) // io_bytes
