"""What a storage cluster moved during one run, as its own counters say (pure).

Ceph: the pools' counters of the manager's prometheus module (DF_POOL; seen with 16.2), which count what clients read
and wrote, once whatever the copies. Without pools the OSDs' own counters of client operations (ceph-exporter), which
also give a latency. Both count every client of the cluster, not only the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvbench.formats.metrics.record import Metrics

ALL = "all pools"
_POOL = "ceph_pool_{}"
_OSD = {"rd_bytes": "ceph_osd_op_r_out_bytes", "wr_bytes": "ceph_osd_op_w_in_bytes"}
_OSD |= {"rd": "ceph_osd_op_r", "wr": "ceph_osd_op_w"}


@dataclass(frozen=True, slots=True)
class PoolTraffic:
    """Bytes and operations of clients."""

    read_bytes: float = 0.0
    written_bytes: float = 0.0
    reads: float = 0.0
    writes: float = 0.0

    @property
    def bytes(self) -> float:
        """Both directions together."""
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True, slots=True)
class StorageState:
    """Traffic by pool (``ALL`` where pools were not counted), and the mean time of an OSD's operation, in seconds."""

    pools: Mapping[str, PoolTraffic] = field(default_factory=dict)
    read_latency_s: float | None = None
    write_latency_s: float | None = None

    @property
    def total(self) -> PoolTraffic:
        """All pools together."""
        every = self.pools.values()
        return PoolTraffic(
            sum(one.read_bytes for one in every),
            sum(one.written_bytes for one in every),
            sum(one.reads for one in every),
            sum(one.writes for one in every),
        )


def storage_of(metrics: Metrics) -> StorageState | None:
    """What the metrics of a run say of its storage, None where they say nothing."""
    pools = _pools(metrics) or _osds(metrics)
    if not pools:
        return None
    return StorageState(pools, _latency(metrics, "r"), _latency(metrics, "w"))


def _pools(metrics: Metrics) -> dict[str, PoolTraffic]:
    names = {one["pool_id"]: one["name"] for one in metrics.described("ceph_pool_metadata") if one.keys() >= _NAMED}
    counted = [metrics.grew_by(_POOL.format(kind), "pool_id") for kind in ("rd_bytes", "wr_bytes", "rd", "wr")]
    found = dict.fromkeys(pool for counts in counted for pool in counts)
    return {
        names.get(pool, f"pool {pool}"): PoolTraffic(*(counts.get(pool, 0.0) for counts in counted)) for pool in found
    }


_NAMED = {"pool_id", "name"}


def _osds(metrics: Metrics) -> dict[str, PoolTraffic]:
    counted = [metrics.grew(_OSD[kind]) for kind in ("rd_bytes", "wr_bytes", "rd", "wr")]
    if all(count is None for count in counted):
        return {}
    return {ALL: PoolTraffic(*(count or 0.0 for count in counted))}


def _latency(metrics: Metrics, direction: str) -> float | None:
    seconds, count = (metrics.grew(f"ceph_osd_op_{direction}_latency_{part}") for part in ("sum", "count"))
    return None if seconds is None or not count else seconds / count
