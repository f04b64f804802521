"""Serving runs of several configurations side by side (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvbench.report.columns import Column, Short, name, narrow, number, words
from kvbench.report.sheet import Sheet
from kvbench.serving.arm import ArmRun
from kvbench.serving.comparing import Comparison, RunProblem
from kvbench.serving.differences import Speedup
from kvbench.units import format_duration_s, format_number, format_share

_SOURCE = "the load generator's result"
_COUNTED = "the server's counters over the run"
_RATIOS = (
    ("requests_per_s", "requests/s ratio", 0),
    ("ttft_mean", "TTFT ratio", 3),
    ("ttft_p95", "p95 TTFT ratio", 5),
    ("e2e_mean", "E2E ratio", 4),
)


@dataclass(frozen=True, slots=True)
class ServedRow:
    """One run of a configuration, and the comparison that it is a part of."""

    configuration: str
    run: ArmRun
    comparison: Comparison

    def speedup(self, metric: str) -> Speedup | None:
        """The ratio of one number over the control's at the same load."""
        return self.comparison.speedup(self.configuration, self.run.load, metric)


def ratio_text(one: Speedup | None) -> str:
    """``1.94 (1.71 to 2.2)``, ``1.02 (noise)`` where nothing can be told, ``1.94 (one run)`` without an interval."""
    if one is None:
        return ""
    shown = format_number(one.ratio)
    if one.low is None or one.high is None:
        return f"{shown} (one run)"
    if one.outcome == "within noise":
        return f"{shown} (noise)"
    return f"{shown} ({format_number(one.low)} to {format_number(one.high)})"


def _ratio(metric: str, heading: str, falls: int) -> Column[ServedRow]:
    return words(f"{metric}_ratio", heading, lambda row: ratio_text(row.speedup(metric)), right=True, falls=falls)


COLUMNS: tuple[Column[ServedRow], ...] = (
    name("configuration", "configuration", lambda row: row.configuration),
    name("load", "load", lambda row: row.run.load.words),
    number("requests_per_s", "requests/s", lambda row: row.run.requests_per_s, format_number, _SOURCE),
    number("ttft_mean_s", "mean TTFT", lambda row: row.run.ttft_s.mean, format_duration_s, _SOURCE),
    number("ttft_p95_s", "p95 TTFT", lambda row: row.run.ttft_s.p95, format_duration_s, _SOURCE, short=Short(falls=2)),
    number("e2e_mean_s", "mean E2E", lambda row: row.run.e2e_s.mean, format_duration_s, _SOURCE, short=Short(falls=1)),
    number("external_hit_rate", "from tiers", lambda row: row.run.external_hit_rate, format_share, _COUNTED),
    *(_ratio(*one) for one in _RATIOS),
)

PROBLEMS: tuple[Column[RunProblem], ...] = (
    name("configuration", "configuration", lambda row: row.configuration),
    name("load", "load", lambda row: row.load.words),
    name("code", "what", lambda row: ("refused: " if row.problem.refuses else "") + row.problem.code),
    name("message", "why", lambda row: row.problem.message),
)


def served(comparison: Comparison) -> Sheet:
    """Every run, rising by load, the control first; the ratios are over the control at the same load."""
    return narrow(f"Serving runs, ratios over {comparison.control}", COLUMNS, _rows(comparison))


def problems(comparison: Comparison) -> Sheet:
    """What was refused, and what to know of the rest."""
    return narrow("What limits the comparison", PROBLEMS, comparison.problems)


def _rows(comparison: Comparison) -> Iterator[ServedRow]:
    loads = sorted({load for one in comparison.configurations for load in one.loads})
    for load in loads:
        for one in comparison.configurations:
            for run in one.at(load):
                yield ServedRow(one.name, run, comparison)
