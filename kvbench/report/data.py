"""The report as one plain object: what HTML, Markdown, CSV and JSON show, and nothing that they would compute."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from kvbench.decide.crossover import Verdict
from kvbench.report.tables import Table

Value = str | int | float | bool | None

T = TypeVar("T")

UNKNOWN = "–"


@dataclass(frozen=True, slots=True)
class Cell:
    """One displayed number or name: its text, the value behind it in base units, and where it comes from."""

    text: str
    value: Value = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a sheet; ``key`` names it in CSV and JSON with its base unit, ``right`` aligns numbers."""

    key: str
    heading: str
    right: bool = False


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table whose every cell can be traced."""

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A reason to distrust, beside the number it concerns."""

    point: str
    code: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict of one tier for one use, in words, with its numbers and the reasons to distrust them."""

    tier: str
    model: str
    tp: int
    connector: str
    concurrent_restores: int
    verdict: Verdict
    reason: str
    label: str
    facts: tuple[Cell, ...]
    point: str | None
    doubts: tuple[Doubt, ...]


@dataclass(frozen=True, slots=True)
class Band:
    """A value with its 95 % interval; both ends equal the value where there is no interval."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True, slots=True)
class TargetBar:
    """Seconds at the target length for one tier and use; ``recompute_s`` is None where nobody measured it."""

    tier: str
    model: str
    verdict: Verdict
    restore_s: Band | None
    recompute_s: Band | None
    source: str


@dataclass(frozen=True, slots=True)
class TargetTimes:
    """Figure: time to get the target context back, restored or recomputed."""

    key: str
    title: str
    target_tokens: int
    budget_s: float | None
    bars: tuple[TargetBar, ...]
    note: str = (
        "Bars: restore time with its 95 % interval. Vertical line: recompute time of the model. Colour, "
        "hatching and word: the verdict."
    )


@dataclass(frozen=True, slots=True)
class TierDot:
    """One tier in the published figure: p99 of one block over the measured prefill cost."""

    tier: str
    p99_s: float
    cost_s_per_token: float | None
    tokens: int | None
    source: str


@dataclass(frozen=True, slots=True)
class CrossoverMap:
    """Figure: L = p99 / prefill cost for fixed tails, with the tiers as points at the measured prefill cost."""

    key: str
    title: str
    model: str
    tails_s: tuple[float, ...]
    costs_s_per_token: tuple[float, ...]
    dots: tuple[TierDot, ...]
    note: str = (
        "The published view: a dot is one tier at the measured prefill cost (TTFT / context at the "
        "longest prompt); the lines are fixed tails. It compares one block with a whole prompt and does "
        "not decide."
    )


@dataclass(frozen=True, slots=True)
class TimeLine:
    """Seconds against context with a band: restoring from one tier, or recomputing; never extrapolated."""

    label: str
    restore: bool
    tokens: tuple[int, ...]
    seconds: tuple[Band, ...]
    source: str


@dataclass(frozen=True, slots=True)
class TimeCurves:
    """Figure: restore and recompute time against context for one use; ``samples`` are the measured TTFT."""

    key: str
    title: str
    model: str
    target_tokens: int
    lines: tuple[TimeLine, ...]
    samples: tuple[tuple[int, float], ...]
    note: str = (
        "Bands: 95 % intervals. Crosses: measured TTFT. Restoring pays wherever its line is below the recompute line."
    )


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """One direction of one point: operations in each bin of the figure's grid, and percentiles."""

    label: str
    tier: str
    counts: tuple[int, ...]
    p50_ns: int
    p99_ns: int
    p99_low_ns: int | None
    p99_high_ns: int | None
    source: str


@dataclass(frozen=True, slots=True)
class Latencies:
    """Figure: how latency is distributed at each point of one I/O size; ``edges_ns`` bound the bins of every row."""

    key: str
    title: str
    io_bytes: int
    edges_ns: tuple[int, ...]
    rows: tuple[LatencyRow, ...]
    note: str = (
        "One row for each direction of each point. Area: distribution; line: p50; diamond: p99 with its 95 % interval."
    )


@dataclass(frozen=True, slots=True)
class BandwidthLine:
    """Bytes per second of one tier and direction for each number of jobs."""

    tier: str
    panel: str
    jobs: tuple[int, ...]
    bytes_per_s: tuple[float, ...]
    source: str


@dataclass(frozen=True, slots=True)
class Bandwidths:
    """Figure: bandwidth against jobs for one I/O size."""

    key: str
    title: str
    io_bytes: int
    lines: tuple[BandwidthLine, ...]
    note: str = "From zero. One panel for each mix and direction."


@dataclass(frozen=True, slots=True)
class Mark:
    """An event on a row of seconds: its number in the table of events, and its second from 1."""

    number: int
    second: int


@dataclass(frozen=True, slots=True)
class SecondsRow:
    """Bytes per second of one point, read and written together, CPU steal, and events, second by second."""

    label: str
    tier: str
    bytes_per_s: tuple[float, ...]
    steal_percent: tuple[float | None, ...]
    round_starts: tuple[int, ...]
    source: str
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class Seconds:
    """Figure: bandwidth second by second for one I/O size."""

    key: str
    title: str
    io_bytes: int
    rows: tuple[SecondsRow, ...]
    note: str = (
        "One row for each point, all on one scale from zero; ticks below: where a round began; dots: CPU steal, "
        "0 to 100 % of the row's height."
    )
    legend: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RateLine:
    """Bytes per second against context: what one request needs to break even, or gets from a tier."""

    label: str
    tokens: tuple[int, ...]
    bytes_per_s: tuple[float, ...]
    source: str


@dataclass(frozen=True, slots=True)
class BreakEvenMap:
    """Figure: bandwidth times context; above ``need`` restoring wins, ``given`` is what each tier gives one request."""

    key: str
    title: str
    model: str
    target_tokens: int
    need: RateLine
    given: tuple[RateLine, ...]
    note: str = (
        "Thick line: the bandwidth at which restoring takes as long as recomputing, within the measured prompts. A "
        "tier pays wherever its line lies in the shaded area. Lookups and copies count as time of the tier."
    )


FigureData = TargetTimes | CrossoverMap | TimeCurves | BreakEvenMap | Latencies | Bandwidths | Seconds


@dataclass(frozen=True, slots=True)
class Advice:
    """What the verdicts mean for one use: paragraphs in plain words, and sentences that choose a tier."""

    label: str
    words: tuple[str, ...]
    choice: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Method:
    """How one kind of number is computed, and what goes into it."""

    name: str
    formula: str
    inputs: str


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that a report says; ``figures`` starts with the one that shows the decision."""

    made_by: str
    title: str
    finding: str
    summary: tuple[str, ...]
    verdict: Verdict
    goal: str
    wanted: str
    judgements: tuple[Judgement, ...]
    missing: tuple[str, ...]
    figures: tuple[FigureData, ...]
    sheets: tuple[Sheet, ...]
    methods: tuple[Method, ...]
    tiers: tuple[str, ...] = field(default=())
    advice: tuple[Advice, ...] = ()

    def sheet(self, key: str) -> Sheet:
        """The sheet of that key; KeyError when there is none."""
        found = next((sheet for sheet in self.sheets if sheet.key == key), None)
        if found is None:
            raise KeyError(key)
        return found


def to_json(report: Report) -> dict[str, Any]:
    """The report as JSON data: the judgements, the tables by their keys and the numbers behind every figure."""
    return {
        "made_by": report.made_by,
        "title": report.title,
        "finding": report.finding,
        "summary": list(report.summary),
        "verdict": report.verdict,
        "goal": report.goal,
        "judgements": [asdict(judgement) for judgement in report.judgements],
        "missing": list(report.missing),
        "advice": [asdict(advice) for advice in report.advice],
        "tables": {sheet.key: sheet_json(sheet) for sheet in report.sheets},
        "figures": {figure.key: {"kind": type(figure).__name__, **asdict(figure)} for figure in report.figures},
        "methods": [asdict(method) for method in report.methods],
    }


def sheet_json(sheet: Sheet) -> dict[str, Any]:
    """A sheet as JSON data: a list of rows, each cell with text, value and source."""
    keys = [column.key for column in sheet.columns]
    rows = [{key: asdict(cell) for key, cell in zip(keys, row, strict=True)} for row in sheet.rows]
    return {"title": sheet.title, "note": sheet.note, "rows": rows}


def as_table(sheet: Sheet, keep: Sequence[str] | None = None) -> Table:
    """The texts of a sheet, or of some of its columns, for Markdown and terminals."""
    kept = [index for index, column in enumerate(sheet.columns) if keep is None or column.key in keep]
    return Table(
        sheet.title,
        tuple(sheet.columns[index].heading for index in kept),
        tuple(tuple(row[index].text for index in kept) for row in sheet.rows),
        tuple(place for place, index in enumerate(kept) if sheet.columns[index].right),
    )


def clean(text: str) -> str:
    """``text`` on one line without control, formatting or surrogate characters, which hide or break what follows."""
    return "".join("\N{REPLACEMENT CHARACTER}" if _is_hidden(char) else char for char in " ".join(text.split()))


def scrubbed(value: T) -> T:
    """The same data with every text in it cleaned: nothing that users wrote gets past this with a control character."""
    scrub: Any = _scrub(value)
    return cast(T, scrub)


def _scrub(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, tuple):
        return tuple(_scrub(item) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{item.name: _scrub(getattr(value, item.name)) for item in fields(value)})
    return value


def _is_hidden(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cf", "Cs", "Cn", "Co")
