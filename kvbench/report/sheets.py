"""The report's tables: every cell with its value in base units and its source (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from kvbench.decide.band import Band
from kvbench.decide.decision import Judged, Wanted
from kvbench.decide.runs import LoadedRun
from kvbench.record.batches import p99_interval_ns
from kvbench.record.requests import requests_each
from kvbench.record.results import Direction, PointResult
from kvbench.report.cells import (
    band_cell,
    format_iops,
    format_tokens_per_s,
    name_cell,
    number_cell,
    plain,
    point_name,
    recompute_cell,
    recompute_speed_cell,
    restore_cell,
    restore_speed_source,
    units_text,
    use_label,
)
from kvbench.report.data import UNKNOWN, Cell, Column, Sheet, Value
from kvbench.report.tables import counts_requests, doubt_codes
from kvbench.units import (
    format_bandwidth,
    format_bytes,
    format_count,
    format_duration_ns,
    format_duration_s,
    format_requests,
    format_tokens,
)


def verdicts(all_judged: Sequence[Judged], runs: Sequence[LoadedRun]) -> Sheet:
    """One row for each tier, use and number of concurrent restores."""
    columns = (
        Column("tier", "tier"),
        Column("model", "model"),
        Column("tp", "TP", True),
        Column("connector", "connector"),
        Column("io_bytes", "one I/O", True),
        Column("concurrent_restores", "at once", True),
        Column("verdict", "verdict"),
        Column("kind", "restoring wins"),
        Column("wins_from_tokens", "from tokens", True),
        Column("wins_from_low_tokens", "95 % low", True),
        Column("wins_from_high_tokens", "95 % high", True),
        Column("restore_s", "restore", True),
        Column("recompute_s", "recompute", True),
        Column("restore_tokens_per_s", "restores", True),
        Column("recompute_tokens_per_s", "recomputes", True),
        Column("single_block_tokens", "single block", True),
        Column("single_block_p99_ns", "its p99", True),
        Column("point", "rests on point"),
        Column("distrust", "distrust"),
        Column("reason", "why"),
    )
    rows = tuple(_verdict_row(item, runs) for item in all_judged)
    target = format_tokens(all_judged[0].goal.target_tokens) if all_judged else ""
    note = f"Restore and recompute are times for {target} tokens." if target else ""
    return Sheet("verdicts", "Verdict for each tier and model", columns, rows, note)


def _verdict_row(item: Judged, runs: Sequence[LoadedRun]) -> tuple[Cell, ...]:
    crossover, use, request = item.crossover, item.use, item.crossover.request
    point = point_name(item.run, crossover.point, runs)
    crossing = f"restore and recompute times compared; point {point}" if point else ""
    return (
        name_cell(item.tier),
        name_cell(use.model),
        number_cell(use.tp, format_count, "as measured"),
        name_cell(use.connector),
        number_cell(use.io_bytes, format_bytes, "model geometry and connector"),
        number_cell(crossover.concurrent_restores, format_count, "--concurrent-restores"),
        name_cell(crossover.verdict, "verdict rule"),
        name_cell(request.kind, crossing),
        number_cell(request.tokens, format_tokens, crossing),
        number_cell(request.low, format_tokens, crossing),
        number_cell(request.high, format_tokens, crossing),
        restore_cell(item, point),
        recompute_cell(item),
        number_cell(crossover.restore_tokens_per_s, format_tokens_per_s, restore_speed_source(crossover, point)),
        recompute_speed_cell(item),
        *_single_cells(item, runs),
        name_cell(point),
        name_cell(", ".join(caveat.code for caveat in item.point.warnings) if item.point else ""),
        name_cell(crossover.verdict_reason),
    )


def _single_cells(item: Judged, runs: Sequence[LoadedRun]) -> tuple[Cell, Cell]:
    single = item.crossover.single_block
    if single is None:
        return Cell(UNKNOWN), Cell(UNKNOWN)
    point = f"point {point_name(item.run, single.point, runs)}, reads"
    edge = {"below-range": "below range", "above-range": "above range", "from": ""}[single.kind]
    tokens = (
        Cell(edge, None, point) if single.tokens is None else Cell(format_tokens(single.tokens), single.tokens, point)
    )
    return tokens, number_cell(single.p99_ns, format_duration_ns, f"{point}: p99")


def times(all_judged: Sequence[Judged], runs: Sequence[LoadedRun]) -> Sheet:
    """Restore and recompute time at each power of two of tokens and at the target."""
    columns = (
        Column("tier", "tier"),
        Column("model", "model"),
        Column("concurrent_restores", "at once", True),
        Column("tokens", "tokens", True),
        Column("restore_s", "restore", True),
        Column("recompute_s", "recompute", True),
        Column("faster", "faster"),
    )
    rows = tuple(_time_row(item, tokens, runs) for item in all_judged for tokens in _lengths(item))
    return Sheet("times", "Time to restore and to recompute", columns, rows, "95 % intervals in brackets.")


def _lengths(item: Judged) -> list[int]:
    if item.restore is None:
        return []
    low, high = item.restore.tokens[0], item.restore.tokens[-1]
    powers = {2**exponent for exponent in range(8, 24) if low <= 2**exponent <= high}
    inside = {item.goal.target_tokens} if low <= item.goal.target_tokens <= high else set()
    return sorted(powers | inside)


def _time_row(item: Judged, tokens: int, runs: Sequence[LoadedRun]) -> tuple[Cell, ...]:
    restore, recompute = item.restore_at(tokens), item.recompute_at(tokens)
    point = point_name(item.run, item.crossover.point, runs)
    faster = "" if restore is None or recompute is None else _faster(restore, recompute)
    return (
        name_cell(item.tier),
        name_cell(use_label(item)),
        number_cell(item.crossover.concurrent_restores, format_count, "--concurrent-restores"),
        number_cell(tokens, format_tokens, "a power of two, or the target"),
        band_cell(restore, f"point {point}: {units_text(item, tokens)}"),
        band_cell(recompute, f"fit a + bL + cL²; {item.curve.source}" if item.curve else ""),
        name_cell(faster),
    )


def _faster(restore: Band, recompute: Band) -> str:
    if restore.high < recompute.low:
        return "restore"
    return "recompute" if recompute.high < restore.low else "within the interval"


def measured(runs: Sequence[LoadedRun]) -> Sheet:
    """Every direction of every point; requests of the device where one was seen, and the memory where it is known."""
    points = [point for run in runs for point in run.result.points]
    known = {
        "requests_each": any(counts_requests(run.result) for run in runs),
        "buffer_memory": any(point.conditions.buffer_memory for point in points),
    }
    columns = (
        Column("point", "point"),
        Column("tier", "tier"),
        Column("io_bytes", "I/O", True),
        Column("mix", "mix"),
        Column("jobs", "jobs", True),
        Column("direction", "direction"),
        Column("ios", "operations", True),
        Column("iops", "IO/s", True),
        Column("bytes_per_s", "bandwidth", True),
        Column("mean_ns", "mean", True),
        Column("p50_ns", "p50", True),
        Column("p99_ns", "p99", True),
        Column("p99_low_ns", "p99 95 % low", True),
        Column("p99_high_ns", "p99 95 % high", True),
        Column("runtime_s", "ran", True),
        Column("requests_each", "device requests each", True),
        Column("buffer_memory", "memory"),
        Column("distrust", "distrust"),
    )
    rows = tuple(row for run in runs for point in run.result.points for row in _measured_rows(run, point, runs))
    shown = [at for at, column in enumerate(columns) if known.get(column.key, True)]
    kept = tuple(tuple(row[at] for at in shown) for row in rows)
    return Sheet("measured", "Measured points", tuple(columns[at] for at in shown), kept)


def _measured_rows(run: LoadedRun, point: PointResult, runs: Sequence[LoadedRun]) -> list[tuple[Cell, ...]]:
    shown: list[tuple[str, Direction | None]] = [*point.sides()] or [(point.status, None)]
    return [_measured_row(run, point, name, side, runs) for name, side in shown]


def _measured_row(
    run: LoadedRun, point: PointResult, name: str, side: Direction | None, runs: Sequence[LoadedRun]
) -> tuple[Cell, ...]:
    file, latency = point.source, side.latency_ns if side else None
    kind = f"{file}: {point.latency_source or 'unknown'} latency of {name}s"
    interval = f"{kind}, over batches of time"
    low, high = p99_interval_ns(point, side)
    doubts = doubt_codes(point, name) + ([point.reason or ""] if point.status != "ok" else [])
    return (
        name_cell(point_name(run, point.id, runs), file),
        name_cell(run.label(point.tier, runs)),
        number_cell(point.io_bytes, format_bytes, f"{file}: bs"),
        name_cell(point.mix),
        number_cell(point.numjobs, format_count, f"{file}: numjobs"),
        name_cell(name),
        number_cell(side.ios if side else None, format_count, f"{file}: {name} total_ios"),
        number_cell(side.iops if side else None, format_iops, f"{file}: {name} iops"),
        number_cell(side.bytes_per_s if side else None, format_bandwidth, f"{file}: {name} bytes / runtime"),
        number_cell(latency.mean if latency else None, format_duration_ns, f"{kind}, mean"),
        number_cell(latency.p50 if latency else None, format_duration_ns, f"{kind}, nearest rank"),
        number_cell(latency.p99 if latency else None, format_duration_ns, f"{kind}, nearest rank"),
        number_cell(low, format_duration_ns, interval),
        number_cell(high, format_duration_ns, interval),
        number_cell(point.runtime_s, format_duration_s, f"{file}: runtime"),
        number_cell(_requests(point, name), format_requests, "/proc/diskstats: requests / operations"),
        name_cell(point.conditions.buffer_memory or "", "--buffers"),
        name_cell(", ".join(doubts)),
    )


def _requests(point: PointResult, name: str) -> float | None:
    return next((requests_each(point, way) for way, _ in point.sides() if way == name), None)


def blocks(runs: Sequence[LoadedRun]) -> Sheet:
    """What one KV block of each model weighs and the I/O that it makes."""
    columns = (
        Column("model", "model"),
        Column("tp", "TP", True),
        Column("kv_dtype", "KV dtype"),
        Column("block_tokens", "tokens of a block", True),
        Column("block_bytes", "block on storage", True),
        Column("io_bytes", "one I/O", True),
        Column("units_per_block", "I/Os of a block", True),
        Column("parallelism", "in parallel", True),
        Column("connector", "connector"),
    )
    uses = dict.fromkeys(use for run in runs for use in run.result.uses)
    rows = tuple(
        (
            name_cell(use.model),
            number_cell(use.tp, format_count, "--tp"),
            name_cell(use.kv_dtype),
            number_cell(use.block_tokens, format_count, "--block-tokens"),
            number_cell(use.io_bytes * use.units_per_block, format_bytes, "one I/O x I/Os of a block"),
            Cell(f"{format_count(use.io_bytes)} B", use.io_bytes, "model geometry and connector"),
            number_cell(use.units_per_block, format_count, "connector"),
            number_cell(use.parallelism_per_request, format_count, "connector: reads in flight for one request"),
            name_cell(use.connector),
        )
        for use in uses
    )
    return Sheet("blocks", "KV blocks", columns, rows)


def prefill(wanted: Wanted) -> Sheet:
    """Measured TTFT beside the fitted curve."""
    columns = (
        Column("prompt_tokens", "prompt tokens", True),
        Column("ttft_s", "measured TTFT", True),
        Column("fitted_s", "fitted", True),
        Column("deviation", "off by", True),
    )
    if wanted.curve is None or wanted.samples is None:
        return Sheet("prefill", "Prefill", columns, ())
    curve = wanted.curve
    rows = []
    for sample in wanted.samples.rows:
        fitted = float(curve.seconds(sample.prompt_tokens)[0])
        off = fitted / sample.ttft_s - 1
        rows.append(
            (
                number_cell(sample.prompt_tokens, format_tokens, "TTFT file"),
                number_cell(sample.ttft_s, format_duration_s, "TTFT file"),
                number_cell(fitted, format_duration_s, "a + bL + cL²"),
                number_cell(off, lambda share: f"{share:+.1%}", "fitted / measured - 1"),
            )
        )
    note = f"a = {curve.a_s:.4g} s, b = {curve.b_s_per_token:.4g} s, c = {curve.c_s_per_token2:.4g} s; {curve.source}"
    if curve.largest_residual_s is not None and curve.linear_residual_s is not None:
        note += (
            f". The curve is off by {format_duration_s(curve.largest_residual_s)} at most; a straight line would be by "
            f"{format_duration_s(curve.linear_residual_s)}"
        )
    note += "".join(f". Note: {text}" for text in curve.notes)
    about = f" of {curve.model}" if curve.model else ""
    return Sheet("prefill", f"Prefill{about}", columns, tuple(rows), note)


def doubts(runs: Sequence[LoadedRun]) -> Sheet:
    """Every warning with its numbers and what to do, and every point that did not finish."""
    columns = (
        Column("point", "point"),
        Column("code", "code"),
        Column("message", "what was seen"),
        Column("hint", "what to do"),
        Column("values", "numbers"),
    )
    rows = []
    for run in runs:
        for point in run.result.points:
            name = point_name(run, point.id, runs)
            if point.status != "ok":
                failed = (name, point.status, point.reason or "", "see the point's folder, measure it again", "")
                rows.append(tuple(name_cell(text) for text in failed))
            for caveat in point.warnings:
                values = ", ".join(f"{key} = {plain(value)}" for key, value in caveat.values.items())
                row = (name, caveat.code, caveat.message, caveat.hint, values)
                rows.append(tuple(name_cell(text) for text in row))
    return Sheet("distrust", "Reasons to distrust a number", columns, tuple(rows))


def provenance(runs: Sequence[LoadedRun], wanted: Wanted) -> Sheet:
    """Which machine, tools, tiers and files the numbers come from."""
    columns = (Column("about", "about"), Column("item", "item"), Column("value", "value"))
    rows: list[tuple[str, str, Value]] = []
    for run in runs:
        rows.append((run.name, "measured", run.result.created))
        rows += [(run.name, f"label {key}", value) for key, value in run.result.labels.items()]
        rows += [(run.name, key, plain(value, key)) for key, value in run.result.environment.items()]
        for tier, facts in run.result.tiers.items():
            rows += [(f"{run.name}, tier {tier}", key, plain(value, key)) for key, value in facts.items()]
    if wanted.curve is not None:
        rows.append(("prefill", "model", wanted.curve.model))
        rows.append(("prefill", "source", wanted.curve.source))
        rows.append(("prefill", "samples", wanted.curve.samples))
        if wanted.samples is not None and wanted.samples.skipped_rows:
            rows.append(("prefill", "rows skipped", wanted.samples.skipped_rows))
    cells = tuple((name_cell(about), name_cell(item), Cell(plain(value), value)) for about, item, value in rows)
    return Sheet("provenance", "Where the numbers come from", columns, cells)
