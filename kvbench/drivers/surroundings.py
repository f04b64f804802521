"""What a round ran among, the same for every driver: the tier's counters, this host's load, memory and CPU steal."""

from __future__ import annotations

from dataclasses import dataclass

from kvbench.host import environment
from kvbench.record.results import Conditions
from kvbench.tiers.device import counted_since, counters_of
from kvbench.tiers.mounts import DeviceCounters, backing_of
from kvbench.tiers.tier import Tier


@dataclass(frozen=True, slots=True)
class Before:
    """Counters read when a round starts."""

    cpu: environment.CpuTimes | None
    waits: environment.CpuWaits
    device: DeviceCounters | None


def before_round(tier: Tier) -> Before:
    """The counters of now."""
    return Before(environment.cpu_times(), environment.cpu_waits(), counters_of(tier.mount))


def conditions_since(before: Before, tier: Tier) -> Conditions:
    """The conditions that this host and the tier's mount tell about a round that ends now; the rest is the driver's."""
    mount = tier.mount
    device = counted_since(before.device, counters_of(mount), mount)
    below = backing_of(mount) if mount else None
    waits = environment.cpu_waits()
    return Conditions(
        memory_bytes=environment.memory_bytes(),
        filesystem=mount.filesystem if mount else None,
        backing_filesystem=below.filesystem if below else None,
        device_read_bytes=device.read_bytes if device else None,
        device_written_bytes=device.written_bytes if device else None,
        device_read_requests=device.read_requests if device else None,
        device_write_requests=device.write_requests if device else None,
        load_1m=environment.load_1m(),
        cpu_steal_percent=environment.steal_percent(before.cpu, environment.cpu_times()),
        cpu_stalled_percent=environment.stalled_percent(before.waits, waits),
        cpu_waiting=environment.waiting_tasks(before.waits, waits),
        unmounted=tier.unmounted(),
    )
