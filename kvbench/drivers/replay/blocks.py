"""Block files laid out as vLLM names them: <name>_<digest>_r0/<hhh>/<hh>_g0/<64 hex digits>.bin (file_mapper.py)."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import random
import secrets
from collections.abc import Sequence
from pathlib import Path

from kvbench.drivers.replay.calls import AT_FDCWD
from kvbench.record.results import Mix

_HASH_BYTES = 32


class BlockFiles:
    """The files of one block size: ``live`` ones on the tier, never more than ``capacity``."""

    def __init__(self, root: Path, io_bytes: int, capacity: int, directory: int | None = None) -> None:
        """Names for ``capacity`` blocks, relative to ``directory``, the descriptor of the root, if given."""
        self.root, self.io_bytes, self.capacity = root, io_bytes, capacity
        self.directory = AT_FDCWD if directory is None else directory
        name = f"kvbench_{_digest(io_bytes)}_r0"
        self._base = name if directory is not None else str(root / name)
        self.live: list[str] = []
        self._prefixes: list[str] = []

    def first_names(self) -> list[str]:
        """A name for every block of the data set; later blocks go into the same directories."""
        hashes = [secrets.token_hex(_HASH_BYTES) for _ in range(self.capacity)]
        self._prefixes = [name[:5] for name in hashes]
        return [self._path(name) for name in hashes]

    def new_name(self) -> str:
        """A name that no block has, in a directory that is there: a tier that has been in use for a while.

        Without this every store would make two directories, and a long round a million of them.
        """
        return self._path(random.choice(self._prefixes) + secrets.token_hex(_HASH_BYTES)[5:])

    def kept(self, mix: Mix) -> int:
        """Blocks that a round of this mix needs on the tier; what is left of the data set is room to write."""
        return {"read": self.capacity, "mixed": self.capacity // 2, "write": 0}[mix]

    def sync(self) -> None:
        """Let the file system do what it still has to, or that would fall into what is measured next (syncfs(2))."""
        descriptor = os.open(self.root, os.O_RDONLY)
        try:
            ctypes.CDLL(None).syncfs(descriptor)
        finally:
            os.close(descriptor)

    def paths(self) -> list[Path]:
        """Every file, from the root."""
        return [self.root / path for path in self.live]

    def sample(self, most: int = 256) -> list[Path]:
        """Evenly spread files for questions whose cost grows with their number."""
        return self.paths()[:: max(1, len(self.live) // most)]

    def _path(self, name: str) -> str:
        return f"{self._base}/{name[:3]}/{name[3:5]}_g0/{name}.bin"


def least_blocks(numjobs: Sequence[int]) -> int:
    """Blocks that a data set needs for these jobs: half of it is room to write, a block for each job."""
    return 2 * max(numjobs, default=1)


def _digest(io_bytes: int) -> str:
    # vLLM digests the model and its cache's layout into 12 digits; here only the size tells block files apart.
    fields = {"inference_engine": "kvbench", "io_bytes": io_bytes}
    return hashlib.sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:12]
