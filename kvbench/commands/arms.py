"""``kvbench arms``: the commands that compare configurations of a server, as one script."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from kvbench import console
from kvbench.commands.options import JsonOption
from kvbench.engines.vllm.releases import find_release
from kvbench.errors import UsageError
from kvbench.layout.models import size_model
from kvbench.serving.plan import Arm, ServingPlan, read_plan
from kvbench.serving.script import TIER, ServerCommand, script, visits
from kvbench.settings.fitting import Deployed
from kvbench.settings.forms import command_line
from kvbench.settings.places import Directory, parse_place
from kvbench.settings.writing import Asked, parallel_options, write
from kvbench.units import parse_size


def arms(
    *,
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan in YAML; docs/compare.md shows one.")],
    json: JsonOption = False,
) -> None:
    """Read, write each server's configuration, print."""
    asked = _with_served_name(read_plan(plan))
    servers = {name: _server(asked, name, arm) for name, arm in asked.arms.items()}
    text = script(asked, servers)
    if not json:
        console.print_text(text.rstrip("\n"))
        return
    console.print_json(
        {
            "script": text,
            "visits": [
                {"arm": one.arm, "concurrency": one.concurrency, "repeat": one.repeat, "folder": one.folder}
                for one in visits(asked)
            ],
        }
    )


def _with_served_name(plan: ServingPlan) -> ServingPlan:
    """The plan with the name that the engine knows the model by: a profile's short name is ours alone."""
    if Path(plan.model).exists():
        return plan
    return plan.model_copy(update={"model": size_model(plan.model).model})


def _server(plan: ServingPlan, name: str, arm: Arm) -> ServerCommand:
    """The command that serves an arm; UsageError for tiers that no folder of a run can begin empty in."""
    common = ["vllm", "serve", plan.model, *parallel_options(plan.tensor_parallel_size), *plan.serve]
    if arm.cpu is None:
        return ServerCommand(shlex.join(common))
    places = [parse_place(text, os.environ, Path.home()) for text in arm.tiers]
    for place in places:
        if not isinstance(place, Directory):
            raise UsageError(
                f"arms.{name}: {place.name} is no directory, and only there can every run begin with an empty one of "
                "its own; write fs=DIR."
            )
    fresh = tuple(Directory(TIER.format(at)) for at in range(len(places)))
    deployed = Deployed(size_model(plan.model, tp=plan.tensor_parallel_size), find_release(plan.engine_version))
    try:
        written = write("vllm", Asked(deployed, fresh, parse_size(arm.cpu)))
    except UsageError as error:
        raise UsageError(f"arms.{name}: {error}") from None
    command = command_line(written, plan.model)
    more = shlex.join(plan.serve)
    return ServerCommand(f"{command} {more}".strip(), tuple(place.name for place in places))
