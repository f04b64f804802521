"""``kvbench diff``: two storage runs, and whether their differences are more than noise."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kvbench import console
from kvbench.commands.options import JsonOption
from kvbench.errors import UsageError
from kvbench.host.environment import differences
from kvbench.record import comparison, results
from kvbench.report.tables.comparison import differences as differences_table


def diff(
    *,
    run_a: Annotated[Path, typer.Argument(metavar="RUN_A", help="The run to compare with.")],
    run_b: Annotated[Path, typer.Argument(metavar="RUN_B", help="The run that is compared.")],
    allow_different: Annotated[
        bool, typer.Option("--allow-different", help="Compare although the environments differ; they are named.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Load, compare, print."""
    one, other = results.load(run_a), results.load(run_b)
    changed = differences(one.environment, other.environment)
    if changed and not allow_different:
        named = "; ".join(f"{name}: {before} and {after}" for name, before, after in changed)
        raise UsageError(f"the runs are of different environments ({named}); compare them with --allow-different.")
    found = comparison.compare(one, other)
    if not found:
        raise UsageError(
            "the runs have no point in common: same I/O size, mix and jobs, and one tier each or equal names."
        )
    if json:
        environments = [{"name": name, "a": before, "b": after} for name, before, after in changed]
        console.print_json({"environment": environments, "differences": [asdict(item) for item in found]})
        return
    for name, before, after in changed:
        console.print_line(f"different {name}: {before} and {after}")
    console.print_sheets([differences_table(found)])
