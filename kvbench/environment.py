"""Where a run happened: host, kernel, versions, processors, memory, load and CPU steal."""

from __future__ import annotations

import math
import os
import platform
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from kvbench import __version__


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Jiffies since boot: all, and those that the hypervisor gave to others."""

    total: int
    steal: int


def collect(fio_version: str | None) -> dict[str, str | int | float | None]:
    """The environment of this process, for the result file; it holds no secret."""
    return {
        "kvbench": __version__,
        "fio": fio_version,
        "python": platform.python_version(),
        "host": socket.gethostname(),
        "system": _os_name(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": _cpu_name(),
        "cpus": os.cpu_count(),
        "usable_cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": memory_bytes(),
        "load_1m": load_1m(),
        "container": _container(),
    }


# What may change between two runs without making them incomparable.
_FREE_TO_DIFFER = frozenset({"kvbench", "python", "load_1m", "host"})


def differences(a: Mapping[str, object], b: Mapping[str, object]) -> list[tuple[str, str, str]]:
    """``(name, in a, in b)`` of every environment value that differs and can change a measurement."""
    names = [name for name in dict.fromkeys([*a, *b]) if name not in _FREE_TO_DIFFER]
    return [(name, str(a.get(name)), str(b.get(name))) for name in names if a.get(name) != b.get(name)]


def memory_bytes() -> int | None:
    """Physical memory of the host, or None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def load_1m() -> float | None:
    """Load average of the last minute."""
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None


def cpu_times() -> CpuTimes | None:
    """CPU time so far, from the first line of /proc/stat (proc(5): the eighth number is steal)."""
    source = Path("/proc/stat")
    if not source.exists():
        return None
    numbers = [int(field) for field in source.read_text().split("\n", 1)[0].split()[1:9]]
    return CpuTimes(total=sum(numbers), steal=numbers[7] if len(numbers) > 7 else 0)


def steal_percent(before: CpuTimes | None, after: CpuTimes | None) -> float | None:
    """Share of CPU time that the hypervisor took between two readings, in percent, or None."""
    if before is None or after is None or after.total <= before.total:
        return None
    return round(100 * (after.steal - before.steal) / (after.total - before.total), 1)


class HostWatch:
    """Load and CPU steal, second by second, from samples taken whenever somebody calls ``sample``."""

    def __init__(self) -> None:
        """Start the clock."""
        self._started = time.monotonic()
        self._samples: list[tuple[float, CpuTimes | None, float | None]] = []
        self.sample()

    def sample(self) -> None:
        """Read the counters now."""
        self._samples.append((time.monotonic() - self._started, cpu_times(), load_1m()))

    def by_second(self) -> dict[int, dict[str, float]]:
        """``{second: {load_1m, cpu_steal_percent}}``, seconds from 1; a second without a sample is left out."""
        found: dict[int, dict[str, float]] = {}
        for (_, before, _), (at_s, after, load) in pairwise(self._samples):
            steal = steal_percent(before, after)
            values = {"load_1m": load, "cpu_steal_percent": steal}
            found[max(1, math.ceil(at_s))] = {name: value for name, value in values.items() if value is not None}
        return found


def aio_slots_free() -> int | None:
    """How many libaio events may still be set up on this host (fs.aio-max-nr less aio-nr), or None."""
    folder = Path("/proc/sys/fs")
    try:
        return int((folder / "aio-max-nr").read_text()) - int((folder / "aio-nr").read_text())
    except (OSError, ValueError):
        return None


def _os_name() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return platform.system()


def _cpu_name() -> str | None:
    source = Path("/proc/cpuinfo")
    if not source.exists():
        return platform.processor() or None
    for line in source.read_text(errors="replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or None


def _container() -> str | None:
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return "container"
    return None
