"""``kvbench settings``: the engine's --kv-transfer-config, written for a model and its tiers, or checked in a file."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvbench.commands.options import GpuArchOption, JsonOption, KvDtypeOption
from kvbench.commands.prefill_options import TargetOption
from kvbench.errors import EXIT_OK, InputFileError, UsageError

if TYPE_CHECKING:
    from kvbench.settings.fitting import Deployed
    from kvbench.settings.reading import Found
    from kvbench.settings.writing import Asked

HELP = "Write the engine's --kv-transfer-config for a model and its tiers, or check one that exists."

_STDIN = "-"


@dataclass(frozen=True, slots=True)
class _Typed:
    """The options that say which model is served how, as typed."""

    model: str | None
    tp: int | None
    pp: int | None
    kv_dtype: str
    engine_version: str | None
    gpu_arch: str
    target_context: str
    restores: int

    def deployed(self, tp: int, pp: int) -> Deployed:
        """The model as the engine serves it; raises for one that cannot be sized."""
        from kvbench.engines.vllm.blocks import parse_gpu_arch
        from kvbench.engines.vllm.releases import find_release
        from kvbench.layout.models import size_model
        from kvbench.settings.fitting import Deployed
        from kvbench.units import parse_tokens

        assert self.model is not None
        return Deployed(
            size_model(self.model, tp=tp, pp=pp, kv_dtype=self.kv_dtype),
            find_release(self.engine_version),
            parse_gpu_arch(self.gpu_arch),
            parse_tokens(self.target_context),
            self.restores,
        )


def settings(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]",
            help="A shipped profile, a config.json or its folder, or a Hub id. With --check: also look for what "
            "contradicts its layout.",
        ),
    ] = None,
    tier: Annotated[
        list[str] | None,
        typer.Option(
            "--tier",
            metavar="fs=DIR|s3://BUCKET/PREFIX|p2p=HOST:PORT",
            help="A tier below host memory, in the order of lookup; repeatable.",
        ),
    ] = None,
    cpu: Annotated[
        str | None, typer.Option("--cpu", metavar="SIZE", help="Host memory of the whole server, like 64GiB.")
    ] = None,
    disk: Annotated[
        str | None,
        typer.Option("--disk", metavar="SIZE", help="With --engine lmcache: how much of the disk it may use."),
    ] = None,
    engine: Annotated[
        str, typer.Option("--engine", help="Whose connector to write for: vllm, lmcache or llm-d.")
    ] = "vllm",
    engine_version: Annotated[
        str | None,
        typer.Option("--engine-version", metavar="V", help="vLLM release, like 0.24. [default: the newest known]"),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            "--run", metavar="RUN_DIR", help="Take chunk, threads and host memory from what this run measured."
        ),
    ] = None,
    tp: Annotated[int | None, typer.Option("--tp", min=1, help="Tensor-parallel ranks of the server.")] = None,
    pp: Annotated[int | None, typer.Option("--pp", min=1, help="Pipeline stages of the server.")] = None,
    kv_dtype: KvDtypeOption = "auto",
    gpu_arch: GpuArchOption = "sm90",
    target_context: TargetOption = "32k",
    concurrent_restores: Annotated[
        int, typer.Option("--concurrent-restores", min=1, help="Requests that are restored at once.")
    ] = 1,
    form: Annotated[str | None, typer.Option("--form", help="Print one form alone: shell, json or kubernetes.")] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            "--check",
            metavar="FILE",
            help="Check the configuration in this file: JSON, YAML, a command line, a Kubernetes manifest; - is stdin.",
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="With --check: exit 3 when there is a warning.")] = False,
    json: JsonOption = False,
) -> int:
    """Write or check, and print."""
    typed = _Typed(model, tp, pp, kv_dtype, engine_version, gpu_arch, target_context, concurrent_restores)
    if check is not None:
        for name, value in (("--tier", tier), ("--cpu", cpu), ("--disk", disk), ("--run", run), ("--form", form)):
            if value:
                raise UsageError(f"{name} writes a configuration, --check reads one; use one of them.")
        return _check(check, typed, strict=strict, as_json=json)
    if strict:
        raise UsageError("--strict is for --check; leave it out.")
    if form is not None and json:
        raise UsageError("--form and --json both say what to print; use one of them.")
    return _write(typed, engine, tier or [], (cpu, disk), run, form, as_json=json)


def _write(
    typed: _Typed,
    engine: str,
    tiers: list[str],
    sizes: tuple[str | None, str | None],
    run: Path | None,
    form: str | None,
    *,
    as_json: bool,
) -> int:
    from kvbench import console
    from kvbench.settings import view
    from kvbench.settings.forms import FORMS
    from kvbench.settings.writing import ENGINES, write

    if typed.model is None:
        raise UsageError("name the MODEL to write for, or --check FILE.")
    if form is not None and form not in FORMS:
        raise UsageError(f"--form {form!r}: choose from {', '.join(FORMS)}.")
    if engine not in ENGINES:
        raise UsageError(f"--engine {engine!r}: choose from {', '.join(ENGINES)}.")
    if engine != "vllm" and typed.engine_version is not None:
        raise UsageError(f"--engine-version is a release of vLLM; leave it out with --engine {engine}.")
    written = write(engine, _asked(typed, engine, tiers, sizes, run))
    sized = typed.deployed(typed.tp or 1, typed.pp or 1).sized
    if as_json:
        console.print_json(view.written_json(written, sized.model, sized.tp))
    else:
        console.print_text(view.written_text(written, sized.model, form))
    return EXIT_OK


def _asked(
    typed: _Typed, engine: str, tiers: list[str], sizes: tuple[str | None, str | None], run: Path | None
) -> Asked:
    from kvbench.record import results
    from kvbench.settings.measured import numbers_of
    from kvbench.settings.places import parse_place
    from kvbench.settings.writing import Asked, Numbers
    from kvbench.units import parse_size

    cpu_bytes, disk_bytes = (None if size is None else parse_size(size) for size in sizes)
    places = tuple(parse_place(text, os.environ, Path.home()) for text in tiers)
    deployed = typed.deployed(typed.tp or 1, typed.pp or 1)
    numbers = Numbers()
    if run is not None:
        run_dir, result = results.open_run(run)
        numbers = numbers_of(run_dir, result, engine, deployed, places)
    return Asked(deployed, places, cpu_bytes, disk_bytes, numbers)


def _check(file: Path, typed: _Typed, *, strict: bool, as_json: bool) -> int:
    from kvbench import console
    from kvbench.engines.vllm.releases import find_release
    from kvbench.settings import view
    from kvbench.settings.checking import check

    release = find_release(typed.engine_version)
    found = _read(file)
    held = [(item, None if typed.model is None else typed.deployed(*_parallel(item, typed))) for item in found]
    results = tuple((item, check(item, release, deployed)) for item, deployed in held)
    model = next((deployed.sized.model for _, deployed in held if deployed is not None), None)
    checked = view.Checked(str(file), release.version, model, results)
    if as_json:
        console.print_json(view.checked_json(checked))
    else:
        console.print_text("\n".join(view.checked_lines(checked)))
    return checked.exit_code(strict=strict)


def _read(file: Path) -> list[Found]:
    from kvbench.settings.reading import read_file, read_text

    if str(file) != _STDIN:
        return read_file(file)
    try:
        return read_text(sys.stdin.read(), "standard input")
    except UnicodeDecodeError:
        raise InputFileError("standard input is not UTF-8 text; pipe a JSON, YAML or text file.") from None


def _parallel(found: Found, typed: _Typed) -> tuple[int, int]:
    """TP and PP: as typed, else those of the command line that was found, else 1."""
    from kvbench.settings.values import whole_of

    of_command = (whole_of(found.options.get(name)) for name in ("tensor-parallel-size", "pipeline-parallel-size"))
    tp, pp = (max(1, size or 1) for size in of_command)
    return typed.tp or tp, typed.pp or pp
