"""What follows from the verdicts: the choice of a tier in words, settings, what a tie would need, savings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kvbench.decide.advice import in_plain_words, is_shared, settings_of, which_tier
from kvbench.decide.breakeven import BreakEven
from kvbench.decide.cost import saving
from kvbench.decide.decision import Judged, Wanted
from kvbench.decide.reads import Reads
from kvbench.decide.runs import LoadedRun
from kvbench.report.cells import name_cell, number_cell, point_name, use_label
from kvbench.report.data import UNKNOWN, Advice, Cell, Column, Sheet
from kvbench.settings.viable import line_of
from kvbench.units import (
    format_bandwidth,
    format_bytes,
    format_count,
    format_duration_ns,
    format_duration_s,
    format_tokens,
)

# More paragraphs than this are not read; the tables hold every tier.
_MOST_PARAGRAPHS = 4


def advice(all_judged: Sequence[Judged]) -> tuple[Advice, ...]:
    """For each use and load: what it means in plain words, tier by tier, and which tier to choose."""
    found = []
    for label in dict.fromkeys(_load_label(item) for item in all_judged):
        items = [item for item in all_judged if _load_label(item) == label]
        # Under the names of the report, which tell two runs with one tier apart.
        named = [(replace(item.crossover, tier=item.tier), item.curve) for item in items]
        words = [text for crossover, curve in named if (text := in_plain_words(crossover, curve))]
        shared = {item.tier: is_shared(item.run.result, item.crossover.tier) for item in items}
        chosen = which_tier([crossover for crossover, _ in named], shared)
        if words or chosen:
            found.append(Advice(label, tuple(words[:_MOST_PARAGRAPHS]), tuple(chosen)))
    return tuple(found)


def _load_label(item: Judged) -> str:
    count = item.crossover.concurrent_restores
    return use_label(item) if count == 1 else f"{use_label(item)}, {count} restores at once"


def settings(all_judged: Sequence[Judged], wanted: Wanted) -> Sheet:
    """The numbers that an engine or router takes from the decision."""
    columns = (
        Column("tier", "tier"),
        Column("model", "model"),
        Column("concurrent_restores", "at once", True),
        Column("option", "option"),
        Column("value", "value"),
        Column("reason", "why"),
    )
    rows = [
        (
            name_cell(item.tier),
            name_cell(setting.model),
            number_cell(item.crossover.concurrent_restores, format_count, "--concurrent-restores"),
            name_cell(setting.option or "no option of the engine"),
            name_cell(setting.value),
            name_cell(setting.reason),
        )
        for item in all_judged
        if item.crossover.measured is not None
        for setting in settings_of(item.crossover, _rates(item, wanted))
    ]
    note = "Options of vLLM's kv_connector_extra_config; nothing is written anywhere."
    return Sheet("settings", "Settings that follow", columns, tuple(rows), note)


def command_lines(all_judged: Sequence[Judged], wanted: Wanted) -> Sheet:
    """The engine's command line for each tier that pays, and why there is none for the others."""
    columns = (
        Column("tier", "tier"),
        Column("model", "model"),
        Column("concurrent_restores", "at once", True),
        Column("command_line", "command line"),
        Column("reason", "why"),
    )
    rows = []
    for item in all_judged:
        line = line_of(item.crossover, item.run.result.tiers.get(item.crossover.tier, {}), _rates(item, wanted))
        rows.append(
            (
                name_cell(item.tier),
                name_cell(use_label(item)),
                number_cell(item.crossover.concurrent_restores, format_count, "--concurrent-restores"),
                name_cell(line.text or "none"),
                name_cell(line.reason),
            )
        )
    note = "For a POSIX shell. 'kvbench settings' writes other forms (JSON, Kubernetes) and other sizes of host memory."
    return Sheet("command_lines", "The engine's command line", columns, tuple(rows) if wanted.curve else (), note)


def _rates(item: Judged, wanted: Wanted) -> dict[int, float]:
    reads = Reads(item.run.path, item.run.result, item.crossover.tier, wanted.mix)
    return reads.rates(item.use.io_bytes)


def needs(all_judged: Sequence[Judged], runs: Sequence[LoadedRun]) -> Sheet:
    """What one request takes, what it would need to tie with the GPUs, and how far a budget reaches."""
    columns = (
        Column("tier", "tier"),
        Column("model", "model"),
        Column("concurrent_restores", "at once", True),
        Column("request_bytes", "one request", True),
        Column("request_p50_s", "p50", True),
        Column("request_p99_s", "p99", True),
        Column("tie_tokens", "to tie at", True),
        Column("tie_bytes_per_s", "it needs", True),
        Column("tie_p99_ns", "or a p99 of", True),
        Column("budget_restore_tokens", "budget: restore up to", True),
        Column("budget_recompute_tokens", "recompute up to", True),
    )
    rows = tuple(row for item in all_judged for row in _needs_rows(item, runs))
    note = "p50 and p99 are those of whole requests at the target length. 'To tie' scales every latency alike."
    return Sheet("needs", "What a request takes, and what it would need", columns, rows, note)


def _needs_rows(item: Judged, runs: Sequence[LoadedRun]) -> Iterator[tuple[Cell, ...]]:
    crossover, at, budget = item.crossover, item.crossover.at_target, item.crossover.budget
    if at is None:
        return
    point = point_name(item.run, crossover.point, runs)
    simulated = f"point {point}: quantile of the simulated requests"
    for tie in crossover.break_even or (None,):
        yield (
            name_cell(item.tier),
            name_cell(use_label(item)),
            number_cell(crossover.concurrent_restores, format_count, "--concurrent-restores"),
            number_cell(at.bytes, format_bytes, f"units of {format_tokens(at.tokens)} tokens x bytes of a unit"),
            number_cell(at.p50_s, format_duration_s, simulated),
            number_cell(at.p99_s, format_duration_s, simulated),
            *_tie_cells(tie),
            _reach(budget.restore_tokens, beyond=budget.restore_beyond) if budget else Cell(UNKNOWN),
            _reach(budget.recompute_tokens, beyond=budget.recompute_beyond) if budget else Cell(UNKNOWN),
        )


def _tie_cells(tie: BreakEven | None) -> tuple[Cell, Cell, Cell]:
    if tie is None:
        return Cell(UNKNOWN), Cell(UNKNOWN), Cell(UNKNOWN)
    source = "bytes / (recompute time - lookups - copy)"
    return (
        number_cell(tie.tokens, format_tokens, "target, and the shortest length that is asked for"),
        number_cell(tie.bytes_per_s, format_bandwidth, source),
        number_cell(tie.p99_ns, format_duration_ns, "p99 x recompute time / restore time"),
    )


def _reach(tokens: int | None, *, beyond: bool) -> Cell:
    if tokens is None:
        return Cell("never", 0, "--ttft-budget")
    return Cell(("at least " if beyond else "") + format_tokens(tokens), tokens, "--ttft-budget")


def savings(all_judged: Sequence[Judged], wanted: Wanted) -> Sheet:
    """GPU time and money that hits save, where the load was given."""
    columns = (
        Column("tier", "tier"),
        Column("model", "model"),
        Column("concurrent_restores", "at once", True),
        Column("verdict", "verdict"),
        Column("tokens", "tokens of a hit", True),
        Column("gpu_s_per_hit", "GPU time of a hit", True),
        Column("wait_s", "it waits", True),
        Column("hits_per_day", "hits a day", True),
        Column("gpu_hours_per_day", "GPU-hours a day", True),
        Column("price_per_day", "money a day", True),
    )
    rows = tuple(row for item in all_judged for row in _savings_rows(item, wanted)) if wanted.traffic else ()
    note = (
        "A hit saves the prefill of its prompt on every GPU; while it is restored the GPUs serve others. On a tier "
        "that is not viable the same time is saved, but the request waits longer than recomputing would take."
    )
    return Sheet("savings", "What hits save", columns, rows, note)


def _savings_rows(item: Judged, wanted: Wanted) -> Iterator[tuple[Cell, ...]]:
    at = item.crossover.at_target
    if item.curve is None or at is None or wanted.traffic is None:
        return
    saved = saving(item.curve, at.tokens, wanted.traffic)
    if saved is None:
        return
    per_hit = "recompute time x --gpus"
    load = "--hit-rate x --requests-per-s x 86,400"
    yield (
        name_cell(item.tier),
        name_cell(use_label(item)),
        number_cell(item.crossover.concurrent_restores, format_count, "--concurrent-restores"),
        name_cell(item.crossover.verdict),
        number_cell(saved.tokens, format_tokens, "--target-context"),
        number_cell(saved.gpu_s_per_hit, format_duration_s, per_hit),
        number_cell(at.p50_s, format_duration_s, "median of the simulated requests"),
        number_cell(saved.hits_per_day, format_count, load),
        number_cell(saved.gpu_s_per_day / 3600, lambda hours: f"{hours:,.1f}", f"{per_hit} x {load} / 3,600"),
        number_cell(saved.price_per_day, lambda price: f"{price:,.2f}", "GPU-hours x --gpu-price"),
    )
