"""``kvbench blocksize``: what one KV block of each model weighs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from kvbench.errors import EXIT_OK, EXIT_USAGE, ModelConfigError, UsageError

if TYPE_CHECKING:
    from kvbench.layout.sized import SizedModel

HELP = "Size models' KV caches: per token, per block on a rank and on the server, and per context."


def blocksize(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL",
            help="A shipped profile (see 'kvbench models'), a config.json or its folder, or a Hub id. "
            "Without any: gpt-oss-120b, Qwen3-8B, Llama-3.1-70B.",
        ),
    ] = None,
    tp: Annotated[int, typer.Option("--tp", min=1, help="Tensor-parallel ranks of the server.")] = 1,
    pp: Annotated[int, typer.Option("--pp", min=1, help="Pipeline stages of the server.")] = 1,
    dcp: Annotated[int, typer.Option("--dcp", min=1, help="Decode-context-parallel ranks within TP.")] = 1,
    kv_dtype: Annotated[
        str, typer.Option("--kv-dtype", help="KV cache dtype: bfloat16, fp8, ...; auto follows the engine's rule.")
    ] = "auto",
    block_tokens: Annotated[int, typer.Option("--block-tokens", min=1, help="Tokens of one logical KV block.")] = 16,
    connector: Annotated[
        str | None, typer.Option("--connector", help="Show what this connector stores; --json without it shows all.")
    ] = None,
    contexts: Annotated[
        str | None, typer.Option("--context", metavar="N,...", help="Also size requests of so many tokens: 8k,128k.")
    ] = None,
    fit: Annotated[
        str | None, typer.Option("--fit", metavar="SIZE,...", help="How many such contexts fit: 80GiB,7TB.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Print the derivation and the config keys used.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> int:
    """Size each model and print; a refused one does not stop the others, and the exit code is then 2."""
    from kvbench import console
    from kvbench.layout.view import sizes_json
    from kvbench.models import DEFAULT_MODELS
    from kvbench.units import parse_size, parse_tokens, split_list

    tokens = [parse_tokens(item) for item in split_list(contexts or "")]
    spaces = [parse_size(item) for item in split_list(fit or "")]
    if spaces and not tokens:
        raise UsageError("--fit needs --context: say how long the contexts are that should fit.")
    sized, refused = _size_all(
        models or DEFAULT_MODELS, tp=tp, pp=pp, kv_dtype=kv_dtype, block_tokens=block_tokens, dcp=dcp
    )
    if json:
        rows = [{**sizes_json(one, tokens, spaces), **_stored_json(one, connector)} for one in sized]
        console.print_json({"models": rows, "refused": [{"model": name, "reason": why} for name, why in refused]})
    elif sized:
        _show(sized, tokens, spaces, connector, explain)
    for name, reason in refused:
        console.note(f"kvbench: {name} refused: {reason}")
    return EXIT_USAGE if refused else EXIT_OK


def _size_all(
    models: Sequence[str], *, tp: int, pp: int, kv_dtype: str, block_tokens: int, dcp: int
) -> tuple[list[SizedModel], list[tuple[str, str]]]:
    from kvbench.models import size_model

    sized, refused = [], []
    for name in models:
        try:
            sized.append(size_model(name, tp=tp, pp=pp, kv_dtype=kv_dtype, block_tokens=block_tokens, dcp=dcp))
        except ModelConfigError as error:
            refused.append((name, str(error)))
    return sized, refused


def _stored_json(sized: SizedModel, connector: str | None) -> dict[str, object]:
    from kvbench.connectors import CONNECTORS, stored_layout

    names = [connector] if connector is not None else list(CONNECTORS)
    found = [stored_layout(sized, name) for name in names] if sized.server_block_bytes else []
    return {
        "engine_block_tokens": None,
        "connectors": [
            {
                "name": stored.connector,
                "engine_version": stored.engine_version,
                "stored_bytes_per_block": stored.stored_bytes_per_block,
                "parallelism_per_request": stored.parallelism_per_request,
                "groups": [
                    {**asdict(group), "aligned_512": group.aligned_512, "aligned_4096": group.aligned_4096}
                    for group in stored.groups
                ],
            }
            for stored in found
        ],
    }


def _show(
    sized: Sequence[SizedModel], tokens: Sequence[int], spaces: Sequence[int], connector: str | None, explaining: bool
) -> None:
    from kvbench import console
    from kvbench.layout.view import contexts_table, sizes_table

    tables = [] if explaining else [sizes_table(sized)]
    tables += [_stored_table(sized, connector)] if connector is not None else []
    tables += [contexts_table(sized, tokens, spaces)] if tokens else []
    if explaining:
        from kvbench.layout.explain import explain

        console.print_text("\n\n".join("\n".join(explain(one)) for one in sized) + "\n")
    words = ("model", "layers", "KV dtype")
    for title, columns, rows in tables:
        numbers = [index for index, column in enumerate(columns) if column not in words]
        console.print_aligned(title, columns, rows, right=numbers)
    notes = [] if explaining else [f"{one.model}: {warning}." for one in sized for warning in one.warnings]
    if notes:
        console.print_text("\n".join(notes))


def _stored_table(sized: Sequence[SizedModel], connector: str) -> tuple[str, list[str], list[list[str]]]:
    from kvbench.connectors import stored_layout
    from kvbench.units import format_bytes, format_count

    rows = []
    for one in sized:
        stored = stored_layout(one, connector) if one.server_block_bytes else None
        for group in stored.groups if stored is not None else ():
            aligned = "4096" if group.aligned_4096 else "512" if group.aligned_512 else "no"
            size = group.padded_bytes
            cells = (format_count(group.tokens_per_unit), format_count(size), format_bytes(size), aligned)
            rows.append([one.model, f"{group.layers} {group.kind}", *cells])
    return f"Stored by connector {connector}", ["model", "layers", "tokens/unit", "unit B", "", "O_DIRECT"], rows
