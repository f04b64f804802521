"""The block device behind a tier as the kernel describes it (/sys); each value may be "unknown: because"."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from kvbench.tiers.findings import Finding, Value
from kvbench.tiers.mounts import DeviceCounters, Mount, backing_of, device_counters, device_model, device_name
from kvbench.units import format_bytes

_SYS = Path("/sys")
_KIB = 1024
_NOTHING = DeviceCounters(0, 0)


def device_facts(mount: Mount | None, sys: Path = _SYS) -> dict[str, str | int | None]:
    """Name, model, NUMA node and queue settings of the device that holds the mount, for the result file."""
    names = (
        *("device", "device_model", "numa_node", "scheduler", "queue_depth", "read_ahead_bytes", "rotational"),
        *("max_segments", "max_sectors_kb"),
    )
    numbers = counted_device(mount)
    block = sys / "dev" / "block"
    if numbers is None or not (block / numbers).exists():
        facts: dict[str, str | int | None] = dict.fromkeys(names, f"unknown: {_why_none(mount)}")
        # Network and FUSE mounts read ahead as well; the kernel keeps that beside the device numbers.
        own = _number(sys / "class" / "bdi" / numbers / "read_ahead_kb") if numbers else None
        return facts | ({"read_ahead_bytes": own * _KIB} if isinstance(own, int) else {})
    disk = _disk(block / numbers)
    read_ahead = _number(disk / "queue" / "read_ahead_kb")
    return {
        "device": device_name(numbers, block) or "unknown: not listed in /sys",
        "device_model": device_model(numbers, block) or "unknown: the device has no model text",
        "numa_node": _numa_node(disk),
        "scheduler": _scheduler(disk),
        "queue_depth": _number(disk / "queue" / "nr_requests"),
        "read_ahead_bytes": read_ahead * _KIB if isinstance(read_ahead, int) else read_ahead,
        "rotational": _rotational(disk),
        **queue_limits(numbers, sys),
    }


def queue_limits(numbers: str, sys: Path = _SYS) -> dict[str, str | int]:
    """Where the kernel splits a request to the device: pieces of memory, and KiB."""
    queue = _disk(sys / "dev" / "block" / numbers) / "queue"
    return {name: _number(queue / name) for name in ("max_segments", "max_sectors_kb")}


def queue_findings(facts: Mapping[str, Value]) -> Iterator[Finding]:
    """How the device splits a request: by the pages of the buffer, or by its length."""
    segments, most = facts.get("max_segments"), facts.get("max_sectors_kb")
    if isinstance(segments, int) and isinstance(most, int):
        scattered = format_bytes(segments * mmap.PAGESIZE)
        text = f"max_segments {segments}, max_sectors_kb {most}: scattered 4 KiB pages are split at {scattered}"
        yield Finding("requests", "ok", text)


def counted_device(mount: Mount | None) -> str | None:
    """``major:minor`` of the device whose counters show the mount's I/O: its own, or an overlay's upper directory's."""
    if mount is None:
        return None
    below = backing_of(mount)
    return mount.device_numbers if below is None else below.device_numbers


def sector_bytes(mount: Mount | None, sys: Path = _SYS) -> int | None:
    """The logical sector of the local device that holds the mount, which O_DIRECT is held to; None where none is."""
    numbers = counted_device(mount)
    link = sys / "dev" / "block" / numbers if numbers else None
    found = _number(_disk(link) / "queue" / "logical_block_size") if link is not None and link.exists() else None
    return found if isinstance(found, int) and found > 0 else None


def counters_of(mount: Mount | None, sys: Path = _SYS) -> DeviceCounters | None:
    """What the device that holds the mount has read and written so far, or None where nothing counts it.

    A device made of others (LVM, MD, dm-crypt) hands on what the disks below split again: their requests count.
    """
    numbers = counted_device(mount)
    found = device_counters(numbers) if numbers else None
    if numbers is None or found is None:
        return found
    below = [device_counters(own) for own in _disks_below(sys / "dev" / "block" / numbers)]
    disks = [counters for counters in below if counters is not None]
    if not disks:
        return found
    reads, writes = (sum(getattr(disk, name) for disk in disks) for name in ("read_requests", "write_requests"))
    return replace(found, read_requests=reads, write_requests=writes)


def _disks_below(device: Path) -> Iterator[str]:
    """``major:minor`` of the disks or partitions that a stacked device is made of; nothing for a disk itself."""
    for slave in sorted((device.resolve() / "slaves").glob("*")):
        deeper = list(_disks_below(slave))
        own = _text(slave / "dev")
        yield from deeper or ([own] if own else [])


def counted_since(
    before: DeviceCounters | None, after: DeviceCounters | None, mount: Mount | None, sys: Path = _SYS
) -> DeviceCounters | None:
    """What the device has read and written between two readings; None where its counters stand still for good.

    They do without accounting (queue/iostats 0), and where a device in use has counted nothing since boot. Counters
    that moved are believed whatever iostats says.
    """
    if before is None or after is None:
        return None
    moved = DeviceCounters(
        after.read_bytes - before.read_bytes,
        after.written_bytes - before.written_bytes,
        after.read_requests - before.read_requests,
        after.write_requests - before.write_requests,
    )
    stand_still = moved == _NOTHING and (after == _NOTHING or _accounting_is_off(mount, sys))
    return None if stand_still else moved


def _accounting_is_off(mount: Mount | None, sys: Path) -> bool:
    numbers = counted_device(mount)
    return numbers is not None and _text(_disk(sys / "dev" / "block" / numbers) / "queue" / "iostats") == "0"


def _why_none(mount: Mount | None) -> str:
    if mount is None:
        return "the system does not say what the directory is mounted from"
    return f"{mount.filesystem} has no block device on this host"


def _disk(link: Path) -> Path:
    """The folder of the whole disk: a partition's parent."""
    folder = link.resolve()
    return folder.parent if (folder / "partition").exists() else folder


def _scheduler(disk: Path) -> str:
    text = _text(disk / "queue" / "scheduler")
    if text is None:
        return "unknown: the device has no queue of its own"
    chosen = text.partition("[")[2].partition("]")[0]
    return chosen or text or "none"


def _rotational(disk: Path) -> str:
    # Virtual disks say 1 whatever is behind them, so this is what the kernel was told, not what spins.
    said = {"0": "no", "1": "yes"}.get(_text(disk / "queue" / "rotational") or "")
    return said or "unknown: the device does not say"


def _numa_node(disk: Path) -> int | str:
    for folder in (disk, *disk.parents):
        node = _text(folder / "numa_node")
        if node is not None:
            return int(node) if node.isdecimal() else "unknown: the platform does not tie the device to a node"
    return "unknown: the device is virtual"


def _number(path: Path) -> int | str:
    text = _text(path)
    return int(text) if text is not None and text.isdecimal() else "unknown: the device does not say"


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None
