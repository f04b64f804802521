"""Is Python in the way? The replay's read bandwidth against fio psync at 2304 KiB and 16 threads, alternated rounds.

    python benchmarks/replay_speed.py DIRECTORY [--seconds 5] [--rounds 6] [--dataset 1GiB]

All read the same block files, opened, read once and closed; fio reads large files as well, for comparison.
Prints MiB/s and the ratio replay : fio with its 95 % interval, for both ways of vLLM, and the CPU time for each GiB.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path

from kvbench.drivers.replay.blocks import BlockFiles
from kvbench.drivers.replay.calls import Buffer
from kvbench.drivers.replay.flow import POOL, REQUESTS, Flow, InFlight, Worker
from kvbench.record.comparison import ratio_interval
from kvbench.record.recorder import total_bytes
from kvbench.tiers.directory import inspect, workspace
from kvbench.units import parse_size

SIZE = 2304 << 10
THREADS = 16
REFERENCES = ("fio psync, a file per block", "fio psync, large files")
_COMMON = ("--direct=1", "--ioengine=psync", "--thread", "--group_reporting", f"--numjobs={THREADS}", "--name=speed")

Way = Callable[[], tuple[float, float]]


def main() -> None:
    """Measure in turns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--dataset", default="1GiB")
    chosen = parser.parse_args()
    each = parse_size(chosen.dataset) // SIZE // THREADS
    with workspace(inspect("speed", chosen.directory)) as space:
        ways: dict[str, Way] = {
            REFERENCES[1]: fio(space.path / "large", 1, each * SIZE, chosen.seconds),
            REFERENCES[0]: fio(space.path / "blocks", each, SIZE, chosen.seconds),
            "replay 0.24 (pool)": replay(space.path / "blocks", POOL, chosen.seconds),
            "replay 0.27 (requests)": replay(space.path / "blocks", REQUESTS, chosen.seconds),
        }
        rates: dict[str, list[float]] = {name: [] for name in ways}
        cpu: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(chosen.rounds):
            for name in list(ways)[:: -1 if number % 2 else 1]:
                rate, seconds_per_gib = ways[name]()
                rates[name].append(rate)
                cpu[name].append(seconds_per_gib)
    print(f"{'way':28} {'MiB/s':>8} {'to per-block':>22} {'to large files':>22} {'CPU s/GiB':>10}")
    for name, found in rates.items():
        ratios = [against(rates[reference], found) for reference in REFERENCES]
        middle = statistics.fmean(found) / (1 << 20)
        print(f"{name:28} {middle:8.0f} {ratios[0]:>22} {ratios[1]:>22} {statistics.fmean(cpu[name]):10.3f}")


def against(reference: list[float], found: list[float]) -> str:
    """The ratio of the means with its interval."""
    interval = ratio_interval(reference, found)
    middle = statistics.geometric_mean(found) / statistics.geometric_mean(reference)
    return f"{middle:.3f}" + ("" if interval is None else f" ({interval[0]:.3f}-{interval[1]:.3f})")


def fio(folder: Path, files: int, file_bytes: int, seconds: int) -> Way:
    """Write the files of every job, and return how to read them."""
    folder.mkdir()
    layout = (
        f"--directory={folder}", f"--bs={SIZE}", f"--nrfiles={files}", f"--filesize={file_bytes}", "--openfiles=1",
        f"--size={files * file_bytes}",
    )  # fmt: skip
    subprocess.run(
        ["fio", *_COMMON, *layout, "--rw=write", "--refill_buffers", "--end_fsync=1"], check=True, capture_output=True
    )
    # Whole files in random order, or random blocks of the job's large file.
    reads = ("--rw=read", "--file_service_type=random") if files > 1 else ("--rw=randread", "--randrepeat=0")

    def measure() -> tuple[float, float]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            ["fio", *_COMMON, *layout, *reads, "--time_based", f"--runtime={seconds}", "--output-format=json"],
            check=True, capture_output=True, text=True, cwd=folder,
        )  # fmt: skip
        read = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]["read"]
        return read["bw_bytes"], cpu_seconds(before, resource.RUSAGE_CHILDREN) / (read["io_bytes"] / (1 << 30))

    return measure


def replay(folder: Path, flow: Flow, seconds: int) -> Way:
    """How to read the block files that fio wrote: other files would lie elsewhere on the device, or in its cache."""
    paths = [str(path) for path in folder.iterdir()]
    data = BlockFiles(folder, SIZE, len(paths))
    data.live = paths
    buffers = [Buffer(SIZE) for _ in range(THREADS)]

    def measure() -> tuple[float, float]:
        workers = [Worker(flow.calls(), buffer) for buffer in buffers]
        whole, before = InFlight(data, flow, workers, "read", 75), resource.getrusage(resource.RUSAGE_SELF)
        whole.run(seconds, lambda: None, lambda: None)
        moved = total_bytes(worker.recorder for worker in workers)
        return moved / whole.seconds, cpu_seconds(before, resource.RUSAGE_SELF) / (moved / (1 << 30))

    return measure


def cpu_seconds(before: resource.struct_rusage, who: int) -> float:
    """Processor time since ``before``."""
    now = resource.getrusage(who)
    return now.ru_utime + now.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C")
    main()
