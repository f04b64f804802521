"""What ``kvbench crossover --json`` prints: the decisions of runs, and the published figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from kvbench.decide.crossover import Crossover, SingleBlock, published_tokens, single_block_at
from kvbench.decide.decision import PUBLISHED_COSTS_S, Decisions
from kvbench.prefill.curve import PrefillCurve


def to_json(decided: Decisions) -> dict[str, Any]:
    """The JSON contract of ``kvbench crossover``."""
    return {
        "prefill": None if decided.curve is None else _prefill_json(decided.curve),
        "target_tokens": decided.goal.target_tokens,
        "results": [_crossover_json(crossover) for crossover in decided.crossovers],
        "what_if": [_crossover_json(crossover) for crossover in decided.what_ifs],
        "notes": list(decided.notes),
    }


def published_json(tails_s: Sequence[float], curve: PrefillCurve | None) -> dict[str, Any]:
    """The published figure as numbers: L = p99 / prefill cost for fixed tails; with a curve, its crossovers too."""
    return {
        "prefill": None if curve is None else _prefill_json(curve),
        "results": [],
        "published": [
            {
                "p99_ns": round(tail * 1e9),
                "prefill_s_per_token": cost,
                "tokens": math.ceil(published_tokens(tail, cost)),
            }
            for tail in tails_s
            for cost in PUBLISHED_COSTS_S
        ],
        "single_block": [_single_json(single_block_at(tail, curve, None)) for tail in tails_s] if curve else [],
    }


def _prefill_json(curve: PrefillCurve) -> dict[str, Any]:
    return {
        "a_s": curve.a_s,
        "b_s_per_token": curve.b_s_per_token,
        "c_s_per_token2": curve.c_s_per_token2,
        "measured_from": curve.measured_from,
        "measured_to": curve.measured_to,
        "step_tokens": curve.step_tokens,
        "samples": curve.samples,
        "largest_residual_s": curve.largest_residual_s,
        "linear_residual_s": curve.linear_residual_s,
        "residuals": [{"prompt_tokens": tokens, "residual_s": residual} for tokens, residual in curve.residuals_s],
        "set_aside": [{"prompt_tokens": item.prompt_tokens, "ttft_s": item.ttft_s} for item in curve.set_aside],
        "model": curve.model,
        "source": curve.source,
    }


def _crossover_json(crossover: Crossover) -> dict[str, Any]:
    return {
        "tier": crossover.tier,
        "model": crossover.use.model,
        "tp": crossover.use.tp,
        "connector": crossover.use.connector,
        "run": crossover.run,
        "io_bytes": crossover.use.io_bytes,
        "concurrent_restores": crossover.concurrent_restores,
        "point": crossover.point,
        "restore_tokens_per_s": crossover.restore_tokens_per_s,
        "single_block": None if crossover.single_block is None else _single_json(crossover.single_block),
        "request": asdict(crossover.request),
        "verdict": crossover.verdict,
        "verdict_reason": crossover.verdict_reason,
        "what_if": crossover.what_if or None,
        "interpolated": any(warning.code == "interpolated" for warning in crossover.warnings),
        "at_target": None if crossover.at_target is None else asdict(crossover.at_target),
        "ttft_budget": None if crossover.budget is None else asdict(crossover.budget),
        "break_even": [asdict(item) for item in crossover.break_even],
        "lookup_s_per_unit": crossover.around.lookup_s_per_unit,
        "gpu_copy_bytes_per_s": crossover.around.gpu_copy_bytes_per_s,
        "hit_overhead_s": crossover.around.hit_overhead_s,
    }


def _single_json(single: SingleBlock) -> dict[str, Any]:
    return asdict(single)
