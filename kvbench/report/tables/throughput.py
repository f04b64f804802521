"""What a full server serves with each tier, where the hit rate was given (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvbench.decide.cost import Saving, saving
from kvbench.decide.decision import Judged, Wanted
from kvbench.decide.throughput import Rates, Throughput, throughput
from kvbench.report.columns import Column, name, number, sheet
from kvbench.report.scene import Scene
from kvbench.report.sheet import Sheet
from kvbench.report.subject import subject
from kvbench.report.tables.settings import reads_of
from kvbench.units import format_number, format_share, format_tokens

_NOTE = (
    "Another question than the verdict's, which is the latency of a request: how many requests a full server serves at "
    "--hit-rate. Stores are what the misses write. Above 100 % of the tier's write rate they limit it."
)


@dataclass(frozen=True, slots=True)
class Served:
    """One judgement with its throughput, and what hits save within it."""

    item: Judged
    at: Throughput
    saving: Saving | None


def served(scene: Scene) -> Iterator[Served]:
    """One row for each judgement with a prefill curve and measured reads, where the load was given."""
    for item in scene.judged if scene.wanted.traffic else ():
        found = _throughput(item, scene.wanted)
        if found is not None and item.curve is not None and item.crossover.at_target and scene.wanted.traffic:
            saved = saving(item.curve, item.crossover.at_target, scene.wanted.traffic, found.with_per_s)
            yield Served(item, found, saved)


def _throughput(item: Judged, wanted: Wanted) -> Throughput | None:
    if item.curve is None or wanted.traffic is None:
        return None
    reads = reads_of(item, wanted)
    rates = reads.rates(item.use.io_bytes)
    known = Rates(max(rates.values(), default=None), reads.write_rate(item.use.io_bytes))
    return throughput(item.crossover, item.curve, wanted.traffic.hit_rate, known)


def _times(gain: float) -> str:
    return f"{format_number(gain)}x"


COLUMNS: tuple[Column[Served], ...] = (
    *subject(lambda row: row.item),
    number("tokens", "tokens", lambda row: row.at.tokens, format_tokens, "--target-context"),
    number("hit_rate", "hit rate", lambda row: row.at.hit_rate, format_share, "--hit-rate"),
    number("without_per_s", "requests/s without", lambda row: row.at.without_per_s, format_number, "1 / T(L)"),
    number(
        "with_per_s",
        "with it",
        lambda row: row.at.with_per_s,
        format_number,
        "the least of 1 / (T(L) - hit rate x spared), read rate / hit bytes, write rate / bytes of the misses",
    ),
    number("gain", "gain", lambda row: row.at.gain, _times, "with / without"),
    number("free_gain", "gain if stores were free", lambda row: row.at.free_gain, _times, "the first two of them"),
    name("limited_by", "limited by", lambda row: row.at.limited_by),
    number(
        "store_share",
        "stores",
        lambda row: row.at.store_share,
        format_share,
        "bytes of the misses / the most that was written beside reads, else alone",
    ),
)


def throughputs(scene: Scene) -> Sheet:
    """Requests per second of a full server, with and without each tier."""
    return sheet("throughput", "What a full server serves", COLUMNS, served(scene), _NOTE)
