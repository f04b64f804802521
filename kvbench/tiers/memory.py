"""This host's memory as a tier: the baseline of every tier that restores through it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from kvbench.errors import TierError
from kvbench.host import environment
from kvbench.tiers import directory
from kvbench.tiers.directory import DirectoryTier, Workspace
from kvbench.tiers.dram import numa_nodes, numa_placement
from kvbench.tiers.mounts import Mount
from kvbench.units import format_bytes

TARGET = "dram"
# Larger than the caches of any processor, small enough for a pod.
_DEFAULT_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class MemoryTier:
    """The memory that this process may use."""

    name: str

    @property
    def mount(self) -> Mount | None:
        """Memory is not mounted."""
        return None

    @property
    def driver(self) -> str:
        """The only driver that measures memory."""
        return "memory"

    def facts(self) -> dict[str, str | int | None]:
        """How much there is, on which NUMA nodes, and from where this process may run."""
        nodes = numa_nodes()
        return {
            "path": TARGET,
            "filesystem": "none: memory of this host",
            "client": "numpy copies between two buffers of this process",
            "memory_bytes": environment.memory_bytes(),
            "numa_nodes": ", ".join(f"node {node}: CPU {cpus}" for node, cpus in nodes.items())
            or "unknown: the system shows no NUMA nodes",
            "numa_placement": numa_placement(),
        }

    def default_dataset_bytes(self) -> int:
        """1 GiB, or a quarter of what is free, in whole MiB."""
        return min(_DEFAULT_BYTES, _available_bytes() // 4) >> 20 << 20

    def require_space(self, dataset_bytes: int) -> None:
        """TierError when the buffer would take more than half of the free memory."""
        available = _available_bytes()
        if dataset_bytes > available // 2:
            raise TierError(
                f"this host has {format_bytes(available)} of memory free and a buffer of {format_bytes(dataset_bytes)} "
                "would take more than half of it; use a smaller --dataset."
            )

    def require_direct_io(self, space: Workspace, sizes: Sequence[int]) -> None:
        """Memory knows no alignment and no cache of the kernel."""

    def workspace(self, run_dir: Path) -> AbstractContextManager[Workspace]:
        """A folder of the run: nothing is written elsewhere."""
        return directory.workspace(DirectoryTier(self.name, run_dir.resolve(), None, 0))


def claims(target: str) -> bool:
    """Whether ``target`` means memory."""
    return target == TARGET


def inspect(name: str) -> MemoryTier:
    """Memory as a tier."""
    return MemoryTier(name)


def _available_bytes() -> int:
    """Memory that can be had without swapping (proc(5), MemAvailable), within the control group's limit."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    source = Path("/proc/meminfo")
    lines = source.read_text().splitlines() if source.exists() else []
    said = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    limit = environment.cgroup_limits().get("cgroup_memory_bytes")
    return min([*(said or [free]), *([limit] if isinstance(limit, int) else [])])
