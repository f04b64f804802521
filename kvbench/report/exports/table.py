"""One row for every direction of every point of several runs, all values in base units (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from kvbench.decide.runs import LoadedRun
from kvbench.report.columns import Column, name, sheet
from kvbench.report.data import scrubbed
from kvbench.report.files import csv_text
from kvbench.report.sheet import Sheet
from kvbench.report.tables.measured import COLUMNS as MEASURED
from kvbench.report.tables.measured import SideRow, sides

COLUMNS: tuple[Column[SideRow], ...] = (
    name("run", "run", lambda at: at.run.name),
    name("created", "created", lambda at: at.run.result.created),
    name("driver", "driver", lambda at: at.point.driver),
    name("status", "status", lambda at: at.point.status),
    name("tier", "tier", lambda at: at.point.tier),
    *(column for column in MEASURED if column.key != "tier"),
)


def table(runs: Sequence[LoadedRun]) -> Sheet:
    """The rows of every run, under the names that its own result file has, what would act in them spelled out."""
    return scrubbed(sheet("export", "Measured points", COLUMNS, (side for run in runs for side in sides([run]))))


def as_csv(runs: Sequence[LoadedRun]) -> bytes:
    """The table as CSV, unknown values empty."""
    return csv_text(table(runs)).encode()
