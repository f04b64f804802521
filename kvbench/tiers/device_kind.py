"""A block device as a kind of tier: what tells one, and how it is examined without writing; nothing is left on one."""

from __future__ import annotations

import os

from kvbench.errors import TierError
from kvbench.tiers import block, device_tier, directory_kind
from kvbench.tiers.block import BlockDevice, Kernel
from kvbench.tiers.device import queue_findings, queue_limits
from kvbench.tiers.findings import Diagnosis, Finding, Value, required, unusable
from kvbench.tiers.tier import DriverFindings, Kind
from kvbench.units import format_bytes


def examine(name: str, target: str, drivers: DriverFindings) -> Diagnosis:
    """What the device is, and whether it may be read and written; it is only looked at."""
    kernel = Kernel.here()
    try:
        device = block.identify(target, kernel)
    except TierError as error:
        return unusable(name, target, error)
    number = device.path.stat().st_rdev
    facts: dict[str, Value] = {
        "path": str(device.path),
        "device": device.name,
        "device_model": device.model,
        "size_bytes": device.size_bytes,
        "logical_sector_bytes": device.logical_sector_bytes,
        "physical_sector_bytes": device.physical_sector_bytes,
        "read_only": device.read_only,
        **queue_limits(f"{os.major(number)}:{os.minor(number)}"),
    }
    kind = f"block device {device.path}" + (f" ({device.model})" if device.model else "")
    size = f"{format_bytes(device.size_bytes)} in sectors of {device.logical_sector_bytes} bytes"
    findings = (
        Finding("device", "ok", size),
        required("unused", "nothing uses it", lambda: block.require_unused(device, kernel)),
        required("exclusive", "can be opened for exclusive use", lambda: block.require_exclusive(device)),
        _contents(device),
        *queue_findings(facts),
    )
    return Diagnosis(name, target, kind, facts, findings)


def _contents(device: BlockDevice) -> Finding:
    try:
        head, tail = block.read_ends(device)
        block.require_expendable(device, head, tail)
    except TierError as error:
        return Finding("contents", "note", "must not be written", str(error))
    found = block.filesystem_signature(head)
    if found is None:
        return Finding("contents", "ok", "no known signature at its start")
    return Finding("contents", "note", f"holds {found}", "writing would destroy it; look at it before you allow that")


KIND = Kind(
    claims=block.is_block_device,
    inspect=device_tier.inspect,
    examine=examine,
    # Refused there, with what can be cleaned.
    clean=directory_kind.clean,
    programs={"fio": "fio"},
    name_of=directory_kind.name_of,
    on_path=True,
)
