"""What an examination of a host or a tier found (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from kvbench.report.columns import Column, narrow, words
from kvbench.report.sheet import Sheet
from kvbench.tiers.findings import Finding

COLUMNS: tuple[Column[Finding], ...] = (
    words("check", "check", lambda finding: finding.check),
    words("status", "", lambda finding: finding.status),
    words("observed", "found", lambda finding: finding.observed),
)


def findings(title: str, found: Iterable[Finding]) -> Sheet:
    """One row for each thing that was looked at."""
    return narrow(title, COLUMNS, found)
