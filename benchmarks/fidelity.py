"""Does a fio job predict the connector? fio's two layouts against the replay of both vLLM ways, in alternated rounds.

    python benchmarks/fidelity.py DIRECTORY... [--seconds 5] [--visits 3] [--dataset 1GiB] [--numjobs 16]
        [--engine FOLDER]

Measures reads, writes and the 75/25 mix at 0.5, 2.25 and 5 MiB on every DIRECTORY, and prints p50, p99 and bandwidth as
ratios to the replay of vLLM 0.27 and later (of 0.24 for what belongs to it), with 95 % intervals over rounds. FOLDER
holds an unpacked vLLM 0.24.0 wheel: then its own load_block and store_block run as well, in the replay's threads.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import perf_counter_ns
from types import ModuleType
from typing import get_args

from kvbench.drivers import OnRate, Program
from kvbench.drivers.registry import find_programs
from kvbench.drivers.replay.calls import AT_FDCWD, Buffer, CallTimes, PythonCalls
from kvbench.drivers.replay.driver import ReplayDriver
from kvbench.drivers.replay.flow import Flow
from kvbench.drivers.settings import DataLayout
from kvbench.record.comparison import Difference, compare_points
from kvbench.record.point import Point, point_id
from kvbench.record.results import Mix, RunResult
from kvbench.run import runner
from kvbench.run.measurement import Measurement, Method, TierPlan, plan_tier
from kvbench.tiers.kinds import inspect
from kvbench.units import format_bytes, parse_size

SIZES = (512 << 10, 2304 << 10, 5 << 20)
_IO_FILE = "vllm/v1/kv_offload/tiering/fs/io.py"

# Lane: driver, fio's layout, release that is replayed, and the lane that it is compared with.
Lane = tuple[str, DataLayout, str | None, str]
LANES: dict[str, Lane] = {
    "fio-large": ("fio", "large-files", None, "replay-0.27"),
    "fio-per-block": ("fio", "file-per-block", None, "replay-0.27"),
    "replay-0.24": ("replay", "large-files", "0.24.0", "replay-0.27"),
    "replay-0.27": ("replay", "large-files", "0.33.0", "replay-0.27"),
}
ENGINE: dict[str, Lane] = {"engine-0.24": ("engine", "large-files", None, "replay-0.24")}


def main() -> None:
    """Measure every directory and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", type=Path, nargs="+")
    parser.add_argument("--seconds", type=int, default=5, help="of each visit to a point")
    parser.add_argument("--visits", type=int, default=3)
    parser.add_argument("--dataset", default="1GiB", help="of each of the lanes, shared by the three block sizes")
    parser.add_argument("--numjobs", type=int, default=16)
    parser.add_argument("--engine", type=Path, help="folder of an unpacked vLLM 0.24.0 wheel")
    chosen = parser.parse_args()
    lanes = dict(LANES)
    programs: dict[str, Program] = dict(find_programs(["fio", "replay"]))
    if chosen.engine is None:
        print("skipped: vLLM's own functions (name an unpacked 0.24.0 wheel with --engine)")
    else:
        lanes |= ENGINE
        programs["engine"] = EngineProgram(load_engine(chosen.engine))
    for directory in chosen.directories:
        measurement = plan(directory, lanes, chosen.numjobs, parse_size(chosen.dataset), chosen.seconds, chosen.visits)
        with tempfile.TemporaryDirectory() as folder:
            result = runner.run(measurement, RunResult(created=""), Path(folder), programs)
        show(directory, result, lanes)


def plan(directory: Path, lanes: Mapping[str, Lane], jobs: int, dataset: int, seconds: int, visits: int) -> Measurement:
    """Every lane as a tier of its own on the same directory, visited in turns."""
    tiers, points = [], []
    for name, (driver, layout, version, _) in lanes.items():
        method = Method((jobs,), SIZES, layout=layout, dataset_bytes=dataset, runtime_s=seconds, engine_version=version)
        made_by = "replay" if driver == "engine" else driver
        planned = plan_tier(inspect(name, str(directory)), str(directory), made_by, method)
        tiers.append(TierPlan(name, planned.target, planned.settings, driver=driver))
        points += [
            Point(point_id(name, size, mix, jobs, driver), name, driver, size, mix, jobs)
            for size in SIZES
            for mix in get_args(Mix)
        ]
    return Measurement(tuple(tiers), (), tuple(points), visits)


def show(directory: Path, result: RunResult, lanes: Mapping[str, Lane]) -> None:
    """Print one line for each lane, size, mix and direction."""
    points = {(point.tier, point.io_bytes, point.mix): point for point in result.points}
    facts = next(iter(result.tiers.values()))
    print(f"\n{directory} ({facts['filesystem']}): ratios lane : reference, 95 % intervals")
    print(f"{'lane':14} {'reference':12} {'I/O':>9} {'mix':6} {'side':6} {'p50':>22} {'p99':>22} {'bandwidth':>22}")
    for name, (_, _, _, reference) in lanes.items():
        for size in SIZES if name != reference else ():
            for mix in get_args(Mix):
                one, other = points[reference, size, mix], points[name, size, mix]
                if one.status != "ok" or other.status != "ok":
                    print(f"{name:14} {reference:12} {format_bytes(size):>9} {mix:6} {one.reason or other.reason}")
                    continue
                found = compare_points(one, other, ("p50", "p99", "bandwidth"))
                for side in ("read", "write"):
                    cells = [ratio(item) for item in found if item.direction == side]
                    if cells:
                        print(f"{name:14} {reference:12} {format_bytes(size):>9} {mix:6} {side:6} " + " ".join(cells))
    print("absolute: " + "; ".join(absolute(result, lanes)))


def ratio(item: Difference) -> str:
    """A ratio with its interval."""
    between = "" if item.low is None or item.high is None else f" ({item.low:.2f}-{item.high:.2f})"
    return f"{item.ratio:.2f}{between}".rjust(22)


def absolute(result: RunResult, lanes: Iterable[str]) -> list[str]:
    """Read p50, p99 and bandwidth at 2.25 MiB of each lane, for scale."""
    found = []
    for point in result.points:
        side = point.read
        if point.io_bytes == SIZES[1] and point.mix == "read" and side is not None and side.latency_ns is not None:
            p50, p99 = (side.latency_ns.p50 or 0) / 1e6, (side.latency_ns.p99 or 0) / 1e6
            found.append(f"{point.tier} read 2.25 MiB {side.bytes_per_s / (1 << 20):.0f} MiB/s, {p50:.1f}/{p99:.1f} ms")
    return found


def load_engine(folder: Path) -> ModuleType:
    """vLLM's io.py by itself: it needs nothing else of vLLM."""
    spec = importlib.util.spec_from_file_location("engine_io", folder / _IO_FILE)
    if spec is None or spec.loader is None or not (folder / _IO_FILE).is_file():
        raise SystemExit(f"{folder / _IO_FILE} does not exist; unpack the wheel of vLLM 0.24.0 there")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class EngineCalls(PythonCalls):
    """The engine's own functions in place of the replayed calls; its lookup is the same os.path.exists."""

    def __init__(self, module: ModuleType) -> None:
        """Call the functions of this module."""
        super().__init__()
        self._module = module

    def store(self, path: str, buffer: Buffer, times: CallTimes) -> int:
        """vLLM's store_block."""
        began = perf_counter_ns()
        self._module.store_block(self._named(path), buffer.view, 0, buffer.size)
        return perf_counter_ns() - began

    def load(self, path: str, buffer: Buffer, times: CallTimes) -> int:
        """vLLM's load_block."""
        began = perf_counter_ns()
        self._module.load_block(self._named(path), buffer.view, 0, buffer.size)
        return perf_counter_ns() - began

    def _named(self, path: str) -> str:
        return path if self._at == AT_FDCWD else f"/proc/self/fd/{self._at}/{path}"


class EngineProgram:
    """A Program that measures with the engine's own functions."""

    def __init__(self, module: ModuleType) -> None:
        """Use the functions of this module."""
        self._module = module

    @property
    def version(self) -> str:
        """The release whose functions run."""
        return "vLLM 0.24.0"

    def driver(self, on_rate: OnRate) -> ReplayDriver:
        """The replay's threads with the engine's functions."""
        return ReplayDriver(on_rate, Flow("engine", lambda: EngineCalls(self._module), 1, "vLLM's own functions"))


if __name__ == "__main__":
    main()
