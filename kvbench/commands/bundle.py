"""``kvbench bundle``: one archive of a run for somebody else, without names, places and secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvbench import console
from kvbench.commands.options import JsonOption
from kvbench.errors import UsageError
from kvbench.run.bundle import bundle as bundled

_SUFFIX = ".tar.gz"


def bundle(
    *,
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A run directory.")],
    replace: Annotated[
        list[str] | None,
        typer.Option(
            "--replace", metavar="WORD", help="Replace this word as well, like a customer's name; repeatable."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="The archive.", show_default="kvbench-run.tar.gz"),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Read, replace, pack, and say what was replaced and what was left out."""
    target = Path(f"kvbench-run{_SUFFIX}") if output is None else output
    if target.exists() or target.is_symlink():
        raise UsageError(f"{target} exists; name another -o, or move it away.")
    made = bundled(run_dir, replace or ())
    with target.open("xb") as file:
        file.write(made.content)
    if json:
        console.print_json(
            {"bundle": str(target), "files": made.files, "replaced": made.replaced, "left_out": made.left_out}
        )
        return 0
    replaced = ", ".join(f"{kind} ({count})" for kind, count in made.replaced.items())
    console.print_line(f"{target}: {len(made.files)} files, {len(made.content):,} bytes")
    console.print_line(f"replaced: {replaced or 'nothing'}")
    for name, why in made.left_out.items():
        console.print_line(f"left out {name}: {why}")
    return 0
