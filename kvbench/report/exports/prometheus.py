"""Measured points in the Prometheus text format, for a textfile collector or a push gateway (pure).

prometheus.io/docs/instrumenting/exposition_formats: a backslash, a quote and a newline are escaped in label values, a
backslash and a newline in help texts; names and base units by prometheus.io/docs/practices/naming.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from kvbench.border.escaping import escaped
from kvbench.decide.runs import LoadedRun
from kvbench.record.batches import p99_interval_ns
from kvbench.record.results import Direction, PointResult
from kvbench.report.tables.measured import sides
from kvbench.units import NS_PER_S

Labels = Mapping[str, str]
Sample = tuple[str, Labels, float]


@dataclass(frozen=True, slots=True)
class Exposed:
    """A metric with its samples; the name of a sample may go on after the metric's."""

    name: str
    kind: str
    help: str
    samples: tuple[Sample, ...]

    def lines(self) -> Iterator[str]:
        """The metric as the format wants it, nothing where it has no sample."""
        if self.samples:
            yield f"# HELP kvbench_{self.name} {_escaped(self.help)}"
            yield f"# TYPE kvbench_{self.name} {self.kind}"
        for suffix, labels, value in self.samples:
            said = ",".join(f'{key}="{_escaped(text, quoted=True)}"' for key, text in labels.items())
            yield f"kvbench_{self.name}{suffix}{{{said}}} {value!r}"


def as_prometheus(runs: Sequence[LoadedRun]) -> bytes:
    """Every metric of the runs."""
    lines = (line for metric in _metrics(runs) for line in metric.lines())
    return "".join(f"{line}\n" for line in lines).encode()


def _metrics(runs: Sequence[LoadedRun]) -> Iterator[Exposed]:
    points = [(run, point) for run in runs for point in run.result.points]
    measured = [
        (_labels(side.run, side.point) | {"direction": side.name}, side.point, side.measured)
        for run in runs
        for side in sides([run])
        if side.measured is not None
    ]
    rates = tuple(("", labels, float(side.bytes_per_s)) for labels, _, side in measured)
    yield Exposed("bandwidth_bytes_per_second", "gauge", "Bytes moved each second.", rates)
    operations = tuple(("", labels, float(side.iops)) for labels, _, side in measured)
    yield Exposed("operations_per_second", "gauge", "Operations each second.", operations)
    latencies = tuple(sample for labels, _, side in measured for sample in _latency(labels, side))
    yield Exposed("latency_seconds", "summary", "Latency of an operation.", latencies)
    bounds = tuple(sample for labels, point, side in measured for sample in _interval(labels, point, side))
    yield Exposed("p99_interval_seconds", "gauge", "95 % interval of the tier's p99 latency.", bounds)
    statuses = tuple(("", _labels(run, point), float(point.status == "ok")) for run, point in points)
    yield Exposed("point_ok", "gauge", "Whether the point was measured in full.", statuses)
    warnings = tuple(
        ("", _labels(run, point) | {"code": code}, 1.0)
        for run, point in points
        for code in dict.fromkeys(warning.code for warning in point.warnings)
    )
    yield Exposed("point_warning", "gauge", "A reason to distrust the point.", warnings)
    created = tuple(("", {"run": run.name}, at) for run in runs if (at := _seconds(run.result.created)) is not None)
    yield Exposed("run_created_timestamp_seconds", "gauge", "When the run was begun, in Unix time.", created)


def _labels(run: LoadedRun, point: PointResult) -> dict[str, str]:
    return {
        "run": run.name,
        "point": point.id,
        "tier": point.tier,
        "driver": point.driver,
        "mix": point.mix,
        "jobs": str(point.numjobs),
        "io_bytes": str(point.io_bytes),
    }


def _latency(labels: Labels, side: Direction) -> Iterator[Sample]:
    found = side.latency_ns
    if found is None:
        return
    quantiles = {"0.5": found.p50, "0.9": found.p90, "0.95": found.p95, "0.99": found.p99, "0.999": found.p99_9}
    for quantile, ns in quantiles.items():
        if ns is not None:
            yield "", {**labels, "quantile": quantile}, ns / NS_PER_S
    if found.mean is not None:
        yield "_sum", labels, found.mean * side.ios / NS_PER_S
        yield "_count", labels, float(side.ios)


def _interval(labels: Labels, point: PointResult, side: Direction) -> Iterator[Sample]:
    for bound, ns in zip(("low", "high"), p99_interval_ns(point, side), strict=True):
        if ns is not None:
            yield "", {**labels, "bound": bound}, ns / NS_PER_S


def _seconds(created: str) -> float | None:
    try:
        return datetime.fromisoformat(created).timestamp()
    except ValueError:
        return None


def _escaped(text: str, *, quoted: bool = False) -> str:
    # What would act on a terminal or be no UTF-8 is spelled out first, as everywhere.
    written = escaped(text).replace("\\", "\\\\").replace("\n", "\\n")
    return written.replace('"', '\\"') if quoted else written
