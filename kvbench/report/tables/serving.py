"""Serving runs of several configurations side by side (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvbench.report.columns import Column, Short, name, narrow, number, sheet, words
from kvbench.report.sheet import Sheet
from kvbench.serving.arm import ArmRun
from kvbench.serving.comparing import Comparison, RunProblem
from kvbench.serving.differences import Speedup
from kvbench.serving.prediction import HeldAgainst
from kvbench.serving.published import PublishedRow, published
from kvbench.serving.storage import PoolTraffic
from kvbench.units import (
    format_bandwidth,
    format_count,
    format_duration_s,
    format_number,
    format_rate,
    format_share,
    format_tokens,
)

_SOURCE = "the load generator's result"
_COUNTED = "the server's counters over the run"
# Metadata and the pools of others' idle daemons are left out of the table; JSON has them.
_LEAST_SHARE = 0.01
_RATIOS = (
    ("requests_per_s", "requests/s ratio", 0),
    ("ttft_mean", "TTFT ratio", 3),
    ("ttft_p95", "p95 TTFT ratio", 5),
    ("e2e_mean", "E2E ratio", 4),
)


@dataclass(frozen=True, slots=True)
class ServedRow:
    """One run of a configuration, and the comparison that it is a part of."""

    configuration: str
    run: ArmRun
    comparison: Comparison

    def speedup(self, metric: str) -> Speedup | None:
        """The ratio of one number over the control's at the same load."""
        return self.comparison.speedup(self.configuration, self.run.load, metric)


def ratio_text(one: Speedup | None) -> str:
    """``1.94 (1.71 to 2.2)``, ``1.02 (noise)`` where nothing can be told, ``1.94 (one run)`` without an interval."""
    if one is None:
        return ""
    shown = format_number(one.ratio)
    if one.low is None or one.high is None:
        return f"{shown} (one run)"
    if one.outcome == "within noise":
        return f"{shown} (noise)"
    return f"{shown} ({format_number(one.low)} to {format_number(one.high)})"


def _ratio(metric: str, heading: str, falls: int) -> Column[ServedRow]:
    return words(f"{metric}_ratio", heading, lambda row: ratio_text(row.speedup(metric)), right=True, falls=falls)


COLUMNS: tuple[Column[ServedRow], ...] = (
    name("configuration", "configuration", lambda row: row.configuration),
    name("load", "load", lambda row: row.run.load.words),
    number("requests_per_s", "requests/s", lambda row: row.run.requests_per_s, format_number, _SOURCE),
    number("ttft_mean_s", "mean TTFT", lambda row: row.run.ttft_s.mean, format_duration_s, _SOURCE),
    number("ttft_p95_s", "p95 TTFT", lambda row: row.run.ttft_s.p95, format_duration_s, _SOURCE, short=Short(falls=2)),
    number("e2e_mean_s", "mean E2E", lambda row: row.run.e2e_s.mean, format_duration_s, _SOURCE, short=Short(falls=1)),
    number("external_hit_rate", "from tiers", lambda row: row.run.external_hit_rate, format_share, _COUNTED),
    *(_ratio(*one) for one in _RATIOS),
)

SERVERS: tuple[Column[ServedRow], ...] = (
    name("configuration", "configuration", lambda row: row.configuration),
    name("load", "load", lambda row: row.run.load.words),
    number("kv_tokens", "KV on GPUs (tokens)", lambda row: row.run.server.kv_tokens, format_tokens, _COUNTED),
    number("prompts_in_kv", "prompts in it", lambda row: row.run.prompts_in_kv, format_number, _COUNTED),
    number("kv_usage_mean", "mean use", lambda row: row.run.server.kv_usage_mean, format_share, _COUNTED),
    number("kv_usage_highest", "highest use", lambda row: row.run.server.kv_usage_highest, format_share, _COUNTED),
    number("preemptions", "preempted", lambda row: row.run.server.preemptions, format_count, _COUNTED),
    number("gpu_utilization", "GPU utilisation", lambda row: row.run.server.gpu_utilization, format_share, _COUNTED),
)


@dataclass(frozen=True, slots=True)
class PoolRow:
    """What a pool of the storage moved during a run."""

    configuration: str
    run: ArmRun
    pool: str
    traffic: PoolTraffic

    def each_second(self, count: float) -> float | None:
        """A count over the time of the run."""
        return count / self.run.duration_s if self.run.duration_s else None


_STORAGE = "the storage's counters over the run"

POOLS: tuple[Column[PoolRow], ...] = (
    name("configuration", "configuration", lambda row: row.configuration),
    name("load", "load", lambda row: row.run.load.words),
    name("pool", "pool", lambda row: row.pool),
    number("read_bytes_per_s", "read", lambda row: row.each_second(row.traffic.read_bytes), format_bandwidth, _STORAGE),
    number("reads_per_s", "reads/s", lambda row: row.each_second(row.traffic.reads), format_rate, _STORAGE),
    number(
        "written_bytes_per_s",
        "written",
        lambda row: row.each_second(row.traffic.written_bytes),
        format_bandwidth,
        _STORAGE,
    ),
    number("writes_per_s", "writes/s", lambda row: row.each_second(row.traffic.writes), format_rate, _STORAGE),
)

_SIMULATED = "workingset --json"
_HELD = {
    "local_hit_rate": "hit rate of the GPUs",
    "external_hit_rate": "hit rate of the tiers",
    "tier_read_bytes_per_token": "bytes read behind the CPU for each prompt token",
    "requests_per_s_ratio": "requests/s over the control",
    "ttft_mean_ratio": "mean TTFT over the control",
    "ttft_p95_ratio": "p95 TTFT over the control",
}

PREDICTIONS: tuple[Column[HeldAgainst], ...] = (
    name("configuration", "configuration", lambda row: row.configuration),
    name("load", "load", lambda row: row.load.words),
    name("metric", "what", lambda row: _HELD[row.metric]),
    number("predicted", "predicted", lambda row: row.predicted, format_number, _SIMULATED),
    number("observed", "observed", lambda row: row.observed, format_number, _COUNTED),
    number("ratio", "observed / predicted", lambda row: row.ratio, format_number, _COUNTED),
)

PROBLEMS: tuple[Column[RunProblem], ...] = (
    name("configuration", "configuration", lambda row: row.configuration),
    name("load", "load", lambda row: row.load.words),
    name("code", "what", lambda row: ("refused: " if row.problem.refuses else "") + row.problem.code),
    name("message", "why", lambda row: row.problem.message),
)


def served(comparison: Comparison) -> Sheet:
    """Every run, rising by load, the control first; the ratios are over the control at the same load."""
    return narrow(f"Serving runs, ratios over {comparison.control}", COLUMNS, _rows(comparison))


def servers(comparison: Comparison) -> Sheet:
    """What GPUs and their KV memory did in every run that says something of them."""
    return narrow("GPUs and their KV memory", SERVERS, _server_rows(comparison))


def _server_rows(comparison: Comparison) -> list[ServedRow]:
    return [row for row in _rows(comparison) if any(column.cell(row).value is not None for column in SERVERS[2:])]


def pools(comparison: Comparison) -> Sheet:
    """What the storage moved during every run that says so: the pools that hold most of it."""
    return narrow("The storage meanwhile", POOLS, _pool_rows(comparison))


def _pool_rows(comparison: Comparison) -> list[PoolRow]:
    return [
        PoolRow(row.configuration, row.run, pool, traffic)
        for row in _rows(comparison)
        if row.run.storage is not None
        for pool, traffic in row.run.storage.pools.items()
        if traffic.bytes >= _LEAST_SHARE * row.run.storage.total.bytes > 0
    ]


SPEEDUPS: tuple[Column[Speedup], ...] = (
    name("configuration", "configuration", lambda row: row.configuration),
    name("load", "load", lambda row: row.load.words),
    name("metric", "what", lambda row: row.metric),
    number("ratio", "over the control", lambda row: row.ratio, format_number, _SOURCE),
    number("low", "95 % from", lambda row: row.low, format_number, _SOURCE),
    number("high", "to", lambda row: row.high, format_number, _SOURCE),
    name("outcome", "outcome", lambda row: row.outcome),
)


def _printed(row: PublishedRow) -> str:
    return row.source


PUBLISHED: tuple[Column[PublishedRow], ...] = (
    name("deployment", "deployment", lambda row: row.deployment),
    name("configuration", "configuration", lambda row: row.run.configuration),
    number("requests_per_s", "requests/s", lambda row: row.run.requests_per_s, format_number, _printed),
    number("speedup", "over none", lambda row: row.speedup, format_number, "computed from the printed requests/s"),
    number("ttft_mean_s", "mean TTFT", lambda row: row.run.ttft_mean_s, format_duration_s, _printed),
    number("ttft_p95_s", "p95 TTFT", lambda row: row.run.ttft_p95_s, format_duration_s, _printed),
    number("e2e_mean_s", "mean E2E", lambda row: row.run.e2e_mean_s, format_duration_s, _printed),
    number("external_hit_rate", "from tiers", lambda row: row.run.external_hit_rate, format_share, _printed),
)


def page_sheets(comparison: Comparison, held: Sequence[HeldAgainst]) -> tuple[Sheet, ...]:
    """Every table of a page, with keys that name their data."""
    return (
        sheet("served", "Serving runs", COLUMNS, _rows(comparison)),
        sheet("speedups", f"Over {comparison.control}", SPEEDUPS, comparison.speedups),
        sheet("predictions", "Did it come true", PREDICTIONS, held),
        sheet("servers", "GPUs and their KV memory", SERVERS, _server_rows(comparison)),
        sheet("pools", "The storage meanwhile", POOLS, _pool_rows(comparison)),
        sheet("problems", "What limits the comparison", PROBLEMS, comparison.problems),
        sheet("published", "The published study, on its own hardware and trace", PUBLISHED, published()),
    )


def predictions(held: Sequence[HeldAgainst]) -> Sheet:
    """What was predicted beside what was observed."""
    return narrow("Did it come true", PREDICTIONS, held)


def problems(comparison: Comparison) -> Sheet:
    """What was refused, and what to know of the rest."""
    return narrow("What limits the comparison", PROBLEMS, comparison.problems)


def _rows(comparison: Comparison) -> Iterator[ServedRow]:
    loads = sorted({load for one in comparison.configurations for load in one.loads})
    for load in loads:
        for one in comparison.configurations:
            for run in one.at(load):
                yield ServedRow(one.name, run, comparison)
