"""What works here: the host, and each tier, as findings with the next step for every problem.

A tier is examined in a marked sub-directory of its own, removed afterwards; a device and a bucket are only looked at.
"""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kvbench.drivers.fio import run as fio_run
from kvbench.drivers.fio.job import fio_path
from kvbench.drivers.region import SHARED_MEMORY, huge_option, shmem_enabled
from kvbench.drivers.s3 import client as s3_client
from kvbench.errors import InputFileError, KvbenchError, TierError, ToolError
from kvbench.formats.fio import read as fio_format
from kvbench.host import environment
from kvbench.record.recorder import Recorder, histograms_of
from kvbench.tiers import block, bucket, directory, dram, endpoint, kinds, memory, parents, probe, s3_requests
from kvbench.tiers.block import Kernel
from kvbench.tiers.device import queue_limits
from kvbench.tiers.directory import DirectoryTier, Workspace
from kvbench.tiers.guard import TOKEN_VARIABLE
from kvbench.tiers.mounts import mount_of
from kvbench.tiers.unmounted import unmounted
from kvbench.units import format_bandwidth, format_bytes, format_count, format_duration_ns

if TYPE_CHECKING:
    from kvbench.tiers.dram import Pool

Status = Literal["ok", "note", "problem"]
Value = str | int | bool | None

ENGINES = ("libaio", "io_uring", "psync")
_JOBS_OF_THE_STUDY = 16
_MEGABYTE = 1 << 20
# One server block of gpt-oss-120b.
_BLOCK_BYTES = 1179648
_COPY_S = 1.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. A problem stops a measurement, a note limits what it means; both say what to do."""

    check: str
    status: Status
    observed: str
    next_step: str | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A tier: what kind it is, its facts, and what was found."""

    name: str
    target: str
    kind: str
    facts: Mapping[str, Value]
    findings: tuple[Finding, ...]


def examine_host() -> list[Finding]:
    """What this host and this process offer to a measurement."""
    return [_fio(), _aio_slots(), _io_uring(), _cache_rights(), _memory(), _shared_memory()]


def examine_tier(name: str, target: str) -> Diagnosis:
    """What a tier is and can do; what cannot be examined is a problem, never an exception."""
    if bucket.claims(target):
        return _bucket(name, target)
    if memory.claims(target):
        return _memory_tier(name)
    if not probe.answers(Path(target).expanduser()):
        hung = Finding(
            "answers", "problem", "no answer within 10 s", "the mount hangs: look at its server, or remount it"
        )
        return Diagnosis(name, target, "a mount that hangs", {}, (hung,))
    # A mistyped name below /dev is a device that is not there, no directory.
    if block.is_block_device(target) or (target.startswith("/dev/") and not Path(target).is_dir()):
        return _device(name, target)
    return _directory(name, target)


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


def _queue(facts: Mapping[str, Value]) -> Iterator[Finding]:
    """How the device splits a request: by the pages of the buffer, or by its length."""
    segments, most = facts.get("max_segments"), facts.get("max_sectors_kb")
    if isinstance(segments, int) and isinstance(most, int):
        scattered = format_bytes(segments * mmap.PAGESIZE)
        text = f"max_segments {segments}, max_sectors_kb {most}: scattered 4 KiB pages are split at {scattered}"
        yield Finding("requests", "ok", text)


def _directory(name: str, target: str) -> Diagnosis:
    try:
        tier = directory.inspect(name, target)
    except TierError as error:
        return Diagnosis(name, target, "nothing to measure", {}, (Finding("tier", "problem", "unusable", str(error)),))
    facts = tier.facts()
    findings = [*_place(tier), _space(tier), *_shared(tier), *_in_workspace(tier), *_queue(facts), *_caveats(tier)]
    return Diagnosis(name, target, kinds.describe(tier.mount), facts, tuple(findings))


def _place(tier: DirectoryTier) -> Iterator[Finding]:
    said = unmounted(tier.path)
    if said is not None:
        yield Finding("mount point", "note", said, "mount it, unless the root file system is what you mean to measure")


def _space(tier: DirectoryTier) -> Finding:
    wanted = tier.default_dataset_bytes()
    free = format_bytes(tier.free_bytes)
    try:
        tier.require_space(max(wanted, _MEGABYTE))
    except TierError as error:
        return Finding("free space", "problem", free, str(error))
    return Finding("free space", "ok", f"{free}; the default data set is {format_bytes(wanted)}")


def _shared(tier: DirectoryTier) -> Iterator[Finding]:
    """The finding that others can rename what kvbench makes, where they can."""
    why = parents.shared_by(tier.path, tier.mount)
    if why is not None:
        hint = "kvbench fio wants --allow-shared here; a directory that only you may write to needs none"
        yield Finding("shared", "note", why, hint)


def _in_workspace(tier: DirectoryTier) -> Iterator[Finding]:
    """The findings of the checks that need a sub-directory."""
    try:
        with directory.workspace(tier) as space:
            yield Finding("sub-directory", "ok", "can be created, written and removed")
            yield from _direct_io(space)
            yield from _engines(space)
    except TierError as error:
        yield Finding("sub-directory", "problem", "cannot be created", str(error))


def _direct_io(space: Workspace) -> Iterator[Finding]:
    size = probe.smallest_direct_size(space.place)
    if size is None:
        yield Finding("O_DIRECT", "problem", "refused", "name a directory on a file system that supports O_DIRECT")
        return
    rule = "any size" if size == probe.UNALIGNED else f"multiples of {size} bytes"
    yield Finding("O_DIRECT", "ok", f"takes {rule}")
    pages = probe.direct_io_leaves_pages(space.place)
    if pages:
        hint = "the page cache takes part: use a data set above this host's memory, or another mount"
        yield Finding("page cache", "note", f"{pages:.0%} of a file's pages are cached after O_DIRECT", hint)
    elif pages is not None:
        yield Finding("page cache", "ok", "bypassed by O_DIRECT")


def _engines(space: Workspace) -> Iterator[Finding]:
    """One write of 1 MiB with each ioengine, by fio itself."""
    try:
        fio = fio_run.find_fio()
        fio_path(space.path)
    except ToolError:
        return
    except TierError as error:
        yield Finding("path", "problem", "fio cannot express it", str(error))
        return
    for engine in ENGINES:
        failure = _engine_failure(fio, space, engine)
        needed = engine == "libaio"
        hint = None if failure is None else "kvbench measures with libaio" if needed else "kvbench does not need it"
        status: Status = "ok" if failure is None else "problem" if needed else "note"
        yield Finding(f"fio {engine}", status, failure or "works here", hint)


def _engine_failure(fio: fio_run.Fio, space: Workspace, engine: str) -> str | None:
    folder = space.place / f"doctor-{engine}"
    folder.mkdir()
    options = {
        "directory": fio_path(folder),
        "filename": "probe",
        "direct": 1,
        "ioengine": engine,
        "iodepth": 1,
        "thread": 1,
        "rw": "write",
        "bs": _MEGABYTE,
        "size": _MEGABYTE,
        "numjobs": 1,
    }
    job_file = folder / "job.fio"
    job_file.write_text("\n".join(["[doctor]", *(f"{key}={value}" for key, value in options.items()), ""]))
    done = fio_run.run_job(
        fio,
        job_file,
        timeout_s=30,
        environment={TOKEN_VARIABLE: space.token},
        on_rate=lambda text: None,
        inherited=space.inherited,
    )
    if done.timed_out:
        return "no answer within 30 s"
    try:
        (job,) = fio_format.parse(done.output, "fio's output").jobs
    except (InputFileError, ValueError):
        return " ".join((done.errors or done.output).split())[:200] or f"fio ended with exit code {done.code}"
    if job.error or job.write is None:
        return os.strerror(job.error) if job.error else "fio wrote nothing"
    return None


def _caveats(tier: DirectoryTier) -> Iterator[Finding]:
    said = kinds.caveat(tier.mount)
    if said is not None:
        observed, _, hint = said.rpartition("; ")
        yield Finding("meaning", "note", observed, hint)


def _device(name: str, target: str) -> Diagnosis:
    kernel = Kernel.here()
    try:
        device = block.identify(target, kernel)
    except TierError as error:
        return Diagnosis(name, target, "nothing to measure", {}, (Finding("tier", "problem", "unusable", str(error)),))
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
    findings = [
        Finding("device", "ok", size),
        _refusal("unused", "nothing uses it", lambda: block.require_unused(device, kernel)),
        _refusal("exclusive", "can be opened for exclusive use", lambda: block.require_exclusive(device)),
        _contents(device),
        *_queue(facts),
    ]
    return Diagnosis(name, target, kind, facts, tuple(findings))


def _contents(device: block.BlockDevice) -> Finding:
    try:
        head, tail = block.read_ends(device)
        block.require_expendable(device, head, tail)
    except TierError as error:
        return Finding("contents", "note", "must not be written", str(error))
    found = block.filesystem_signature(head)
    if found is None:
        return Finding("contents", "ok", "no known signature at its start")
    return Finding("contents", "note", f"holds {found}", "writing would destroy it; look at it before you allow that")


def _refusal(check: str, fine: str, require: Callable[[], None]) -> Finding:
    try:
        require()
    except TierError as error:
        return Finding(check, "problem", "no", str(error))
    return Finding(check, "ok", fine)


def _memory_tier(name: str) -> Diagnosis:
    """What a copy of one block costs, for 1 s each; 'kvbench fio --tier dram' measures it as a run."""
    size, nodes = environment.memory_bytes(), dram.numa_nodes()
    pool = dram.new_pool(dram.POOL_BYTES)
    findings = [
        Finding("memory", "ok", format_bytes(size) if size else "unknown"),
        *(_copy_finding(pool, threads) for threads in (1, _JOBS_OF_THE_STUDY)),
    ]
    if len(nodes) > 1:
        hint = "run it under 'numactl --cpunodebind=N --membind=N' for the node of the engine"
        findings.append(Finding("NUMA", "note", f"{len(nodes)} nodes, the system chose which took part", hint))
    return Diagnosis(name, memory.TARGET, "memory of this host", memory.inspect(name).facts(), tuple(findings))


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


def _bucket(name: str, target: str) -> Diagnosis:
    """The endpoint that the AWS settings name, whether it listens, and one HEAD request; no key is shown."""
    try:
        tier = bucket.inspect(name, target)
    except KvbenchError as error:
        return Diagnosis(name, target, "S3", {}, (Finding("endpoint", "problem", "unusable", str(error)),))
    found = tier.endpoint
    answered = endpoint.listens(found)
    hint = None if answered else "check AWS_ENDPOINT_URL, the network and the proxy settings"
    findings = [
        Finding("endpoint", "ok" if answered else "problem", "listens" if answered else "does not listen", hint)
    ]
    keys, problem = _s3_keys()
    findings.append(Finding("credentials", "ok" if problem is None else "problem", keys, problem))
    if answered and problem is None:
        findings.append(_refusal("bucket", "is there, and these keys may list it", lambda: _head(tier)))
    facts: dict[str, Value] = {"endpoint": found.url, "region": found.region, **tier.facts()}
    return Diagnosis(name, target, f"S3 at {found.url}", facts, (*findings, _s3_client(), _http_engine()))


def _s3_keys() -> tuple[str, str | None]:
    """What the chain of credentials gives, and what to do about it."""
    try:
        if s3_requests.credentials() is not None:
            return "found", None
    except KvbenchError as error:
        return "cannot be looked for", str(error)
    hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write ~/.aws/credentials"
    return "none in the environment, in ~/.aws or from this machine's role", hint


def _head(tier: bucket.BucketTier) -> None:
    requests = s3_requests.Requests(tier.endpoint, tier.bucket)
    try:
        requests.head()
    finally:
        requests.close()


def _s3_client() -> Finding:
    try:
        return Finding("s3 driver", "ok", f"obstore {s3_client.require_installed()}")
    except ToolError as error:
        return Finding("s3 driver", "problem", "missing", str(error))


def _http_engine() -> Finding:
    program = shutil.which("fio")
    if program is None:
        return Finding("fio http", "note", "fio is not installed", "S3 can be measured without it")
    done = subprocess.run([program, "--enghelp=http"], capture_output=True, text=True, timeout=30, check=False)
    has_engine = "http_host" in done.stdout
    hint = None if has_engine else "Debian builds fio without libcurl; the published job files need a build with it"
    return Finding("fio http", "ok" if has_engine else "note", "has the engine" if has_engine else "lacks it", hint)
