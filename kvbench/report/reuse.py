"""Tables, figures and JSON of a trace's reuse: one description for the terminal and for files (pure)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kvbench.layout.sized import SizedModel
from kvbench.report.columns import Column, Row, name, narrow, number, sheet, words
from kvbench.report.data import clean
from kvbench.report.sheet import UNKNOWN, Cell, Sheet
from kvbench.traces.answer import Answer, CurvePoint, ShareSize
from kvbench.traces.summary import Summary
from kvbench.traces.weights import BlockWeight
from kvbench.traces.windows import WorkingSets
from kvbench.units import format_bandwidth, format_bytes, format_count, format_duration_s, format_tokens

_REUSE_WORDS = {
    "hashes": "known from block hashes",
    "sessions": "assumed: each prompt extends the earlier ones of its session",
    "nothing": "not known: the trace names neither blocks nor sessions",
}
_MOST_STEPS_DRAWN = 400


@dataclass(frozen=True, slots=True)
class Marked:
    """A capacity on the curve, with its name."""

    label: str
    capacity: int
    rate: float


@dataclass(frozen=True, slots=True)
class HitCurve:
    """Hit rate against capacity, in bytes or in blocks; it rises at each of ``capacities``."""

    key: str
    title: str
    in_bytes: bool
    capacities: tuple[int, ...]
    rates: tuple[float, ...]
    ideal: float
    marks: tuple[Marked, ...]


@dataclass(frozen=True, slots=True)
class TrafficRow:
    """Bytes per second that one cache gives and takes, step by step."""

    label: str
    read_per_s: tuple[float, ...]
    written_per_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TrafficOverTime:
    """Traffic of chosen capacities over time, in steps of ``step_s`` seconds."""

    key: str
    title: str
    step_s: int
    rows: tuple[TrafficRow, ...]


@dataclass(frozen=True, slots=True)
class WindowLine:
    """The working set of each window of one length."""

    window_s: int
    touched: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WorkingSetOverTime:
    """Working sets over time for several lengths of window, in bytes or blocks, with capacities to compare them to."""

    key: str
    title: str
    in_bytes: bool
    span_s: float
    lines: tuple[WindowLine, ...]
    marks: tuple[Marked, ...]


_FACTS: tuple[Column[tuple[str, str]], ...] = (
    words("what", "what", lambda fact: fact[0]),
    words("how_much", "how much", lambda fact: fact[1]),
)

FigureData = HitCurve | TrafficOverTime | WorkingSetOverTime


def summary_sheet(summary: Summary, title: str, *, with_shares: bool = True) -> Sheet:
    """The summary in words, one fact a row."""
    return narrow(title, _FACTS, _facts(summary, with_shares=with_shares))


def _facts(summary: Summary, *, with_shares: bool) -> list[tuple[str, str]]:
    rate, ratio = summary.ideal_hit_rate, summary.mean_request_ratio
    output = UNKNOWN if summary.output_tokens is None else format_tokens(summary.output_tokens)
    rows = [
        ("requests", format_count(summary.requests)),
        ("prompt tokens", format_tokens(summary.prompt_tokens)),
        ("output tokens", output),
        (
            "prompt, median and longest",
            f"{summary.median_prompt_tokens:,} and {summary.longest_prompt_tokens:,} tokens",
        ),
        ("sessions", UNKNOWN if summary.sessions is None else format_count(summary.sessions)),
        ("time span", UNKNOWN if summary.span_s is None else format_span(summary.span_s)),
        ("blocks", f"{summary.blocks:,} of {summary.block_tokens} tokens, {summary.unique_blocks:,} different"),
        ("reuse", _REUSE_WORDS[summary.reuse]),
        ("ideal hit rate", UNKNOWN if rate is None else f"{rate:.2%} of prompt tokens"),
        ("mean over requests", UNKNOWN if ratio is None else f"{ratio:.2%} of their blocks"),
    ]
    known = summary.blocks_for_share if with_shares else ()
    sizes = [f"{share:.0%}: {blocks:,}" for share, blocks in known if blocks is not None]
    return [*rows, ("blocks that find so much of the ideal", ", ".join(sizes))] if sizes else rows


def summary_notes(summary: Summary) -> list[str]:
    """What a reader must know about the trace."""
    if not summary.unchained:
        return []
    return [
        f"{summary.unchained:,} times a block follows another block than before: these ids are no hashes of whole "
        "prefixes, so equal ids may stand for different KV and hit rates are too high."
    ]


def summary_json(summary: Summary) -> dict[str, Any]:
    """The summary's facts; shares as a list of objects."""
    shares = [{"share": share, "capacity_blocks": blocks} for share, blocks in summary.blocks_for_share]
    return {**asdict(summary), "blocks_for_share": shares}


def _bytes(key: str, heading: str, size: Callable[[Row], int | None]) -> Column[Row]:
    return number(key, heading, size, format_bytes, "")


def _count(key: str, heading: str, count: Callable[[Row], float | None]) -> Column[Row]:
    return number(key, heading, count, format_count, "")


def points_sheet(answer: Answer) -> Sheet:
    """What the chosen capacities find."""
    ideal = answer.summary.ideal_hit_tokens or 0
    columns: tuple[Column[CurvePoint], ...] = (
        Column("name", "tier", lambda point: Cell(clean(point.name) or UNKNOWN, point.name or None)),
        _bytes("capacity_bytes", "capacity", lambda point: point.bytes),
        _count("capacity_blocks", "blocks", lambda point: point.blocks),
        _count("hit_blocks", "hit blocks", lambda point: point.hits.blocks),
        _count("hit_tokens", "hit tokens", lambda point: point.hits.tokens),
        Column("hit_rate", "hit rate", _rate_cell, True),
        number("of_ideal", "of ideal", lambda point: point.hits.tokens / ideal if ideal else None, "{:.1%}".format, ""),
    )
    return sheet("hit-rate", "LRU hit rate by capacity", columns, answer.points)


def _rate_cell(point: CurvePoint) -> Cell:
    interval = "" if point.interval is None else " ({:.1%} to {:.1%})".format(*point.interval)
    return Cell(f"{point.hits.rate:.2%}{interval}", point.hits.rate)


def shares_sheet(answer: Answer) -> Sheet:
    """The least capacities that find shares of the ideal."""
    columns: tuple[Column[ShareSize], ...] = (
        number("share", "of ideal", lambda one: one.share, "{:.0%}".format, ""),
        _count("capacity_blocks", "blocks", lambda one: one.blocks),
        _bytes("capacity_bytes", "capacity", lambda one: one.bytes),
    )
    return sheet("shares", "Capacity for so much of the ideal hits", columns, answer.shares)


def _window(of: Callable[[Row], WorkingSets]) -> Column[Row]:
    return Column("window_s", "window", lambda row: Cell(format_minutes(of(row).window_s), of(row).window_s), True)


def working_set_sheet(answer: Answer) -> Sheet:
    """Working sets in windows of several lengths: the mean and the largest, and how much of it is used twice."""
    columns: tuple[Column[WorkingSets], ...] = (
        _window(lambda one: one),
        _count("windows", "windows", lambda one: len(one.touched)),
        _count("mean_blocks", "mean blocks", lambda one: float(one.touched.mean())),
        _count("largest_blocks", "largest", lambda one: int(one.touched.max())),
        _bytes(
            "largest_bytes",
            "largest bytes",
            lambda one: None if one.touched_bytes is None else int(one.touched_bytes.max()),
        ),
        _count("largest_reused_blocks", "reused, largest", lambda one: int(one.reused.max())),
    )
    note = "" if answer.working_sets else "The trace has no times."
    return sheet("working-set", "Working set: different blocks in a window", columns, answer.working_sets, note)


def traffic_sheet(answer: Answer) -> Sheet:
    """Bytes that each chosen capacity gives and takes, step by step."""
    step = answer.step_s or 1
    # The name of a capacity, the number of a step, and what was read and written in it.
    columns: tuple[Column[tuple[str, int, int, int]], ...] = (
        name("name", "tier", lambda row: row[0]),
        number("start_s", "from", lambda row: row[1] * step, format_duration_s, ""),
        _bytes("read_bytes", "read", lambda row: row[2]),
        _bytes("written_bytes", "written", lambda row: row[3]),
    )
    rows = (
        (label, index, int(read), int(written))
        for one, label in zip(answer.traffic, labels(answer.points), strict=False)
        for index, (read, written) in enumerate(zip(one.read_bytes, one.written_bytes, strict=True))
    )
    return sheet("traffic", "Bytes read from and written to the cache over time", columns, rows)


def windows_sheet(answer: Answer) -> Sheet:
    """Every window with its working set."""
    # The windows of one length, and the number of one of them.
    columns: tuple[Column[tuple[WorkingSets, int]], ...] = (
        _window(lambda row: row[0]),
        number("start_s", "from", lambda row: row[1] * row[0].window_s, format_duration_s, ""),
        _count("touched_blocks", "blocks", lambda row: int(row[0].touched[row[1]])),
        _count("reused_blocks", "reused", lambda row: int(row[0].reused[row[1]])),
        _bytes(
            "touched_bytes",
            "bytes",
            lambda row: None if row[0].touched_bytes is None else int(row[0].touched_bytes[row[1]]),
        ),
    )
    rows = ((one, index) for one in answer.working_sets for index in range(len(one.touched)))
    return sheet("windows", "Working set of every window", columns, rows)


def curve_sheet(answer: Answer) -> Sheet:
    """The whole curve, thinned to what a figure can show."""
    figure = hit_curve(answer)
    made = _bytes if figure.in_bytes else _count
    columns: tuple[Column[tuple[int, float]], ...] = (
        made("capacity_bytes" if figure.in_bytes else "capacity_blocks", "capacity", lambda row: row[0]),
        number("hit_rate", "hit rate", lambda row: row[1], "{:.2%}".format, ""),
    )
    return sheet("curve", "The whole curve", columns, zip(figure.capacities, figure.rates, strict=True))


def hit_curve(answer: Answer) -> HitCurve:
    """The curve with the chosen capacities marked."""
    shown, in_bytes = answer.shown, answer.weight is not None
    picked = _thinned(len(shown.capacities))
    rates = shown.rates()
    ideal = answer.summary.ideal_hit_rate or 0.0
    marks = _marks(answer)
    half = next((one for one in answer.shares if one.share >= 0.9), None)
    size = None if half is None else half.bytes if in_bytes else half.blocks
    if size is None:
        title = "Nothing of this trace is ever reused"
    else:
        needed = format_bytes(size) if in_bytes else f"{size:,} blocks"
        title = f"At most {ideal:.1%} of the prompt tokens can be found; {needed} find nine tenths of that"
    return HitCurve(
        "hit-rate",
        title,
        in_bytes,
        tuple(int(shown.capacities[at]) for at in picked),
        tuple(float(rates[at]) for at in picked),
        ideal,
        marks,
    )


def traffic_over_time(answer: Answer) -> TrafficOverTime | None:
    """Traffic of the chosen capacities; None where the trace has no times, or no capacity was chosen."""
    if not answer.traffic or answer.step_s is None:
        return None
    step = answer.step_s
    rows = tuple(
        TrafficRow(label, tuple((one.read_bytes / step).tolist()), tuple((one.written_bytes / step).tolist()))
        for one, label in zip(answer.traffic, labels(answer.points), strict=True)
    )
    busiest = max(rows, key=lambda row: max(row.read_per_s))
    rate = max(busiest.read_per_s)
    title = f"{busiest.label} gives back up to {format_bandwidth(rate)} at the trace's own pace"
    return TrafficOverTime("traffic", title, step, rows)


def working_set_over_time(answer: Answer) -> WorkingSetOverTime | None:
    """Working sets over time; None where the trace has no times."""
    if not answer.working_sets or answer.summary.span_s is None:
        return None
    in_bytes = answer.weight is not None
    lines = tuple(
        WindowLine(one.window_s, tuple((one.touched if one.touched_bytes is None else one.touched_bytes).tolist()))
        for one in answer.working_sets
    )
    longest = lines[-1]
    most = max(longest.touched)
    size = format_bytes(most) if in_bytes else f"{most:,} blocks"
    title = f"In {format_minutes(longest.window_s)} the requests touch up to {size}"
    return WorkingSetOverTime("working-set", title, in_bytes, answer.summary.span_s, lines, _marks(answer))


def figures_of(answer: Answer) -> list[FigureData]:
    """Every figure that the answer has data for."""
    found = [hit_curve(answer), traffic_over_time(answer), working_set_over_time(answer)]
    return [one for one in found if one is not None]


def sheets_of(answer: Answer) -> list[Sheet]:
    """Every table, those of the figures included."""
    made = (points_sheet, shares_sheet, working_set_sheet, curve_sheet, windows_sheet, traffic_sheet)
    return [found for make in made if (found := make(answer)).rows]


def labels(points: Sequence[CurvePoint]) -> list[str]:
    """A name for each point: its own, with its size."""
    found = []
    for point in points:
        size = f"{point.blocks or 0:,} blocks" if point.bytes is None else format_bytes(point.bytes)
        found.append(f"{clean(point.name)} {size}".strip())
    return found


def notes(answer: Answer, sized: SizedModel | None) -> list[str]:
    """What a reader must know about the numbers."""
    found = summary_notes(answer.summary)
    weight = answer.weight
    if weight is not None and sized is not None:
        found.append(
            f"{sized.model} TP{sized.tp}, {sized.kv_dtype}: {_weight_text(weight, answer.summary.block_tokens)}"
        )
        found += [f"{sized.model}: {warning}." for warning in sized.warnings]
    if answer.skipped_minutes and answer.summary.span_s is not None:
        skipped = ", ".join(f"{length} min" for length in answer.skipped_minutes)
        found.append(f"Windows of {skipped} are left out: the trace spans {format_span(answer.summary.span_s)}.")
    if answer.sampled is not None:
        found.append(
            f"Estimated from {answer.sampled.kept_references:,} references to {answer.sampled.rate:.2%} of the blocks; "
            "in brackets the 95 % interval."
        )
    return found


def _weight_text(weight: BlockWeight, block_tokens: int) -> str:
    block = f"a block of {block_tokens} tokens weighs {format_bytes(weight.block_bytes)} on all ranks together"
    if weight.uniform:
        return block + "."
    end = format_bytes(sum(weight.end_bytes))
    return (
        f"{block}, and the end of a request {end} more (windows and state) until a later request goes on from there; "
        "'blocks' is the least capacity in blocks that finds as much."
    )


def format_span(seconds: float) -> str:
    """Seconds, or minutes or hours where there are many."""
    if seconds < 120:
        return format_duration_s(seconds)
    return f"{seconds / 60:.4g} min" if seconds < 7200 else f"{seconds / 3600:.4g} h"


def format_minutes(window_s: int) -> str:
    """Whole minutes of a window, or its seconds."""
    return f"{window_s // 60} min" if window_s % 60 == 0 else f"{window_s} s"


def answer_json(answer: Answer) -> dict[str, Any]:
    """The answer as the commands print it."""
    weight = answer.weight
    return {
        "trace": {**summary_json(answer.summary), "ideal_hit_rate": answer.summary.ideal_hit_rate},
        "block_bytes": None if weight is None else weight.block_bytes,
        "request_end_bytes": None if weight is None else sum(weight.end_bytes),
        "curve": [_point_json(point) for point in answer.points],
        "shares": [
            {"share": one.share, "capacity_blocks": one.blocks, "capacity_bytes": one.bytes} for one in answer.shares
        ],
        "working_set": [
            {
                "window_s": one.window_s,
                "touched_blocks": one.touched.tolist(),
                "reused_blocks": one.reused.tolist(),
                "touched_bytes": None if one.touched_bytes is None else one.touched_bytes.tolist(),
            }
            for one in answer.working_sets
        ],
        "sampling": None
        if answer.sampled is None
        else {"rate": answer.sampled.rate, "references": answer.sampled.kept_references},
    }


def _point_json(point: CurvePoint) -> dict[str, Any]:
    low, high = (None, None) if point.interval is None else point.interval
    return {
        "name": point.name or None,
        "capacity_bytes": point.bytes,
        "capacity_blocks": point.blocks,
        "hit_blocks": point.hits.blocks,
        "hit_tokens": point.hits.tokens,
        "hit_rate": point.hits.rate,
        "hit_rate_low": low,
        "hit_rate_high": high,
    }


def _marks(answer: Answer) -> tuple[Marked, ...]:
    in_bytes = answer.weight is not None
    chosen = [
        (label, point.bytes if in_bytes else point.blocks, point.hits.rate)
        for label, point in zip(labels(answer.points), answer.points, strict=True)
        if answer.chosen
    ]
    return tuple(Marked(label, size, rate) for label, size, rate in chosen if size is not None)


def _thinned(count: int) -> list[int]:
    """Places of a curve that suffice to draw it, the first and the last among them."""
    if count <= _MOST_STEPS_DRAWN:
        return list(range(count))
    even = np.linspace(0, count - 1, _MOST_STEPS_DRAWN // 2)
    early = np.geomspace(1, count, _MOST_STEPS_DRAWN // 2) - 1
    return sorted({int(place) for place in (*even, *early)})
