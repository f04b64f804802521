"""What a full server serves with each tier, where the hit rate was given (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvbench.decide.cost import Saving, saving
from kvbench.decide.decision import Judged
from kvbench.decide.throughput import Rates, Throughput, throughput
from kvbench.report.columns import Column, name, number, sheet
from kvbench.report.scene import Scene
from kvbench.report.sheet import Sheet
from kvbench.report.subject import subject
from kvbench.report.tables.settings import reads_of
from kvbench.units import format_number, format_tokens

_NOTE = (
    "Another question than the verdict's, which is the latency of a request: how many requests a full server serves at "
    "--hit-rate. Stores are what the misses write; above 100 % of what the tier was seen to write they limit it, and "
    "below where reads leave less. Of both a tier does what lies between the mixes that were measured."
)


@dataclass(frozen=True, slots=True)
class Served:
    """One judgement with its throughput, and what hits save within it."""

    item: Judged
    at: Throughput
    saving: Saving | None


def served(scene: Scene) -> Iterator[Served]:
    """One row for each judgement with a prefill curve and measured reads, where the load was given."""
    load = scene.wanted.traffic
    if load is None:
        return
    for item in scene.judged:
        at = item.crossover.at_target
        if item.curve is None or at is None:
            continue
        rates = Rates(reads_of(item, scene.wanted).read_and_written(item.use.io_bytes))
        found = throughput(item.crossover, item.curve, load.hit_rate, rates)
        if found is not None:
            yield Served(item, found, saving(item.curve, at, load, found.with_per_s))


def _times(gain: float) -> str:
    return f"{format_number(gain)}x"


COLUMNS: tuple[Column[Served], ...] = (
    *subject(lambda row: row.item),
    number("tokens", "tokens", lambda row: row.at.tokens, format_tokens, "--target-context"),
    number("hit_rate", "hit rate", lambda row: row.at.hit_rate, "{:.0%}".format, "--hit-rate"),
    number("without_per_s", "requests/s without", lambda row: row.at.without_per_s, format_number, "1 / T(L)"),
    number(
        "with_per_s",
        "with it",
        lambda row: row.at.with_per_s,
        format_number,
        "the least of 1 / (T(L) - hit rate x spared), read rate / hit bytes, what reads and stores leave each other",
    ),
    number("gain", "gain", lambda row: row.at.gain, _times, "with / without"),
    number("free_gain", "gain if stores were free", lambda row: row.at.free_gain, _times, "the first two of them"),
    name("limited_by", "limited by", lambda row: row.at.limited_by),
    number(
        "store_share",
        "stores",
        lambda row: row.at.store_share,
        "{:.0%}".format,
        "bytes of the misses / the most that was written",
    ),
)


def throughputs(scene: Scene) -> Sheet:
    """Requests per second of a full server, with and without each tier."""
    return sheet("throughput", "What a full server serves", COLUMNS, served(scene), _NOTE)
