"""How long until the answer: fixed 60 s for each point against rounds that stop when enough is known, in one run.

    python benchmarks/time_to_answer.py DIRECTORY [--dataset 4GiB] [--fixed 60]

Measures the study's point set on DIRECTORY three times, one after the other: fixed time, --runtime auto at 10 %, and
--runtime auto with the shipped prefill curve (stop when the verdict cannot flip). Prints wall times as ratios to the
fixed run, the median half-width of the p99 intervals, how many of them hold the p99 of the fixed run (which is itself
one draw of a minute, and has no interval: one section), and the verdicts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PREFILL = Path(__file__).resolve().parent.parent / "profiles" / "prefill" / "gpt-oss-120b-h200.csv"


def main() -> None:
    """Run the three ways and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--dataset", default="4GiB")
    parser.add_argument("--fixed", default="60", help="seconds for each point of the fixed run")
    chosen = parser.parse_args()
    ways = {
        f"fixed {chosen.fixed} s": ["--runtime", chosen.fixed],
        "auto, 10 %": ["--runtime", "auto"],
        "auto, to the verdict": ["--runtime", "auto", "--ttft-csv", str(PREFILL)],
    }
    with tempfile.TemporaryDirectory() as folder:
        runs = {
            name: measure(chosen.directory, Path(folder) / str(number), chosen.dataset, options)
            for number, (name, options) in enumerate(ways.items())
        }
    fixed_s, fixed = next(iter(runs.values()))
    print(f"{'way':22} {'wall s':>8} {'ratio':>6} {'p99 +-':>7} {'held':>8}  verdict for gpt-oss-120b")
    for name, (seconds, run) in runs.items():
        known = [width for width in widths(run) if width is not None]
        width = f"{statistics.median(known):.1%}" if known else "-"
        print(f"{name:22} {seconds:8.1f} {seconds / fixed_s:6.2f} {width:>7} {held(fixed, run):>8}  {run['verdict']}")


def measure(directory: Path, run_dir: Path, dataset: str, options: list[str]) -> tuple[float, dict[str, Any]]:
    """Wall seconds and result of one run, with the verdict that follows from it."""
    started = time.perf_counter()
    kvbench("fio", "--tier", f"tier={directory}", "--dataset", dataset, *options, "-o", str(run_dir))
    seconds = time.perf_counter() - started
    result: dict[str, Any] = json.loads((run_dir / "result.json").read_text())
    decided = json.loads(kvbench("crossover", str(run_dir), "--ttft-csv", str(PREFILL), "--json"))
    result["verdict"] = decided["results"][0]["verdict"]
    return seconds, result


def kvbench(*arguments: str) -> str:
    """Standard output of one kvbench call."""
    done = subprocess.run([sys.executable, "-m", "kvbench", *arguments], capture_output=True, text=True, check=True)
    return done.stdout


Sides = dict[tuple[str, str], tuple[int, int | None, int | None]]


def intervals(run: dict[str, Any]) -> Sides:
    """p99 and its interval for every direction of every point."""
    return {
        (point["id"], name): (side["latency_ns"]["p99"], side["latency_ns"]["p99_low"], side["latency_ns"]["p99_high"])
        for point in run["points"]
        for name in ("read", "write")
        if (side := point[name]) is not None
    }


def widths(run: dict[str, Any]) -> list[float | None]:
    """Relative half-widths of the p99 intervals; None where a side is unknown."""
    return [
        None if low is None or high is None else (high - low) / 2 / middle
        for middle, low, high in intervals(run).values()
    ]


def held(fixed: dict[str, Any], run: dict[str, Any]) -> str:
    """How many p99 intervals of a run hold the p99 of the fixed one, of those that have one."""
    truth = intervals(fixed)
    stated = [
        low <= truth[key][0] <= high
        for key, (_, low, high) in intervals(run).items()
        if key in truth and low is not None and high is not None
    ]
    return f"{sum(stated)}/{len(stated)}" if stated else "-"


if __name__ == "__main__":
    main()
