"""``kvbench doctor``: what works here, and the next step for what does not."""

from __future__ import annotations

from dataclasses import asdict

from kvbench import console
from kvbench.commands.options import JsonOption, TiersOption
from kvbench.errors import EXIT_OK, EXIT_USAGE
from kvbench.report.listings.findings import findings
from kvbench.run.doctor import examine_host, examine_tier, is_sound
from kvbench.tiers.findings import Finding


def doctor(*, tier: TiersOption = None, json: JsonOption = False) -> int:
    """Examine the host, then each tier, and print the findings."""
    host = examine_host()
    tiers = [examine_tier(name, target) for name, target in tier or ()]
    if json:
        data = {"host": [asdict(finding) for finding in host], "tiers": [asdict(item) for item in tiers]}
        console.print_json(data)
    else:
        _show("this host", host)
        for item in tiers:
            _show(f"{item.name}: {item.kind}", list(item.findings))
    found = [*host, *(finding for item in tiers for finding in item.findings)]
    return EXIT_OK if is_sound(found) else EXIT_USAGE


def _show(title: str, found: list[Finding]) -> None:
    console.print_sheets([findings(title, found)])
    for item in found:
        if item.next_step:
            console.print_line(f"  {item.check}: {item.next_step}")
