"""``kvbench clean``: remove what a kvbench that is dead left on a tier."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from kvbench import console
from kvbench.commands.groups import parsed
from kvbench.commands.options import JsonOption
from kvbench.errors import EXIT_MEASUREMENT, EXIT_OK
from kvbench.tiers.upkeep import clean as clean_tier
from kvbench.tiers.upkeep import parse_age


def clean(
    *,
    tier: Annotated[
        list[str], typer.Option("--tier", metavar="T", help="A directory or s3://bucket/prefix; repeatable.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List it and remove nothing.")] = False,
    older_than: Annotated[
        int | None,
        parsed(
            parse_age,
            "--older-than",
            metavar="AGE",
            help="Also what another host or container left, when it is older, like 12h or 7d: whether that run still "
            "lives cannot be seen from here.",
        ),
    ] = None,
    any_owner: Annotated[
        bool,
        typer.Option(
            "--any-owner", help="Also what other users left in a directory, by the same rules; needs the right to."
        ),
    ] = False,
    json: JsonOption = False,
) -> int:
    """Look at each tier, remove, and say what stays and why; exit code 3 when something stays that should have gone."""
    found = [clean_tier(target, dry_run=dry_run, older_than_s=older_than, any_owner=any_owner) for target in tier]
    code = EXIT_MEASUREMENT if any(item.stuck for item in found) and not dry_run else EXIT_OK
    if json:
        console.print_json({"dry_run": dry_run, "tiers": [asdict(item) for item in found]})
        return code
    for item in found:
        for place in item.removed:
            console.print_line(f"{'would remove' if dry_run else 'removed'} {place}")
        for place, why in item.kept:
            console.print_line(f"kept {place}: {why}")
        if not item.removed and not item.kept:
            console.print_line(f"{item.tier}: kvbench left nothing here")
    return code
