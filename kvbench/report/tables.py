"""Tables as plain text cells (pure), so that terminal, Markdown and HTML show the same numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kvbench.border.escaping import escaped
from kvbench.record.batches import p99_interval_ns
from kvbench.record.requests import requests_each
from kvbench.record.results import Caveat, LatencyNs, PointResult, RunResult, Use
from kvbench.record.stats import FEWEST_BATCHES, FIO_LAST_BIN_NS
from kvbench.units import format_bytes, format_count, format_mib_per_s, format_ms, format_rate, format_requests

_COLUMNS = (
    *("tier", "I/O", "mix", "jobs", "side", "IO/s", "MiB/s", "p50 ms", "p99 ms", "95 % interval"),
    *("requests", "distrust"),
)
_NUMBERS = (1, 3, 5, 6, 7, 8, 9, 10)
_REQUESTS = _COLUMNS.index("requests")
_MARKDOWN = re.compile(r"[\\|`*\[\]~$]|(?<!\w)_|_(?!\w)")


@dataclass(frozen=True, slots=True)
class Table:
    """A title, column heads and rows of text; ``right`` numbers the columns that hold numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...] = ()


def models_table(run: RunResult) -> Table:
    """How big a block of each model is and what I/O that makes."""
    rows = [
        (
            use.model,
            str(use.tp),
            use.kv_dtype,
            f"{use.block_tokens} tokens",
            format_bytes(use.io_bytes * _stored_units(use)),
            f"{format_count(use.io_bytes)} B" + (f" x {_stored_units(use)}" if _stored_units(use) > 1 else ""),
            use.connector + (f" {use.engine_version}" if use.engine_version else ""),
        )
        for use in run.uses
    ]
    return Table(
        "KV blocks", ("model", "TP", "KV dtype", "block", "on storage", "one I/O", "connector"), tuple(rows), (1, 4, 5)
    )


def _stored_units(use: Use) -> int:
    return use.units_per_block + use.windowed_units


def points_table(run: RunResult) -> Table:
    """Every direction of every point: rate, bandwidth and latency, with the codes of its warnings.

    One unit for each column, so that rows compare at a glance; the tier is left out when there is only one, and has its
    driver where there are several. Device requests for each operation are there where a device was seen.
    """
    drivers = len({point.driver for point in run.points}) > 1
    labels = {point.id: f"{point.tier}, {point.driver}" if drivers else point.tier for point in run.points}
    several = len(set(labels.values())) > 1
    shown = [at for at in range(len(_COLUMNS)) if (several or at > 0) and (at != _REQUESTS or counts_requests(run))]
    rows = [row for point in run.points for row in _point_rows(point, labels[point.id])]
    title = "Measured" if several or not run.points else f"Measured on {run.points[0].tier}"
    return Table(
        title,
        tuple(_COLUMNS[at] for at in shown),
        tuple(tuple(row[at] for at in shown) for row in rows),
        tuple(shown.index(at) for at in _NUMBERS if at in shown),
    )


def counts_requests(run: RunResult) -> bool:
    """Whether the requests of a device are known for any operation of the run."""
    return any(requests_each(point, way) is not None for point in run.points for way, _ in point.sides())


def doubt_codes(point: PointResult, side: str) -> list[str]:
    """What stands beside a number: the codes of its warnings, and for reads that nothing proves that no cache answered.

    Not being known is no fault of a result, so that it is no warning.
    """
    codes = [caveat.code for caveat in point.warnings]
    unproven = side == "read" and point.driver != "memory" and point.conditions.cache_state == "unknown"
    return [*codes, "(cache state unknown)"] if unproven and "cache-state-unknown" not in codes else codes


def warnings_table(run: RunResult) -> Table:
    """Every warning with its numbers and what to do, one row for each kind and point."""
    rows = [
        (point.id, caveat.code, caveat.message, caveat.hint) for point in run.points for caveat in point.warnings
    ] + [
        (point.id, point.status, point.reason or "", "see the point's folder")
        for point in run.points
        if point.status != "ok"
    ]
    return Table("Reasons to distrust a number", ("point", "code", "what was seen", "what to do"), tuple(rows))


def warnings_summary(run: RunResult) -> Table:
    """The same warnings by kind: how many points carry it, the first one's words, and what to do."""
    by_code: dict[str, list[Caveat]] = {}
    for point in run.points:
        for caveat in point.warnings:
            by_code.setdefault(caveat.code, []).append(caveat)
    total = len(run.points)
    rows = [(code, f"{len(found)} of {total}", found[0].message, found[0].hint) for code, found in by_code.items()]
    failed = [point for point in run.points if point.status != "ok"]
    rows += [(point.status, point.id, point.reason or "", "measure it again") for point in failed]
    return Table("Reasons to distrust a number", ("code", "points", "what was seen, first", "what to do"), tuple(rows))


def markdown(tables: Sequence[Table], heading: str, notes: Sequence[str] = ()) -> str:
    """The tables as GitHub-flavoured Markdown under one heading and its notes; empty tables are left out."""
    parts = [f"# {_cell(heading)}", ""]
    for note in notes:
        parts += [_cell(note), ""]
    for table in tables:
        if table.rows:
            parts += [f"## {_cell(table.title)}", "", *_markdown_table(table), ""]
    return "\n".join(parts)


def _point_rows(point: PointResult, label: str) -> list[tuple[str, ...]]:
    head = (label, format_bytes(point.io_bytes), point.mix, str(point.numjobs))
    if point.status != "ok":
        return [(*head, point.status, "-", "-", "-", "-", "-", "-", point.reason or "")]
    rows: list[tuple[str, ...]] = []
    for name, side in point.sides():
        latency = side.latency_ns or LatencyNs()
        interval = _interval(latency, p99_interval_ns(point, side), len(point.rounds))
        numbers = (format_rate(side.iops), format_mib_per_s(side.bytes_per_s), _ms(latency.p50), _ms(latency.p99))
        each = "-" if (each_request := requests_each(point, name)) is None else format_requests(each_request)
        rows.append((*head, name, *numbers, interval, each, ", ".join(doubt_codes(point, name))))
    return rows


def _ms(latency_ns: int | None) -> str:
    if latency_ns is None:
        return "-"
    # What lies in fio's last bin is at least that slow.
    return f"≥{format_ms(latency_ns)}" if latency_ns >= FIO_LAST_BIN_NS else format_ms(latency_ns)


def _interval(latency: LatencyNs, bounds: tuple[int | None, int | None], rounds: int) -> str:
    low, high = bounds
    if low is None and high is None:
        # Without batches of time nothing says how far the next minute's p99 would be from this one's.
        return "-" if latency.p99 is None else "one section" if rounds < FEWEST_BATCHES else "too few batches"
    return f"{'?' if low is None else format_ms(low)} to {'?' if high is None else format_ms(high)}"


def _markdown_table(table: Table) -> list[str]:
    rule = ["---:" if index in table.right else "---" for index in range(len(table.columns))]
    return [_markdown_row(row) for row in (table.columns, tuple(rule), *table.rows)]


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(text: str) -> str:
    # Names come from users: keep them from ending a cell, opening a tag, or starting emphasis or code.
    shown = escaped(" ".join(text.split())).replace("&", "&amp;").replace("<", "&lt;")
    return _MARKDOWN.sub(r"\\\g<0>", shown)
