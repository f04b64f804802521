"""The comparison of two runs as a table (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from kvbench.record.comparison import Difference
from kvbench.report.tables import Table
from kvbench.units import format_bytes, format_mib_per_s, format_ms, format_requests

_UNITS = {"bandwidth": "MiB/s", "requests": "requests"}


def difference_table(found: Sequence[Difference]) -> Table:
    """One row for each direction and metric: both values, B / A with its interval, each spread, and the word."""
    rows = tuple(
        (
            item.tier_a if item.tier_a == item.tier_b else f"{item.tier_a} : {item.tier_b}",
            format_bytes(item.io_bytes),
            item.mix,
            str(item.numjobs),
            item.direction,
            _UNITS.get(item.metric, f"{item.metric} ms"),
            _value(item, item.a),
            _value(item, item.b),
            f"{item.ratio:.3f}",
            "-" if item.low is None or item.high is None else f"{item.low:.3f} to {item.high:.3f}",
            _spread(item),
            item.outcome,
        )
        for item in found
    )
    columns = (
        *("tier", "I/O", "mix", "jobs", "side", "what", "A", "B", "B / A", "95 % interval", "spread A, B", "B is"),
    )
    return Table("B against A", columns, rows, (1, 3, 6, 7, 8, 9, 10))


def _value(item: Difference, value: float) -> str:
    if item.metric == "requests":
        return format_requests(value)
    return format_mib_per_s(value) if item.metric == "bandwidth" else format_ms(value)


def _spread(item: Difference) -> str:
    return ", ".join("-" if value is None else f"{value:.0%}" for value in (item.spread_a, item.spread_b))
