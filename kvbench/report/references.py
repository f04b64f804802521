"""The published reference tiers beside the measured ones, at exactly the same I/O (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvbench.decide.reference_tiers import ReferencePoint, ReferenceTier, matching
from kvbench.decide.runs import LoadedRun
from kvbench.record.results import Direction, PointResult
from kvbench.report.cells import name_cell, number_cell
from kvbench.report.data import Cell, Column, Sheet
from kvbench.units import format_bandwidth, format_bytes, format_count, format_duration_ns

_NOTE = (
    "Published figures stand beside yours: other hosts, other data sets, often sequential reads and writes. Only the "
    "same size, mix and number of jobs is shown; nothing is interpolated."
)
_YOURS = "measured here"


def references(runs: Sequence[LoadedRun], tiers: Sequence[ReferenceTier]) -> Sheet:
    """Every measured direction that somebody published, yours first; no row where nothing was published."""
    columns = (
        Column("io_bytes", "I/O", True),
        Column("mix", "mix"),
        Column("direction", "direction"),
        Column("jobs", "jobs", True),
        Column("tier", "tier"),
        Column("bytes_per_s", "bandwidth", True),
        Column("p50_ns", "p50", True),
        Column("p99_ns", "p99", True),
        Column("doubt", "distrust"),
        Column("published_in", "source"),
    )
    return Sheet("references", "Beside the published tiers", columns, tuple(_rows(runs, tiers)), _NOTE)


def _rows(runs: Sequence[LoadedRun], tiers: Sequence[ReferenceTier]) -> Iterator[tuple[Cell, ...]]:
    measured = [(run, point, name, side) for run in runs for point in run.result.points for name, side in point.sides()]
    kinds = dict.fromkeys((point.io_bytes, point.mix, name, point.numjobs) for _, point, name, _ in measured)
    for io_bytes, mix, direction, numjobs in kinds:
        published = matching(tiers, io_bytes, mix, direction, numjobs)
        if not published:
            continue
        for run, point, name, side in measured:
            if (point.io_bytes, point.mix, name, point.numjobs) == (io_bytes, mix, direction, numjobs):
                yield _own_row(run, point, name, side, runs)
        for tier, figure in published:
            yield _published_row(tier, figure)


def _own_row(
    run: LoadedRun, point: PointResult, name: str, side: Direction, runs: Sequence[LoadedRun]
) -> tuple[Cell, ...]:
    latency = side.latency_ns
    file = point.source
    return (
        number_cell(point.io_bytes, format_bytes, f"{file}: bs"),
        name_cell(point.mix),
        name_cell(name),
        number_cell(point.numjobs, format_count, f"{file}: numjobs"),
        name_cell(run.label(point.tier, runs)),
        number_cell(side.bytes_per_s, format_bandwidth, f"{file}: {name} bytes / runtime"),
        number_cell(latency.p50 if latency else None, format_duration_ns, f"{file}: {name}s, nearest rank"),
        number_cell(latency.p99 if latency else None, format_duration_ns, f"{file}: {name}s, nearest rank"),
        name_cell(", ".join(caveat.code for caveat in point.warnings)),
        name_cell(_YOURS),
    )


def _published_row(tier: ReferenceTier, figure: ReferencePoint) -> tuple[Cell, ...]:
    source = tier.source
    return (
        number_cell(figure.io_bytes, format_bytes, source),
        name_cell(figure.mix),
        name_cell(figure.direction),
        number_cell(figure.numjobs, format_count, source),
        name_cell(tier.name),
        number_cell(figure.bytes_per_s, format_bandwidth, source),
        number_cell(figure.p50_ns, format_duration_ns, source),
        number_cell(figure.p99_ns, format_duration_ns, source),
        name_cell(figure.doubt or ""),
        name_cell(source),
    )
