"""Which machine, tools, tiers and files the numbers come from (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.decide.decision import Wanted
from kvbench.decide.runs import LoadedRun
from kvbench.report.cells import plain
from kvbench.report.columns import Column, name, sheet
from kvbench.report.scene import Scene
from kvbench.report.sheet import Cell, Sheet, Value

# What a fact is about, its name and its value.
Fact = tuple[str, str, Value]

COLUMNS: tuple[Column[Fact], ...] = (
    name("about", "about", lambda fact: fact[0]),
    name("item", "item", lambda fact: fact[1]),
    Column("value", "value", lambda fact: Cell(plain(fact[2]), fact[2])),
)


def provenance(scene: Scene) -> Sheet:
    """Every fact that the runs and the prefill recorded."""
    rows = [*(fact for run in scene.runs for fact in _of_run(run)), *_of_prefill(scene.wanted)]
    return sheet("provenance", "Where the numbers come from", COLUMNS, rows)


def _of_run(run: LoadedRun) -> Iterator[Fact]:
    result = run.result
    yield run.name, "measured", result.created
    yield from ((run.name, f"label {key}", value) for key, value in result.labels.items())
    yield from ((run.name, key, plain(value, key)) for key, value in result.environment.items())
    for tier, facts in result.tiers.items():
        yield from ((f"{run.name}, tier {tier}", key, plain(value, key)) for key, value in facts.items())


def _of_prefill(wanted: Wanted) -> Iterator[Fact]:
    if wanted.curve is not None:
        yield "prefill", "model", wanted.curve.model
        yield "prefill", "source", wanted.curve.source
        yield "prefill", "samples", wanted.curve.samples
        if wanted.samples is not None and wanted.samples.skipped_rows:
            yield "prefill", "rows skipped", wanted.samples.skipped_rows
