"""What simulated tiers find and move, what a change would do, and how large they must be (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kvbench.report.columns import Column, narrow, words
from kvbench.report.sheet import Sheet
from kvbench.simulate.plan import TierSet
from kvbench.simulate.run import Simulated, TierOutcome
from kvbench.simulate.sizing import Sizing
from kvbench.simulate.timing import Predicted
from kvbench.units import (
    format_bandwidth,
    format_bytes,
    format_count,
    format_duration_s,
    format_number,
    format_share,
)


@dataclass(frozen=True, slots=True)
class TierRow:
    """One tier of a configuration; ``whole`` stands in its first row only."""

    whole: Simulated | None
    tier: TierOutcome


@dataclass(frozen=True, slots=True)
class EngineChange:
    """A configuration before and after one thing was changed."""

    name: str
    before: Simulated
    after: Simulated


def _rate(value: float | None) -> str:
    return "" if value is None else format_bandwidth(value)


def _moved(tier: TierOutcome, count: int) -> str:
    return "" if tier.name == "gpu" else format_bytes(count)


TIERS: tuple[Column[TierRow], ...] = (
    words("configuration", "configuration", lambda row: row.whole.configuration.name if row.whole else ""),
    words("hit_rate", "found", lambda row: format_share(row.whole.hit_rate) if row.whole else "", right=True),
    words("tier", "tier", lambda row: row.tier.name),
    words("tier_hit_rate", "of it here", lambda row: format_share(row.tier.hit_rate), right=True),
    words("read_bytes", "read", lambda row: _moved(row.tier, row.tier.read_bytes), right=True),
    words("written_bytes", "written", lambda row: _moved(row.tier, row.tier.written_bytes), right=True),
    words("highest_read", "most read", lambda row: _rate(row.tier.highest_read_bytes_per_s), right=True, falls=2),
    words("highest_write", "most written", lambda row: _rate(row.tier.highest_write_bytes_per_s), right=True, falls=3),
    words("peak_bytes", "held at most", lambda row: _moved(row.tier, row.tier.peak_bytes), right=True, falls=1),
)

CHANGES: tuple[Column[EngineChange], ...] = (
    words("change", "change", lambda row: row.name),
    words("configuration", "configuration", lambda row: row.before.configuration.name),
    words("before", "found", lambda row: format_share(row.before.hit_rate), right=True),
    words("after", "then", lambda row: format_share(row.after.hit_rate), right=True),
    words("points", "points", lambda row: f"{100 * (row.after.hit_rate - row.before.hit_rate):+.1f}", right=True),
    words("written", "written", lambda row: _ratio(_behind(row.before), _behind(row.after)), right=True, falls=1),
)


TIMES: tuple[Column[Predicted], ...] = (
    words("configuration", "configuration", lambda row: row.name),
    words("ttft_mean", "mean TTFT", lambda row: format_duration_s(row.ttft_mean_s), right=True, falls=2),
    words("ttft_mean_ratio", "of it without", lambda row: f"{row.ttft_mean_ratio:.2f}", right=True),
    words("ttft_p95", "p95 TTFT", lambda row: format_duration_s(row.ttft_p95_s), right=True, falls=3),
    words("ttft_p95_ratio", "of it without", lambda row: f"{row.ttft_p95_ratio:.2f}", right=True, falls=1),
    words("requests_per_s", "requests/s", lambda row: format_number(row.requests_per_s), right=True, falls=4),
    words("requests_ratio", "times as many", lambda row: f"{row.requests_per_s_ratio:.2f}", right=True),
)


def times(found: Sequence[Predicted]) -> Sheet:
    """What each configuration would serve, beside no offload."""
    return narrow("What it would bring, by a simple queue", TIMES, found)


def tiers(found: Sequence[Simulated]) -> Sheet:
    """Every tier of every configuration."""
    return narrow("What each configuration finds", TIERS, _rows(found))


def changes(found: Sequence[Simulated], changed: Mapping[str, Sequence[Simulated]]) -> Sheet:
    """What each change does to each configuration."""
    rows = [EngineChange(name, *pair) for name, items in changed.items() for pair in zip(found, items, strict=True)]
    return narrow("What a change would do", CHANGES, rows)


def sizing_text(sizing: Sizing) -> str:
    """The answer in one sentence."""
    alone = (
        "no CPU tier alone suffices"
        if sizing.cpu_alone_bytes is None
        else (f"{format_bytes(sizing.cpu_alone_bytes)} of CPU tier on each replica")
    )
    if not sizing.reachable_hit_rate:
        return "Whatever its size, no tier would find anything of this trace again."
    behind, rates = sizing.behind, ""
    if behind.highest_read_bytes_per_s is not None and behind.highest_write_bytes_per_s is not None:
        rates = (
            f", sustaining {format_bandwidth(behind.highest_read_bytes_per_s)} reads and "
            f"{format_bandwidth(behind.highest_write_bytes_per_s)} writes in its busiest minute"
        )
    return (
        f"For {format_share(sizing.share)} of the reachable hit rate of {format_share(sizing.reachable_hit_rate)} this "
        f"trace needs {alone}; all of it with {format_bytes(sizing.with_cpu_bytes)} of CPU tier and "
        f"{format_bytes(behind.peak_bytes)} behind it, where nothing is evicted{rates}."
    )


def notes(found: Sequence[Simulated]) -> list[str]:
    """What went wrong in a configuration, one line each."""
    return [line for item in found for line in _notes(item)]


def _notes(item: Simulated) -> Iterator[str]:
    name = item.configuration.name
    if item.promotions_without_slot:
        yield (
            f"{name}: {format_count(item.promotions_without_slot)} blocks lay behind the CPU tier and found no slot in "
            "it, so the rest of those prompts was computed; give it more memory."
        )
    if item.unstored_chunks:
        yield f"{name}: {format_count(item.unstored_chunks)} chunks found no room in the CPU tier and reached no tier."
    for tier in item.tiers:
        if tier.lost_to_full_bytes:
            yield (
                f"{name}: {tier.name} was full, and {format_bytes(tier.lost_to_full_bytes)} could not be stored: the "
                "engine evicts nothing there, so something else must (kvbench docs/purge.md)."
            )
    if item.too_long_requests:
        yield f"{name}: {format_count(item.too_long_requests)} requests are longer than the GPU's memory for KV."
    if item.waited_requests:
        yield f"{name}: {format_count(item.waited_requests)} requests had to wait for GPU memory."


def _rows(found: Sequence[Simulated]) -> Iterator[TierRow]:
    for item in found:
        for at, tier in enumerate(item.tiers):
            yield TierRow(item if at == 0 else None, tier)


def _behind(item: Simulated) -> int:
    return sum(tier.written_bytes for tier in item.tiers)


def _ratio(before: int, after: int) -> str:
    return f"x {after / before:.2f}" if before else ""


def endurance_text(tier: TierOutcome, tiers_of: TierSet, per_day: float) -> str:
    """How often a day a tier's whole capacity is written, in a sentence."""
    return f"{tiers_of.name}: {tier.name} is written {per_day:.2g} times its capacity a day (drive writes per day)."
