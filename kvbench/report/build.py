"""From runs and a prefill curve to one Report: the only place that decides its content."""

from __future__ import annotations

from collections.abc import Sequence

from kvbench import __version__
from kvbench.decide.crossover import Goal, Verdict
from kvbench.decide.decision import Judged, Wanted, judge_runs, unnamed_model
from kvbench.decide.runs import LoadedRun
from kvbench.report import cells, conclusions, memory
from kvbench.report.cells import MOST_NAMED, listed, point_name, use_label
from kvbench.report.data import Judgement, JudgementWarning, Report, scrubbed
from kvbench.report.decision_words import outcome_text
from kvbench.report.figures import figures
from kvbench.report.gate import overall
from kvbench.report.matrix import by_tier, chip_of, matrix_of, measured_line
from kvbench.report.methods import methods
from kvbench.report.scene import scene_of
from kvbench.report.sheet import Cell, number_cell
from kvbench.report.tables import sheets
from kvbench.units import format_duration_s, format_tokens


def build(runs: Sequence[LoadedRun], wanted: Wanted) -> Report:
    """Everything that the report of these runs says."""
    all_judged = judge_runs(runs, wanted)
    scene = scene_of(all_judged, runs, wanted)
    report = Report(
        made_by=f"kvbench {__version__}",
        title=", ".join(run.name for run in runs),
        finding=_finding(all_judged),
        summary=tuple(_summary(all_judged)),
        verdict=overall([item.crossover.verdict for item in all_judged]),
        goal=goal_text(wanted.goal),
        wanted=wanted_text(wanted.goal),
        judgements=tuple(judgement(item, runs) for item in all_judged),
        missing=tuple(_missing(all_judged, runs, wanted)),
        figures=figures(scene),
        sheets=sheets(scene),
        advice=(*conclusions.advice(all_judged), *memory.advice(runs)),
        methods=methods(wanted),
        matrix=matrix_of(all_judged, [point_name(item.run, item.crossover.point, runs) for item in all_judged]),
        chip=chip_of(all_judged),
        measured=measured_line(runs),
        tiers=tuple(dict.fromkeys(run.label(tier, runs) for run in runs for tier in run.tiers)),
    )
    return scrubbed(report)


def judgement(item: Judged, runs: Sequence[LoadedRun]) -> Judgement:
    """A tier and use in words, its numbers with their sources, and what to distrust about its point."""
    crossover, use = item.crossover, item.use
    warnings = item.point.warnings if item.point else ()
    point = point_name(item.run, crossover.point, runs)
    return Judgement(
        tier=item.tier,
        model=use.model,
        tp=use.tp,
        connector=use.connector,
        concurrent_restores=crossover.concurrent_restores,
        verdict=crossover.verdict,
        reason=crossover.verdict_reason,
        label=use_label(item),
        facts=_facts(item, point),
        point=point or None,
        warnings=tuple(JudgementWarning(point, warning.code, warning.message, warning.hint) for warning in warnings),
    )


def goal_text(goal: Goal) -> str:
    """The question in words."""
    budget = "" if goal.ttft_budget_s is None else f", within {format_duration_s(goal.ttft_budget_s)}"
    return f"contexts of {format_tokens(goal.target_tokens)} tokens{budget}"


def wanted_text(goal: Goal) -> str:
    """What a tier has to do to be viable."""
    budget = "" if goal.ttft_budget_s is None else f" and takes at most {format_duration_s(goal.ttft_budget_s)} there"
    return f"restoring beats recomputing from at most {format_tokens(goal.target_tokens)} tokens on{budget}"


def _facts(item: Judged, point: str) -> tuple[Cell, ...]:
    target = format_tokens(item.goal.target_tokens)
    restore, recompute = cells.restore_cell(item, point), cells.recompute_cell(item)
    rate = number_cell(
        item.crossover.restore_tokens_per_s,
        cells.format_tokens_per_s,
        cells.restore_speed_source(item.crossover, point),
    )
    gpu = cells.recompute_speed_cell(item)
    speeds = f"restores {rate.text}"
    if gpu.value is not None:
        speeds += f", the GPUs prefill {gpu.text}"
    elif item.crossover.request.kind == "unknown":
        speeds = f"restoring wins {outcome_text(item.crossover)}"
    shown = [
        (restore, f"restores {target} tokens in {restore.text}"),
        (recompute, f"recomputing takes {recompute.text}"),
        (rate, speeds),
    ]
    return tuple(Cell(text, cell.value, cell.source) for cell, text in shown if cell.value is not None)


def _finding(all_judged: Sequence[Judged]) -> str:
    """The headline: which tier pays for which model, each by its name."""
    decided = _sentences(all_judged)
    if 0 < len(decided) <= MOST_NAMED:
        return ". ".join(decided)
    if not all_judged:
        return "Nothing to judge: the run holds no model with measured I/O"
    verdicts: list[Verdict] = [item.crossover.verdict for item in all_judged]
    if set(verdicts) == {"cannot say"}:
        return "Cannot say yet whether restoring beats recomputing"
    return by_tier(all_judged)


def _sentences(all_judged: Sequence[Judged]) -> list[str]:
    found, what = [], _counted(all_judged)
    for label in dict.fromkeys(use_label(item) for item in all_judged):
        tiers: dict[Verdict, list[str]] = {"viable": [], "not viable": [], "cannot say": []}
        for item in all_judged:
            if use_label(item) == label:
                tiers[item.crossover.verdict].append(cells.tier_label(item, all_judged))
        pays, loses = (_joined(tiers[verdict], what) for verdict in ("viable", "not viable"))
        if pays and loses:
            found.append(f"{label}: restoring from {pays} beats recomputing, from {loses} it does not")
        elif pays or loses:
            found.append(f"{label}: restoring from {pays or loses} {'beats' if pays else 'does not beat'} recomputing")
    return found


def _counted(all_judged: Sequence[Judged]) -> str:
    """What the verdicts of one model are counted in: each load of a tier has one."""
    loads = {item.crossover.concurrent_restores for item in all_judged}
    return "tiers" if len(loads) == 1 else "combinations of tier and load"


def _joined(names: Sequence[str], what: str) -> str:
    """``a``, ``a and b``, ``a, b and c``; how many there are where that would fill the headline."""
    if len(names) > MOST_NAMED:
        return f"{len(names)} of the {what}"
    return listed(names)


def _summary(all_judged: Sequence[Judged]) -> list[str]:
    """One line for each verdict: its tiers, model by model."""
    lines, what = [], _counted(all_judged)
    for verdict in ("viable", "not viable", "cannot say"):
        tiers: dict[str, list[str]] = {}
        for item in all_judged:
            if item.crossover.verdict == verdict:
                tiers.setdefault(use_label(item), []).append(cells.tier_label(item, all_judged))
        if tiers:
            named = "; ".join(f"{_joined(names, what)} for {label}" for label, names in tiers.items())
            lines.append(f"{verdict[0].upper()}{verdict[1:]}: {named}")
    return lines


def _missing(all_judged: Sequence[Judged], runs: Sequence[LoadedRun], wanted: Wanted) -> list[str]:
    """What is not there, and what to do about it."""
    found = []
    if wanted.curve is None:
        found.append(
            "How fast the GPUs recompute was not given, so no verdict is possible: add --ttft-csv FILE with uncached "
            "TTFT ('kvbench prefill' measures it), or --ttft-from PATH with results you have. Until then every tier "
            "is shown with the prefill speed below which restoring wins."
        )
    elif wanted.curve.model is not None:
        others = dict.fromkeys(item.use.model for item in all_judged if item.curve is None)
        if others:
            found.append(f"The TTFT samples are of {wanted.curve.model}; no prefill was given for {', '.join(others)}.")
    elif said := unnamed_model(wanted.curve, {item.use.model for item in all_judged}):
        found.append(f"{said[0].upper()}{said[1:]}.")
    unfinished = [point for run in runs for point in run.result.points if point.status != "ok"]
    if unfinished:
        found.append(f"{len(unfinished)} of the points did not finish; see the reasons to distrust.")
    if not all_judged:
        found.append("No model of the runs was measured at its I/O size; measure or import with --model.")
    return found
