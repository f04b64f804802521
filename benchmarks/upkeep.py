"""What a tier that never evicts costs to keep: look up, list and delete many block files, and store near full.

    python benchmarks/upkeep.py DIRECTORY [--files 100000] [--bytes 0] [--threads 8] [--near-full 95]

Makes FILES block files with vLLM's names and fan-out (up to 4096 x 256 directories), then looks up, lists and deletes
them, all below a directory of its own, and says whether a read with O_DIRECT moves a file's access time, which a purge
job by age needs. --near-full fills the file system to so many percent with one file and stores blocks before and after;
it is refused on file systems of more than 64 GiB.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kvbench.drivers.replay.blocks import BlockFiles
from kvbench.drivers.replay.calls import Buffer, CallTimes, CCalls
from kvbench.tiers.directory import inspect, workspace

BLOCK = 2304 << 10
_LARGEST = 64 << 30
_LOOKUPS = 20_000
_STORES = 100
_DAY_S = 86_400


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--bytes", type=int, default=0, help="of each file")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--near-full", type=int, metavar="PERCENT")
    chosen = parser.parse_args()
    tier = inspect("upkeep", chosen.directory)
    print(f"{tier.path} ({tier.mount.filesystem if tier.mount else 'unknown'}), {chosen.files:,} files")
    with workspace(tier) as space:
        access_times(space.path)
        if chosen.near_full is not None:
            near_full(space.path, chosen.near_full)
        many_files(space.path, chosen.files, chosen.bytes, chosen.threads)


def many_files(root: Path, files: int, size: int, threads: int) -> None:
    """Create, look up, list and delete."""
    blocks, content = BlockFiles(root, size, files), bytes(size)
    names = blocks.first_names()

    def create(path: str) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        Path(path).write_bytes(content)

    timed("create (mkdir, open, close)", files, lambda: spread(create, names, threads))
    blocks.sync()
    calls, times = CCalls(), CallTimes()
    some = random.sample(names, min(files, _LOOKUPS))
    absent = [blocks.new_name() for _ in some]
    timed("look up, there, 1 thread", len(some), lambda: [calls.lookup(path, times) for path in some])
    timed("look up, not there, 1 thread", len(some), lambda: [calls.lookup(path, times) for path in absent])
    durations = sorted(times.kinds["lookup"])
    print(f"  one look-up: p50 {durations[len(durations) // 2] / 1e3:.1f} us, p99 {at(durations, 0.99) / 1e3:.1f} us")
    timed("list with sizes and times", files, lambda: listed(root))
    timed("delete (files)", files, lambda: spread(os.unlink, names, threads))
    directories = sorted((folder for folder, _, _ in os.walk(root) if Path(folder) != root), reverse=True)
    timed("delete (empty directories)", len(directories), lambda: remove_all(directories))


def listed(root: Path) -> int:
    """Bytes below a directory, from one stat of every file: what a purge job asks."""
    return sum(os.stat(os.path.join(folder, name)).st_size for folder, _, names in os.walk(root) for name in names)  # noqa: PTH116, PTH118


def remove_all(directories: Sequence[str]) -> None:
    """Remove empty directories, the deepest first."""
    for path in directories:
        os.rmdir(path)  # noqa: PTH106


def spread(act: Callable[[str], None], paths: Sequence[str], threads: int) -> None:
    """Do it for every path, in threads."""
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(act, paths, chunksize=64):
            pass


def timed(what: str, count: int, act: Callable[[], object]) -> None:
    """Do it once, and print how long it took."""
    began = time.perf_counter()
    act()
    seconds = time.perf_counter() - began
    print(f"  {what:30} {count:>9,} in {seconds:8.2f} s, {count / seconds:>10,.0f} a second")


def access_times(root: Path) -> None:
    """Whether a read with O_DIRECT moves the access time of a file that was last read two days ago."""
    path, buffer, times = str(root / "read.bin"), Buffer(4096), CallTimes()
    Path(path).write_bytes(bytes(4096))
    for direct in (True, False):
        then = time.time() - 2 * _DAY_S
        os.utime(path, (then, then))
        if direct:
            CCalls().load(path, buffer, times)
        else:
            Path(path).read_bytes()
        moved = os.stat(path).st_atime > then + 60  # noqa: PTH116
        print(f"  a {'direct' if direct else 'buffered'} read moves the access time: {'yes' if moved else 'NO'}")
    # relatime moves it once a day at most, unless the file was changed since.
    before = os.stat(path).st_atime_ns  # noqa: PTH116
    time.sleep(1.5)
    CCalls().load(path, buffer, times)
    moved = os.stat(path).st_atime_ns > before  # noqa: PTH116
    print(f"  another direct read 1.5 s later: {'yes' if moved else 'NO'}")
    os.unlink(path)  # noqa: PTH108


def near_full(root: Path, percent: int) -> None:
    """Stores of whole blocks on the tier as it is, and once it is filled to ``percent``."""
    space = os.statvfs(root)
    total = space.f_blocks * space.f_frsize
    if total > _LARGEST:
        raise SystemExit(f"the file system holds {total >> 30} GiB: filling it is left to you")
    store_blocks(root, f"stores, {1 - space.f_bavail / space.f_blocks:.0%} full")
    filler = root / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, space.f_bavail * space.f_frsize - total * (100 - percent) // 100))
    now = os.statvfs(root)
    store_blocks(root, f"stores, {1 - now.f_bavail / now.f_blocks:.0%} full")
    filler.unlink()


def store_blocks(root: Path, what: str) -> None:
    """Store blocks one after the other, each removed before the next, and print their latency."""
    blocks, buffer, calls = BlockFiles(root, BLOCK, 1), Buffer(BLOCK), CCalls()
    blocks.first_names()
    waited = []
    for _ in range(_STORES):
        path = blocks.new_name()
        buffer.renew()
        waited.append(calls.store(path, buffer, CallTimes()))
        os.unlink(path)  # noqa: PTH108
    waited.sort()
    print(f"  {what}: p50 {at(waited, 0.5) / 1e6:.2f} ms, p99 {at(waited, 0.99) / 1e6:.2f} ms")


def at(values: Sequence[int], share: float) -> int:
    """The value that so large a share does not exceed."""
    return values[min(len(values) - 1, int(len(values) * share))]


if __name__ == "__main__":
    main()
