"""``kvbench blocksize``: what one KV block of each model weighs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from kvbench.errors import EXIT_OK, EXIT_USAGE, ModelConfigError, UsageError

if TYPE_CHECKING:
    from kvbench.connectors import Stored
    from kvbench.layout.sized import SizedModel


@dataclass(frozen=True, slots=True)
class Asked:
    """The connector and engine to show units for; ``connector`` is None where only the sizes were asked for."""

    connector: str | None
    engine_version: str | None
    gpu_arch: str
    prefix_caching: bool
    hybrid_manager: bool

    def stored(self, sized: SizedModel, connector: str) -> Stored:
        """What a connector stores for a model; raises what ``stored_layout`` raises."""
        from kvbench.connectors import stored_layout

        return stored_layout(
            sized,
            connector,
            engine_version=self.engine_version,
            gpu_arch=self.gpu_arch,
            prefix_caching=self.prefix_caching,
            hybrid_manager=self.hybrid_manager,
        )


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
    engine_version: Annotated[
        str | None,
        typer.Option("--engine-version", metavar="V", help="vLLM release, like 0.24. [default: the newest known]"),
    ] = None,
    gpu_arch: Annotated[
        str, typer.Option("--gpu-arch", help="GPU that the engine chooses its kernels for: sm90 or sm100.")
    ] = "sm90",
    prefix_caching: Annotated[
        bool,
        typer.Option(
            "--enable-prefix-caching/--no-enable-prefix-caching", help="The engine's option, which hybrids need."
        ),
    ] = True,
    no_hybrid_manager: Annotated[
        bool, typer.Option("--disable-hybrid-kv-cache-manager", help="The engine's option of that name.")
    ] = False,
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
    from kvbench.layout.models import DEFAULT_MODELS
    from kvbench.layout.view import sizes_json
    from kvbench.units import parse_size, parse_tokens, split_list

    tokens = [parse_tokens(item) for item in split_list(contexts or "")]
    spaces = [parse_size(item) for item in split_list(fit or "")]
    if spaces and not tokens:
        raise UsageError("--fit needs --context: say how long the contexts are that should fit.")
    if (engine_version, gpu_arch) != (None, "sm90"):
        _check_engine(engine_version, gpu_arch)
    asked = Asked(connector, engine_version, gpu_arch, prefix_caching, not no_hybrid_manager)
    sized, refused = _size_all(
        models or DEFAULT_MODELS, tp=tp, pp=pp, kv_dtype=kv_dtype, block_tokens=block_tokens, dcp=dcp
    )
    sized, stored, without = _store_all(sized, asked)
    refused += without
    if json:
        rows = [{**sizes_json(one, tokens, spaces), **_stored_json(one, asked, tokens)} for one in sized]
        console.print_json({"models": rows, "refused": [{"model": name, "reason": why} for name, why in refused]})
    elif sized:
        _show(sized, stored, tokens, spaces, asked, explain)
    for name, reason in refused:
        console.note(f"kvbench: {name} refused: {reason}")
    return EXIT_USAGE if refused else EXIT_OK


def _check_engine(version: str | None, gpu_arch: str) -> None:
    """Refuse an unknown engine at once, even where no connector is shown."""
    from kvbench.engines.vllm.blocks import parse_gpu_arch
    from kvbench.engines.vllm.releases import find_release

    find_release(version)
    parse_gpu_arch(gpu_arch)


def _size_all(
    models: Sequence[str], *, tp: int, pp: int, kv_dtype: str, block_tokens: int, dcp: int
) -> tuple[list[SizedModel], list[tuple[str, str]]]:
    from kvbench.layout.models import size_model

    sized, refused = [], []
    for name in models:
        try:
            sized.append(size_model(name, tp=tp, pp=pp, kv_dtype=kv_dtype, block_tokens=block_tokens, dcp=dcp))
        except ModelConfigError as error:
            refused.append((name, str(error)))
    return sized, refused


def _store_all(
    sized: list[SizedModel], asked: Asked
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


def _stored_json(sized: SizedModel, asked: Asked, tokens: Sequence[int]) -> dict[str, object]:
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
    asked: Asked,
    explaining: bool,
) -> None:
    from kvbench import console
    from kvbench.layout.view import contexts_table, sizes_table

    tables = [] if explaining else [sizes_table(sized)]
    if asked.connector is not None:
        from kvbench.connectors.view import stored_table, transfers_table

        tables += [stored_table(stored, asked.connector)]
        tables += [transfers_table(stored, tokens)] if tokens else []
    tables += [contexts_table(sized, tokens, spaces)] if tokens else []
    if explaining:
        from kvbench.layout.explain import explain

        console.print_text("\n\n".join("\n".join(explain(one)) for one in sized) + "\n")
    words = ("model", "layers", "KV dtype")
    for title, columns, rows in tables:
        numbers = [index for index, column in enumerate(columns) if column not in words]
        console.print_aligned(title, columns, rows, right=numbers)
    notes = [] if explaining else [f"{one.model}: {warning}." for one in sized for warning in one.warnings]
    if asked.connector is not None:
        from kvbench.connectors.view import notes as connector_notes

        notes += connector_notes(stored)
    for note in notes:
        console.print_line(note)
