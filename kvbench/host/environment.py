"""Where a run happened: host, kernel, versions, processors, memory, limits, load and CPU steal.

A value that this process cannot see is the text ``unknown: because``, never a guess.
"""

from __future__ import annotations

import math
import os
import platform
import re
import shutil
import socket
import subprocess
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


@dataclass(frozen=True, slots=True)
class CpuWaits:
    """How long tasks have waited for a CPU by ``at_s``: any of them, and all of them added up; None where not told."""

    at_s: float
    some_us: Mapping[str, int]
    all_ns: int | None


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
        "virtualisation": virtualisation(),
        "container": _container(),
        "cpu": _cpu_name(),
        "cpus": os.cpu_count(),
        "usable_cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": memory_bytes(),
        "load_1m": load_1m(),
        "frequency_governor": frequency_governor(),
        "numa_nodes": numa_nodes(),
        "clock_source": _text("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        or "unknown: the system does not say",
        **cgroup_limits(),
        "aio_max_nr": _integer("/proc/sys/fs/aio-max-nr", "the system has no fs.aio-max-nr"),
        "io_uring": _io_uring(),
        "engines": "unknown: fio was not asked" if fio_version is None else fio_engines(),
    }


# What may change between two runs without making them incomparable; a pod's host name changes with every start. The
# last ones are facts of a tier.
_FREE_TO_DIFFER = frozenset({"kvbench", "python", "load_1m", "host", "path", "free_bytes"})


def differences(a: Mapping[str, object], b: Mapping[str, object]) -> list[tuple[str, str, str]]:
    """``(name, in a, in b)`` of every value of two environments, or of a tier's facts, that can change a measurement.

    A value that one of them does not know, or did not record, differs: what is not known is not the same.
    """
    names = [name for name in dict.fromkeys([*a, *b]) if name not in _FREE_TO_DIFFER]
    return [(name, _shown(a, name), _shown(b, name)) for name in names if _shown(a, name) != _shown(b, name)]


def _shown(environment: Mapping[str, object], name: str) -> str:
    return str(environment[name]) if name in environment else "not recorded"


def virtualisation(root: Path = Path("/")) -> str:
    """The hypervisor by name, "virtual" when the processor only says that there is one, or "none seen"."""
    kind = _text(root / "sys/hypervisor/type")
    product = " ".join(
        filter(None, (_text(root / f"sys/class/dmi/id/{name}") for name in ("sys_vendor", "product_name")))
    )
    flags = re.search(r"^flags\s*:.*\bhypervisor\b", _text(root / "proc/cpuinfo") or "", re.MULTILINE)
    if kind is not None:
        return kind
    if flags:
        return f"virtual ({product or 'the hypervisor is not named'})"
    if not (root / "proc/cpuinfo").exists():
        return "unknown: the system has no /proc/cpuinfo"
    return "none seen"


def frequency_governor(root: Path = Path("/")) -> str:
    """The CPU frequency governor, all of them where processors differ."""
    found = {_text(path) for path in root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")}
    named = sorted(name for name in found if name)
    return ", ".join(named) or "unknown: no cpufreq here, as in most virtual machines"


def numa_nodes(root: Path = Path("/")) -> int | str:
    """Number of NUMA nodes."""
    found = len(list(root.glob("sys/devices/system/node/node[0-9]*")))
    return found or "unknown: the system shows no NUMA nodes"


def cgroup_limits(root: Path = Path("/")) -> dict[str, str | int | float | None]:
    """Memory, CPU and I/O limits of this process's control group (version 2, or the version 1 controllers)."""
    folder = _group(root)
    if (folder / "cgroup.controllers").exists():
        return {
            "cgroup_memory_bytes": _limit(_text(folder / "memory.max")),
            "cgroup_cpus": _quota((_text(folder / "cpu.max") or "").split()),
            "cgroup_io": _text(folder / "io.max") or "no limit seen",
        }
    cpu, memory = (_old_group(root, controller) for controller in ("cpu", "memory"))
    period = [_text(cpu / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
    return {
        "cgroup_memory_bytes": _limit(_text(memory / "memory.limit_in_bytes")),
        "cgroup_cpus": _quota([text for text in period if text is not None]),
        "cgroup_io": "unknown: this system has no cgroup version 2",
    }


def _group(root: Path) -> Path:
    """This process's folder of cgroup version 2; in a container its own group is mounted as the root."""
    group = re.search(r"^0::/(.*)$", _text(root / "proc/self/cgroup") or "", re.MULTILINE)
    folder = root / "sys/fs/cgroup" / (group[1] if group else "")
    return folder if (folder / "cgroup.controllers").exists() else root / "sys/fs/cgroup"


def _old_group(root: Path, controller: str) -> Path:
    """This process's folder of a cgroup version 1 controller; in a container its own group is mounted as the root."""
    own = re.search(rf"^\d+:(?:[^:]*,)?{controller}(?:,[^:]*)?:/(.*)$", _text(root / "proc/self/cgroup") or "", re.M)
    top = root / "sys/fs/cgroup" / controller
    return top / own[1] if own and (top / own[1]).is_dir() else top


def _limit(text: str | None) -> int | str:
    # Version 1 has no "max": it writes the largest number of pages that fits.
    if text is None:
        return "no limit seen"
    return int(text) if text.isdecimal() and int(text) < 1 << 62 else "no limit"


def _quota(fields: list[str]) -> float | str:
    if len(fields) != 2 or not fields[1].isdecimal() or int(fields[1]) == 0:
        return "no limit seen"
    return round(int(fields[0]) / int(fields[1]), 2) if fields[0].isdecimal() else "no limit"


def _io_uring() -> str:
    """Whether the kernel lets processes use io_uring (kernel.io_uring_disabled, Linux 6.6 and later)."""
    said = {"0": "allowed", "1": "for privileged processes only", "2": "disabled"}
    text = _text("/proc/sys/kernel/io_uring_disabled")
    # A container's seccomp profile may still forbid it (moby/moby#46762); only a job can tell.
    return said.get(text or "", "unknown: the kernel has no such setting")


def fio_engines() -> str:
    """fio's I/O engines, as it lists them itself."""
    program = shutil.which("fio")
    if program is None:
        return "unknown: fio is not on PATH"
    try:
        answer = subprocess.run(
            [program, "--enghelp"], capture_output=True, text=True, errors="replace", timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown: fio --enghelp does not run ({error})"
    names = [line.strip() for line in answer.stdout.splitlines() if line[:1].isspace() and line.strip()]
    return ", ".join(names) or "unknown: fio --enghelp lists none"


def _integer(path: str, why_not: str) -> int | str:
    text = _text(path)
    return int(text) if text is not None and text.isdecimal() else f"unknown: {why_not}"


def _text(path: str | Path) -> str | None:
    try:
        return Path(path).read_text(errors="replace").strip() or None
    except OSError:
        return None


def memory_bytes() -> int | None:
    """Physical memory of the host, or None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def memory_left_bytes(root: Path = Path("/")) -> int | None:
    """Memory that can be had without swapping, within the control group's limit; None where neither is told."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _text(root / "proc/meminfo") or "", re.MULTILINE)
    host = [int(found[1]) << 10] if found else []
    return min([*host, *_group_left(root)], default=None)


def _group_left(root: Path) -> list[int]:
    """What the limit of this process's control group leaves; pages of files that nobody uses can be taken back."""
    limit = cgroup_limits(root)["cgroup_memory_bytes"]
    if not isinstance(limit, int):
        return []
    folder, usage, reclaimable = _memory_group(root)
    used = _text(folder / usage) or ""
    idle = re.search(rf"^{reclaimable} (\d+)", _text(folder / "memory.stat") or "", re.MULTILINE)
    if not used.isdecimal():
        return [limit]
    return [max(0, limit - int(used) + (int(idle[1]) if idle else 0))]


def _memory_group(root: Path) -> tuple[Path, str, str]:
    """The folder of this process's memory controller, and what usage and idle pages of files are called there."""
    folder = _group(root)
    if (folder / "cgroup.controllers").exists():
        return folder, "memory.current", "inactive_file"
    return _old_group(root, "memory"), "memory.usage_in_bytes", "total_inactive_file"


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


def cpu_waits(root: Path = Path("/")) -> CpuWaits:
    """Waiting for a CPU so far: pressure-stall information of the host and of this control group, run-queue delay."""
    group = re.search(r"^0::/(.*)$", _text(root / "proc/self/cgroup") or "", re.MULTILINE)
    sources = (root / "proc/pressure/cpu", root / "sys/fs/cgroup" / (group[1] if group else "") / "cpu.pressure")
    some = {str(path): int(found[1]) for path in sources if (found := _SOME.search(_text(path) or ""))}
    # Per CPU: the eighth number is the time that tasks spent waiting to run (sched-stats.rst).
    delays = [int(number) for number in _RUN_DELAY.findall(_text(root / "proc/schedstat") or "")]
    return CpuWaits(time.monotonic(), some, sum(delays) if delays else None)


_SOME = re.compile(r"^some .*total=(\d+)", re.MULTILINE)
_RUN_DELAY = re.compile(r"^cpu\d+(?: \d+){7} (\d+)", re.MULTILINE)


def stalled_percent(before: CpuWaits, after: CpuWaits) -> float | None:
    """Share of the time in which some task waited for a CPU, in percent: of the host or of this control group."""
    seconds = after.at_s - before.at_s
    both = before.some_us.keys() & after.some_us.keys()
    if seconds <= 0 or not both:
        return None
    most_us = max(after.some_us[name] - before.some_us[name] for name in both)
    return round(min(100.0, most_us / seconds / 1e4), 1)


def waiting_tasks(before: CpuWaits, after: CpuWaits) -> float | None:
    """How many tasks waited for a CPU on average, or None."""
    seconds = after.at_s - before.at_s
    if seconds <= 0 or before.all_ns is None or after.all_ns is None:
        return None
    return round((after.all_ns - before.all_ns) / seconds / 1e9, 2)


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


def _container() -> str:
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return "container"
    return "none seen"
