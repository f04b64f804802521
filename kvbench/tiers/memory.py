"""This host's memory as a tier: the baseline of every tier that restores through it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvbench.errors import TierError
from kvbench.host import environment
from kvbench.record.recorder import Recorder, histograms_of
from kvbench.tiers import directory, dram
from kvbench.tiers.directory import DirectoryTier, Workspace
from kvbench.tiers.dram import numa_nodes, numa_placement
from kvbench.tiers.findings import Diagnosis, Finding
from kvbench.tiers.mounts import Mount
from kvbench.tiers.removal import Kept
from kvbench.tiers.tier import Cleaning, DriverFindings, Kind, Ordinary
from kvbench.units import format_bandwidth, format_bytes, format_duration_ns

if TYPE_CHECKING:
    from kvbench.tiers.dram import Pool

TARGET = "dram"
# Larger than the caches of any processor, small enough for a pod.
_DEFAULT_BYTES = 1 << 30
_JOBS_OF_THE_STUDY = 16
# One server block of gpt-oss-120b.
_BLOCK_BYTES = 1179648
_COPY_S = 1.0


@dataclass(frozen=True, slots=True)
class MemoryTier(Ordinary):
    """The memory that this process may use."""

    name: str

    @property
    def mount(self) -> Mount | None:
        """Memory is not mounted."""
        return None

    @property
    def kind(self) -> Kind:
        """Memory."""
        return KIND

    @property
    def storage(self) -> str:
        """All runs of this host share it."""
        return "memory"

    def would(self, dataset: str) -> str:
        """A buffer of that size is taken."""
        return f"take {dataset} of"

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

    def workspace(self, run_dir: Path) -> AbstractContextManager[Workspace]:
        """A folder of the run: nothing is written elsewhere."""
        return directory.workspace(DirectoryTier(self.name, run_dir.resolve(), None, 0))


def _inspect(name: str, target: str, allow_destroy: Sequence[str]) -> MemoryTier:
    return MemoryTier(name)


def _examine(name: str, target: str, drivers: DriverFindings) -> Diagnosis:
    """What a copy of one block costs, for 1 s each; 'kvbench fio --tier dram' measures it as a run."""
    size, nodes = environment.memory_bytes(), numa_nodes()
    pool = dram.new_pool(dram.POOL_BYTES)
    findings = [
        Finding("memory", "ok", format_bytes(size) if size else "unknown"),
        *(_copy_finding(pool, threads) for threads in (1, _JOBS_OF_THE_STUDY)),
    ]
    if len(nodes) > 1:
        hint = "run it under 'numactl --cpunodebind=N --membind=N' for the node of the engine"
        findings.append(Finding("NUMA", "note", f"{len(nodes)} nodes, the system chose which took part", hint))
    return Diagnosis(name, TARGET, "memory of this host", MemoryTier(name).facts(), tuple(findings))


def _clean(target: str, wanted: Cleaning) -> Sequence[tuple[str, Kept | None]]:
    """Nothing is left in memory."""
    return ()


def _copy_finding(pool: Pool, threads: int) -> Finding:
    recorders = [Recorder() for _ in range(threads)]
    seconds = dram.copy_blocks(pool, _BLOCK_BYTES, recorders, _COPY_S)
    latencies = histograms_of(recorders)["read"]
    return Finding(
        f"copy, {threads} thread" + ("s" if threads > 1 else ""),
        "ok",
        f"{format_bytes(_BLOCK_BYTES)} in {format_duration_ns(latencies.percentile(50))} (p50), "
        f"{format_duration_ns(latencies.percentile(99))} (p99); "
        f"{format_bandwidth(latencies.samples * _BLOCK_BYTES / seconds)} together",
    )


def _available_bytes() -> int:
    """Memory that can be had without swapping (proc(5), MemAvailable), within the control group's limit."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    source = Path("/proc/meminfo")
    lines = source.read_text().splitlines() if source.exists() else []
    said = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    limit = environment.cgroup_limits().get("cgroup_memory_bytes")
    return min([*(said or [free]), *([limit] if isinstance(limit, int) else [])])


KIND = Kind(
    claims=lambda target: target == TARGET,
    inspect=_inspect,
    examine=_examine,
    clean=_clean,
    programs={"memory": "memory"},
    name_of=lambda target: target,
)
