"""The long run: ``python -m tests.fuzz --inputs 1000000 --seed 1`` prints counts, and every fault with its number."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.fuzz.borders import each, remove_made, remove_prepared
from tests.fuzz.trial import peak_mib, tried

_EVERY = 1000


def main() -> int:
    """0 when every input ended as documented, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1000, help="how many inputs [default: 1000]")
    parser.add_argument("--seed", type=int, default=1, help="of the whole run [default: 1]")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so long")
    wanted = parser.parse_args()
    counts: Counter[tuple[str, int | None]] = Counter()
    faults, slowest, end = 0, 0.0, time.monotonic() + 60 * wanted.minutes
    try:
        for number, (border, random) in enumerate(each(wanted.inputs, wanted.seed)):
            trial = tried(border, random)
            counts[trial.border, trial.code] += 1
            slowest = max(slowest, trial.seconds)
            if trial.fault is not None:
                faults += 1
                print(f"input {number} ({border.name}): {trial.fault}\n", flush=True)
            if number % _EVERY == _EVERY - 1:
                print(_line(counts, faults, slowest), file=sys.stderr, flush=True)
            if time.monotonic() > end:
                break
    finally:
        remove_made()
        remove_prepared()
    print(_line(counts, faults, slowest))
    for (name, code), count in sorted(counts.items(), key=str):
        print(f"  {name}: exit code {code}: {count:,}")
    return 1 if faults else 0


def _line(counts: Counter[tuple[str, int | None]], faults: int, slowest: float) -> str:
    return f"{counts.total():,} inputs, {faults} faults, slowest {slowest:.1f} s, peak memory {peak_mib():,.0f} MiB"


if __name__ == "__main__":
    sys.exit(main())
