"""What a tier keeps when it is full: least recently used, adaptive, or all until the disk is full.

Keys are whole numbers. A use is recorded at the end of a request and from its last block to its first, so that the end
of a prompt goes before its beginning (``on_request_finished`` of vLLM's cache policies).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Protocol


class TierCache(Protocol):
    """The contents of one tier; ``capacity`` and ``len`` count keys."""

    capacity: int

    def __len__(self) -> int:
        """How many keys it holds."""

    def __contains__(self, key: int) -> bool:
        """Whether it holds a key."""

    def add(self, keys: Sequence[int], kept: Collection[int] = ()) -> bool:
        """Make room and take all keys, none of which it holds, without evicting those of ``kept``; False: none fits."""

    def used(self, keys: Sequence[int], reused: Collection[int]) -> None:
        """A request ended that had these keys in the order of its prompt, and found ``reused`` here before."""

    def clear(self) -> None:
        """Lose everything."""


class Lru:
    """The least recently used key goes first (kv_offload/cpu/policies/lru.py)."""

    def __init__(self, capacity: int) -> None:
        """An empty cache of so many keys."""
        self.capacity = capacity
        # In the order of their last use, the oldest first.
        self._keys: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: int) -> bool:
        return key in self._keys

    def add(self, keys: Sequence[int], kept: Collection[int] = ()) -> bool:
        """As the protocol says; the oldest go."""
        excess = len(self._keys) + len(keys) - self.capacity
        if excess > 0:
            going = list(islice((key for key in self._keys if key not in kept), excess))
            if len(going) < excess:
                return False
            for key in going:
                del self._keys[key]
        self._keys.update(dict.fromkeys(keys))
        return True

    def used(self, keys: Sequence[int], reused: Collection[int] = ()) -> None:
        """As the protocol says; reused or not makes no difference."""
        held = self._keys
        for key in reversed(keys):
            if key in held:
                del held[key]
                held[key] = None

    def clear(self) -> None:
        """As the protocol says."""
        self._keys.clear()


class Arc:
    """Recent and frequent keys apart, the share of each adapted to what was missed (kv_offload/cpu/policies/arc.py).

    Megiddo and Modha 2003, as vLLM has it: keys enter the recent part, a reuse by a later request moves them to the
    frequent one, and a miss of a key that was evicted lately shifts the balance once per request.
    """

    def __init__(self, capacity: int) -> None:
        """An empty cache of so many keys."""
        self.capacity = capacity
        self._wanted_recent = 0.0
        self._recent: dict[int, None] = {}
        self._frequent: dict[int, None] = {}
        self._ghosts_recent: dict[int, None] = {}
        self._ghosts_frequent: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._recent) + len(self._frequent)

    def __contains__(self, key: int) -> bool:
        return key in self._recent or key in self._frequent

    def add(self, keys: Sequence[int], kept: Collection[int] = ()) -> bool:
        """As the protocol says; what was evicted lately shifts the balance first."""
        for key in reversed(keys):
            self._learn(key)
        excess = len(self) + len(keys) - self.capacity
        if excess > 0 and not self._evict(excess, kept):
            return False
        for key in keys:
            self._recent[key] = None
            self._ghosts_recent.pop(key, None)
            self._ghosts_frequent.pop(key, None)
        return True

    def used(self, keys: Sequence[int], reused: Collection[int]) -> None:
        """As the protocol says; what was only stored stays where it is, as the most recent."""
        for key in reversed(keys):
            part = self._recent if key in self._recent else self._frequent
            if key in part:
                del part[key]
                (self._frequent if key in reused else part)[key] = None

    def clear(self) -> None:
        """As the protocol says; nothing is remembered either."""
        self.__init__(self.capacity)  # type: ignore[misc]

    def _learn(self, key: int) -> None:
        recent, frequent = self._ghosts_recent, self._ghosts_frequent
        if key in recent:
            self._wanted_recent = min(self._wanted_recent + max(1, len(frequent) / len(recent)), self.capacity)
            _renew(recent, key)
        elif key in frequent:
            self._wanted_recent = max(self._wanted_recent - max(1, len(recent) / len(frequent)), 0)
            _renew(frequent, key)

    def _evict(self, count: int, kept: Collection[int]) -> bool:
        """Evict exactly so many keys, or none and say False."""
        recent = (key for key in self._recent if key not in kept)
        frequent = (key for key in self._frequent if key not in kept)
        left = len(self._recent)
        going: list[tuple[int, bool]] = []
        for _ in range(count):
            key = next(recent, None) if left >= int(self._wanted_recent) else None
            is_recent = key is not None
            if key is None:
                key = next(frequent, None)
            if key is None:
                key, is_recent = next(recent, None), True
            if key is None:
                return False
            left -= is_recent
            going.append((key, is_recent))
        for key, is_recent in going:
            del (self._recent if is_recent else self._frequent)[key]
            (self._ghosts_recent if is_recent else self._ghosts_frequent)[key] = None
        for ghosts in (self._ghosts_recent, self._ghosts_frequent):
            for key in list(islice(ghosts, max(0, len(ghosts) - self.capacity))):
                del ghosts[key]
        return True


class Endless:
    """Nothing is ever evicted: at its capacity the disk is full, and what comes then is lost (fs and obj tiers)."""

    def __init__(self, capacity: int) -> None:
        """An empty tier of so many keys."""
        self.capacity = capacity
        self._keys: set[int] = set()

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: int) -> bool:
        return key in self._keys

    def add(self, keys: Sequence[int], kept: Collection[int] = ()) -> bool:
        """As the protocol says; those that still fit are taken in order, and False says that some did not."""
        room = self.capacity - len(self._keys)
        self._keys.update(islice(keys, max(0, room)))
        return room >= len(keys)

    def used(self, keys: Sequence[int], reused: Collection[int]) -> None:
        """Nothing follows from a use."""

    def clear(self) -> None:
        """As the protocol says."""
        self._keys.clear()


POLICIES: dict[str, type[Lru] | type[Arc] | type[Endless]] = {"lru": Lru, "arc": Arc, "never": Endless}


def _renew(ghosts: dict[int, None], key: int) -> None:
    del ghosts[key]
    ghosts[key] = None


def missing(keys: Iterable[int], cache: TierCache) -> list[int]:
    """The keys that a cache does not hold, in order, each once."""
    return [key for key in dict.fromkeys(keys) if key not in cache]
