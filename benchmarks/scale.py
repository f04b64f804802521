"""Time and peak memory of the analysis against Python's own json and csv readers alone on the same generated files.

Run it with ``python benchmarks/scale.py [--part N]``. Every part runs in a process of its own; processor time counts,
so that other programs of the machine hardly do. Starting the program is part of it, which small inputs show.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MIB = 1 << 20
_JSON = "import json, sys\nfor name in sys.argv[1:]: json.load(open(name))"
_CSV = "import csv, sys\nfor row in csv.reader(open(sys.argv[1])): pass"


@dataclass(frozen=True)
class Used:
    """Processor seconds and peak memory of a process and those that it started."""

    seconds: float
    mib: float


@dataclass(frozen=True)
class Case:
    """One kind of input: its files, what kvbench does with them, and the reader to compare with."""

    name: str
    files: tuple[Path, ...]
    command: tuple[str, ...]
    alone: str


def main() -> int:
    """Print one line for each kind of input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", type=int, default=1, metavar="N", help="an N-th of everything [default: 1]")
    factor = parser.parse_args().part
    print(f"{'input':34} {'files/s':>9} {'time':>8} {'ratio':>6} {'peak':>9} {'ratio':>6}")
    with tempfile.TemporaryDirectory(prefix="kvbench-scale-") as name:
        for case in cases(Path(name), factor):
            ours = measured([sys.executable, "-m", "kvbench", *case.command])
            alone = measured([sys.executable, "-c", case.alone, *map(str, case.files)])
            print(
                f"{case.name:34} {len(case.files) / ours.seconds:9,.1f} {ours.seconds:6.1f} s "
                f"{ours.seconds / alone.seconds:5.1f}x {ours.mib:5,.0f} MiB {ours.mib / alone.mib:5.1f}x",
                flush=True,
            )
    return 0


def cases(folder: Path, factor: int) -> list[Case]:
    """Every kind of input, its files written below ``folder``."""
    generator = random.Random(1)
    many = _many(folder, 10_000 // factor, generator)
    large = _written(folder / "large.json", fio_document([job(f"j{i}", generator) for i in range(20_000 // factor)]))
    table = folder / "ttft.csv"
    with table.open("w") as file:
        file.write("prompt_tokens,ttft_s\n")
        for row in range(1_000_000 // factor):
            file.write(f"{1000 + row * factor // 20},{0.05 + row * factor * 1e-6 + generator.random() * 1e-3:.6f}\n")
    run, points = folder / "run500", _many(folder / "points", max(20, 500 // factor), generator)
    quiet = ("import", *map(str, points), "-o", str(run), "--json")
    subprocess.run([sys.executable, "-m", "kvbench", *quiet], check=True, capture_output=True)
    judged = (run / "result.json", *sorted(run.glob("imported/*.histogram.json")))
    rows, mib = 1_000_000 // factor, large.stat().st_size / _MIB
    crossover = ("crossover", "--p99-ms", "5", "--ttft-csv", str(table))
    report = ("report", str(run), "-o", str(folder / "page.html"))
    return [
        Case(f"{len(many):,} fio files, import", many, _import(many, folder / "many"), _JSON),
        Case(f"fio file of {mib:,.0f} MiB, import", (large,), _import([large], folder / "one"), _JSON),
        Case(f"TTFT CSV of {rows:,} rows", (table,), crossover, _CSV),
        Case(f"run of {len(points):,} points, report", judged, report, _JSON),
    ]


def _import(files: Sequence[Path], output: Path) -> tuple[str, ...]:
    return ("import", *map(str, files), "-o", str(output), "--json")


def _many(folder: Path, count: int, generator: random.Random) -> tuple[Path, ...]:
    return tuple(
        _written(folder / f"f{number}.json", fio_document([job(f"job{number}", generator, bins=1200)]))
        for number in range(count)
    )


def job(name: str, generator: random.Random, bins: int = 180) -> dict[str, Any]:
    """One fio job that read, with a histogram of so many bins."""
    counts = {int(100_000 * (1 + 8 / bins) ** at): generator.randrange(1, 60) for at in range(bins)}
    total, io_bytes, runtime_s = sum(counts.values()), 1 << 20, 60
    rate = total / runtime_s
    latency = {
        "min": min(counts), "max": max(counts), "mean": sum(ns * n for ns, n in counts.items()) / total,
        "stddev": 0.0, "N": total, "percentile": {}, "bins": {str(ns): n for ns, n in counts.items()},
    }  # fmt: skip
    read = {
        "io_bytes": total * io_bytes, "bw_bytes": int(rate * io_bytes), "bw": int(rate * io_bytes) // 1024,
        "iops": rate, "runtime": runtime_s * 1000, "total_ios": total, "lat_ns": latency,
    }  # fmt: skip
    options = {"rw": "randread", "bs": "1m", "numjobs": "1", "size": "4g", "direct": "1", "ioengine": "libaio"}
    return {"jobname": name, "groupid": 0, "error": 0, "job options": options, "read": read}


def fio_document(jobs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A document as fio 3.33 writes it."""
    return {"fio version": "fio-3.33", "global options": {"runtime": "60", "time_based": "1"}, "jobs": list(jobs)}


def _written(path: Path, data: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1))
    return path


def measured(command: Sequence[str]) -> Used:
    """What a command used; CalledProcessError when it fails."""
    # In a child of its own: the peak of a process's children is that of the largest so far.
    script = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(used.ru_utime + used.ru_stime, used.ru_maxrss)"
    )
    done = subprocess.run([sys.executable, "-c", script, *command], check=True, capture_output=True, text=True)
    seconds, kib = done.stdout.split()
    return Used(float(seconds), int(kib) / 1024)


if __name__ == "__main__":
    sys.exit(main())
