"""``kvbench import``: fio results made elsewhere become a run directory, judged by the same checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from kvbench import console
from kvbench.border import bounded
from kvbench.commands.fio import exit_code, show_run
from kvbench.commands.options import (
    JsonOption,
    LabelOption,
    LimitOption,
    RunDirOption,
    StrictOptions,
    limits_by_tier,
)
from kvbench.commands.planning import ModelOptions
from kvbench.connectors import logical
from kvbench.errors import InputFileError, UsageError
from kvbench.formats.fio import read as fio
from kvbench.formats.fio.importer import imported_points
from kvbench.record.point import slug
from kvbench.record.results import Observation, Use
from kvbench.report.summary import write_summary
from kvbench.run import rundir
from kvbench.tiers.limits import Limit
from kvbench.units import format_count

_NAMED_SIZES = 8


class NamedFile(NamedTuple):
    """A file as ``[NAME=]FILE`` names it."""

    name: str
    path: Path


def _named(text: str) -> NamedFile:
    name, separator, path = text.partition("=")
    if separator and path and "/" not in name:
        return NamedFile(name, Path(path))
    return NamedFile(Path(text).stem, Path(text))


def import_(
    *,
    files: Annotated[
        list[NamedFile],
        typer.Argument(metavar="[NAME=]FILE...", parser=_named, help="fio --output-format=json+ or json output."),
    ],
    models: ModelOptions,
    label: LabelOption = None,
    limit: LimitOption = None,
    strict: StrictOptions,
    output: RunDirOption = None,
    json: JsonOption = False,
) -> int:
    """Read, judge, write."""
    named = _distinct(files)
    names = [name for name, _ in named]
    limits = limits_by_tier(limit, names)
    uses = models.uses(logical.NAME)
    with rundir.importing(output, names) as imported:
        for name, path in named:
            imported.add(name, *_read(name, path, limits.get(name)))
        measured = _measured_uses(uses, imported.io_bytes, asked=bool(models.model))
        result = imported.finish(measured, dict(label or ()))
        write_summary(imported.path)
    console.note(f"run directory: {imported.path}")
    show_run(result, imported.path, as_json=json)
    return exit_code(result, strict)


def _distinct(named: list[NamedFile]) -> list[NamedFile]:
    names = Counter(slug(name) for name, _ in named)
    twice = next((name for name, count in names.items() if count > 1), None)
    if twice is not None:
        raise UsageError(f"two files are called {twice!r}; give each a name: a=FILE b=FILE.")
    return named


def _read(name: str, path: Path, limit: int | None) -> tuple[Sequence[object], list[Observation]]:
    """The documents of a file without their secrets, and its points."""
    try:
        text = fio.decode(bounded.read_bytes(path))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputFileError(f"{path} cannot be read ({reason}); name a file with fio's JSON output.") from None
    asked = None if limit is None else Limit(limit, "--limit", asked=True)
    found = fio.read(text, str(path))
    return found.documents, imported_points(found.outputs, name, path.name, asked)


def _measured_uses(uses: tuple[Use, ...], sizes: AbstractSet[int], *, asked: bool) -> tuple[Use, ...]:
    """The uses whose I/O size the files measured; what is missing is said, and is an error when it was asked for."""
    missing = [use for use in uses if use.io_bytes not in sizes]
    text = "; ".join(f"{use.model} makes I/O of {format_count(use.io_bytes)} bytes" for use in missing)
    measured = ", ".join(format_count(size) for size in sorted(sizes)[:_NAMED_SIZES])
    measured += f" and {len(sizes) - _NAMED_SIZES} more" if len(sizes) > _NAMED_SIZES else ""
    if missing and asked:
        raise UsageError(f"{text}, and the files measured {measured} bytes; name another --model or --tp.")
    if missing:
        console.note(f"left out: {text} (the files measured {measured} bytes)")
    return tuple(use for use in uses if use.io_bytes in sizes)
