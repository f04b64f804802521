"""``kvbench doctor``: what works here, and the next step for what does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kvbench.commands.options import JsonOption, parse_tier
from kvbench.errors import EXIT_OK, EXIT_USAGE

if TYPE_CHECKING:
    from kvbench.tiers.findings import Finding

HELP = "Say what works here: this host, and what each tier is and can do. Exit 2 when something must be mended first."


def doctor(
    tier: Annotated[
        list[str] | None,
        typer.Option("--tier", metavar="[NAME=]T", help="A directory, block device, s3://bucket/prefix; repeatable."),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Examine the host, then each tier, and print the findings."""
    from dataclasses import asdict

    from kvbench import console
    from kvbench.run.doctor import examine_host, examine_tier, is_sound

    host = examine_host()
    tiers = [examine_tier(name, target) for name, target in map(parse_tier, tier or [])]
    if json:
        data = {"host": [asdict(finding) for finding in host], "tiers": [asdict(item) for item in tiers]}
        console.print_json(data)
    else:
        _show("this host", host)
        for item in tiers:
            _show(f"{item.name}: {item.kind}", list(item.findings))
    found = [*host, *(finding for item in tiers for finding in item.findings)]
    return EXIT_OK if is_sound(found) else EXIT_USAGE


def _show(title: str, findings: list[Finding]) -> None:
    from kvbench import console

    rows = [(item.check, item.status, item.observed) for item in findings]
    console.print_table(title, ("check", "", "found"), rows)
    for item in findings:
        if item.next_step:
            console.print_line(f"  {item.check}: {item.next_step}")
