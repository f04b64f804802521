"""RUN_DIR/summary.md: the tables of a run as Markdown."""

from __future__ import annotations

from pathlib import Path

from kvbench.decide.runs import LoadedRun
from kvbench.record import results
from kvbench.report.markdown import markdown
from kvbench.report.tables import SUMMARY

SUMMARY_NAME = "summary.md"


def write_summary(run_dir: Path) -> None:
    """Write RUN_DIR/summary.md from the saved result."""
    runs = (LoadedRun(run_dir.name, run_dir, results.load(run_dir)),)
    tables = [make(runs) for make in SUMMARY]
    results.write_atomically(run_dir / SUMMARY_NAME, markdown(tables, f"kvbench run {run_dir.name}"))
