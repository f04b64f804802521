"""What is simulated: an engine's memory and rules, and the tiers of each configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Policy = Literal["lru", "arc"]
Routing = Literal["sticky", "random"]


@dataclass(frozen=True, slots=True)
class SecondaryTier:
    """A tier behind the CPU's memory; None is no limit. A shared one is one for all replicas, else each has its own.

    It evicts nothing by itself unless ``evicts``: an fs tier at its capacity is a full disk.
    """

    name: str
    capacity_bytes: int | None = None
    shared: bool = False
    evicts: bool = False


@dataclass(frozen=True, slots=True)
class TierSet:
    """A configuration: the CPU tier of each replica (0: no offload at all) and what hangs behind it."""

    name: str
    cpu_bytes: int = 0
    secondary: tuple[SecondaryTier, ...] = ()


@dataclass(frozen=True, slots=True)
class Engine:
    """The servers. Sizes are of one replica, all its ranks together.

    A chunk is what a tier stores as one: ``chunk_blocks`` blocks of the trace, ``chunk_bytes`` in the CPU tier and
    behind it. ``batch_tokens`` is the most that one scheduler step computes, and so stores. ``concurrency`` sessions
    are open on each replica, each sending its next request when the one before is answered (None: requests in the
    trace's order, one after the other). ``lost_at`` loses the first replica's memory and private tiers after that share
    of the requests.
    """

    gpu_bytes: int
    block_bytes: int
    chunk_bytes: int
    chunk_blocks: int = 1
    policy: Policy = "lru"
    prompt_only: bool = True
    batch_tokens: int = 8192
    replicas: int = 1
    routing: Routing = "sticky"
    concurrency: int | None = None
    lost_at: float | None = None
    seed: int = 0
