"""A data set where it lies: what of it is cached on this host, and what of it was never written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kvbench.tiers.extents import unwritten_bytes
from kvbench.tiers.pagecache import cached_fraction, drop_cached

# fio never lays out as many large files.
_MOST_ASKED = 256


class Data(Protocol):
    """The data set of a work space."""

    def cached_fraction(self) -> float | None:
        """Share of it that is in the page cache, or None when it cannot be seen."""

    def drop_cached(self) -> str:
        """Drop its pages from the page cache and say how it went."""

    def unwritten_bytes(self) -> int | None:
        """Bytes of it that were never written, as far as can be seen, or None."""


@dataclass(frozen=True, slots=True)
class FileData:
    """A data set in files, which are all asked, or an even sample of them: more would take longer than a round."""

    files: Sequence[Path]

    def cached_fraction(self) -> float | None:
        """See ``Data``."""
        return cached_fraction(self._sample())

    def drop_cached(self) -> str:
        """See ``Data``."""
        return drop_cached(self._sample())

    def unwritten_bytes(self) -> int | None:
        """In holes and unwritten extents of all files."""
        return unwritten_bytes(list(self.files))

    def _sample(self) -> list[Path]:
        return list(self.files[:: max(1, len(self.files) // _MOST_ASKED)])
