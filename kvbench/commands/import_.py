"""``kvbench import``: fio results made elsewhere become a run directory, judged by the same checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvbench.commands.options import (
    BlockTokensOption,
    ConnectorOption,
    EngineVersionOption,
    JsonOption,
    KvDtypeOption,
    LimitOption,
    ModelOption,
    TpOption,
    parse_labels,
    parse_limits,
)

if TYPE_CHECKING:
    from kvbench.record.results import Observation, Use

_NAMED_SIZES = 8

HELP = "Read fio JSON that was made elsewhere into a run directory and judge it."


def import_(
    files: Annotated[
        list[str], typer.Argument(metavar="[NAME=]FILE...", help="fio --output-format=json+ or json output.")
    ],
    model: ModelOption = None,
    tp: TpOption = 1,
    kv_dtype: KvDtypeOption = "auto",
    block_tokens: BlockTokensOption = 16,
    connector: ConnectorOption = None,
    engine_version: EngineVersionOption = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="K=V", help="Kept in the result; repeatable.")
    ] = None,
    limit: LimitOption = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 3 when any point carries a warning.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Run directory. [default: reports/<UTC time>-<tier>]")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Read, judge, write."""
    from kvbench import console
    from kvbench.commands.fio import exit_code, show_run
    from kvbench.commands.planning import uses_for
    from kvbench.report.summary import write_summary
    from kvbench.run import rundir

    named = _distinct([_named(text) for text in files])
    limits = parse_limits(limit, [name for name, _ in named])
    labels = parse_labels(label)
    uses = uses_for(model, tp, kv_dtype, block_tokens, connector or "logical", engine_version=engine_version)
    with rundir.importing(output, [name for name, _ in named]) as imported:
        for name, path in named:
            imported.add(name, *_read(name, path, limits.get(name)))
        result = imported.finish(_measured_uses(uses, imported.io_bytes, asked=bool(model)), labels)
        write_summary(imported.path)
    console.note(f"run directory: {imported.path}")
    show_run(result, imported.path, as_json=json)
    return exit_code(result, strict=strict)


def _named(text: str) -> tuple[str, Path]:
    name, separator, path = text.partition("=")
    if separator and path and "/" not in name:
        return name, Path(path)
    return Path(text).stem, Path(text)


def _distinct(named: list[tuple[str, Path]]) -> list[tuple[str, Path]]:
    from kvbench.errors import UsageError
    from kvbench.record.point import slug

    names = Counter(slug(name) for name, _ in named)
    twice = next((name for name, count in names.items() if count > 1), None)
    if twice is not None:
        raise UsageError(f"two files are called {twice!r}; give each a name: a=FILE b=FILE.")
    return named


def _read(name: str, path: Path, limit: int | None) -> tuple[Sequence[object], list[Observation]]:
    """The documents of a file without their secrets, and its points."""
    from kvbench.border import bounded
    from kvbench.errors import InputFileError
    from kvbench.formats.fio import read as fio
    from kvbench.formats.fio.importer import imported_points
    from kvbench.tiers.limits import Limit

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
    from kvbench import console
    from kvbench.errors import UsageError
    from kvbench.units import format_count

    missing = [use for use in uses if use.io_bytes not in sizes]
    text = "; ".join(f"{use.model} makes I/O of {format_count(use.io_bytes)} bytes" for use in missing)
    measured = ", ".join(format_count(size) for size in sorted(sizes)[:_NAMED_SIZES])
    measured += f" and {len(sizes) - _NAMED_SIZES} more" if len(sizes) > _NAMED_SIZES else ""
    if missing and asked:
        raise UsageError(f"{text}, and the files measured {measured} bytes; name another --model or --tp.")
    if missing:
        console.note(f"left out: {text} (the files measured {measured} bytes)")
    return tuple(use for use in uses if use.io_bytes in sizes)
