"""``kvbench import``: fio results made elsewhere become a run directory, judged by the same checks."""

from __future__ import annotations

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
    from kvbench.run import rundir

    named = _distinct([_named(text) for text in files])
    limits = parse_limits(limit, [name for name, _ in named])
    read = [(name, path, _read(name, path, limits.get(name))) for name, path in named]
    points = [point for _, _, (_, imported) in read for point in imported]
    uses = _measured_uses(
        uses_for(model, tp, kv_dtype, block_tokens, connector or "logical", engine_version=engine_version),
        points,
        asked=bool(model),
    )
    run_dir = rundir.fresh(output, [name for name, _ in named])
    raw = {f"{name}.json": documents for name, _, (documents, _) in read}
    result = rundir.save_imported(run_dir, raw, points, uses, parse_labels(label))
    console.note(f"run directory: {run_dir}")
    show_run(result, run_dir, as_json=json)
    return exit_code(result, strict=strict)


def _named(text: str) -> tuple[str, Path]:
    name, separator, path = text.partition("=")
    if separator and path and "/" not in name:
        return name, Path(path)
    return Path(text).stem, Path(text)


def _distinct(named: list[tuple[str, Path]]) -> list[tuple[str, Path]]:
    from kvbench.errors import UsageError
    from kvbench.run.plan import slug

    names = [slug(name) for name, _ in named]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"two files are called {twice!r}; give each a name: a=FILE b=FILE.")
    return named


def _read(name: str, path: Path, limit: int | None) -> tuple[list[object], list[Observation]]:
    """The documents of a file without their secrets, and its points."""
    from kvbench.errors import InputFileError
    from kvbench.formats.fio import read as fio
    from kvbench.formats.fio.importer import imported_points
    from kvbench.tiers.limits import Limit

    try:
        text = fio.decode(path.read_bytes())
    except OSError as error:
        raise InputFileError(f"{path} cannot be read ({error.strerror}); name a file with fio's JSON output.") from None
    asked = None if limit is None else Limit(limit, "--limit", asked=True)
    points = imported_points(fio.parse_all(text, str(path)), name, path.name, asked)
    return [fio.redact_json(document) for document in fio.documents(text)], points


def _measured_uses(uses: tuple[Use, ...], points: list[Observation], *, asked: bool) -> tuple[Use, ...]:
    """The uses whose I/O size the files measured; what is missing is said, and is an error when it was asked for."""
    from kvbench import console
    from kvbench.errors import UsageError
    from kvbench.units import format_count

    sizes = {imported.point.io_bytes for imported in points}
    missing = [use for use in uses if use.io_bytes not in sizes]
    text = "; ".join(f"{use.model} makes I/O of {format_count(use.io_bytes)} bytes" for use in missing)
    measured = ", ".join(format_count(size) for size in sorted(sizes))
    if missing and asked:
        raise UsageError(f"{text}, and the files measured {measured} bytes; name another --model or --tp.")
    if missing:
        console.note(f"left out: {text} (the files measured {measured} bytes)")
    return tuple(use for use in uses if use.io_bytes in sizes)
