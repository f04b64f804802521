"""fio against the replay of the connector, and what the connector's calls that move no data cost (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from kvbench.decide.runs import LoadedRun
from kvbench.record.fidelity import Fidelity, compare_drivers
from kvbench.record.results import Calls, PointResult, RunResult
from kvbench.report.cells import name_cell, number_cell, point_name
from kvbench.report.data import Column, Sheet
from kvbench.report.tables import Table
from kvbench.units import format_bandwidth, format_bytes, format_count, format_duration_ns

_FIDELITY_TITLE = "fio against the connector's own calls"
_CALLS_TITLE = "Calls that move no data"


def fidelity_table(run: RunResult) -> Table:
    """One row for each direction and metric that fio and the replay both measured: both values and fio / replay."""
    rows = tuple(
        (
            item.difference.tier_a,
            format_bytes(item.difference.io_bytes),
            item.difference.mix,
            str(item.difference.numjobs),
            item.difference.direction,
            item.difference.metric,
            _value(item, item.difference.b),
            _value(item, item.difference.a),
            f"{item.difference.ratio:.3f}",
            _interval(item),
            item.agreement,
        )
        for item in compare_drivers(run)
    )
    columns = ("tier", "I/O", "mix", "jobs", "side", "what", "fio", "replay", "fio / replay", "95 % interval", "fio is")
    return Table(_FIDELITY_TITLE, columns, rows, (1, 3, 6, 7, 8, 9))


def fidelity_sheet(runs: Sequence[LoadedRun]) -> Sheet:
    """The same for the report."""
    columns = (
        Column("tier", "tier"),
        Column("io_bytes", "I/O", True),
        Column("mix", "mix"),
        Column("jobs", "jobs", True),
        Column("direction", "direction"),
        Column("metric", "what"),
        Column("fio", "fio", True),
        Column("replay", "replay", True),
        Column("ratio", "fio / replay", True),
        Column("ratio_low", "95 % low", True),
        Column("ratio_high", "95 % high", True),
        Column("agreement", "fio is"),
    )
    source = "rounds of both drivers in turns, Welch on logarithms"
    rows = tuple(
        (
            name_cell(run.label(item.difference.tier_a, runs)),
            number_cell(item.difference.io_bytes, format_bytes, "point"),
            name_cell(item.difference.mix),
            number_cell(item.difference.numjobs, format_count, "point"),
            name_cell(item.difference.direction),
            name_cell(item.difference.metric),
            number_cell(item.difference.b, lambda value, item=item: _value(item, value), "mean of the rounds"),  # type: ignore[misc]
            number_cell(item.difference.a, lambda value, item=item: _value(item, value), "mean of the rounds"),  # type: ignore[misc]
            number_cell(item.difference.ratio, _ratio, source),
            number_cell(item.difference.low, _ratio, source),
            number_cell(item.difference.high, _ratio, source),
            name_cell(item.agreement),
        )
        for run in runs
        for item in compare_drivers(run.result)
    )
    return Sheet("fidelity", _FIDELITY_TITLE, columns, rows)


def calls_table(run: RunResult) -> Table:
    """Lookups, opens, renames and the like of every point that timed them."""
    rows = tuple(
        (point.id, kind, format_count(calls.count), *_latencies(calls), format_count(calls.failed))
        for point, kind, calls in _calls(run)
    )
    return Table(_CALLS_TITLE, ("point", "call", "count", "mean", "p50", "p99", "failed"), rows, (2, 3, 4, 5, 6))


def calls_sheet(runs: Sequence[LoadedRun]) -> Sheet:
    """The same for the report."""
    columns = (
        Column("point", "point"),
        Column("call", "call"),
        Column("count", "count", True),
        Column("mean_ns", "mean", True),
        Column("p50_ns", "p50", True),
        Column("p99_ns", "p99", True),
    )
    rows = tuple(
        (
            name_cell(point_name(run, point.id, runs), point.source),
            name_cell(kind),
            number_cell(calls.count, format_count, point.source),
            *(
                number_cell(
                    getattr(calls.latency_ns, name) if calls.latency_ns else None, format_duration_ns, point.source
                )
                for name in ("mean", "p50", "p99")
            ),
        )
        for run in runs
        for point, kind, calls in _calls(run.result)
    )
    return Sheet("calls", _CALLS_TITLE, columns, rows)


def _calls(run: RunResult) -> list[tuple[PointResult, str, Calls]]:
    return [(point, kind, calls) for point in run.points for kind, calls in point.metadata.items()]


def _latencies(calls: Calls) -> tuple[str, str, str]:
    found = [getattr(calls.latency_ns, name) if calls.latency_ns else None for name in ("mean", "p50", "p99")]
    mean, p50, p99 = ("-" if value is None else format_duration_ns(value) for value in found)
    return mean, p50, p99


def _value(item: Fidelity, value: float) -> str:
    return format_bandwidth(value) if item.difference.metric == "bandwidth" else format_duration_ns(value)


def _ratio(value: float) -> str:
    return f"{value:.3f}"


def _interval(item: Fidelity) -> str:
    low, high = item.difference.low, item.difference.high
    return "-" if low is None or high is None else f"{low:.3f} to {high:.3f}"
