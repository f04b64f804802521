"""The published reference tiers beside the measured ones, at exactly the same I/O (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvbench.decide.reference_tiers import ReferencePoint, ReferenceTier, matching, reference_tiers
from kvbench.decide.runs import LoadedRun
from kvbench.record.results import Direction, LatencyNs, PointResult
from kvbench.report.columns import Column, name, number, sheet
from kvbench.report.scene import Scene
from kvbench.report.sheet import Sheet
from kvbench.units import format_bandwidth, format_bytes, format_count, format_duration_ns

_NOTE = (
    "Published figures stand beside yours: other hosts, other data sets, often sequential reads and writes. Only the "
    "same size, mix and number of jobs is shown; nothing is interpolated."
)
_YOURS = "measured here"


@dataclass(frozen=True, slots=True)
class Shown:
    """A direction as somebody published it, or as it was measured here."""

    io_bytes: int
    mix: str
    direction: str
    jobs: int
    tier: str
    bytes_per_s: float
    p50_ns: int | None
    p99_ns: int | None
    warning: str
    published_in: str
    file: str = ""

    def source(self, what: str) -> str:
        """Where a number comes from."""
        return f"{self.file}: {what}" if self.file else self.published_in

    @property
    def latency_source(self) -> str:
        """Where its percentiles come from."""
        return self.source(f"{self.direction}s, nearest rank")


COLUMNS: tuple[Column[Shown], ...] = (
    number("io_bytes", "I/O", lambda row: row.io_bytes, format_bytes, lambda row: row.source("bs")),
    name("mix", "mix", lambda row: row.mix),
    name("direction", "direction", lambda row: row.direction),
    number("jobs", "jobs", lambda row: row.jobs, format_count, lambda row: row.source("numjobs")),
    name("tier", "tier", lambda row: row.tier),
    number(
        "bytes_per_s",
        "bandwidth",
        lambda row: row.bytes_per_s,
        format_bandwidth,
        lambda row: row.source(f"{row.direction} bytes / runtime"),
    ),
    number("p50_ns", "p50", lambda row: row.p50_ns, format_duration_ns, lambda row: row.latency_source),
    number("p99_ns", "p99", lambda row: row.p99_ns, format_duration_ns, lambda row: row.latency_source),
    name("doubt", "distrust", lambda row: row.warning),
    name("published_in", "source", lambda row: row.published_in),
)


def references(scene: Scene) -> Sheet:
    """Every measured direction that somebody published."""
    return beside(scene.runs, reference_tiers())


def beside(runs: Sequence[LoadedRun], tiers: Sequence[ReferenceTier]) -> Sheet:
    """What was measured beside what these tiers published, yours first; no row where nothing was published."""
    return sheet("references", "Beside the published tiers", COLUMNS, _rows(runs, tiers), _NOTE)


def _rows(runs: Sequence[LoadedRun], tiers: Sequence[ReferenceTier]) -> Iterator[Shown]:
    measured = [(run, point, way, side) for run in runs for point in run.result.points for way, side in point.sides()]
    kinds = dict.fromkeys((point.io_bytes, point.mix, way, point.numjobs) for _, point, way, _ in measured)
    for kind in kinds:
        published = matching(tiers, *kind)
        for run, point, way, side in measured if published else ():
            if (point.io_bytes, point.mix, way, point.numjobs) == kind:
                yield _own(run, point, way, side, runs)
        for tier, figure in published:
            yield _published(tier, figure)


def _own(run: LoadedRun, point: PointResult, way: str, side: Direction, runs: Sequence[LoadedRun]) -> Shown:
    tier, latency = run.label(point.tier, runs), side.latency_ns or LatencyNs()
    kind = (point.io_bytes, point.mix, way, point.numjobs)
    codes = ", ".join(warning.code for warning in point.warnings)
    return Shown(*kind, tier, side.bytes_per_s, latency.p50, latency.p99, codes, _YOURS, point.source)


def _published(tier: ReferenceTier, figure: ReferencePoint) -> Shown:
    kind = (figure.io_bytes, figure.mix, figure.direction, figure.numjobs)
    numbers = (figure.bytes_per_s, figure.p50_ns, figure.p99_ns)
    return Shown(*kind, tier.name, *numbers, figure.warning or "", tier.source)
