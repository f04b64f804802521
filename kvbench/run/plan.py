"""uses x tiers x mixes x jobs -> the points to measure, each once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvbench.border.escaping import escaped
from kvbench.connectors import Group, Stored
from kvbench.layout.sized import SizedModel
from kvbench.record.point import Point, point_id
from kvbench.record.results import Mix, Use


def uses_of(sized: SizedModel, stored: Stored) -> list[Use]:
    """One Use per distinct unit size that the connector stores for the model."""
    sizes: dict[int, list[Group]] = {}
    for group in stored.groups:
        sizes.setdefault(group.padded_bytes, []).append(group)
    return [_use(sized, stored, size, groups) for size, groups in sizes.items()]


def _use(sized: SizedModel, stored: Stored, size: int, groups: Sequence[Group]) -> Use:
    windowed = [group for group in groups if group.window_units is not None and not stored.over_reads]
    blocks = {group.tokens_per_unit for group in stored.groups}
    return Use(
        model=sized.model,
        tp=sized.tp,
        kv_dtype=sized.kv_dtype,
        connector=stored.connector,
        engine_version=stored.engine_version,
        io_bytes=size,
        block_tokens=stored.block_tokens,
        units_per_block=sum(stored.units_per_block(group) for group in groups if group not in windowed),
        parallelism_per_request=stored.parallelism_per_request,
        threads=stored.threads,
        windowed_units=sum(stored.units_per_block(group) for group in windowed),
        window_units=sum((group.window_units or 0) * group.units for group in windowed),
        active_parameters=sized.work.parameters if sized.work else None,
        pair_flop=sized.work.pair_flop if sized.work else None,
        engine_block_tokens=stored.engine_block_tokens if len(blocks) == 1 else None,
    )


def job_comments(uses: Iterable[Use]) -> str:
    """Comment lines for a job file: what each use stores, where a connector of an engine decided it."""
    lines = [
        escaped(
            f"; {use.model}, TP {use.tp}, {use.kv_dtype}: {use.connector} of vLLM {use.engine_version} makes "
            f"{use.units_per_block + use.windowed_units} x {use.io_bytes} bytes for {use.block_tokens} tokens, "
            f"{use.parallelism_per_request} in flight for one request"
        )
        + "\n"
        for use in uses
        if use.engine_version is not None
    ]
    return "".join(lines)


def points_for(
    uses: Iterable[Use], lanes: Sequence[tuple[str, str]], mixes: Sequence[Mix], numjobs: Sequence[int]
) -> tuple[Point, ...]:
    """All points of the lanes ``(tier, driver)``, by lane and then by I/O size; uses of a size share a point."""
    sizes = list(dict.fromkeys(use.io_bytes for use in uses))
    return tuple(
        Point(point_id(tier, size, mix, jobs, driver), tier, driver, size, mix, jobs)
        for tier, driver in lanes
        for size in sizes
        for mix in mixes
        for jobs in numjobs
    )
