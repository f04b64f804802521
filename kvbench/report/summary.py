"""RUN_DIR/summary.md: the tables of a run as Markdown."""

from __future__ import annotations

from pathlib import Path

from kvbench.record import results
from kvbench.report import tables
from kvbench.report.events import events_table
from kvbench.report.fidelity import calls_table, fidelity_table

SUMMARY_NAME = "summary.md"


def write_summary(run_dir: Path) -> None:
    """Write RUN_DIR/summary.md from the saved result."""
    result = results.load(run_dir)
    shown = (tables.models_table(result), tables.points_table(result), events_table(run_dir, result))
    every = (*shown, fidelity_table(result), calls_table(result), tables.warnings_table(result))
    results.write_atomically(run_dir / SUMMARY_NAME, tables.markdown(every, f"kvbench run {run_dir.name}"))
