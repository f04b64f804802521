"""Every measured number of runs, for other programs: a form is one file with its bytes and one line in FORMS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from kvbench.decide.runs import LoadedRun


@dataclass(frozen=True, slots=True)
class Form:
    """Where a form is made (``module:function``), and what a file of it carries that nobody else's does."""

    place: str
    mark: str
    is_text: bool = True

    def content(self, runs: Sequence[LoadedRun]) -> bytes:
        """The runs in this form; what only this form needs is loaded now."""
        module, _, function = self.place.partition(":")
        make = cast("Callable[[Sequence[LoadedRun]], bytes]", getattr(import_module(module), function))
        return make(runs)


FORMS: dict[str, Form] = {
    "csv": Form("kvbench.report.exports.table:as_csv", "run,created,driver,status,"),
    "parquet": Form("kvbench.report.exports.parquet:as_parquet", "kvbench export", is_text=False),
    "prometheus": Form("kvbench.report.exports.prometheus:as_prometheus", "# HELP kvbench_"),
}
