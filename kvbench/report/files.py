"""The report's other views: CSV and JSON of every table, the Markdown summary, and writing all of them."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

from kvbench.border.escaping import escaped
from kvbench.errors import UsageError
from kvbench.record.results import write_atomically
from kvbench.report.data import Report, to_json
from kvbench.report.markdown import markdown
from kvbench.report.ours import require_own_page
from kvbench.report.sheet import Sheet, sheet_json

# A spreadsheet takes a cell that starts like this for a formula.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_SUMMARY_COLUMNS = (
    "tier",
    "model",
    "concurrent_restores",
    "verdict",
    "restore_s",
    "recompute_s",
    "point",
    "distrust",
    "reason",
)
_EVENT_COLUMNS = (
    "point",
    "second",
    "event",
    "direction",
    "before_bytes_per_s",
    "after_bytes_per_s",
    "before_mean_ns",
    "after_mean_ns",
)


def csv_text(sheet: Sheet) -> str:
    """The sheet's values in base units, one head line; unknown values are empty, formulas are defused."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([column.key for column in sheet.columns])
    for row in sheet.rows:
        writer.writerow([_csv_value(cell.value) for cell in row])
    return buffer.getvalue()


def summary_markdown(report: Report) -> str:
    """The decision for a CI log or a chat: finding, verdicts, what is missing, reasons to distrust."""
    tables = [report.sheet("verdicts").only(*_SUMMARY_COLUMNS)] if report.judgements else []
    distrusted = {warning.point for judgement in report.judgements for warning in judgement.warnings}
    if distrusted:
        every = report.sheet("distrust")
        rows = tuple(row for row in every.rows if row[0].text in distrusted)
        tables.append(replace(every, title="Reasons to distrust these verdicts", rows=rows))
    tables += [sheet.only(*_EVENT_COLUMNS) for sheet in report.sheets if sheet.key == "events"]
    notes = [f"For {report.goal}: {report.verdict}.", *report.missing]
    return markdown(tables, report.finding, notes)


def write_views(report: Report, page: str, output: Path) -> tuple[Path, ...]:
    """Write the page, and beside it FILE.md, FILE.json and FILE-tables/ with every table as CSV and JSON.

    UsageError, before anything is written, when one of these files exists and is somebody else's.
    """
    tables = output.with_name(f"{output.stem}-tables")
    if tables.is_symlink():
        raise UsageError(
            f"{escaped(str(tables))} is a link, and a report writes beside its page only; name another -o."
        )
    texts = {
        output.with_suffix(".json"): _json(to_json(report)),
        output.with_suffix(".md"): summary_markdown(report),
        **{tables / f"{sheet.key}.csv": csv_text(sheet) for sheet in report.sheets},
        **{tables / f"{sheet.key}.json": _json(sheet_json(sheet)) for sheet in report.sheets},
        output: page,
    }
    data = output.with_suffix(".json")
    require_own_page(output, data, [path for path in texts if path not in (output, data)])
    for path, text in texts.items():
        write_atomically(path, text)
    return tuple(texts)


def _csv_value(value: object) -> object:
    if isinstance(value, str) and value.lstrip(" ").startswith(_FORMULA_STARTS):
        return f"'{value}"
    return "" if value is None else value


def _json(data: object) -> str:
    return json.dumps(data, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
