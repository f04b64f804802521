"""The tables of a report. Each is one file with its columns and its rows; SHEETS lists them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kvbench.decide.decision import Decisions
from kvbench.decide.runs import LoadedRun
from kvbench.report.scene import Scene
from kvbench.report.sheet import Sheet
from kvbench.report.tables.blocks import blocks, short_blocks
from kvbench.report.tables.calls import calls, short_calls
from kvbench.report.tables.command_lines import command_lines
from kvbench.report.tables.comparison import fidelity, short_fidelity
from kvbench.report.tables.distrust import distrust, distrust_by_kind, short_distrust
from kvbench.report.tables.events import events, short_events
from kvbench.report.tables.measured import measured, short_measured
from kvbench.report.tables.memory import memory
from kvbench.report.tables.needs import needs, short_needs
from kvbench.report.tables.prefill import prefill
from kvbench.report.tables.provenance import provenance
from kvbench.report.tables.references import references
from kvbench.report.tables.savings import savings
from kvbench.report.tables.settings import settings
from kvbench.report.tables.throughput import throughputs
from kvbench.report.tables.times import times
from kvbench.report.tables.verdicts import reasons, short_verdicts, verdicts, what_ifs

# What a report shows in each part of its page, in reading order. A table without rows is left out.
SHEETS: dict[str, list[Callable[[Scene], Sheet]]] = {
    "decision": [verdicts, needs, throughputs, savings, settings, command_lines, times],
    "measured": [events, measured, fidelity, memory, calls, references, distrust],
    "background": [blocks, prefill, provenance],
}

# What a terminal shows of a run, and what is written beside its results.
RUN: list[Callable[[Sequence[LoadedRun]], Sheet]] = [
    short_blocks,
    short_measured,
    short_fidelity,
    short_events,
    distrust_by_kind,
]
SUMMARY: list[Callable[[Sequence[LoadedRun]], Sheet]] = [
    short_blocks,
    short_measured,
    short_events,
    short_fidelity,
    short_calls,
    short_distrust,
]

# What a terminal shows of a decision.
DECISION: list[Callable[[Decisions], Sheet]] = [short_verdicts, reasons, short_needs, what_ifs]


def sheets(scene: Scene) -> tuple[Sheet, ...]:
    """Every table of a report that has rows, section by section."""
    made = (replace(make(scene), section=section) for section, makers in SHEETS.items() for make in makers)
    return tuple(sheet for sheet in made if sheet.rows)
