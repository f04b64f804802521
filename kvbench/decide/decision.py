"""From runs on disk and a prefill curve to the crossovers of every tier and use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from kvbench.decide.band import Band, band, recompute_band
from kvbench.decide.cost import ServerLoad
from kvbench.decide.crossover import (
    CONFIDENCE,
    PUBLISHED_JOBS,
    Crossover,
    Goal,
    RequestCrossover,
    decide,
)
from kvbench.decide.reads import MixChoice, Reads, read_latency
from kvbench.decide.restore import (
    NOTHING_AROUND,
    Around,
    MeasuredReads,
    RestoreCurve,
    restore_curve,
    restore_tokens_per_s,
)
from kvbench.decide.runs import LoadedRun
from kvbench.errors import InputFileError, UsageError
from kvbench.layout.models import work_of_name
from kvbench.layout.work import Work, bounds_of
from kvbench.prefill.curve import Floats, PrefillCurve
from kvbench.prefill.plausible import SpeedWarning, speed_warning
from kvbench.prefill.samples import Samples
from kvbench.record.results import Observation, PointResult, RunResult, Use
from kvbench.units import split_list

# The axis of the study's figure: prefill cost in seconds for each token.
PUBLISHED_COSTS_S = (0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002)


_LONGEST_TAIL_S = 86_400

# Lengths shown where no prefill curve says which ones were measured, and how many of them.
_SHOWN_TOKENS = (1024, 65536)
_SHOWN_LENGTHS = 64

# A point may end at three looks before its time is up (rounds.LOOKS): 1 % each on the side that would be wrong, beside
# the 2.5 % of the verdict at the end.
EARLY_CONFIDENCE = 0.98


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Another deployment to decide on the same measurements: its name and what becomes of a use."""

    name: str
    change: Callable[[Use], Use]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to decide: by which prefill curve (None when nobody gave one), for which goal, and of what the runs hold.

    No ``models``, ``tp`` or ``connector`` means every one. ``gpu_copy_bytes_per_s`` is the link from host memory into
    all GPUs of the server together, ``hit_overhead_s`` what a hit costs beside reads, lookups and copy.
    """

    curve: PrefillCurve | None
    samples: Samples | None
    goal: Goal
    concurrent: tuple[int, ...] = (1,)
    mix: MixChoice = "auto"
    models: tuple[str, ...] = ()
    tp: int | None = None
    connector: str | None = None
    gpu_copy_bytes_per_s: int | None = None
    hit_overhead_s: float | None = None
    what_ifs: tuple[WhatIf, ...] = ()
    traffic: ServerLoad | None = None

    def holds(self, use: Use) -> bool:
        """Whether the user asked about that model, TP and connector."""
        return (
            (not self.models or any(same_model(use.model, model) for model in self.models))
            and self.tp in (None, use.tp)
            and self.connector in (None, use.connector)
        )


@dataclass(frozen=True)
class Decisions:
    """Every crossover, the curve behind them, and what must be said about them; ``what_ifs`` decide nothing."""

    curve: PrefillCurve | None
    goal: Goal
    crossovers: tuple[Crossover, ...]
    notes: tuple[str, ...]
    what_ifs: tuple[Crossover, ...] = ()


@dataclass(frozen=True)
class Judged:
    """One crossover with its run, under the name that the tier has among all runs, and the times to show.

    ``curve`` is None when prefill of the model is unknown.
    """

    run: LoadedRun
    tier: str
    crossover: Crossover
    curve: PrefillCurve | None
    goal: Goal

    @property
    def use(self) -> Use:
        """The model, TP and connector that were judged."""
        return self.crossover.use

    @property
    def point(self) -> PointResult | None:
        """The point that the crossover rests on."""
        return self.crossover.measured.point if self.crossover.measured else None

    @property
    def restore(self) -> RestoreCurve | None:
        """Restore times by length, None without a measured point."""
        return self.crossover.restore

    def restore_at(self, tokens: int) -> Band | None:
        """Seconds to restore ``tokens``, None without a measured point or beyond what was computed."""
        if self.restore is None or not self.restore.tokens[0] <= tokens <= self.restore.tokens[-1]:
            return None
        at = int(np.searchsorted(self.restore.tokens, tokens))
        return band(self.restore.draws[:, at], float(self.restore.seconds[at]))

    def recompute_at(self, tokens: int) -> Band | None:
        """Seconds to compute what is restored of ``tokens``, as many at once; None outside the measured lengths."""
        if self.curve is None or not self.curve.measured_from <= tokens <= self.curve.measured_to:
            return None
        return recompute_band(self.curve, self.use.restored_tokens(tokens), self.crossover.concurrent_restores)


def decide_runs(runs: Sequence[tuple[Path, RunResult]], wanted: Wanted) -> Decisions:
    """The crossovers of every tier and use of the runs; UsageError when the filter leaves none.

    Without a prefill curve they hold what restoring takes, and no verdict.
    """
    if wanted.curve is not None:
        doubted_speed(wanted.curve, [use for _, run in runs for use in run.uses if wanted.holds(use)])
    crossovers = tuple(_crossovers(runs, wanted))
    asked = tuple(
        replace(crossover, what_if=what_if.name)
        for what_if in wanted.what_ifs
        for crossover in _crossovers(runs, wanted, what_if.change)
    )
    unfinished = [str(run_dir) for run_dir, run in runs if not run.points]
    if not crossovers and unfinished:
        raise UsageError(f"{unfinished[0]} holds no finished point yet; continue it with 'kvbench fio --resume'.")
    if not crossovers:
        held = sorted({f"{use.model} (TP {use.tp}, {use.connector})" for _, run in runs for use in run.uses})
        raise UsageError(f"no measured model matches; the runs hold {', '.join(held) or 'no model'}.")
    return Decisions(wanted.curve, wanted.goal, crossovers, _notes(crossovers, wanted.curve), asked)


def judge_runs(runs: Sequence[LoadedRun], wanted: Wanted) -> tuple[Judged, ...]:
    """One judgement for every tier, use and number of concurrent restores, also of tiers that nobody got to measure.

    UsageError when one of ``wanted.models`` is in no run.
    """
    found = tuple(
        Judged(run, run.label(crossover.tier, runs), crossover, _curve_of(crossover.use, wanted), wanted.goal)
        for run in runs
        for crossover in _of_run(run, wanted)
    )
    held = {use.model for run in runs for use in run.result.uses}
    for model in wanted.models:
        if not any(same_model(model, one) for one in held):
            raise UsageError(f"no run holds the model {model!r}; they hold {', '.join(sorted(held)) or 'no model'}.")
    return found


def verdict_is_settled(observation: Observation, run_dir: Path, run: RunResult, wanted: Wanted) -> bool | None:
    """Whether the verdicts that rest on a point are settled by what was measured so far; None when none rests on it.

    The decision itself is asked, with everything that it uses: lookups, the copy to the GPU, the latency of one job.
    A verdict rests on the mixed point with one request's parallelism, of the model that the curve measured. It counts
    with EARLY_CONFIDENCE, since it is asked more than once.
    """
    point = observation.point
    resting = tuple(
        (use, curve)
        for use in run.uses
        if (use.io_bytes, use.parallelism_per_request) == (point.io_bytes, point.numjobs)
        and (curve := _curve_of(use, wanted)) is not None
    )
    if point.mix != "mixed" or not resting or any(_speed_warning(curve, use) for use, curve in resting):
        return None
    if read_latency(point) is None:
        return False
    so_far = run.with_point(point)
    reads = Reads(run_dir, so_far, point.tier, wanted.mix, {point.id: observation.histograms})
    answers = [_decide(reads, use, use, 1, wanted, EARLY_CONFIDENCE) for use, _ in resting]
    return all(answer.verdict != "cannot say" for answer in answers)


def doubted_speed(curve: PrefillCurve, uses: Sequence[Use]) -> str | None:
    """Why the curve's speed is not believed for one of the uses, None where it is; InputFileError where it cannot be.

    Where none is of their model it is held against one accelerator and the model that they name.
    """
    mine = [use for use in uses if is_of(curve, use)]
    warnings = [_speed_warning(curve, use) for use in mine]
    if not mine:
        name = curve.model
        warnings = [speed_warning(curve, bounds_of(None if name is None else work_of_name(name), name), 1)]
    # How many accelerators computed a model that nothing was measured for, is not known.
    judged = mine or not uses
    found = [warning for warning in warnings if warning is not None and (judged or warning.degree == "impossible")]
    impossible = next((warning for warning in found if warning.degree == "impossible"), None)
    # Of samples that name no model, one use may be the right one.
    if impossible is not None and all(warning is not None and warning.degree == "impossible" for warning in warnings):
        raise InputFileError(
            f"{curve.source}: {impossible.text} Correct the samples, name their model with --ttft-model, or vouch for "
            "them with --any-speed, as on a server without accelerators or with more of them."
        )
    return found[0].text if found else None


def unnamed_model(curve: PrefillCurve, models: Collection[str]) -> str | None:
    """What to say of samples that name no model where several models are judged by them."""
    if curve.model is not None or len(set(models)) < 2:
        return None
    return (
        f"the TTFT samples do not name a model ('# model: NAME' in the CSV, or --ttft-model) and are given to "
        f"{len(set(models))} ({', '.join(sorted(models))}); every answer assumes that they are of its model"
    )


def parse_tails_ms(text: str) -> tuple[float, ...]:
    """Seconds of ``--p99-ms 5,50``."""
    try:
        tails = tuple(float(item) / 1000 for item in split_list(text))
    except ValueError:
        tails = ()
    if not tails or not all(0 < tail <= _LONGEST_TAIL_S for tail in tails):
        raise UsageError(f"--p99-ms {text!r}: write positive milliseconds up to a day, separated by commas, like 5,50.")
    return tails


def same_model(one: str, other: str) -> bool:
    """Whether two names mean the same model: equal, or equal without the organisation, whatever the case."""
    one, other = one.lower().rstrip("/"), other.lower().rstrip("/")
    return one == other or (("/" not in one or "/" not in other) and one.rpartition("/")[2] == other.rpartition("/")[2])


def is_of(curve: PrefillCurve, use: Use) -> bool:
    """Whether the prefill curve is of the use's model, as far as its samples say."""
    return curve.model is None or same_model(curve.model, use.model)


def _curve_of(use: Use, wanted: Wanted) -> PrefillCurve | None:
    return wanted.curve if wanted.curve is not None and is_of(wanted.curve, use) else None


def _of_run(run: LoadedRun, wanted: Wanted) -> Iterator[Crossover]:
    """The crossovers of one run, those of tiers that have no point yet at the end."""
    uses = [use for use in run.result.uses if wanted.holds(use)]
    if uses and run.result.points and wanted.curve is not None:
        doubted_speed(wanted.curve, uses)
    yield from _crossovers([(run.path, run.result)], wanted)
    measured = {point.tier for point in run.result.points}
    reason = "no point of this tier was measured; continue the run with --resume"
    for use in uses:
        for tier in run.tiers:
            if tier not in measured:
                for count in wanted.concurrent:
                    yield _undecided(use, tier, count, wanted, reason)


def _crossovers(
    runs: Sequence[tuple[Path, RunResult]], wanted: Wanted, change: Callable[[Use], Use] = lambda use: use
) -> Iterator[Crossover]:
    for run_dir, run in runs:
        tiers = dict.fromkeys(point.tier for point in run.points)
        reads = {tier: Reads(run_dir, run, tier, wanted.mix) for tier in tiers}
        for use in filter(wanted.holds, run.uses):
            for found in reads.values():
                for count in wanted.concurrent:
                    decided = _decide(found, use, change(use), count, wanted)
                    yield replace(decided, run=str(run_dir))


def _decide(
    reads: Reads, measured_use: Use, use: Use, concurrent: int, wanted: Wanted, confidence: float = CONFIDENCE
) -> Crossover:
    if sum(_is_sibling(other, measured_use) for other in reads.run.uses) > 1:
        reason = (
            f"{use.connector} makes units of several sizes of {use.model}, and no restore of them all is modelled yet"
        )
        return _undecided(use, reads.tier, concurrent, wanted, reason)
    measured = reads.at(use.io_bytes, use.in_flight(concurrent))
    # A request looks its blocks up before it reads any: what is in flight then are the reads of the others.
    lookup_s = reads.lookup_s(use.io_bytes, use.in_flight(concurrent - 1))
    around = Around(lookup_s, wanted.gpu_copy_bytes_per_s, wanted.hit_overhead_s)
    curve = wanted.curve
    if curve is None:
        return _undecided(use, reads.tier, concurrent, wanted, _no_prefill(measured), measured, around)
    if (unfit := _unfit(curve, measured_use, use)) is not None:
        return _undecided(use, reads.tier, concurrent, wanted, unfit, measured, around)
    single = reads.at(use.io_bytes, PUBLISHED_JOBS)
    return decide(use, reads.tier, concurrent, measured, single, curve, wanted.goal, around, confidence)


def _no_prefill(measured: MeasuredReads | None) -> str:
    reason = "no prefill was given (--ttft-csv or --ttft-from)"
    return reason if measured else f"{reason} and no read was measured at this I/O size and load"


def _unfit(curve: PrefillCurve, measured_use: Use, use: Use) -> str | None:
    """Why no verdict can rest on the curve; the prefill speed at which restoring would win is known all the same."""
    if not is_of(curve, use):
        return f"the TTFT samples are of {curve.model}; give samples of {use.model}"
    warning = _speed_warning(curve, measured_use)
    return None if warning is None else f"the prefill speed is doubtful: {warning.text}"


def _speed_warning(curve: PrefillCurve, use: Use) -> SpeedWarning | None:
    """What is wrong with the curve's speed for a use; runs of before that was stored are judged by the model's name."""
    stored = use.active_parameters is not None
    work = Work(use.active_parameters or 0, use.pair_flop or 0) if stored else work_of_name(use.model)
    return speed_warning(curve, bounds_of(work, use.model), use.tp)


def _is_sibling(one: Use, other: Use) -> bool:
    """Whether two uses are one deployment, whose connector makes units of several sizes."""
    return (one.model, one.tp, one.connector, one.engine_version) == (
        other.model,
        other.tp,
        other.connector,
        other.engine_version,
    )


def _undecided(
    use: Use,
    tier: str,
    concurrent: int,
    wanted: Wanted,
    reason: str,
    measured: MeasuredReads | None = None,
    around: Around = NOTHING_AROUND,
) -> Crossover:
    """No answer, but what restoring takes where the tier's speed is known."""
    undecided = Crossover(
        tier=tier,
        use=use,
        concurrent_restores=concurrent,
        point=None,
        restore_tokens_per_s=None,
        single_block=None,
        request=RequestCrossover("unknown", None, None, None, reason),
        verdict="cannot say",
        verdict_reason=reason,
        around=around,
    )
    if measured is None:
        return undecided
    return replace(
        undecided,
        point=measured.point.id,
        measured=measured,
        restore_tokens_per_s=restore_tokens_per_s(use, measured, concurrent, around),
        restore=restore_curve(use, measured, concurrent, _shown_lengths(use, wanted), around),
    )


def _shown_lengths(use: Use, wanted: Wanted) -> Floats:
    """Lengths in whole blocks to show where no verdict asks for any, and the target."""
    low, high = (wanted.curve.measured_from, wanted.curve.measured_to) if wanted.curve else _SHOWN_TOKENS
    blocks = np.ceil(np.geomspace(low, high, _SHOWN_LENGTHS) / use.block_tokens) * use.block_tokens
    return np.unique(np.append(blocks, float(wanted.goal.target_tokens)))


def _notes(crossovers: Sequence[Crossover], curve: PrefillCurve | None) -> tuple[str, ...]:
    said = None if curve is None else unnamed_model(curve, {crossover.use.model for crossover in crossovers})
    in_turn = sorted({one.tier for one in crossovers if one.measured is not None and one.measured.point.in_turn})
    waits = (
        f"each job of the mixed points of {', '.join(in_turn)} reads and stores in turn, so that its next read waits "
        "for a store; a load of vLLM 0.27 and later does not"
    )
    return (*(() if said is None else (said,)), *((waits,) if in_turn else ()))
