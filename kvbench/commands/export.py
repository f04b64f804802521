"""``kvbench export``: every measured number of runs, for spreadsheets, notebooks and monitoring."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from kvbench import console
from kvbench.commands.groups import parsed
from kvbench.commands.prefill_options import RunsArgument
from kvbench.decide.runs import load_runs
from kvbench.errors import UsageError
from kvbench.record.results import write_atomically
from kvbench.report.exports import FORMS
from kvbench.report.ours import require_ours


def _parse_form(text: str) -> str:
    if text not in FORMS:
        raise UsageError(f"--form {text!r}: choose from {', '.join(FORMS)}.")
    return text


def export(
    *,
    runs: RunsArgument,
    form: Annotated[
        str,
        parsed(
            _parse_form,
            "--form",
            metavar="|".join(FORMS),
            help="CSV, Parquet (needs pyarrow), or the text format of Prometheus.",
        ),
    ] = "csv",
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write it here.", show_default="standard output"),
    ] = None,
) -> None:
    """Load, write."""
    chosen = FORMS[form]
    if output is None and not chosen.is_text:
        raise UsageError(f"--form {form} is no text; name a file with -o.")
    if output is not None:
        require_ours(output, chosen.mark, f"is no {form} of 'kvbench export'")
    content = chosen.content(load_runs(runs))
    if output is None:
        sys.stdout.write(content.decode())
        return
    write_atomically(output, content)
    console.note(f"written: {output}")
