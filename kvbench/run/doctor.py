"""What works here: the host, and each tier, as findings with the next step for every problem.

A tier is examined in a marked sub-directory of its own, removed afterwards; a device and a bucket are only looked at.
"""

from __future__ import annotations

import os
from pathlib import Path

from kvbench.drivers import registry
from kvbench.drivers.fio import run as fio_run
from kvbench.drivers.region import SHARED_MEMORY, huge_option, shmem_enabled
from kvbench.errors import ToolError
from kvbench.host import environment
from kvbench.tiers import kinds, probe
from kvbench.tiers.findings import Diagnosis, Finding
from kvbench.tiers.mounts import mount_of
from kvbench.units import format_bytes, format_count

_JOBS_OF_THE_STUDY = 16


def examine_host() -> list[Finding]:
    """What this host and this process offer to a measurement."""
    return [_fio(), _aio_slots(), _io_uring(), _cache_rights(), _memory(), _shared_memory()]


def examine_tier(name: str, target: str) -> Diagnosis:
    """What a tier is and can do; what cannot be examined is a problem, never an exception."""
    kind = kinds.named(target)
    if kind is None:
        if not probe.answers(Path(target).expanduser()):
            hung = Finding(
                "answers", "problem", "no answer within 10 s", "the mount hangs: look at its server, or remount it"
            )
            return Diagnosis(name, target, "a mount that hangs", {}, (hung,))
        kind = kinds.kind_of(target)
    return kind.examine(name, target, registry.findings)


def is_sound(findings: list[Finding]) -> bool:
    """Whether nothing stands in the way of a measurement."""
    return all(finding.status != "problem" for finding in findings)


def _fio() -> Finding:
    try:
        return Finding("fio", "ok", fio_run.find_fio().version)
    except ToolError as error:
        return Finding("fio", "problem", "missing, or of no use", str(error))


def _aio_slots() -> Finding:
    free = environment.aio_slots_free()
    if free is None:
        return Finding("libaio slots", "note", "the system does not say", "watch for fio's error 11 (EAGAIN)")
    if free < _JOBS_OF_THE_STUDY:
        hint = "use fewer --numjobs, or have an administrator raise fs.aio-max-nr"
        return Finding("libaio slots", "problem", f"{free} left of fs.aio-max-nr, 16 jobs need 16", hint)
    return Finding("libaio slots", "ok", f"{format_count(free)} left of fs.aio-max-nr")


def _io_uring() -> Finding:
    number = probe.io_uring_error()
    if number is None:
        return Finding("io_uring", "ok", "allowed")
    hint = "kvbench uses libaio; for ioengine=io_uring allow it in the seccomp profile or kernel.io_uring_disabled"
    return Finding("io_uring", "note", f"refused ({os.strerror(number)})", hint)


def _cache_rights() -> Finding:
    if os.access("/proc/sys/vm/drop_caches", os.W_OK):
        return Finding("cache drop", "ok", "this user may drop the host's caches (kvbench drops only its own files')")
    hint = "O_DIRECT needs none of it; caches of a storage server need a command of your own before the reads"
    return Finding("cache drop", "note", "this user may not drop the host's caches", hint)


def _memory() -> Finding:
    size = environment.memory_bytes()
    text = f"{format_bytes(size)}; a larger --dataset defeats every cache of this host" if size else "unknown"
    return Finding("memory", "ok", text)


def _shared_memory() -> Finding:
    """Where the engine's CPU tier lies, and on which pages: the mount option decides for files in it."""
    mount = mount_of(SHARED_MEMORY)
    if mount is None or mount.filesystem != "tmpfs":
        hint = "the engine's CPU tier needs a tmpfs there; in Kubernetes an emptyDir of medium Memory"
        return Finding("/dev/shm", "note", "no tmpfs", hint)
    status = os.statvfs(SHARED_MEMORY)
    option = huge_option(mount.options)
    said = f"tmpfs with {option}" if option else "tmpfs without huge= (4 KiB pages unless the kernel says otherwise)"
    free = format_bytes(status.f_bavail * status.f_frsize)
    return Finding("/dev/shm", "ok", f"{said}, {free} free; shmem_enabled {shmem_enabled()}")
