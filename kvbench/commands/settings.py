"""``kvbench settings``: the engine's --kv-transfer-config, written for a model and its tiers, or checked in a file."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from kvbench import console
from kvbench.commands.groups import parsed
from kvbench.commands.options import EngineVersionOption, GpuArchOption, JsonOption, KvDtypeOption
from kvbench.commands.prefill_options import TargetOption
from kvbench.decide.crossover import DEFAULT_TARGET_TOKENS
from kvbench.decide.runs import load_runs
from kvbench.engines.vllm.releases import find_release
from kvbench.errors import EXIT_OK, InputFileError, UsageError
from kvbench.layout.models import size_model
from kvbench.record import results
from kvbench.report import memory
from kvbench.settings import view
from kvbench.settings.checking import check as check_found
from kvbench.settings.fitting import Deployed
from kvbench.settings.forms import FORMS
from kvbench.settings.measured import numbers_of
from kvbench.settings.places import Place, parse_place
from kvbench.settings.reading import FoundSettings, read_file, read_text
from kvbench.settings.values import whole_of
from kvbench.settings.writing import ENGINES, Asked, Numbers, write
from kvbench.units import parse_size

_STDIN = "-"


def _parse_tier(text: str) -> Place:
    return parse_place(text, os.environ, Path.home())


def _parse_engine(text: str) -> str:
    if text not in ENGINES:
        raise UsageError(f"--engine {text!r}: choose from {', '.join(ENGINES)}.")
    return text


def _parse_form(text: str) -> str:
    if text not in FORMS:
        raise UsageError(f"--form {text!r}: choose from {', '.join(FORMS)}.")
    return text


@dataclass(frozen=True, slots=True)
class ServedOptions:
    """Which model is served how."""

    panel: ClassVar[str] = "The server"

    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]",
            help="A shipped profile, a config.json or its folder, or a Hub id. With --check: also look for what "
            "contradicts its layout.",
        ),
    ] = None
    tp: Annotated[int | None, typer.Option("--tp", min=1, help="Tensor-parallel ranks of the server.")] = None
    pp: Annotated[int | None, typer.Option("--pp", min=1, help="Pipeline stages of the server.")] = None
    kv_dtype: KvDtypeOption = "auto"
    engine_version: EngineVersionOption = None
    gpu_arch: GpuArchOption = "sm90"
    target_context: TargetOption = DEFAULT_TARGET_TOKENS
    concurrent_restores: Annotated[
        int, typer.Option("--concurrent-restores", min=1, help="Requests that are restored at once.")
    ] = 1

    def deployed(self, tp: int, pp: int) -> Deployed:
        """The model as the engine serves it; raises for one that cannot be sized."""
        assert self.model is not None
        return Deployed(
            size_model(self.model, tp=tp, pp=pp, kv_dtype=self.kv_dtype),
            find_release(self.engine_version),
            self.gpu_arch,
            self.target_context,
            self.concurrent_restores,
        )


@dataclass(frozen=True, slots=True)
class WritingOptions:
    """What the configuration that is written has in it."""

    panel: ClassVar[str] = "Writing"

    tier: Annotated[
        list[Place] | None,
        parsed(
            _parse_tier,
            "--tier",
            metavar="fs=DIR|s3://BUCKET/PREFIX|p2p=HOST:PORT",
            help="A tier below host memory, in the order of lookup; repeatable.",
        ),
    ] = None
    cpu: Annotated[
        int | None,
        parsed(parse_size, "--cpu", metavar="SIZE", help="Host memory of the whole server, like 64GiB."),
    ] = None
    disk: Annotated[
        int | None,
        parsed(parse_size, "--disk", metavar="SIZE", help="With --engine lmcache: how much of the disk it may use."),
    ] = None
    engine: Annotated[
        str,
        parsed(_parse_engine, "--engine", metavar="|".join(ENGINES), help="Whose connector to write for."),
    ] = "vllm"
    run: Annotated[
        Path | None,
        typer.Option(
            "--run", metavar="RUN_DIR", help="Take chunk, threads and host memory from what this run measured."
        ),
    ] = None
    huge_pages: Annotated[
        Path | None,
        typer.Option(
            "--huge-pages",
            metavar="RUN_DIR",
            help="The run of --run again with --buffers huge: say what to set where huge pages pay.",
        ),
    ] = None
    form: Annotated[
        str | None,
        parsed(_parse_form, "--form", metavar="|".join(FORMS), help="Print one form alone.", show_default="all"),
    ] = None

    def asked(self, served: ServedOptions) -> Asked:
        """What to write for the model; raises for a run that does not fit it."""
        deployed = served.deployed(served.tp or 1, served.pp or 1)
        places = tuple(self.tier or ())
        numbers = Numbers()
        if self.run is not None:
            run_dir, result = results.open_run(self.run)
            numbers = numbers_of(run_dir, result, self.engine, deployed, places)
        if self.huge_pages is not None:
            numbers = replace(numbers, notes=(*numbers.notes, *self._memory_notes(self.huge_pages)))
        return Asked(deployed, places, self.cpu, self.disk, numbers)

    def _memory_notes(self, huge: Path) -> tuple[str, ...]:
        """What huge pages brought to the run, and how to have them where they did; raises where nothing compares."""
        if self.run is None or self.engine != "vllm":
            raise UsageError("--huge-pages is held against --run RUN_DIR, for vLLM's CPU tier; give both runs.")
        found = memory.advice(load_runs([self.run, huge]))
        if not found:
            raise UsageError(
                f"{self.run} and {huge} have no reads to compare: the same tier, driver and size on one machine, with "
                "--buffers engine and --buffers huge; measure the second with 'kvbench fio ... --buffers huge'."
            )
        return tuple(text.rstrip(".") for one in found for text in (*one.words, *one.choice))


def settings(
    *,
    served: ServedOptions,
    writing: WritingOptions,
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
    if check is not None:
        for name in ("tier", "cpu", "disk", "run", "huge_pages", "form"):
            if getattr(writing, name) is not None:
                option = name.replace("_", "-")
                raise UsageError(f"--{option} writes a configuration, --check reads one; use one of them.")
        return _check(check, served, strict=strict, as_json=json)
    if strict:
        raise UsageError("--strict is for --check; leave it out.")
    if writing.form is not None and json:
        raise UsageError("--form and --json both say what to print; use one of them.")
    return _write(served, writing, as_json=json)


def _write(served: ServedOptions, writing: WritingOptions, *, as_json: bool) -> int:
    if served.model is None:
        raise UsageError("name the MODEL to write for, or --check FILE.")
    if writing.engine != "vllm" and served.engine_version is not None:
        raise UsageError(f"--engine-version is a release of vLLM; leave it out with --engine {writing.engine}.")
    asked = writing.asked(served)
    written = write(writing.engine, asked)
    sized = asked.deployed.sized
    if as_json:
        console.print_json(view.written_json(written, sized.model, sized.tp))
    else:
        console.print_text(view.written_text(written, sized.model, writing.form))
    return EXIT_OK


def _check(file: Path, served: ServedOptions, *, strict: bool, as_json: bool) -> int:
    release = find_release(served.engine_version)
    found = _read(file)
    held = [(item, None if served.model is None else served.deployed(*_parallel(item, served))) for item in found]
    results = tuple((item, check_found(item, release, deployed)) for item, deployed in held)
    model = next((deployed.sized.model for _, deployed in held if deployed is not None), None)
    checked = view.Checked(str(file), release.version, model, results)
    if as_json:
        console.print_json(view.checked_json(checked))
    else:
        console.print_text("\n".join(view.checked_lines(checked)))
    return checked.exit_code(strict=strict)


def _read(file: Path) -> list[FoundSettings]:
    if str(file) != _STDIN:
        return read_file(file)
    try:
        return read_text(sys.stdin.read(), "standard input")
    except UnicodeDecodeError:
        raise InputFileError("standard input is not UTF-8 text; pipe a JSON, YAML or text file.") from None


def _parallel(found: FoundSettings, served: ServedOptions) -> tuple[int, int]:
    """TP and PP: as typed, else those of the command line that was found, else 1."""
    of_command = (whole_of(found.options.get(name)) for name in ("tensor-parallel-size", "pipeline-parallel-size"))
    tp, pp = (max(1, size or 1) for size in of_command)
    return served.tp or tp, served.pp or pp
