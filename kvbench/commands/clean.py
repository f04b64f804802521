"""``kvbench clean``: remove what a kvbench that is dead left on a tier."""

from __future__ import annotations

from typing import Annotated

import typer

from kvbench.commands.options import JsonOption
from kvbench.errors import EXIT_OK

HELP = "Remove what a dead kvbench left on a tier, and nothing else. An engine's own blocks are never touched."


def clean(
    tier: Annotated[
        list[str], typer.Option("--tier", metavar="T", help="A directory or s3://bucket/prefix; repeatable.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List it and remove nothing.")] = False,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="AGE",
            help="Also what another host or container left, when it is older, like 12h or 7d: whether that run still "
            "lives cannot be seen from here.",
        ),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Look at each tier, remove, and say what stays and why."""
    from dataclasses import asdict

    from kvbench import console
    from kvbench.tiers.upkeep import clean as clean_tier
    from kvbench.tiers.upkeep import parse_age

    age_s = None if older_than is None else parse_age(older_than)
    found = [clean_tier(target, dry_run=dry_run, older_than_s=age_s) for target in tier]
    if json:
        console.print_json({"dry_run": dry_run, "tiers": [asdict(item) for item in found]})
        return EXIT_OK
    for item in found:
        for place in item.removed:
            console.print_text(f"{'would remove' if dry_run else 'removed'} {place}")
        for place, why in item.kept:
            console.print_text(f"kept {place}: {why}")
        if not item.removed and not item.kept:
            console.print_text(f"{item.tier}: kvbench left nothing here")
    return EXIT_OK
