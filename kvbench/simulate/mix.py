"""The mix of reads and stores that a simulated tier got, for measuring a real one with it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from kvbench.border import bounded
from kvbench.errors import InputFileError, UsageError

_OWN = ("gpu", "cpu")


def read_percent(path: Path, tiers: Collection[str]) -> int:
    """The share of reads in percent, 1 to 99, that ``workingset --json`` found for the tiers of a run.

    A tier of the run that the file names counts, else the only tier behind the CPU's memory there. InputFileError for a
    file that is none; UsageError where the tiers have no or several mixes.
    """
    found = _tiers(path)
    wanted = {name: found[name] for name in tiers if name in found} or found
    shares = {name: _percent(*moved) for name, moved in wanted.items() if sum(moved)}
    if not shares:
        raise UsageError(f"{path} simulated no tier that moved anything; give workingset --gpu, --cpu and --tier.")
    if len(set(shares.values())) > 1:
        named = ", ".join(f"{name} {share} %" for name, share in shares.items())
        raise UsageError(f"the tiers of {path} read differently ({named}); name the one you measure: --tier NAME=T.")
    return next(iter(shares.values()))


def _percent(read_bytes: int, written_bytes: int) -> int:
    return min(99, max(1, round(100 * read_bytes / (read_bytes + written_bytes))))


def _tiers(path: Path) -> dict[str, tuple[int, int]]:
    """Bytes read and written by tier, of the last configuration that has it."""
    try:
        document = bounded.json_of(bounded.read_bytes(path), "refuse")
        tiers = [tier for one in document["configurations"] for tier in one["tiers"]]
        return {tier["name"]: _moved(tier) for tier in tiers if tier["name"] not in _OWN}
    except OSError as error:
        raise InputFileError(f"{path} cannot be read ({error.strerror}).") from None
    except (ValueError, KeyError, TypeError):
        raise InputFileError(f"{path} is not what 'kvbench workingset --json' printed; write it again.") from None


def _moved(tier: Any) -> tuple[int, int]:
    counts = tier["read_bytes"], tier["written_bytes"]
    if not all(isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in counts):
        raise ValueError("bytes are whole numbers")
    return counts
