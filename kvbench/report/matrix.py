"""The first screen: every tier against every model and load, one chip for all, and what was measured where (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvbench.decide.crossover import Verdict
from kvbench.decide.decision import Judged
from kvbench.decide.runs import LoadedRun
from kvbench.record.results import PointResult
from kvbench.report import cells
from kvbench.report.cells import listed, use_label
from kvbench.report.data import Chip, Matrix, MatrixCell, MatrixRow
from kvbench.report.decision_words import outcome_text
from kvbench.units import format_bytes, format_count, format_duration_s


def matrix_of(all_judged: Sequence[Judged], points: Sequence[str]) -> Matrix:
    """Tiers down, models and loads across; ``points`` name what each judgement rests on, for the sources."""
    loads = {item.crossover.concurrent_restores for item in all_judged}
    found: dict[str, dict[str, MatrixCell]] = {}
    for number, (item, point) in enumerate(zip(all_judged, points, strict=True), start=1):
        at_once = f", {item.crossover.concurrent_restores} at once" if len(loads) > 1 else ""
        found.setdefault(item.tier, {})[use_label(item) + at_once] = _cell(item, point, number)
    columns = tuple(dict.fromkeys(column for row in found.values() for column in row))
    rows = tuple(MatrixRow(tier, tuple(row.get(column) for column in columns)) for tier, row in found.items())
    return Matrix(columns, rows)


def _cell(item: Judged, point: str, number: int) -> MatrixCell:
    restore, recompute = cells.restore_cell(item, point), cells.recompute_cell(item)
    named = (("restores", restore), ("recomputes", recompute))
    times = ", ".join(f"{word} in {one.text.partition(' (')[0]}" for word, one in named if one.value is not None)
    return MatrixCell(item.crossover.verdict, _outcome(item), times, card_id(number))


def _outcome(item: Judged) -> str:
    """``wins from 12,169 tokens``, ``always wins``, ``never wins``; empty where it is not known."""
    said = outcome_text(item.crossover).partition(" (")[0]
    if said in ("always", "never"):
        return f"{said} wins"
    return "" if said == "unknown" else f"wins {said}"


def card_id(number: int) -> str:
    """The anchor of a judgement's card."""
    return f"verdict-{number}"


def chip_of(all_judged: Sequence[Judged]) -> Chip:
    """How many tiers are viable, or of several models and loads how many combinations; its colour is that of all."""
    verdicts = [item.crossover.verdict for item in all_judged]
    if not verdicts or set(verdicts) == {"cannot say"}:
        return Chip("cannot say", "cannot say")
    several = len({(use_label(item), item.crossover.concurrent_restores) for item in all_judged}) > 1
    viable, what = verdicts.count("viable"), "combinations" if several else "tiers"
    if len(verdicts) == 1:
        return Chip(verdicts[0], verdicts[0])
    if viable == len(verdicts):
        return Chip("viable", f"all {len(verdicts)} {what} viable")
    verdict: Verdict = "not viable" if set(verdicts) == {"not viable"} else "cannot say"
    return Chip(verdict, f"{viable or 'none'} of {len(verdicts)} {what} viable")


def by_tier(all_judged: Sequence[Judged]) -> str:
    """For which models each tier pays, in one sentence with every name."""
    tiers: dict[str, list[Judged]] = {}
    for item in all_judged:
        tiers.setdefault(cells.tier_label(item, all_judged), []).append(item)
    parts = [f"{tier} {_pays_for(items)}" for tier, items in tiers.items()]
    return f"Restoring pays from {'; from '.join(parts)}"


def _pays_for(items: Sequence[Judged]) -> str:
    viable = list(dict.fromkeys(use_label(item) for item in items if item.crossover.verdict == "viable"))
    if len(viable) == len({use_label(item) for item in items}):
        return "for every model"
    if viable:
        return f"for {' and '.join(viable)}"
    return "for none" if all(item.crossover.verdict == "not viable" for item in items) else "for none as far as known"


def measured_line(runs: Sequence[LoadedRun]) -> str:
    """Host, day, duration and what was measured, for each run."""
    return "; ".join(_measured(run) for run in runs)


def _measured(run: LoadedRun) -> str:
    points = [point for point in run.result.points if point.status == "ok"]
    host = run.result.environment.get("host")
    where = f"on {host}" if isinstance(host, str) and host else "on a host that is not recorded"
    seconds = sum(point.runtime_s or 0.0 for point in points)
    return f"Measured {where}, {run.result.created[:10]}, {format_duration_s(seconds)}: {_what(points)}"


def _what(points: Sequence[PointResult]) -> str:
    return "; ".join(_parts(points)) or "no point"


def _parts(points: Sequence[PointResult]) -> Iterator[str]:
    if not points:
        return
    yield f"{len(points)} point{'s' if len(points) > 1 else ''}"
    yield listed(list(dict.fromkeys(point.mix for point in points)))
    yield f"I/O of {listed([format_bytes(size) for size in sorted({point.io_bytes for point in points})])}"
    jobs = sorted({point.numjobs for point in points})
    yield f"{listed([format_count(count) for count in jobs])} job{'' if jobs == [1] else 's'}"
