"""``kvbench compare``: serving runs of several configurations, and whether they differ by more than noise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from kvbench import console
from kvbench.commands.options import JsonOption
from kvbench.errors import EXIT_OK, EXIT_USAGE, UsageError
from kvbench.report.tables.serving import pools, problems, served, servers
from kvbench.serving.comparing import compare as compare_all
from kvbench.serving.comparing import to_json
from kvbench.serving.loading import load
from kvbench.units import is_one_line


class NamedPath(NamedTuple):
    """``NAME=PATH``: a run of a configuration, or a folder of runs."""

    name: str
    path: Path


def _parse_path(text: str) -> NamedPath:
    name, separator, path = text.partition("=")
    if not separator or not name or not path or not is_one_line(name):
        raise UsageError(f"{text!r}: write NAME=PATH, the name of a configuration and a result of its serving runs.")
    return NamedPath(name, Path(path))


def compare(
    *,
    configurations: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=PATH...",
            help="A configuration and its runs: a result file of AIPerf, GuideLLM, vLLM bench serve, SGLang, "
            "inference-perf or llm-d, or a folder of them. A name given again adds repeats.",
        ),
    ],
    control: Annotated[
        str | None,
        typer.Option("--control", metavar="NAME", help="What the others are compared with.", show_default="the first"),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Load, compare, print; 2 when anything was refused."""
    by_name: dict[str, list[Path]] = {}
    for one in map(_parse_path, configurations):
        by_name.setdefault(one.name, []).append(one.path)
    base = control or next(iter(by_name))
    if base not in by_name:
        raise UsageError(f"--control {base}: no configuration is called so; choose from {', '.join(by_name)}.")
    if len(by_name) < 2:
        raise UsageError("one configuration has nothing to be compared with; name a second one, like cpu=runs/cpu.")
    loaded = [load(name, paths) for name, paths in by_name.items()]
    for note in dict.fromkeys(note for one in loaded for note in one.notes):
        console.note(note)
    found = compare_all([one.configuration for one in loaded], base)
    if json:
        console.print_json(to_json(found))
    else:
        more = [sheet for sheet in (servers(found), pools(found)) if sheet.rows]
        console.print_sheets([served(found), *more, problems(found)])
    return EXIT_USAGE if any(one.problem.refuses for one in found.problems) else EXIT_OK
