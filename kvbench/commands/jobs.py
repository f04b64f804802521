"""``kvbench jobs``: the fio job file, without running it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kvbench import console
from kvbench.commands.groups import parsed
from kvbench.commands.options import JsonOption, NamedTier, parse_tier
from kvbench.commands.planning import (
    AskedRun,
    ConsentOptions,
    DriverOptions,
    MethodOptions,
    ModelOptions,
    measurement_for,
)
from kvbench.drivers.fio.job import render_points
from kvbench.drivers.fio.pace import has_stores
from kvbench.drivers.settings import JobSettings
from kvbench.errors import UsageError
from kvbench.record.point import Point
from kvbench.record.results import write_atomically
from kvbench.run.plan import job_comments
from kvbench.tiers.kinds import kind_of


def jobs(
    *,
    tier: Annotated[
        NamedTier,
        parsed(parse_tier, "--tier", metavar="[NAME=]T", help="The directory or block device that the job measures."),
    ],
    models: ModelOptions,
    method: MethodOptions,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the file here instead of to standard output.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Load, derive, plan, render."""
    # Nothing is requested or written here.
    consent = ConsentOptions(allow_shared=True, yes=True)
    drivers = DriverOptions(driver="fio" if kind_of(tier.target).programs.get("fio") == "fio" else None)
    measurement = measurement_for(AskedRun([tier], models, method, drivers, consent=consent))
    plan = measurement.tiers[0]
    if plan.driver != "fio":
        raise UsageError(
            f"{tier.target} is measured by {plan.driver}, so there is no fio job; see 'kvbench fio --dry-run'."
        )
    text = job_comments(measurement.uses) + _in_turn(measurement.points, plan.settings)
    text += render_points(measurement.points, Path(plan.target).expanduser().resolve(), plan.settings)
    if output is not None:
        write_atomically(output, text)
    if json:
        console.print_json({"job": text, "file": None if output is None else str(output), **asdict(measurement)})
    elif output is None:
        typer.echo(text, nl=False)


def _in_turn(points: Sequence[Point], settings: JobSettings) -> str:
    """A comment where kvbench itself would measure mixed points otherwise."""
    if not any(has_stores(point, settings) for point in points):
        return ""
    return (
        "; the jobs of mixed sections read and write in turn here; 'kvbench fio' has other jobs write beside the\n"
        "; readers, at a pace that it finds and corrects\n"
    )
