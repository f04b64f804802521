"""The verdict for each tier, use and number of concurrent restores, and what it rests on (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from kvbench.decide.crossover import Crossover, SingleBlock
from kvbench.decide.decision import Decisions, Judged
from kvbench.decide.runs import LoadedRun
from kvbench.record.results import RunResult
from kvbench.report.cells import (
    format_tokens_per_s,
    point_name,
    recompute_cell,
    recompute_speed_cell,
    restore_cell,
    restore_speed_source,
)
from kvbench.report.columns import Column, Short, name, narrow, number, sheet, words
from kvbench.report.decision_words import outcome_text, reasons_text, single_text
from kvbench.report.scene import Scene
from kvbench.report.sheet import UNKNOWN, Cell, Sheet
from kvbench.report.subject import at_once
from kvbench.units import format_bytes, format_count, format_duration_ns, format_tokens

_EDGES = {"below-range": "below range", "above-range": "above range", "from": ""}


@dataclass(frozen=True, slots=True)
class Ruling:
    """One judgement, and its points under the names that the report gives them."""

    item: Judged
    point: str
    single_point: str

    @property
    def crossover(self) -> Crossover:
        """The answer behind it."""
        return self.item.crossover

    @property
    def crossing(self) -> str:
        """Where the lengths come from."""
        return f"restore and recompute times compared; point {self.point}" if self.point else ""

    @property
    def short_model(self) -> str:
        """The model and its TP."""
        return f"{self.item.use.model} TP{self.item.use.tp}"


def ruling(item: Judged, runs: tuple[LoadedRun, ...] = ()) -> Ruling:
    """The row of a judgement."""
    single = item.crossover.single_block
    single_point = point_name(item.run, single.point if single else None, runs)
    return Ruling(item, point_name(item.run, item.crossover.point, runs), single_point)


def rulings(crossovers: Iterable[Crossover], decided: Decisions) -> list[Ruling]:
    """The rows of the crossovers of a decision."""
    found = []
    for crossover in crossovers:
        run = LoadedRun(Path(crossover.run).name, Path(crossover.run), RunResult(""))
        found.append(ruling(Judged(run, crossover.tier, crossover, decided.curve, decided.goal)))
    return found


def _length(key: str, heading: str, tokens: Callable[[Crossover], int | None]) -> Column[Ruling]:
    return number(key, heading, lambda row: tokens(row.crossover), format_tokens, lambda row: row.crossing)


def _single(row: Ruling, cell: Callable[[SingleBlock, str], Cell]) -> Cell:
    single = row.crossover.single_block
    return Cell(UNKNOWN) if single is None else cell(single, f"point {row.single_point}, reads")


def _single_tokens(single: SingleBlock, source: str) -> Cell:
    text = _EDGES[single.kind] if single.tokens is None else format_tokens(single.tokens)
    return Cell(text, single.tokens, source)


def _distrust(row: Ruling) -> str:
    return ", ".join(warning.code for warning in row.item.point.warnings) if row.item.point else ""


COLUMNS: tuple[Column[Ruling], ...] = (
    words("what_if", "what if", lambda row: row.crossover.what_if),
    name("tier", "tier", lambda row: row.item.tier),
    words("short_model", "model", lambda row: row.short_model),
    name("model", "model", lambda row: row.item.use.model),
    number("tp", "TP", lambda row: row.item.use.tp, format_count, "as measured"),
    name("connector", "connector", lambda row: row.item.use.connector),
    number(
        "io_bytes",
        "one I/O",
        lambda row: row.item.use.io_bytes,
        format_bytes,
        "model geometry and connector",
        short=Short("I/O"),
    ),
    at_once(lambda row: row.item),
    words("ruling", "verdict", lambda row: row.crossover.verdict.upper()),
    name("verdict", "verdict", lambda row: row.crossover.verdict, "verdict rule"),
    words("outcome", "restoring wins", lambda row: outcome_text(row.crossover)),
    name("kind", "restoring wins", lambda row: row.crossover.request.kind, lambda row: row.crossing),
    _length("wins_from_tokens", "from tokens", lambda crossover: crossover.request.tokens),
    _length("wins_from_low_tokens", "95 % low", lambda crossover: crossover.request.low),
    _length("wins_from_high_tokens", "95 % high", lambda crossover: crossover.request.high),
    Column("restore_s", "restore", lambda row: restore_cell(row.item, row.point), True),
    Column("recompute_s", "recompute", lambda row: recompute_cell(row.item), True),
    number(
        "restore_tokens_per_s",
        "restores",
        lambda row: row.crossover.restore_tokens_per_s,
        format_tokens_per_s,
        lambda row: restore_speed_source(row.crossover, row.point),
        short=Short("restores tokens/s", lambda rate: f"{rate:,.0f}", falls=1),
    ),
    Column("recompute_tokens_per_s", "recomputes", lambda row: recompute_speed_cell(row.item), True),
    words(
        "single_block",
        "single block (published)",
        lambda row: single_text(row.crossover.single_block, row.item.curve) if row.item.curve else "",
        falls=2,
    ),
    Column("single_block_tokens", "single block", lambda row: _single(row, _single_tokens), True),
    Column(
        "single_block_p99_ns",
        "its p99",
        lambda row: _single(
            row, lambda single, source: Cell(format_duration_ns(single.p99_ns), single.p99_ns, f"{source}: p99")
        ),
        True,
    ),
    words("reasons", "reason", lambda row: reasons_text(row.crossover)),
    name("point", "rests on point", lambda row: row.point),
    words("rests_on", "rests on", lambda row: row.point or row.crossover.verdict_reason),
    name("distrust", "distrust", _distrust, short=Short(unknown="")),
    name("reason", "why", lambda row: row.crossover.verdict_reason),
)


def verdicts(scene: Scene) -> Sheet:
    """One row for each judgement of the report."""
    target = format_tokens(scene.wanted.goal.target_tokens)
    note = f"Restore and recompute are times for {target} tokens." if scene.judged else ""
    rows = (ruling(item, scene.runs) for item in scene.judged)
    return sheet("verdicts", "Verdict for each tier and model", COLUMNS, rows, note)


def short_verdicts(decided: Decisions) -> Sheet:
    """The verdict, from which length restoring wins, and the speeds behind it."""
    title = f"Restore or recompute, for contexts of {format_tokens(decided.goal.target_tokens)} tokens"
    keys = ("concurrent_restores", "ruling", "outcome", "restore_tokens_per_s", "single_block")
    return narrow(title, COLUMNS, rulings(decided.crossovers, decided), "tier", "short_model", *keys)


def reasons(decided: Decisions) -> Sheet:
    """Why each verdict is what it is: the deciding reason, the point it rests on, and its warnings."""
    keys = ("tier", "short_model", "reasons", "point", "distrust")
    return narrow("Why", COLUMNS, rulings(decided.crossovers, decided), *keys)


def what_ifs(decided: Decisions) -> Sheet:
    """Other deployments on the same measurements; they decide nothing."""
    keys = ("short_model", "io_bytes", "verdict", "outcome", "restore_tokens_per_s", "rests_on")
    return narrow("What if", COLUMNS, rulings(decided.what_ifs, decided), "what_if", "tier", *keys)
