"""From runs on disk and a prefill curve to the crossovers of every tier and use, and their JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

from kvbench.decide.crossover import (
    CONFIDENCE,
    PUBLISHED_JOBS,
    Crossover,
    Goal,
    Request,
    SingleBlock,
    decide,
    published_tokens,
    single_block_at,
)
from kvbench.decide.interpolation import between_jobs, between_sizes
from kvbench.decide.restore import NOTHING_AROUND, Around, Measured, restore_tokens_per_s
from kvbench.errors import InputFileError, UsageError
from kvbench.layout.models import work_of_name
from kvbench.layout.work import Work, bounds_of
from kvbench.prefill.curve import PrefillCurve
from kvbench.prefill.plausible import SpeedDoubt, speed_doubt
from kvbench.record import results
from kvbench.record.histogram import Histogram
from kvbench.record.results import LatencyNs, Observation, PointResult, RunResult, Use
from kvbench.units import split_list

MixChoice = Literal["auto", "mixed", "read"]

# The axis of the study's figure: prefill cost in seconds for each token.
PUBLISHED_COSTS_S = (0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002)


_LONGEST_TAIL_S = 86_400

# A point may end at three looks before its time is up (rounds.LOOKS): 1 % each on the side that would be wrong, beside
# the 2.5 % of the verdict at the end.
EARLY_CONFIDENCE = 0.98

# Where several drivers measured a point: what does the connector's own calls comes first.
_BEST_DRIVERS = ("replay", "s3", "memory", "fio")


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Another deployment to decide on the same measurements: its name and what becomes of a use."""

    name: str
    change: Callable[[Use], Use]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user asked to decide; None means every one that the runs hold.

    ``gpu_copy_bytes_per_s`` is the link from host memory into all GPUs of the server together.
    """

    model: str | None
    tp: int | None
    connector: str | None
    mix: MixChoice
    concurrent: tuple[int, ...]
    goal: Goal
    gpu_copy_bytes_per_s: int | None = None
    what_ifs: tuple[WhatIf, ...] = ()


@dataclass(frozen=True)
class Decisions:
    """Every crossover, the curve behind them, and what must be said about them; ``what_ifs`` decide nothing."""

    curve: PrefillCurve
    goal: Goal
    crossovers: tuple[Crossover, ...]
    notes: tuple[str, ...]
    what_ifs: tuple[Crossover, ...] = ()


def decide_runs(runs: Sequence[tuple[Path, RunResult]], curve: PrefillCurve, wanted: Wanted) -> Decisions:
    """The crossovers of every tier and use of the runs; UsageError when the filter leaves none."""
    doubted_speed(curve, [use for _, run in runs for use in run.uses if _is_wanted(use, wanted)])
    crossovers = list(_crossovers(runs, curve, wanted))
    asked = [
        replace(crossover, what_if=what_if.name)
        for what_if in wanted.what_ifs
        for crossover in _crossovers(runs, curve, wanted, what_if.change)
    ]
    unfinished = [str(run_dir) for run_dir, run in runs if not run.points]
    if not crossovers and unfinished:
        raise UsageError(f"{unfinished[0]} holds no finished point yet; continue it with 'kvbench fio --resume'.")
    if not crossovers:
        held = sorted({f"{use.model} (TP {use.tp}, {use.connector})" for _, run in runs for use in run.uses})
        raise UsageError(f"no measured model matches; the runs hold {', '.join(held) or 'no model'}.")
    return Decisions(curve, wanted.goal, tuple(crossovers), _notes(crossovers, curve), tuple(asked))


def verdict_is_settled(
    observation: Observation, run_dir: Path, run: RunResult, curve: PrefillCurve, wanted: Wanted
) -> bool | None:
    """Whether the verdicts that rest on a point are settled by what was measured so far; None when none rests on it.

    The decision itself is asked, with everything that it uses: lookups, the copy to the GPU, the latency of one job.
    A verdict rests on the mixed point with one request's parallelism, of the model that the curve measured. It counts
    with EARLY_CONFIDENCE, since it is asked more than once.
    """
    point = observation.point
    resting = tuple(
        use
        for use in run.uses
        if (use.io_bytes, use.parallelism_per_request) == (point.io_bytes, point.numjobs)
        and (curve.model is None or same_model(curve.model, use.model))
    )
    if point.mix != "mixed" or not resting or any(_speed_doubt(curve, use) for use in resting):
        return None
    if _read_latency(point) is None:
        return False
    so_far = run.with_point(point)
    reads = Reads(run_dir, so_far, point.tier, wanted.mix, {point.id: observation.histograms})
    answers = [_decide(reads, use, use, 1, curve, wanted, EARLY_CONFIDENCE) for use in resting]
    return all(answer.verdict != "cannot say" for answer in answers)


def doubted_speed(curve: PrefillCurve, uses: Sequence[Use]) -> str | None:
    """Why the curve's speed is not believed for one of the uses, None where it is; InputFileError where it cannot be.

    Where none is of their model it is held against one accelerator and the model that they name.
    """
    mine = [use for use in uses if curve.model is None or same_model(curve.model, use.model)]
    doubts = [_speed_doubt(curve, use) for use in mine]
    if not mine:
        name = curve.model
        doubts = [speed_doubt(curve, bounds_of(None if name is None else work_of_name(name), name), 1)]
    # How many accelerators computed a model that nothing was measured for, is not known.
    found = [doubt for doubt in doubts if doubt is not None and (mine or not uses or doubt.degree == "impossible")]
    impossible = next((doubt for doubt in found if doubt.degree == "impossible"), None)
    # Of samples that name no model, one use may be the right one.
    if impossible is not None and all(doubt is not None and doubt.degree == "impossible" for doubt in doubts):
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


def to_json(decided: Decisions) -> dict[str, Any]:
    """The JSON contract of ``kvbench crossover``."""
    return {
        "prefill": _prefill_json(decided.curve),
        "target_tokens": decided.goal.target_tokens,
        "results": [_crossover_json(crossover) for crossover in decided.crossovers],
        "what_if": [_crossover_json(crossover) for crossover in decided.what_ifs],
        "notes": list(decided.notes),
    }


def published_json(tails_s: Sequence[float], curve: PrefillCurve | None) -> dict[str, Any]:
    """The published figure as numbers: L = p99 / prefill cost for fixed tails; with a curve, its crossovers too."""
    return {
        "prefill": None if curve is None else _prefill_json(curve),
        "results": [],
        "published": [
            {
                "p99_ns": round(tail * 1e9),
                "prefill_s_per_token": cost,
                "tokens": math.ceil(published_tokens(tail, cost)),
            }
            for tail in tails_s
            for cost in PUBLISHED_COSTS_S
        ],
        "single_block": [_single_json(single_block_at(tail, curve, None)) for tail in tails_s] if curve else [],
    }


def parse_mix(text: str) -> MixChoice:
    """The choice of ``crossover --mix``."""
    if text not in ("auto", "mixed", "read"):
        raise UsageError(f"--mix {text!r}: choose auto, mixed or read.")
    return cast(MixChoice, text)


def parse_tails_ms(text: str) -> list[float]:
    """Seconds of ``--p99-ms 5,50``."""
    try:
        tails = [float(item) / 1000 for item in split_list(text)]
    except ValueError:
        tails = []
    if not tails or not all(0 < tail <= _LONGEST_TAIL_S for tail in tails):
        raise UsageError(f"--p99-ms {text!r}: write positive milliseconds up to a day, separated by commas, like 5,50.")
    return tails


def same_model(one: str, other: str) -> bool:
    """Whether two names mean the same model: equal, or equal without the organisation, whatever the case."""
    one, other = one.lower().rstrip("/"), other.lower().rstrip("/")
    return one == other or (("/" not in one or "/" not in other) and one.rpartition("/")[2] == other.rpartition("/")[2])


def _is_wanted(use: Use, wanted: Wanted) -> bool:
    return (
        (wanted.model is None or same_model(use.model, wanted.model))
        and (wanted.tp is None or use.tp == wanted.tp)
        and (wanted.connector is None or use.connector == wanted.connector)
    )


def _crossovers(
    runs: Sequence[tuple[Path, RunResult]],
    curve: PrefillCurve,
    wanted: Wanted,
    change: Callable[[Use], Use] = lambda use: use,
) -> Iterator[Crossover]:
    for run_dir, run in runs:
        tiers = dict.fromkeys(point.tier for point in run.points)
        reads = {tier: Reads(run_dir, run, tier, wanted.mix) for tier in tiers}
        for use in run.uses:
            if not _is_wanted(use, wanted):
                continue
            for found in reads.values():
                for count in wanted.concurrent:
                    decided = _decide(found, use, change(use), count, curve, wanted)
                    yield replace(decided, run=str(run_dir))


def _decide(
    reads: Reads,
    measured_use: Use,
    use: Use,
    concurrent: int,
    curve: PrefillCurve,
    wanted: Wanted,
    confidence: float = CONFIDENCE,
) -> Crossover:
    if sum(_is_sibling(other, measured_use) for other in reads.run.uses) > 1:
        reason = (
            f"{use.connector} makes units of several sizes of {use.model}, and no restore of them all is modelled yet"
        )
        return _undecided(use, reads.tier, concurrent, None, reason)
    measured = reads.at(use.io_bytes, use.in_flight(concurrent))
    # A request looks its blocks up before it reads any: what is in flight then are the reads of the others.
    around = Around(reads.lookup_s(use.io_bytes, use.in_flight(concurrent - 1)), wanted.gpu_copy_bytes_per_s)
    if curve.model is not None and not same_model(curve.model, use.model):
        return _other_model(use, reads.tier, concurrent, measured, curve, around)
    if (doubt := _speed_doubt(curve, measured_use)) is not None:
        return _undecided(use, reads.tier, concurrent, measured, f"the prefill speed is doubtful: {doubt.text}", around)
    single = reads.at(use.io_bytes, PUBLISHED_JOBS)
    return decide(use, reads.tier, concurrent, measured, single, curve, wanted.goal, around, confidence)


def _speed_doubt(curve: PrefillCurve, use: Use) -> SpeedDoubt | None:
    """What is wrong with the curve's speed for a use; runs of before that was stored are judged by the model's name."""
    stored = use.active_parameters is not None
    work = Work(use.active_parameters or 0, use.pair_flop or 0) if stored else work_of_name(use.model)
    return speed_doubt(curve, bounds_of(work, use.model), use.tp)


def _other_model(
    use: Use, tier: str, concurrent: int, measured: Measured | None, curve: PrefillCurve, around: Around
) -> Crossover:
    """No answer for a model that the prefill curve is not of, but the prefill speed at which restoring would win."""
    return _undecided(
        use, tier, concurrent, measured, f"the TTFT samples are of {curve.model}; give samples of {use.model}", around
    )


def _is_sibling(one: Use, other: Use) -> bool:
    """Whether two uses are one deployment, whose connector makes units of several sizes."""
    return (one.model, one.tp, one.connector, one.engine_version) == (
        other.model,
        other.tp,
        other.connector,
        other.engine_version,
    )


def _undecided(
    use: Use, tier: str, concurrent: int, measured: Measured | None, reason: str, around: Around = NOTHING_AROUND
) -> Crossover:
    return Crossover(
        tier=tier,
        use=use,
        concurrent_restores=concurrent,
        point=measured.point.id if measured else None,
        restore_tokens_per_s=restore_tokens_per_s(use, measured, concurrent, around) if measured else None,
        single_block=None,
        request=Request("unknown", None, None, None, reason),
        verdict="cannot say",
        verdict_reason=reason,
        measured=measured,
        around=around,
    )


# Bytes of one I/O, and jobs.
_Load = tuple[int, int]


@dataclass(frozen=True)
class Reads:
    """The reads that a run measured on one tier, found by size and load; sorted once for all that ask.

    ``fresh`` holds histograms by point that are not in the run directory yet.
    """

    run_dir: Path
    run: RunResult
    tier: str
    mix: MixChoice
    fresh: Mapping[str, Mapping[str, Histogram]] = field(default_factory=dict)

    def at(self, io_bytes: int, jobs: int) -> Measured | None:
        """The read side of the mixed point (steady state) at that load, else of the pure read point.

        What was not measured is interpolated between two neighbours (first in jobs, then in size) and marked.
        """
        for best in self._by_mix:
            sizes = _neighbours([load for load in best if load[0] == io_bytes], 1, jobs)
            at_load = _neighbours([load for load in best if load[1] == jobs], 0, io_bytes)
            if (io_bytes, jobs) in best:
                return self._measured(best, (io_bytes, jobs))
            found = between_jobs([self._measured(best, load) for load in sizes], jobs) or between_sizes(
                [self._measured(best, load) for load in at_load], io_bytes
            )
            if found is not None:
                return found
        return None

    def rates(self, io_bytes: int) -> dict[int, float]:
        """Read bytes per second by number of jobs, of the mix that decides."""
        for best in self._by_mix:
            rates = {
                jobs: point.read.bytes_per_s for (size, jobs), point in best.items() if size == io_bytes and point.read
            }
            if rates:
                return rates
        return {}

    def lookup_s(self, io_bytes: int, jobs: int) -> float | None:
        """Mean seconds of one lookup beside about ``jobs`` operations: of the loads that timed one the nearest.

        The nearest in size first: a lookup reads no data, so that a size that was not measured has one too.
        """
        for best in self._by_mix:
            timed = {load: seconds for load, point in best.items() if (seconds := _lookup_s(point)) is not None}
            if timed:
                return timed[min(timed, key=lambda load: (abs(load[0] - io_bytes), abs(load[1] - jobs)))]
        return None

    @cached_property
    def _by_mix(self) -> list[dict[_Load, PointResult]]:
        """The usable reads of each mix that counts, the one that decides first: one point for each size and load, that
        of the driver nearest to the connector."""
        found = []
        for mix in ("mixed", "read") if self.mix == "auto" else (self.mix,):
            best: dict[_Load, PointResult] = {}
            for point in sorted(self.run.points, key=_preference):
                if (point.tier, point.mix, point.status) == (self.tier, mix, "ok") and _read_latency(point) is not None:
                    best.setdefault((point.io_bytes, point.numjobs), point)
            found.append(best)
        return found

    def _measured(self, best: Mapping[_Load, PointResult], load: _Load) -> Measured:
        point, alone = best[load], best.get((load[0], 1))
        assert point.read is not None
        latency = None if alone is None else _read_latency(alone)
        alone_s = None if latency is None else latency.mean_s
        return Measured(point, point.read, self._histogram(point), alone_s)

    def _histogram(self, point: PointResult) -> Histogram | None:
        if point.id in self.fresh:
            return self.fresh[point.id].get("read")
        return results.load_histogram(self.run_dir, point, "read")


def _neighbours(loads: Sequence[_Load], which: int, wanted: int) -> list[_Load]:
    """The nearest load on either side of ``wanted`` in that part: of all others no histogram need be read."""
    below = max((load for load in loads if load[which] < wanted), key=lambda load: load[which], default=None)
    above = min((load for load in loads if load[which] > wanted), key=lambda load: load[which], default=None)
    return [load for load in (below, above) if load is not None]


def _read_latency(point: PointResult) -> LatencyNs | None:
    """The latency of a point's reads, None when it read nothing."""
    return point.read.latency_ns if point.read is not None and point.read.iops > 0 else None


def _lookup_s(point: PointResult) -> float | None:
    """Mean seconds of a point's lookups, None where nobody timed them."""
    lookup = point.metadata.get("lookup")
    latency = None if lookup is None else lookup.latency_ns
    return None if latency is None else latency.mean_s or None


def _preference(point: PointResult) -> int:
    return _BEST_DRIVERS.index(point.driver) if point.driver in _BEST_DRIVERS else len(_BEST_DRIVERS)


def _notes(crossovers: Sequence[Crossover], curve: PrefillCurve) -> tuple[str, ...]:
    said = unnamed_model(curve, {crossover.use.model for crossover in crossovers})
    return () if said is None else (said,)


def _prefill_json(curve: PrefillCurve) -> dict[str, Any]:
    return {
        "a_s": curve.a_s,
        "b_s_per_token": curve.b_s_per_token,
        "c_s_per_token2": curve.c_s_per_token2,
        "measured_from": curve.measured_from,
        "measured_to": curve.measured_to,
        "samples": curve.samples,
        "largest_residual_s": curve.largest_residual_s,
        "linear_residual_s": curve.linear_residual_s,
        "residuals": [{"prompt_tokens": tokens, "residual_s": residual} for tokens, residual in curve.residuals_s],
        "set_aside": [{"prompt_tokens": item.prompt_tokens, "ttft_s": item.ttft_s} for item in curve.set_aside],
        "model": curve.model,
        "source": curve.source,
    }


def _crossover_json(crossover: Crossover) -> dict[str, Any]:
    return {
        "tier": crossover.tier,
        "model": crossover.use.model,
        "tp": crossover.use.tp,
        "connector": crossover.use.connector,
        "run": crossover.run,
        "io_bytes": crossover.use.io_bytes,
        "concurrent_restores": crossover.concurrent_restores,
        "point": crossover.point,
        "restore_tokens_per_s": crossover.restore_tokens_per_s,
        "single_block": None if crossover.single_block is None else _single_json(crossover.single_block),
        "request": asdict(crossover.request),
        "verdict": crossover.verdict,
        "verdict_reason": crossover.verdict_reason,
        "what_if": crossover.what_if or None,
        "interpolated": any(caveat.code == "interpolated" for caveat in crossover.caveats),
        "at_target": None if crossover.at_target is None else asdict(crossover.at_target),
        "ttft_budget": None if crossover.budget is None else asdict(crossover.budget),
        "break_even": [asdict(item) for item in crossover.break_even],
        "lookup_s_per_unit": crossover.around.lookup_s_per_unit,
        "gpu_copy_bytes_per_s": crossover.around.gpu_copy_bytes_per_s,
    }


def _single_json(single: SingleBlock) -> dict[str, Any]:
    return asdict(single)
