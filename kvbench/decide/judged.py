"""From runs on disk to one judgement per tier and use, with the restore and recompute times behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from kvbench.decide import decision
from kvbench.decide.cost import Load
from kvbench.decide.crossover import Crossover, Goal, Request
from kvbench.decide.restore import RestoreCurve, restore_curve
from kvbench.errors import UsageError
from kvbench.prefill.curve import Floats, PrefillCurve
from kvbench.prefill.samples import Samples
from kvbench.record import results
from kvbench.record.results import PointResult, RunResult, Use
from kvbench.report.data import Band
from kvbench.run import measurement

NO_PREFILL = "no prefill was given (--ttft-csv or --ttft-from)"
# Lengths shown where no prefill curve says which ones were measured.
_SHOWN_TOKENS = (1024, 65536)
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to judge: the prefill curve (None when nobody gave one) and the goal; no models means all of them."""

    curve: PrefillCurve | None
    samples: Samples | None
    goal: Goal
    concurrent: tuple[int, ...] = (1,)
    mix: decision.MixChoice = "auto"
    models: tuple[str, ...] = ()
    gpu_copy_bytes_per_s: int | None = None
    load: Load | None = None


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A run with the folder of its histograms; ``planned`` are the tiers that it was started for."""

    name: str
    path: Path
    result: RunResult
    planned: tuple[str, ...] = ()

    def label(self, tier: str, runs: Sequence[LoadedRun]) -> str:
        """The tier's name, with the run's where two runs have a tier of that name."""
        twice = sum(tier in run.tiers for run in runs) > 1
        return f"{tier} ({self.name})" if twice else tier

    @property
    def tiers(self) -> tuple[str, ...]:
        """Every tier that has a point or was meant to have one."""
        measured = [point.tier for point in self.result.points]
        return tuple(dict.fromkeys([*measured, *self.result.tiers, *self.planned]))


@dataclass(frozen=True)
class Judged:
    """One crossover with its point, and the times to show; ``curve`` is None when prefill of the model is unknown."""

    run: LoadedRun
    tier: str
    crossover: Crossover
    point: PointResult | None
    restore: RestoreCurve | None
    curve: PrefillCurve | None
    goal: Goal

    @property
    def use(self) -> Use:
        """The model, TP and connector that were judged."""
        return self.crossover.use

    def restore_at(self, tokens: int) -> Band | None:
        """Seconds to restore ``tokens``, None without a measured point or beyond what was computed."""
        if self.restore is None or not self.restore.tokens[0] <= tokens <= self.restore.tokens[-1]:
            return None
        at = int(np.searchsorted(self.restore.tokens, tokens))
        return band(self.restore.draws[:, at], float(self.restore.seconds[at]))

    def recompute_at(self, tokens: int) -> Band | None:
        """Seconds to prefill ``tokens``, None without a curve of this model or outside its measured lengths."""
        if self.curve is None or not self.curve.measured_from <= tokens <= self.curve.measured_to:
            return None
        return recompute_band(self.curve, tokens)


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


def judged(runs: Sequence[LoadedRun], wanted: Wanted) -> tuple[Judged, ...]:
    """One judgement for every tier, use and number of concurrent restores; UsageError when ``models`` match none."""
    found = tuple(item for run in runs for item in _of_run(run, runs, wanted))
    _require_models(runs, wanted.models)
    return found


def band(draws: Floats, middle: float) -> Band:
    """The middle with the 95 % interval of the draws."""
    low, high = np.quantile(draws, [(1 - _CONFIDENCE) / 2, (1 + _CONFIDENCE) / 2])
    return Band(min(float(low), middle), middle, max(float(high), middle))


def recompute_band(curve: PrefillCurve, tokens: float) -> Band:
    """Fitted prefill seconds with the 95 % bootstrap interval."""
    return band(curve.drawn_seconds(np.array([float(tokens)]))[:, 0], float(curve.seconds(tokens)[0]))


def _of_run(run: LoadedRun, runs: Sequence[LoadedRun], wanted: Wanted) -> Iterator[Judged]:
    uses = tuple(use for use in run.result.uses if _is_wanted(use, wanted.models))
    if not uses:
        return
    for crossover in _crossovers(run, replace(run.result, uses=uses), wanted):
        point = crossover.measured.point if crossover.measured else None
        known = wanted.curve is not None and _is_of(wanted.curve, crossover.use)
        yield Judged(
            run=run,
            tier=run.label(crossover.tier, runs),
            crossover=crossover,
            point=point,
            restore=crossover.restore or _restore(crossover, wanted),
            curve=wanted.curve if known else None,
            goal=wanted.goal,
        )


def _crossovers(run: LoadedRun, result: RunResult, wanted: Wanted) -> Iterable[Crossover]:
    asked = decision.Wanted(None, None, None, wanted.mix, wanted.concurrent, wanted.goal, wanted.gpu_copy_bytes_per_s)
    found: list[Crossover] = []
    if result.points:
        # Without a curve: one of no model, so that every use is answered with its restore speed and no verdict.
        curve = wanted.curve or _curve_of_nothing()
        decided = decision.decide_runs([(run.path, result)], curve, asked)
        found = list(decided.crossovers)
        if wanted.curve is None:
            found = [_without_prefill(crossover) for crossover in found]
    measured = {point.tier for point in result.points}
    missing = [tier for tier in run.tiers if tier not in measured]
    return found + [
        _unmeasured(use, tier, count) for use in result.uses for tier in missing for count in asked.concurrent
    ]


def _curve_of_nothing() -> PrefillCurve:
    return PrefillCurve(0.0, 0.0, 0.0, 1, 1, samples=0, model="", source="", draws=np.empty((0, 3)))


def _without_prefill(crossover: Crossover) -> Crossover:
    reason = NO_PREFILL if crossover.point else f"{NO_PREFILL} and no read was measured at this I/O size and load"
    return replace(crossover, request=replace(crossover.request, reason=reason), verdict_reason=reason)


def _unmeasured(use: Use, tier: str, concurrent: int) -> Crossover:
    reason = "no point of this tier was measured; continue the run with --resume"
    request = Request("unknown", None, None, None, reason)
    return Crossover(tier, use, concurrent, None, None, None, request, "cannot say", reason)


def _restore(crossover: Crossover, wanted: Wanted) -> RestoreCurve | None:
    """Restore times where no verdict needed them: the model's prefill is unknown, its tier's speed is not."""
    if crossover.measured is None:
        return None
    low, high = _SHOWN_TOKENS if wanted.curve is None else (wanted.curve.measured_from, wanted.curve.measured_to)
    block = crossover.use.block_tokens
    blocks = np.ceil(np.geomspace(low, high, 64) / block) * block
    tokens = np.unique(np.append(blocks, float(wanted.goal.target_tokens)))
    return restore_curve(crossover.use, crossover.measured, crossover.concurrent_restores, tokens, crossover.around)


def _is_wanted(use: Use, models: Sequence[str]) -> bool:
    return not models or any(decision.same_model(use.model, model) for model in models)


def _is_of(curve: PrefillCurve, use: Use) -> bool:
    return curve.model is None or decision.same_model(curve.model, use.model)


def _require_models(runs: Sequence[LoadedRun], models: Sequence[str]) -> None:
    held = {use.model for run in runs for use in run.result.uses}
    for model in models:
        if not any(decision.same_model(model, one) for one in held):
            raise UsageError(f"no run holds the model {model!r}; they hold {', '.join(sorted(held)) or 'no model'}.")


def _planned(folder: Path) -> tuple[str, ...]:
    """The tiers that a run was started for; an imported run has no plan."""
    if not (folder / measurement.MEASUREMENT_NAME).is_file():
        return ()
    return tuple(plan.name for plan in measurement.load(folder).tiers)
