"""Runs as they lie on disk: each with a name of its own, its folder, and the tiers that it was started for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kvbench.record import results
from kvbench.record.results import RunResult
from kvbench.run import measurement


@dataclass(frozen=True)
class LoadedRun:
    """A run with the folder of its histograms; ``planned`` are the tiers that it was started for."""

    name: str
    path: Path
    result: RunResult
    planned: tuple[str, ...] = ()

    def label(self, tier: str, runs: Sequence[LoadedRun]) -> str:
        """The tier's name, with the run's where two runs have a tier of that name."""
        twice = sum(tier in run._tiers for run in runs) > 1
        return f"{tier} ({self.name})" if twice else tier

    @property
    def tiers(self) -> tuple[str, ...]:
        """Every tier that has a point or was meant to have one."""
        return tuple(self._tiers)

    @cached_property
    def _tiers(self) -> dict[str, None]:
        # Kept, since every one of thousands of points asks for its label.
        measured = [point.tier for point in self.result.points]
        return dict.fromkeys([*measured, *self.result.tiers, *self.planned])


def load_runs(paths: Sequence[Path]) -> tuple[LoadedRun, ...]:
    """The runs of those directories (or result files), each with a name of its own."""
    folders = [path if path.is_dir() else path.parent for path in paths]
    names = [folder.resolve().name or "run" for folder in folders]
    seen: Counter[str] = Counter()
    loaded = []
    for path, folder, name in zip(paths, folders, names, strict=True):
        seen[name] += 1
        unique = f"{name} #{seen[name]}" if names.count(name) > 1 else name
        loaded.append(LoadedRun(unique, folder, results.load(path), _planned(folder)))
    return tuple(loaded)


def _planned(folder: Path) -> tuple[str, ...]:
    """The tiers that a run was started for; an imported run has no plan."""
    if not (folder / measurement.MEASUREMENT_NAME).is_file():
        return ()
    return tuple(plan.name for plan in measurement.load(folder).tiers)
