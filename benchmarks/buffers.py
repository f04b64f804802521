"""Which memory a direct read lands in, side by side: device requests for each read, and speed against the engine's.

    python benchmarks/buffers.py DIRECTORY [--seconds 2] [--rounds 6] [--threads 16] [--dataset 512MiB]

Reads of 2,304 KiB block files, by the replay into each kind of --buffers, and by fio into each of its choices of mem=;
in turns, forwards and backwards. As root also into a tmpfs that is mounted with huge=always for the time of the run.
A round in which somebody else used the device counts for the speed and not for the requests.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kvbench.drivers.fio.run import find_fio
from kvbench.drivers.region import SHARED_MEMORY, memory_for
from kvbench.drivers.replay.blocks import BlockFiles
from kvbench.drivers.replay.calls import Buffer
from kvbench.drivers.replay.flow import REQUESTS, InFlight, Worker, fill
from kvbench.drivers.settings import Buffers
from kvbench.errors import MeasurementError, ToolError
from kvbench.record.comparison import ratio_interval
from kvbench.record.recorder import total_bytes
from kvbench.record.requests import split
from kvbench.tiers.device import counters_of
from kvbench.tiers.directory import inspect, workspace
from kvbench.tiers.mounts import Mount
from kvbench.units import parse_size

SIZE = 2304 << 10
REFERENCE = "replay, --buffers engine"
MEMORIES = ("malloc", "mmap", "shm", "mmapshared")
HUGE_MALLOC = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}

# Operations, and the seconds that they took.
Way = Callable[[], tuple[int, float]]


@dataclass(slots=True)
class Seen:
    """What the rounds of one way gave: bytes per second, and requests for each read where they were ours."""

    rates: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)


def main() -> None:
    """Measure in turns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--dataset", default="512MiB")
    chosen = parser.parse_args()
    tier = inspect("buffers", chosen.directory)
    with workspace(tier) as space, huge_tmpfs() as folder:
        blocks = BlockFiles(space.path, SIZE, parse_size(chosen.dataset) // SIZE)
        fill(blocks, blocks.first_names(), [Worker(REQUESTS.calls(), Buffer(SIZE)) for _ in range(8)], lambda: None)
        blocks.sync()
        found = in_turns(ways(blocks, chosen.threads, chosen.seconds, folder), chosen.rounds, tier.mount)
    show(found)


def ways(blocks: BlockFiles, threads: int, seconds: int, folder: Path | None) -> dict[str, Way]:
    """How to read, by name; what this host does not offer is named and left out."""
    kinds: dict[str, tuple[Buffers, Path]] = {
        REFERENCE: ("engine", SHARED_MEMORY),
        "replay, --buffers own": ("own", SHARED_MEMORY),
        "replay, --buffers huge": ("huge", SHARED_MEMORY),
    }
    if folder is not None:
        kinds["replay, a tmpfs with huge=always"] = ("engine", folder)
    found: dict[str, Way] = {}
    for name, (kind, place) in kinds.items():
        try:
            print(f"{name}: {memory_for(kind, threads, SIZE, place).described}")
        except MeasurementError as error:
            print(f"{name}: skipped, {error}")
            continue
        found[name] = replay(blocks, threads, seconds, kind, place)
    try:
        program = find_fio().path
    except ToolError as error:
        print(f"fio: skipped, {error}")
        return found
    for memory in MEMORIES:
        found[f"fio, mem={memory}"] = fio(program, blocks, threads, seconds, f"--mem={memory}")
    huge = ("--mem=malloc", f"--iomem_align={2 << 20}")
    found["fio, malloc on huge pages"] = fio(program, blocks, threads, seconds, *huge, environment=HUGE_MALLOC)
    return found


def replay(blocks: BlockFiles, threads: int, seconds: int, kind: Buffers, folder: Path) -> Way:
    """A round of the replay in memory of its own: every round draws its pages anew, as every run does."""

    def measure() -> tuple[int, float]:
        places = memory_for(kind, threads, SIZE, folder).places
        workers = [Worker(REQUESTS.calls(), Buffer(SIZE, place)) for place in places]
        whole = InFlight(blocks, REQUESTS, workers, "read", 100)
        whole.run(seconds, lambda: None, lambda: None)
        return total_bytes(worker.recorder for worker in workers) // SIZE, whole.seconds

    return measure


def fio(
    program: str,
    blocks: BlockFiles,
    threads: int,
    seconds: int,
    *memory: str,
    environment: Mapping[str, str] | None = None,
) -> Way:
    """A run of fio on the same files, as many for each job."""
    share = len(blocks.live) // threads
    jobs = [[str(path) for path in blocks.live[number * share : (number + 1) * share]] for number in range(threads)]
    common = (
        "--direct=1", "--ioengine=psync", "--thread", "--group_reporting", f"--bs={SIZE}", "--rw=read",
        "--time_based", f"--runtime={seconds}", "--openfiles=1", "--file_service_type=random", *memory,
        "--output-format=json",
    )  # fmt: skip
    # fio takes 4096 characters of names: links with short ones, in a folder for each job.
    sections: list[str] = []
    for number, paths in enumerate(jobs):
        folder = blocks.root / f"job{number}"
        folder.mkdir(exist_ok=True)
        for at, path in enumerate(paths):
            if not (folder / f"f.{at}").exists():
                os.link(path, folder / f"f.{at}")
        files = (f"--directory={folder}", "--filename_format=f.$filenum", f"--nrfiles={share}", f"--filesize={SIZE}")
        sections += ["--name=buffers", *common, *files]

    def measure() -> tuple[int, float]:
        done = subprocess.run(
            [program, *sections], check=True, capture_output=True, text=True, env={**os.environ, **(environment or {})}
        )
        read = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]["read"]
        return read["total_ios"], read["runtime"] / 1000

    return measure


def in_turns(every: Mapping[str, Way], rounds: int, mount: Mount | None) -> dict[str, Seen]:
    """All ways once in each round, in the other direction in every second one."""
    found = {name: Seen() for name in every}
    for number in range(rounds):
        for name in list(every)[:: -1 if number % 2 else 1]:
            before = counters_of(mount)
            ios, seconds = every[name]()
            after = counters_of(mount)
            found[name].rates.append(ios * SIZE / seconds)
            if before is not None and after is not None:
                moved = after.read_bytes - before.read_bytes, after.read_requests - before.read_requests
                each = split(ios, ios * SIZE, *moved)
                found[name].requests += [] if each is None else [each]
    return found


def show(found: Mapping[str, Seen]) -> None:
    """One row for each way."""
    print(f"\n{'memory':34} {'MiB/s':>7} {'to the engine':>22} {'requests for each read':>32}")
    for name, seen in found.items():
        reference = found[REFERENCE].rates
        ratio = statistics.geometric_mean(seen.rates) / statistics.geometric_mean(reference)
        interval = ratio_interval(reference, seen.rates)
        shown = f"{ratio:.2f}" + (f" ({interval[0]:.2f} to {interval[1]:.2f})" if interval else "")
        each = sorted(seen.requests)
        requests = f"{statistics.median(each):.2f} ({each[0]:.2f} to {each[-1]:.2f}, n {len(each)})" if each else "-"
        print(f"{name:34} {statistics.fmean(seen.rates) / 2**20:7.0f} {shown:>22} {requests:>32}")


@contextmanager
def huge_tmpfs() -> Iterator[Path | None]:
    """A tmpfs with huge=always, unmounted afterwards; None where this process may not mount one."""
    with tempfile.TemporaryDirectory() as folder:
        mount = ["mount", "-t", "tmpfs", "-o", "huge=always,size=1G", "tmpfs", folder]
        if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
            print("a tmpfs with huge=always: skipped, it cannot be mounted here")
            yield None
            return
        try:
            yield Path(folder)
        finally:
            # The last memory of a round goes with it.
            subprocess.run(["umount", "-l", folder], check=True)


if __name__ == "__main__":
    main()
