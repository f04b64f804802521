"""The TTFT of each prompt length that a live server answered (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from kvbench.prefill.live.judge import LengthResult
from kvbench.report.columns import Column, narrow, words
from kvbench.report.sheet import Sheet
from kvbench.units import format_count, format_duration_ns, format_tokens


def _median(found: LengthResult) -> str:
    return "" if found.median_ns is None else format_duration_ns(found.median_ns)


def _interval(found: LengthResult) -> str:
    if found.median_ns is None or found.low_ns is None or found.high_ns is None:
        return ""
    return f"{format_duration_ns(found.low_ns)} to {format_duration_ns(found.high_ns)}"


COLUMNS: tuple[Column[LengthResult], ...] = (
    words("tokens", "prompt tokens", lambda found: format_tokens(found.asked_tokens), right=True),
    words("concurrency", "at a time", lambda found: format_count(found.concurrency), right=True),
    words("samples", "samples", lambda found: format_count(len(found.usable)), right=True, falls=1),
    words("median", "median TTFT", _median, right=True),
    words("interval", "95 % of it", _interval, right=True),
    words("warnings", "distrust", lambda found: ", ".join(item.code for item in found.warnings), unknown=""),
)


def prompts(title: str, found: Iterable[LengthResult]) -> Sheet:
    """One row for each length and number of requests at a time."""
    return narrow(title, COLUMNS, found)
