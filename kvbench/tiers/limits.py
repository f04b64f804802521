"""How fast a tier can be at most: what the user says, else the link of the device or the network, when it is known."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvbench.tiers.mounts import Mount

_SYS = Path("/sys")
_GT_PER_S = re.compile(r"([0-9.]+) GT/s")
# PCIe 1 and 2 send 10 bits for 8, later ones 130 for 128 (PCI Express Base Specification, 4.2).
_OLD_ENCODING_GT = 5.0
_MEGABIT = 125_000
_UNKNOWN_SPEED = frozenset({0, -1, 4294967295})
_LOCAL = re.compile(r"^(127\.|localhost\b|\[?::1\b)")


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that one direction can carry in bytes per second, what says so, and whether the user did."""

    bytes_per_s: int
    source: str
    asked: bool = False


def limit_of(mount: Mount | None, asked: int | None, sys: Path = _SYS) -> Limit | str:
    """The limit of a tier: ``asked`` (--limit) if given, else that of its link; text says why it is not known."""
    if asked is not None:
        return Limit(asked, "--limit", asked=True)
    if mount is None:
        return "unknown: the system does not say what the directory is mounted from"
    if mount.kind == "block":
        return _device_limit(mount.device_numbers, sys)
    if mount.kind == "network":
        return _network_limit(mount.source, sys)
    return f"unknown: {mount.filesystem} has no link of its own"


def limit_facts(limit: Limit | str) -> dict[str, str | int | bool | None]:
    """The limit for the result file: the rate and its source, or why it is not known."""
    if isinstance(limit, str):
        return {"limit_bytes_per_s": limit, "limit_source": None, "limit_asked": False}
    return {"limit_bytes_per_s": limit.bytes_per_s, "limit_source": limit.source, "limit_asked": limit.asked}


def _device_limit(device_numbers: str, sys: Path) -> Limit | str:
    link = sys / "dev" / "block" / device_numbers
    if not link.exists():
        return "unknown: the device is not listed in /sys"
    for folder in (link.resolve(), *link.resolve().parents):
        width, speed = _read(folder / "current_link_width"), _read(folder / "current_link_speed")
        rate = _GT_PER_S.search(speed or "")
        # The first PCIe function above the disk is its own; bridges further up carry more.
        if rate is not None and width is not None and width.isdecimal() and int(width):
            transfers = float(rate[1])
            payload = 8 / 10 if transfers <= _OLD_ENCODING_GT else 128 / 130
            bytes_per_s = round(transfers * 1e9 * int(width) * payload / 8)
            return Limit(bytes_per_s, f"PCIe {transfers:g} GT/s x{width} of {link.resolve().name}")
    return "unknown: the device is virtual or does not tell the speed of its link"


def _network_limit(source: str, sys: Path) -> Limit | str:
    # A server on this host answers without crossing any link.
    if _LOCAL.match(source) or socket.gethostname().split(".")[0] == re.split(r"[:/.]", source.lstrip("/"))[0]:
        return "unknown: the server is on this host"
    found = list(_network_speeds(sys))
    if not found:
        return "unknown: no network interface of this host tells its speed"
    total = sum(megabits for _, megabits in found)
    return Limit(total * _MEGABIT, " + ".join(f"{name} {megabits:,} Mbit/s" for name, megabits in found))


def _network_speeds(sys: Path) -> Iterator[tuple[str, int]]:
    """Physical interfaces that are up, with their speed in Mbit/s; virtual ones invent theirs."""
    for folder in sorted((sys / "class" / "net").glob("*")):
        speed = _read(folder / "speed")
        if not (folder / "device").exists() or _read(folder / "operstate") != "up" or speed is None:
            continue
        if re.fullmatch(r"-?\d+", speed) and int(speed) not in _UNKNOWN_SPEED:
            yield folder.name, int(speed)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None
