"""``kvbench blocksize``: what one KV block of each model weighs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from kvbench import console
from kvbench.commands.groups import parsed
from kvbench.commands.options import (
    BlockTokensOption,
    EngineVersionOption,
    GpuArchOption,
    JsonOption,
    KvDtypeOption,
    TpOption,
    list_of,
)
from kvbench.errors import EXIT_OK, EXIT_USAGE, ModelConfigError, UsageError
from kvbench.layout.models import DEFAULT_MODELS, size_model
from kvbench.layout.sized import SizedModel
from kvbench.layout.view import sizes_json
from kvbench.units import parse_size, parse_tokens

if TYPE_CHECKING:
    from kvbench.connectors import Stored


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How a server splits the cache."""

    panel: ClassVar[str] = "The server"

    tp: TpOption = 1
    pp: Annotated[int, typer.Option("--pp", min=1, help="Pipeline stages of the server.")] = 1
    dcp: Annotated[int, typer.Option("--dcp", min=1, help="Decode-context-parallel ranks within TP.")] = 1
    kv_dtype: KvDtypeOption = "auto"
    block_tokens: BlockTokensOption = 16

    def size(self, model: str) -> SizedModel:
        """The model on this server; raises what ``size_model`` raises."""
        return size_model(
            model,
            tp=self.tp,
            pp=self.pp,
            dcp=self.dcp,
            kv_dtype=self.kv_dtype,
            block_tokens=self.block_tokens,
        )


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """What a connector of which engine stores; ``connector`` is None where only the sizes were asked for."""

    panel: ClassVar[str] = "What reaches storage"

    connector: Annotated[
        str | None,
        typer.Option(
            "--connector",
            metavar="C",
            help="Show what this connector stores, like vllm-fs; --json without it shows all.",
        ),
    ] = None
    engine_version: EngineVersionOption = None
    gpu_arch: GpuArchOption = "sm90"
    prefix_caching: Annotated[
        bool,
        typer.Option(
            "--enable-prefix-caching/--no-enable-prefix-caching", help="The engine's option, which hybrids need."
        ),
    ] = True
    no_hybrid_manager: Annotated[
        bool, typer.Option("--disable-hybrid-kv-cache-manager", help="The engine's option of that name.")
    ] = False

    def stored(self, sized: SizedModel, connector: str) -> Stored:
        """What a connector stores for a model; raises what ``stored_layout`` raises."""
        # Most calls only size, and are quicker without the engine's rules and the connectors.
        from kvbench.connectors import stored_layout

        return stored_layout(
            sized,
            connector,
            engine_version=self.engine_version,
            gpu_arch=self.gpu_arch,
            prefix_caching=self.prefix_caching,
            hybrid_manager=not self.no_hybrid_manager,
        )


def blocksize(
    *,
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL",
            help="A shipped profile (see 'kvbench models'), a config.json or its folder, or a Hub id.",
            show_default="gpt-oss-120b, Qwen3-8B, Llama-3.1-70B",
        ),
    ] = None,
    server: ServerOptions,
    storage: StorageOptions,
    contexts: Annotated[
        tuple[int, ...],
        parsed(
            list_of(parse_tokens),
            "--context",
            metavar="N,...",
            help="Also size requests of so many tokens: 8k,128k.",
            show_default=False,
        ),
    ] = (),
    fit: Annotated[
        tuple[int, ...],
        parsed(
            list_of(parse_size),
            "--fit",
            metavar="SIZE,...",
            help="How many such contexts fit: 80GiB,7TB.",
            show_default=False,
        ),
    ] = (),
    explain: Annotated[bool, typer.Option("--explain", help="Print the derivation and the config keys used.")] = False,
    json: JsonOption = False,
) -> int:
    """Size each model and print; a refused one does not stop the others, and the exit code is then 2."""
    if fit and not contexts:
        raise UsageError("--fit needs --context: say how long the contexts are that should fit.")
    sized, refused = _size_all(models or DEFAULT_MODELS, server)
    sized, stored, without = _store_all(sized, storage)
    refused += without
    if json:
        rows = [{**sizes_json(one, contexts, fit), **_stored_json(one, storage, contexts)} for one in sized]
        console.print_json({"models": rows, "refused": [{"model": name, "reason": why} for name, why in refused]})
    elif sized:
        if explain:
            from kvbench.layout.explain import explain as explanation

            console.print_text("\n\n".join("\n".join(explanation(one)) for one in sized) + "\n")
        _show(sized, stored, contexts, fit, storage.connector, explained=explain)
    for name, reason in refused:
        console.note(f"kvbench: {name} refused: {reason}")
    return EXIT_USAGE if refused else EXIT_OK


def _size_all(models: Sequence[str], server: ServerOptions) -> tuple[list[SizedModel], list[tuple[str, str]]]:
    sized, refused = [], []
    for name in models:
        try:
            sized.append(server.size(name))
        except ModelConfigError as error:
            refused.append((name, str(error)))
    return sized, refused


def _store_all(
    sized: list[SizedModel], asked: StorageOptions
) -> tuple[list[SizedModel], list[tuple[SizedModel, Stored]], list[tuple[str, str]]]:
    """The models without those that the connector refuses, what it stores for each, and the refusals.

    A model that keeps no KV at all is not refused: it just has nothing to show.
    """
    if asked.connector is None:
        return sized, [], []
    kept, stored, refused = [], [], []
    for one in sized:
        try:
            stored.append((one, asked.stored(one, asked.connector)))
        except ModelConfigError as error:
            if one.server_block_bytes:
                refused.append((one.model, str(error)))
                continue
        kept.append(one)
    return kept, stored, refused


def _stored_json(sized: SizedModel, asked: StorageOptions, tokens: Sequence[int]) -> dict[str, object]:
    """What the connector asked for stores, or else every one that can store the model, and why the others cannot."""
    from kvbench.connectors import CONNECTORS
    from kvbench.connectors.view import stored_json

    names = [asked.connector] if asked.connector is not None else list(CONNECTORS) if sized.server_block_bytes else []
    found, refusals = [], []
    for name in names:
        try:
            found.append(asked.stored(sized, name))
        except (ModelConfigError, UsageError) as error:
            refusals.append({"name": name, "reason": str(error)})
    return {
        "engine_block_tokens": next((one.engine_block_tokens for one in found if one.engine_block_tokens), None),
        "connectors": [stored_json(sized, one, tokens) for one in found],
        "connector_refusals": refusals,
    }


def _show(
    sized: Sequence[SizedModel],
    stored: Sequence[tuple[SizedModel, Stored]],
    tokens: Sequence[int],
    spaces: Sequence[int],
    connector: str | None,
    *,
    explained: bool,
) -> None:
    from kvbench.report.listings.sizes import contexts, sizes

    tables = [] if explained else [sizes(sized)]
    if connector is not None:
        from kvbench.report.listings.stored import transfers, units

        tables += [units(stored, connector)]
        tables += [transfers(stored, tokens)] if tokens else []
    tables += [contexts(sized, tokens, spaces)] if tokens else []
    for table in tables:
        console.print_aligned(table)
    notes = [] if explained else [f"{one.model}: {warning}." for one in sized for warning in one.warnings]
    if connector is not None:
        from kvbench.connectors.view import notes as connector_notes

        notes += connector_notes(stored)
    for note in notes:
        console.print_line(note)
