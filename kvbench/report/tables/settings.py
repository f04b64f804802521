"""The numbers that an engine or router takes from the decision (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.decide.advice import Setting, settings_of
from kvbench.decide.decision import Judged, Wanted
from kvbench.decide.reads import Reads
from kvbench.report.columns import Column, name, sheet
from kvbench.report.scene import Scene
from kvbench.report.sheet import Sheet
from kvbench.report.subject import at_once

_NOTE = "Options of vLLM's kv_connector_extra_config; nothing is written anywhere."

# A judgement, and one setting that follows from it.
Follows = tuple[Judged, Setting]

COLUMNS: tuple[Column[Follows], ...] = (
    name("tier", "tier", lambda row: row[0].tier),
    name("model", "model", lambda row: row[1].model),
    at_once(lambda row: row[0]),
    name("option", "option", lambda row: row[1].option or "no option of the engine"),
    name("value", "value", lambda row: row[1].value),
    name("reason", "why", lambda row: row[1].reason),
)


def settings(scene: Scene) -> Sheet:
    """The settings of every judgement that rests on a measurement."""
    return sheet("settings", "Settings that follow", COLUMNS, _rows(scene), _NOTE)


def _rows(scene: Scene) -> Iterator[Follows]:
    for item in scene.judged:
        if item.crossover.measured is not None:
            for setting in settings_of(item.crossover, read_rates(item, scene.wanted)):
                yield item, setting


def read_rates(item: Judged, wanted: Wanted) -> dict[int, float]:
    """Bytes per second of the tier's reads of the judged size, by jobs."""
    return reads_of(item, wanted).rates(item.use.io_bytes)


def reads_of(item: Judged, wanted: Wanted) -> Reads:
    """What the run of a judgement measured of reading its tier."""
    return Reads(item.run.path, item.run.result, item.crossover.tier, wanted.mix)
