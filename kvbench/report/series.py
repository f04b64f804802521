"""The numbers behind every figure, each figure with a title that says the finding (pure)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kvbench.decide.crossover import published_tokens
from kvbench.decide.decision import PUBLISHED_COSTS_S
from kvbench.decide.judged import Judged, LoadedRun, Wanted, band, recompute_band
from kvbench.record import results
from kvbench.record.batches import p99_interval_ns
from kvbench.record.histogram import Histogram
from kvbench.record.results import PointResult
from kvbench.report.breakeven_map import breakeven_map
from kvbench.report.cells import point_name, use_label
from kvbench.report.data import (
    BandwidthLine,
    Bandwidths,
    CrossoverMap,
    FigureData,
    Latencies,
    LatencyRow,
    Mark,
    Seconds,
    SecondsRow,
    TargetBar,
    TargetTimes,
    TierDot,
    TimeCurves,
    TimeLine,
)
from kvbench.report.decisions import average_cost
from kvbench.report.events import Happening, happenings
from kvbench.run.plan import slug
from kvbench.units import (
    format_bandwidth,
    format_bytes,
    format_duration_ns,
    format_duration_s,
    format_number,
    format_tokens,
)

PUBLISHED_TAILS_S = (0.005, 0.05, 0.5)
_SHOWN_LENGTHS = 48
_LATENCY_BINS = 72
_MOST_NAMED = 3
_MOST_LISTED = 12
_NO_CURVE_NOTE = "Bands: 95 % intervals. No line for recomputing: nobody gave the prefill of this model."


def figures(all_judged: Sequence[Judged], runs: Sequence[LoadedRun], wanted: Wanted) -> tuple[FigureData, ...]:
    """Every figure that the data allows, the one that shows the decision first."""
    found: list[FigureData] = []
    if any(item.restore is not None for item in all_judged):
        found.append(target_times(all_judged, runs))
    for label in dict.fromkeys(use_label(item) for item in all_judged):
        of_use = [item for item in all_judged if use_label(item) == label and item.restore is not None]
        if of_use:
            found.append(time_curves(label, of_use, runs, wanted))
            found += breakeven_map(label, of_use, runs)
            found += crossover_map(label, of_use, runs)
    events = happenings(runs)
    for io_bytes in dict.fromkeys(point.io_bytes for run in runs for point in run.result.points):
        found += latencies(io_bytes, runs)
        found += bandwidths(io_bytes, runs)
        found += seconds(io_bytes, runs, events)
    return tuple(_with_own_keys(found))


def _with_own_keys(found: Sequence[FigureData]) -> Iterator[FigureData]:
    """Two models whose names differ only in punctuation would share a key, and with it their ids on a page."""
    seen: Counter[str] = Counter()
    for figure in found:
        seen[figure.key] += 1
        yield figure if seen[figure.key] == 1 else replace(figure, key=f"{figure.key}-{seen[figure.key]}")


def target_times(all_judged: Sequence[Judged], runs: Sequence[LoadedRun]) -> TargetTimes:
    """Restore and recompute time at the target length for every tier and use."""
    goal = all_judged[0].goal
    bars = tuple(
        TargetBar(
            tier=tier_label(item, all_judged),
            model=use_label(item),
            verdict=item.crossover.verdict,
            restore_s=item.restore_at(goal.target_tokens),
            recompute_s=item.recompute_at(goal.target_tokens),
            source=f"point {point_name(item.run, item.crossover.point, runs)}" if item.crossover.point else "",
        )
        for item in all_judged
    )
    return TargetTimes("target", _target_title(bars, goal.target_tokens), goal.target_tokens, goal.ttft_budget_s, bars)


def _target_title(bars: Sequence[TargetBar], target: int) -> str:
    compared = [bar for bar in bars if bar.restore_s and bar.recompute_s and bar.verdict != "cannot say"]
    tokens = format_tokens(target)
    if 0 < len(compared) <= _MOST_NAMED:
        single = len({bar.model for bar in compared}) == 1
        parts = [bar.tier + ("" if single else f" for {bar.model}") + f" {_compared(bar)}" for bar in compared]
        return f"{tokens} tokens" + (f" of {compared[0].model}" if single else "") + f": {', '.join(parts)}"
    if compared:
        faster = sum(_ratio(bar) < 1 for bar in compared)
        return f"{tokens} tokens come back faster than the GPUs recompute them in {faster} of {len(compared)} cases"
    known = [bar.restore_s.middle for bar in bars if bar.restore_s]
    if not known:
        return f"Nothing was measured that says how long {tokens} tokens take"
    spread = _spread(format_duration_s(min(known)), format_duration_s(max(known)))
    unknown = all(bar.recompute_s is None for bar in bars)
    return f"{tokens} tokens come back in {spread}" + ("; recomputing them was not measured" if unknown else "")


def _ratio(bar: TargetBar) -> float:
    return bar.restore_s.middle / bar.recompute_s.middle if bar.restore_s and bar.recompute_s else math.inf


def _compared(bar: TargetBar) -> str:
    ratio = _ratio(bar)
    return (
        f"takes {format_number(ratio)} times as long as recomputing"
        if ratio >= 1
        else f"is {format_number(1 / ratio)} times as fast as recomputing"
    )


def time_curves(label: str, items: Sequence[Judged], runs: Sequence[LoadedRun], wanted: Wanted) -> TimeCurves:
    """Restore and recompute time against context for one use, a band around each."""
    lines = tuple(_restore_line(item, items, runs) for item in items)
    curve = items[0].curve
    samples: tuple[tuple[int, float], ...] = ()
    if curve is not None:
        tokens = np.geomspace(curve.measured_from, curve.measured_to, _SHOWN_LENGTHS).round().astype(int)
        shown = tuple(int(value) for value in tokens)
        bands = tuple(recompute_band(curve, value) for value in shown)
        measured = wanted.samples.rows if wanted.samples is not None else ()
        samples = tuple((sample.prompt_tokens, sample.ttft_s) for sample in measured)
        lines = (TimeLine("recompute", False, shown, bands, f"fit a + bL + cL²; {curve.source}"), *lines)
    key, target = f"times-{slug(label)}", items[0].goal.target_tokens
    drawn = TimeCurves(key, _curves_title(label, items), label, target, lines, samples)
    return drawn if curve is not None else replace(drawn, note=_NO_CURVE_NOTE)


def _curves_title(label: str, items: Sequence[Judged]) -> str:
    if items[0].curve is None:
        rates = [item.crossover.restore_tokens_per_s or 0 for item in items]
        best = tier_label(items[rates.index(max(rates))], items)
        if not max(rates):
            return f"{label}: a restore stops growing with the context"
        return f"{label}: {best} gives back {max(rates):,.0f} tokens/s; slower GPUs gain by restoring"
    if len(items) > _MOST_NAMED:
        counts = Counter(_outcome(item, "from some length on") for item in items)
        return f"{label}: restoring {', '.join(f'{outcome} in {count}' for outcome, count in counts.items())} cases"
    starts = [f"from {format_tokens(item.crossover.request.tokens or 0)} tokens" for item in items]
    parts = [f"{tier_label(item, items)} {_outcome(item, start)}" for item, start in zip(items, starts, strict=True)]
    return f"{label}: restoring from {', '.join(parts)}"


def _outcome(item: Judged, start: str) -> str:
    """Where restoring wins, in words; an interval on both sides of an answer leaves none."""
    request = item.crossover.request
    if request.kind == "from":
        return f"wins {start}"
    if request.kind == "unknown" or request.low is not None:
        return "has no clear answer"
    return f"{request.kind} wins"


def _restore_line(item: Judged, items: Sequence[Judged], runs: Sequence[LoadedRun]) -> TimeLine:
    restore = item.restore
    assert restore is not None
    picked = np.unique(np.linspace(0, len(restore.tokens) - 1, _SHOWN_LENGTHS).round().astype(int))
    bands = tuple(band(restore.draws[:, index], float(restore.seconds[index])) for index in picked)
    tokens = tuple(int(restore.tokens[index]) for index in picked)
    source = f"point {point_name(item.run, item.crossover.point, runs)}, units list-scheduled"
    return TimeLine(tier_label(item, items), True, tokens, bands, source)


def crossover_map(label: str, items: Sequence[Judged], runs: Sequence[LoadedRun]) -> list[CrossoverMap]:
    """The published figure: one dot for each tier with a p99 at the published 16 jobs."""
    dots = []
    for item in items:
        single, curve = item.crossover.single_block, item.curve
        if (
            single is None
            or curve is None
            or item.crossover.concurrent_restores != items[0].crossover.concurrent_restores
        ):
            continue
        p99_s, cost = single.p99_ns / 1e9, average_cost(curve)
        source = (
            f"point {point_name(item.run, single.point, runs)}, p99 of reads / (TTFT / context at the longest prompt)"
        )
        dots.append(TierDot(item.tier, p99_s, cost, math.ceil(published_tokens(p99_s, cost)), source))
    if not dots:
        return []
    title = f"{label}: by one block's p99 alone, {_pays_text(dots)}"
    return [CrossoverMap(f"crossover-{slug(label)}", title, label, PUBLISHED_TAILS_S, PUBLISHED_COSTS_S, tuple(dots))]


def _pays_text(dots: Sequence[TierDot]) -> str:
    if len(dots) <= _MOST_NAMED:
        return ", ".join(f"{dot.tier} pays from {format_tokens(dot.tokens or 0)} tokens" for dot in dots)
    ordered = sorted(dots, key=lambda dot: dot.tokens or 0)
    first, last = (f"{format_tokens(dot.tokens or 0)} tokens ({dot.tier})" for dot in (ordered[0], ordered[-1]))
    return f"{len(dots)} tiers pay from {first} to {last} on"


def latencies(io_bytes: int, runs: Sequence[LoadedRun]) -> list[Latencies]:
    """The latency distribution of every point of one I/O size that has a histogram."""
    found = [
        (run, point, direction, histogram)
        for run in runs
        for point in run.result.points
        if point.io_bytes == io_bytes and point.status == "ok"
        for direction in ("read", "write")
        if (histogram := results.load_histogram(run.path, point, direction)) is not None
    ]
    if not found:
        return []
    edges = _edges([histogram for *_, histogram in found])
    rows = tuple(_latency_row(*item, edges, runs) for item in found)
    size = format_bytes(io_bytes)
    slowest = max(rows, key=lambda row: row.p99_ns)
    fastest = min(rows, key=lambda row: row.p99_ns)
    title = (
        f"{size}: p99 from {format_duration_ns(fastest.p99_ns)} ({fastest.tier}, {fastest.label}) "
        f"to {format_duration_ns(slowest.p99_ns)} ({slowest.tier}, {slowest.label})"
    )
    return [Latencies(f"latency-{io_bytes}", title, io_bytes, edges, rows)]


def _edges(histograms: Sequence[Histogram]) -> tuple[int, ...]:
    low = max(1, min(histogram.bins[0][0] for histogram in histograms))
    high = max(histogram.bins[-1][0] for histogram in histograms)
    grid = np.geomspace(low * 0.98, max(high, low + 1) * 1.02 + 1, _LATENCY_BINS + 1)
    return tuple(dict.fromkeys(int(edge) for edge in grid))


def _latency_row(
    run: LoadedRun,
    point: PointResult,
    direction: str,
    histogram: Histogram,
    edges: tuple[int, ...],
    runs: Sequence[LoadedRun],
) -> LatencyRow:
    values = [ns for ns, _ in histogram.bins]
    counts, _ = np.histogram(values, bins=list(edges), weights=[count for _, count in histogram.bins])
    side = point.read if direction == "read" else point.write
    low, high = p99_interval_ns(point, side)
    jobs = "1 job" if point.numjobs == 1 else f"{point.numjobs} jobs"
    return LatencyRow(
        label=f"{_panel(point, direction)}, {jobs}",
        tier=run.label(point.tier, runs),
        counts=tuple(int(count) for count in counts),
        p50_ns=histogram.percentile(50),
        p99_ns=histogram.percentile(99),
        p99_low_ns=low,
        p99_high_ns=high,
        source=f"point {point_name(run, point.id, runs)}: {histogram.samples:,} {direction}s in {point.histogram}",
    )


def bandwidths(io_bytes: int, runs: Sequence[LoadedRun]) -> list[Bandwidths]:
    """Bandwidth against jobs for every tier, mix and direction of one I/O size."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    for run in runs:
        for point in run.result.points:
            for direction, side in (("read", point.read), ("write", point.write)):
                if point.io_bytes == io_bytes and point.status == "ok" and side is not None:
                    key = (_panel(point, direction), run.label(point.tier, runs))
                    found.setdefault(key, {})[point.numjobs] = side.bytes_per_s
    if not found:
        return []
    size = format_bytes(io_bytes)
    lines = tuple(
        BandwidthLine(
            tier, panel, tuple(sorted(by_jobs)), tuple(by_jobs[jobs] for jobs in sorted(by_jobs)), "bytes / runtime"
        )
        for (panel, tier), by_jobs in found.items()
    )
    return [Bandwidths(f"bandwidth-{io_bytes}", _bandwidth_title(size, lines), io_bytes, lines)]


def seconds(io_bytes: int, runs: Sequence[LoadedRun], events: Sequence[Happening]) -> list[Seconds]:
    """Bandwidth second by second of every point of one I/O size that kept a series of at least two seconds."""
    rows = [
        _seconds_row(run, point, entries, runs, [item for item in events if item.of(run, point)])
        for run in runs
        for point in run.result.points
        if point.io_bytes == io_bytes and point.status == "ok"
        if len(entries := _with_rates(results.load_series(run.path, point))) > 1
    ]
    if not rows:
        return []
    least = min(rows, key=lambda row: min(row.bytes_per_s) / max(max(row.bytes_per_s), 1))
    low, high = format_bandwidth(min(least.bytes_per_s)), format_bandwidth(max(least.bytes_per_s))
    title = (
        f"{format_bytes(io_bytes)}: the least steady point went between {low} and {high} ({least.tier}, {least.label})"
    )
    numbers = {mark.number for row in rows for mark in row.marks}
    legend = _legend([item for item in events if item.number in numbers])
    drawn = Seconds(f"seconds-{io_bytes}", title, io_bytes, tuple(rows), legend=legend)
    return [replace(drawn, note=f"{drawn.note} Numbered lines: events, listed below.") if legend else drawn]


def _with_rates(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The series, or none where it holds events only because the driver kept no rates."""
    return entries if any(way in entry for entry in entries for way in ("read", "write")) else []


def _legend(events: Sequence[Happening]) -> tuple[str, ...]:
    """The events of a figure in words, as many as a page bears; the table holds all."""
    shown = [f"{item.number}: second {item.event.second}, {item.event.text}" for item in events[:_MOST_LISTED]]
    rest = len(events) - len(shown)
    return (*shown, *([f"{rest} more in the table of events"] if rest else []))


def _seconds_row(
    run: LoadedRun,
    point: PointResult,
    entries: Sequence[dict[str, Any]],
    runs: Sequence[LoadedRun],
    events: Sequence[Happening],
) -> SecondsRow:
    rates = [sum(entry.get(side, {}).get("bytes_per_s", 0) for side in ("read", "write")) for entry in entries]
    rounds = [entry.get("round", 1) for entry in entries]
    jobs = "1 job" if point.numjobs == 1 else f"{point.numjobs} jobs"
    return SecondsRow(
        label=f"{point.mix}, {jobs}",
        tier=run.label(point.tier, runs),
        bytes_per_s=tuple(map(float, rates)),
        steal_percent=tuple(entry.get("host", {}).get("cpu_steal_percent") for entry in entries),
        round_starts=tuple(index for index, number in enumerate(rounds) if index == 0 or number != rounds[index - 1]),
        source=f"point {point_name(run, point.id, runs)}: {point.series}",
        marks=tuple(Mark(item.number, item.event.second) for item in events),
    )


def _bandwidth_title(size: str, lines: Sequence[BandwidthLine]) -> str:
    reads = [line for line in lines if line.panel != "write" and "write" not in line.panel] or list(lines)
    what = "reads" if reads[0].panel.startswith(("read", "mixed: read")) else "writes"
    best: dict[str, float] = {}
    for line in reads:
        best[line.tier] = max(best.get(line.tier, 0.0), *line.bytes_per_s)
    parts = [f"{format_bandwidth(rate)} on {tier}" for tier, rate in sorted(best.items(), key=lambda item: -item[1])]
    if len(parts) > _MOST_NAMED:
        return f"{size}: {what} reach from {parts[-1]} to {parts[0]}"
    return f"{size}: {what} reach {', '.join(parts)}"


def _panel(point: PointResult, direction: str) -> str:
    return f"mixed: {direction}" if point.mix == "mixed" else direction


def tier_label(item: Judged, items: Sequence[Judged]) -> str:
    """The tier, with the number of requests that restore at once where it is not the same for all."""
    several = len({one.crossover.concurrent_restores for one in items}) > 1
    return f"{item.tier} ×{item.crossover.concurrent_restores}" if several else item.tier


def _spread(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"
