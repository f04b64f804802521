"""Which objects a data set consists of, and in which order they are read and written (keys are pure, order is drawn).

Keys are those of vLLM's obj tier below a prefix of our own: <name>_<digest>_r0/<hhh>/<hh>_g0/<64 hex digits>.bin
(v1/kv_offload/file_mapper.py), so that a service sees names with the same spread.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Objects:
    """The keys of one block size: ``reads`` are laid out, ``slots`` are there to be written during a round."""

    io_bytes: int
    reads: tuple[str, ...]
    slots: tuple[str, ...]

    @property
    def read_prefix(self) -> str:
        """Holds the objects that are laid out and nothing else."""
        return _parent(self.reads)

    def slots_of(self, job: int, jobs: int) -> tuple[str, ...]:
        """The keys that one of several jobs writes in turn; no two jobs share one."""
        return self.slots[job::jobs]


def objects_for(prefix: str, io_bytes: int, count: int) -> Objects:
    """The keys of a block size that may have ``count`` objects: three quarters to read, a quarter to write."""
    slots = count // 4
    return Objects(
        io_bytes,
        tuple(_key(prefix, "stored", io_bytes, number) for number in range(count - slots)),
        tuple(_key(prefix, "written", io_bytes, number) for number in range(slots)),
    )


def least_objects(numjobs: Sequence[int]) -> int:
    """Objects that a block size needs for these jobs: a quarter of them is room to write, one for each job."""
    return 4 * max(numjobs, default=1)


class Shuffled:
    """Keys in random order, all of them once before one comes again; shared by the jobs of a round."""

    def __init__(self, keys: Sequence[str], seed: int) -> None:
        """A fresh order for every ``seed``."""
        self._keys, self._random, self._lock = list(keys), random.Random(seed), threading.Lock()
        self._order = self._endless()

    def next(self) -> str:
        """The next key; any thread may ask."""
        with self._lock:
            return next(self._order)

    def _endless(self) -> Iterator[str]:
        while True:
            self._random.shuffle(self._keys)
            yield from self._keys


def _key(prefix: str, part: str, io_bytes: int, number: int) -> str:
    name = hashlib.sha256(f"{prefix} {part} {io_bytes} {number}".encode()).hexdigest()
    return f"{prefix}{part}/kvbench_{io_bytes:012x}_r0/{name[:3]}/{name[3:5]}_g0/{name}.bin"


def _parent(keys: Sequence[str]) -> str:
    return keys[0].rpartition("_r0/")[0] + "_r0/" if keys else ""
