"""Simulated configurations as plain data (design.md section 4: ``workingset``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kvbench.simulate.run import Simulated
from kvbench.simulate.sizing import Sizing


def configurations_json(found: Sequence[Simulated], changed: Mapping[str, Sequence[Simulated]]) -> dict[str, Any]:
    """Each configuration as it is, and with one thing changed at a time."""
    return {
        "configurations": [_one(item) for item in found],
        "what_if": [
            {"change": name, "configurations": [_one(item) for item in items]} for name, items in changed.items()
        ],
    }


def sizing_json(sizing: Sizing | None) -> dict[str, Any] | None:
    """The sizing answer."""
    if sizing is None:
        return None
    return {
        "share": sizing.share,
        "reachable_hit_rate": sizing.reachable_hit_rate,
        "cpu_alone_bytes": sizing.cpu_alone_bytes,
        "with_cpu_bytes": sizing.with_cpu_bytes,
        "behind": asdict(sizing.behind),
    }


def _one(item: Simulated) -> dict[str, Any]:
    return {
        "name": item.configuration.name,
        "hit_rate": item.hit_rate,
        "external_hit_rate": item.external_hit_rate,
        "tiers": [asdict(tier) for tier in item.tiers],
        "recomputed_tokens": item.recomputed_tokens,
        "promotions_without_slot": item.promotions_without_slot,
        "unstored_chunks": item.unstored_chunks,
        "waited_requests": item.waited_requests,
        "too_long_requests": item.too_long_requests,
    }
